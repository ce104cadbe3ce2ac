//! `predict --validate`: how far predictions are off shapes that no fit has seen.

use super::recorded::Recorded;
use super::{Predict, json};
use crate::calibrate::{Calibration, versioned};
use crate::check::Subject;
use crate::cli::{Failure, print, project};
use crate::core::seed::derive;
use crate::harness::command::Workplace;
use crate::harness::terminal::note;
use crate::predict::{Fitted, Limits, Observation, Validation, with_features};

impl Predict {
    /// Measures other random shapes, or takes what was recorded, and holds the predictions against it.
    pub(super) fn run_validation(&self) -> Result<(), Failure> {
        let mut all: Vec<Validation> = Vec::new();
        let suites = crate::ops::catalogue();
        if self.recorded.is_empty() {
            self.selection.each(&Workplace { project: &project(), suites: &suites }, |selected| {
                let subject = &selected.subject;
                let (calibration, fitted) = self.files(Some(selected.device.fingerprint()))?;
                if fitted.swept(subject).is_none() {
                    return Ok(());
                }
                let unseen = self.measure(selected, derive(self.selection.seed, &["validation"]), || false)?;
                self.hold(&mut all, subject, (&calibration, &fitted), &unseen)
            })?;
        } else {
            let (recorded, (calibration, fitted)) = (Recorded::read(&self.recorded)?, self.files(None)?);
            for (trial, _) in self.selection.select(&suites)? {
                let subject = trial.subject(&suites);
                let unseen = recorded.of(&subject, &self.called, &calibration.device.key());
                if !unseen.is_empty() && fitted.swept(&subject).is_some() {
                    self.hold(&mut all, &subject, (&calibration, &fitted), &unseen)?;
                }
            }
        }
        if all.is_empty() {
            return Err(Failure::Missing(
                "no selected family was fitted and measured: run `kernelgate predict --sweep` first".into(),
            ));
        }
        if self.json {
            return print(&(json(&all)? + "\n"));
        }
        print(&(HEADER.to_owned() + &all.iter().map(|one| row(one) + "\n").collect::<String>()))
    }

    fn hold(
        &self,
        all: &mut Vec<Validation>,
        subject: &Subject<'_>,
        (calibration, fitted): (&Calibration, &Fitted),
        unseen: &[Observation],
    ) -> Result<(), Failure> {
        let limits = Limits::of(calibration).map_err(Failure::Input)?;
        let Some(family) = fitted.family(subject, &limits) else { return Ok(()) };
        let swept = fitted.swept(subject).map(|swept| fitted.cases(subject, swept)).unwrap_or_default();
        match Validation::of(&family, &swept, &limits.gpu.during(|| with_features(subject, unseen)), &limits) {
            Ok(validation) => {
                note(format_args!("{}", row(&validation)));
                all.push(validation);
            }
            Err(why) => note(format_args!("{why}")),
        }
        self.out.as_ref().map_or(Ok(()), |out| versioned::write(out, &all).map_err(Failure::Input))
    }
}

const HEADER: &str = "family                               cases  outside  mean %  median %  P95 %  bias %  covered %   \
                      roofline %  regression %\n";

fn row(v: &Validation) -> String {
    let p = v.predictor;
    format!(
        "{:<36} {:>5} {:>8} {:>7.1} {:>9.1} {:>6.1} {:>7.1} {:>10.0} {:>12.1} {:>13.1}",
        v.family,
        v.cases,
        v.outside,
        p.mean,
        p.median,
        p.p95,
        p.bias,
        100.0 * v.covered,
        v.roofline.mean,
        v.regression.mean
    )
}
