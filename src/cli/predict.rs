//! `kernelgate predict`: how long cases take before they are run; the sweep that this is fitted to, and how well it does.

use super::{Failure, print, project};
use crate::calibrate::Calibration;
use crate::check::Subject;
use crate::check::outcome::Bound;
use crate::core::seed::derive;
use crate::core::shape::{Point, describe};
use crate::core::suite::Suite;
use crate::device::fingerprint::Fingerprint;
use crate::device::{Device, DeviceKind};
use crate::harness::command::{Selected, Selection, Workplace};
use crate::harness::devices::{Devices, KernelDevice};
use crate::harness::terminal::note;
use crate::predict::{
    Family, Features, Fitted, Limits, Observation, Prediction, Sweep, Swept, VERSION, Validation, classify, sweep,
    with_features,
};
use clap::Args;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// The device whose files are taken where there is no GPU and none is named.
const SHIPPED: &str = "nvidia-h200-132";

/// Arguments of `predict`.
#[derive(Args)]
pub struct Predict {
    #[command(flatten)]
    selection: Selection,
    /// Predict for this device: the name of its files in snapshots/calibration and snapshots/prediction
    /// [default: the GPU that is here, or nvidia-h200-132]
    #[arg(long, value_name = "KEY")]
    on: Option<String>,
    /// The calibration of the device
    #[arg(long, value_name = "PATH")]
    calibration: Option<PathBuf>,
    /// The fitted families; those of another device carry over by the calibration of this one
    #[arg(long, value_name = "PATH")]
    fit: Option<PathBuf>,
    /// Measure random shapes of each selected family on the device, and fit it
    #[arg(long, conflicts_with = "validate")]
    sweep: bool,
    /// Fit the measured shapes of the file once more: after the model has changed, no device is needed
    #[arg(long, conflicts_with_all = ["sweep", "validate"])]
    refit: bool,
    /// Measure other random shapes, and say how far predictions were off, beside a roofline and a regression
    #[arg(long)]
    validate: bool,
    /// Time for each family of a sweep or validation
    #[arg(long, value_name = "SECONDS", default_value_t = 6.0)]
    seconds: f64,
    /// Shapes of a sweep or validation for each family at the most
    #[arg(long, value_name = "N", default_value_t = 200)]
    cases: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Where the fitted families or the validation go [default of --sweep: target/kernelgate/prediction/<device>.json]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

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
    /// Predicts, sweeps or validates.
    pub fn run(self) -> Result<(), Failure> {
        match (self.sweep, self.validate, self.refit) {
            (true, ..) => self.run_sweep(),
            (_, true, _) => self.run_validation(),
            (.., true) => self.run_refit(),
            _ => self.say(),
        }
    }

    fn say(&self) -> Result<(), Failure> {
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

    fn run_sweep(&self) -> Result<(), Failure> {
        let mut file: Option<(PathBuf, Fitted)> = None;
        self.selection.each(
            &Workplace { project: &project(), suites: &crate::ops::catalogue() },
            |&Selected { trial, ref subject, device, .. }| {
                let fingerprint = device.fingerprint();
                let calibration = self.calibration(Some(fingerprint))?;
                let limits = Limits::of(&calibration).map_err(Failure::Input)?;
                let (out, fitted) = file.get_or_insert_with(|| {
                    let out = self.out.clone().unwrap_or_else(|| project().made("prediction", fingerprint));
                    let kept = Fitted::read(&out).ok().filter(|kept| kept.device.key() == fingerprint.key());
                    (out, kept.unwrap_or_else(|| empty(fingerprint, &calibration)))
                });
                let observations = self.measure(device, subject, derive(self.selection.seed, &["fit"]))?;
                let (operator, candidate, dtype) =
                    (subject.operator.name(), subject.candidate.name.as_str(), subject.dtype);
                match Family::fitted((operator, candidate, dtype), with_features(subject, &observations), &limits) {
                    Ok(family) => {
                        let name = trial.name.trim_end_matches("::perf");
                        note(format_args!("{name}: {} shapes, ± {:.1} %", observations.len(), 100.0 * family.spread));
                        let (operator, candidate, parameters) = (operator.into(), candidate.into(), family.parameters);
                        fitted.keep(Swept { operator, candidate, dtype, parameters, observations });
                        // After each family: what was measured outlives whatever ends this process.
                        fitted.write(out).map_err(Failure::Input)
                    }
                    Err(why) => {
                        note(format_args!("{why}; give it more --seconds"));
                        Ok(())
                    }
                }
            },
        )?;
        match file {
            Some((out, fitted)) if !fitted.families.is_empty() => print(&format!("{}\n", out.display())),
            _ => Err(Failure::Missing("no family was fitted".into())),
        }
    }

    fn run_refit(&self) -> Result<(), Failure> {
        let (calibration, mut fitted) = self.files(None)?;
        let limits = Limits::of(&calibration).map_err(Failure::Input)?;
        let Some(out) = &self.out else {
            return Err(Failure::Input("--refit: say where the file goes by --out".into()));
        };
        let suites: Vec<Suite> = crate::ops::catalogue();
        for (trial, _) in self.selection.select(&suites)? {
            let subject = trial.subject(&suites);
            let (operator, candidate, dtype) =
                (subject.operator.name(), subject.candidate.name.as_str(), subject.dtype);
            let Some(swept) = fitted.swept(&subject).cloned() else { continue };
            let measured = with_features(&subject, &swept.observations);
            let family = Family::fitted((operator, candidate, dtype), measured, &limits).map_err(Failure::Input)?;
            let name = trial.name.trim_end_matches("::perf");
            note(format_args!("{name}: {} shapes, ± {:.1} %", swept.observations.len(), 100.0 * family.spread));
            fitted.keep(Swept { parameters: family.parameters, ..swept });
        }
        fitted.calibrated = calibration.measured;
        fitted.write(out).map_err(Failure::Input)
    }

    fn run_validation(&self) -> Result<(), Failure> {
        let mut all: Vec<Validation> = Vec::new();
        self.selection.each(
            &Workplace { project: &project(), suites: &crate::ops::catalogue() },
            |&Selected { ref subject, device, .. }| {
                let (calibration, fitted) = self.files(Some(device.fingerprint()))?;
                let limits = Limits::of(&calibration).map_err(Failure::Input)?;
                let Some(family) = fitted.family(subject, &limits) else { return Ok(()) };
                let swept =
                    fitted.swept(subject).map(|swept| with_features(subject, &swept.observations)).unwrap_or_default();
                let unseen = self.measure(device, subject, derive(self.selection.seed, &["validation"]))?;
                match Validation::of(&family, &swept, &with_features(subject, &unseen), &limits) {
                    Ok(validation) => {
                        note(format_args!("{}", row(&validation)));
                        all.push(validation);
                    }
                    Err(why) => note(format_args!("{why}")),
                }
                self.out.as_ref().map_or(Ok(()), |out| {
                    std::fs::write(out, json(&all)? + "\n")
                        .map_err(|e| Failure::Input(format!("{}: {e}", out.display())))
                })
            },
        )?;
        if all.is_empty() {
            return Err(Failure::Missing(
                "no selected family was fitted: run `kernelgate predict --sweep` first".into(),
            ));
        }
        if self.json {
            return print(&(json(&all)? + "\n"));
        }
        print(&(HEADER.to_owned() + &all.iter().map(|one| row(one) + "\n").collect::<String>()))
    }

    fn measure(&self, device: &dyn Device, subject: &Subject<'_>, seed: u64) -> Result<Vec<Observation>, Failure> {
        const MOST_BYTES: usize = 1 << 30;
        const MOST_FLOPS: usize = 2_000_000_000_000;
        let most_flops = if subject.candidate.body.is_host() { MOST_FLOPS / 1000 } else { MOST_FLOPS };
        let most_bytes = if subject.candidate.body.is_host() { MOST_BYTES / 8 } else { MOST_BYTES };
        let budget = Duration::try_from_secs_f64(self.seconds)
            .map_err(|_| Failure::Input(format!("--seconds {}: expected a time, such as 6", self.seconds)))?;
        let limits = Sweep { shapes: self.cases, budget, seed, most_bytes, most_flops };
        sweep(device, subject, &limits, &mut |_| ())
            .map_err(|fault| Failure::Input(format!("{}: {fault}", subject.operator.name())))
    }

    /// The calibration and the families, of the device that is asked for or is here.
    fn files(&self, here: Option<&Fingerprint>) -> Result<(Calibration, Fitted), Failure> {
        let calibration = self.calibration(here)?;
        let path = self.fit.clone().unwrap_or_else(|| project().newest("prediction", &calibration.device));
        let fitted = Fitted::read(&path).map_err(|why| {
            Failure::Input(format!("{why}\nfit families with `kernelgate predict --sweep`, or name a file by --fit"))
        })?;
        Ok((calibration, fitted))
    }

    fn calibration(&self, here: Option<&Fingerprint>) -> Result<Calibration, Failure> {
        let path = match (&self.calibration, &self.on, here) {
            (Some(path), _, _) => path.clone(),
            (None, Some(key), _) => snapshot("calibration", key)?,
            (None, None, Some(here)) => project().newest("calibration", here),
            (None, None, None) => match KernelDevice::choose(None, false).kind {
                DeviceKind::Cuda => {
                    let devices = Devices::new(None, true);
                    project().newest(
                        "calibration",
                        devices.for_kind(DeviceKind::Cuda).map_err(Failure::Missing)?.fingerprint(),
                    )
                }
                _ => snapshot("calibration", SHIPPED)?,
            },
        };
        Calibration::read(&path).map_err(|why| {
            Failure::Input(format!("{why}\nmake one with `kernelgate calibrate`, or name a file by --calibration"))
        })
    }
}

fn predicted(trial: &str, subject: &Subject<'_>, point: &[usize], family: &Family, limits: &Limits) -> Said {
    let features = Features::of(subject, point);
    let prediction = family.predict(&features);
    Said {
        trial: trial.into(),
        shape: describe(subject.operator.axes(), point),
        bound: prediction.as_ref().ok().map(|prediction| classify(prediction.us, &features, limits).0),
        outside: prediction.as_ref().err().cloned(),
        prediction: prediction.ok(),
    }
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(|error| Failure::Input(error.to_string()))
}

/// A file of the shipped snapshots.
fn snapshot(kind: &str, key: &str) -> Result<PathBuf, Failure> {
    if !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Err(Failure::Input(format!("--on {key}: expected a name such as {SHIPPED}")));
    }
    Ok(project().folder.join("snapshots").join(kind).join(format!("{key}.json")))
}

fn empty(fingerprint: &Fingerprint, calibration: &Calibration) -> Fitted {
    let run = project().describe_run(0);
    Fitted {
        version: VERSION,
        device: fingerprint.clone(),
        measured: run.started,
        revision: run.revision,
        calibrated: calibration.measured.clone(),
        families: Vec::new(),
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
