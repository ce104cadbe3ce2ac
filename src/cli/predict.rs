//! `kernelgate predict`: how long cases take before they are run; the sweep that this is fitted to, and how well it does.

mod ending;
mod fit;
mod recorded;
mod say;
mod validate;
mod workload;

use super::{Failure, project};
use crate::calibrate::Calibration;
use crate::device::DeviceKind;
use crate::device::fingerprint::Fingerprint;
use crate::harness::command::{Selected, Selection};
use crate::harness::devices::{Devices, KernelDevice};
use crate::measure::shapes::{Limits, Range};
use crate::predict::{Fitted, Observation, Sweep, sweep};
use clap::Args;
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

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
    /// Extents to draw between on axes that have these names, in place of half the smallest to twice the largest that the
    /// operator lists to be timed, `:256` for multiples of 256 only; for --sweep and --validate
    #[arg(long, value_name = "AXIS=LOW..HIGH[:STEP],…", value_delimiter = ',')]
    range: Vec<Range>,
    /// Measure runs that begin before the launch ahead has ended, as a model's do: for candidates with dependent launches
    #[arg(long)]
    chained: bool,
    /// Take the cold times that these summaries or sweeps have recorded in place of measuring, for --sweep and --validate
    #[arg(long, value_name = "SUMMARY")]
    recorded: Vec<PathBuf>,
    /// What the candidate was called in them [default: what it is called]
    #[arg(long, value_name = "NAME", requires = "recorded")]
    called: Vec<String>,
    #[command(flatten)]
    workload: workload::Workload,
    /// Fit to what the file has of a family as well, in place of measuring it anew
    #[arg(long, requires = "sweep")]
    add: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Where the fitted families or the validation go [default of --sweep: target/kernelgate/prediction/DEVICE.json]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

impl Predict {
    /// Predicts, sweeps or validates.
    pub fn run(self) -> Result<(), Failure> {
        self.check_measured()?;
        if self.workload.is_asked() {
            return self.say_workload();
        }
        match (self.sweep, self.validate, self.refit) {
            (true, ..) => self.run_sweep(),
            (_, true, _) => self.run_validation(),
            (.., true) => self.run_refit(),
            _ => self.say(),
        }
    }

    /// What says how to measure needs something to be measured. A range may be meant for one operator of several, but it must be
    /// meant for one.
    fn check_measured(&self) -> Result<(), Failure> {
        let measures = (self.sweep || self.validate) && self.recorded.is_empty();
        for (option, is_asked) in [("--range", !self.range.is_empty()), ("--chained", self.chained)] {
            if is_asked && !measures {
                return Err(Failure::Input(format!("{option}: for --sweep and --validate, where they measure")));
            }
        }
        let suites = if self.range.is_empty() { Vec::new() } else { crate::ops::catalogue() };
        for range in &self.range {
            let selected = self.selection.select(&suites)?;
            let mut checked = selected.iter().map(|(trial, _)| range.check(trial.subject(&suites).operator));
            if let Some(Err(why)) = checked.next()
                && !checked.any(|other| other.is_ok())
            {
                return Err(Failure::Input(format!("--range: {why}")));
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        selected: &Selected<'_>,
        seed: u64,
        ends: impl Fn() -> bool,
    ) -> Result<Vec<Observation>, Failure> {
        let (device, subject) = (selected.device, &selected.subject);
        let ranges = self.range.iter().filter(|range| range.check(subject.operator).is_ok()).cloned().collect();
        let limits = Limits { ranges, ..Limits::of(subject.candidate.body.is_host()) };
        let budget = Duration::try_from_secs_f64(self.seconds)
            .map_err(|_| Failure::Input(format!("--seconds {}: expected a time, such as 6", self.seconds)))?;
        let settings = Sweep { shapes: self.cases, budget, seed, limits, chained: self.chained };
        let (begun, mut found) = (Instant::now(), 0);
        let mut say = |_: &Observation| {
            found += 1;
            let of_time = begun.elapsed().as_secs_f64() / self.seconds;
            selected.reach(of_time.max(found as f64 / self.cases as f64));
            if ends() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        sweep(device, subject, &settings, &mut say)
            .map_err(|fault| Failure::Input(format!("{}: {fault}", subject.operator.name())))
    }

    /// The calibration and the families, of the device that is asked for or is here.
    fn files(&self, here: Option<&Fingerprint>) -> Result<(Calibration, Fitted), Failure> {
        let (calibration, path) = self.places(here)?;
        let fitted = Fitted::read(&path).map_err(|why| {
            Failure::Input(format!("{why}\nfit families with `kernelgate predict --sweep`, or name a file by --fit"))
        })?;
        Ok((calibration, self.of_state(fitted)))
    }

    /// Between the families of a file and those that are asked for: chained ones in the place of the others.
    fn of_state(&self, fitted: Fitted) -> Fitted {
        if self.chained { fitted.exchanged() } else { fitted }
    }

    /// The calibration, and where the families are.
    fn places(&self, here: Option<&Fingerprint>) -> Result<(Calibration, PathBuf), Failure> {
        let calibration = self.calibration(here)?;
        let path = self.fit.clone().unwrap_or_else(|| project().newest("prediction", &calibration.device));
        Ok((calibration, path))
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
