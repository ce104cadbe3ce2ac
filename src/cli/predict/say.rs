//! `predict` as such: what is said of cases, as a table or JSON.

use super::{Predict, json};
use crate::check::Subject;
use crate::check::outcome::Bound;
use crate::cli::{Failure, print};
use crate::core::shape::{Point, describe};
use crate::core::suite::Suite;
use crate::predict::{Family, Features, Limits, Prediction, classify};
use serde::Serialize;
use std::fmt::Write as _;

/// A prediction in JSON.
#[derive(Serialize)]
struct Said {
    trial: String,
    shape: String,
    bound: Option<Bound>,
    #[serde(flatten)]
    prediction: Option<Prediction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outside: Option<String>,
}

impl Predict {
    /// Predicts the selected cases.
    pub(super) fn say(&self) -> Result<(), Failure> {
        let (calibration, fitted) = self.files(None)?;
        let limits = Limits::of(&calibration).map_err(Failure::Input)?;
        let suites: Vec<Suite> = crate::ops::catalogue();
        let mut all = Vec::new();
        for (trial, points) in self.selection.select(&suites)? {
            let subject = trial.subject(&suites);
            let Some(family) = fitted.family(&subject, &limits) else { continue };
            let points: &[Point] = if points.is_empty() { subject.operator.perf_shapes() } else { &points };
            all.extend(points.iter().map(|point| predicted(&trial.name, &subject, point, &family, &limits)));
        }
        if all.is_empty() {
            let known: Vec<String> =
                fitted.families.iter().map(|f| format!("{}::{}::{}", f.operator, f.candidate, f.dtype)).collect();
            return Err(Failure::Input(format!(
                "no selected candidate was fitted on {}; those that were: {}. `kernelgate predict --sweep` fits more",
                fitted.device.name,
                known.join(", ")
            )));
        }
        if self.json {
            return print(&(json(&all)? + "\n"));
        }
        let mut text =
            format!("{} (calibrated {}, swept {})\n", calibration.device.name, calibration.measured, fitted.measured);
        let _ = writeln!(
            text,
            "{:<34} {:<40} {:>10} {:>21} {:>9} {:>9}  bound",
            "candidate", "shape", "µs", "9 of 10", "memory", "pipe"
        );
        for said in &all {
            let name = said.trial.trim_end_matches("::perf");
            let _ = match (&said.prediction, &said.outside) {
                (Some(p), _) => {
                    let interval = format!("{:.2} to {:.2}", p.low_us, p.high_us);
                    let bound = said.bound.map_or("", Bound::name);
                    writeln!(
                        text,
                        "{name:<34} {:<40} {:>10.2} {interval:>21} {:>9.2} {:>9.2}  {bound}",
                        said.shape, p.us, p.memory_us, p.pipe_us
                    )
                }
                (None, why) => writeln!(text, "{name:<34} {:<40} {}", said.shape, why.as_deref().unwrap_or_default()),
            };
        }
        print(&text)
    }
}

fn predicted(trial: &str, subject: &Subject<'_>, point: &[usize], family: &Family, limits: &Limits) -> Said {
    let features = limits.gpu.during(|| Features::of(subject, point));
    let prediction = family.predict(&features);
    Said {
        trial: trial.into(),
        shape: describe(subject.operator.axes(), point),
        bound: prediction.as_ref().ok().map(|prediction| classify(prediction.us, &features, limits).0),
        outside: prediction.as_ref().err().cloned(),
        prediction: prediction.ok(),
    }
}
