//! `predict --sweep` and `--refit`: families from what is measured now, was recorded, or is in their file.

use super::Predict;
use super::ending::Ending;
use super::recorded::Recorded;
use crate::calibrate::Calibration;
use crate::check::Subject;
use crate::cli::{Failure, print, project};
use crate::core::seed::derive;
use crate::core::suite::Suite;
use crate::device::fingerprint::Fingerprint;
use crate::harness::command::Workplace;
use crate::harness::progress::Progress;
use crate::harness::terminal::note;
use crate::predict::{Errors, Family, Fitted, Limits, Observation, Swept, VERSION, known};
use std::path::{Path, PathBuf};

impl Predict {
    /// Measures random shapes of each family on the device, or takes what was recorded of it, and fits it.
    pub(super) fn run_sweep(&self) -> Result<(), Failure> {
        let mut file: Option<(PathBuf, Fitted)> = None;
        let suites = crate::ops::catalogue();
        if self.recorded.is_empty() {
            let ending = Ending::watched();
            self.selection.each(&Workplace { project: &project(), suites: &suites }, |selected| {
                let calibration = self.calibration(Some(selected.device.fingerprint()))?;
                let file = self.open(&mut file, &calibration, || project().describe_run(0).started)?;
                let observations =
                    self.measure(selected, derive(self.selection.seed, &["fit"]), || ending.is_asked_for())?;
                self.keep(file, &selected.subject, &calibration, observations)?;
                ending.end_if_asked();
                Ok(())
            })?;
        } else {
            let (recorded, calibration) = (Recorded::read(&self.recorded)?, self.calibration(None)?);
            let selected = self.selection.select(&suites)?;
            let progress = Progress::of(selected.len(), self.selection.quiet);
            for (trial, _) in selected {
                let subject = trial.subject(&suites);
                progress.say(&trial.name);
                let observations = recorded.of(&subject, &self.called, &calibration.device.key());
                let file = self.open(&mut file, &calibration, || recorded.measured())?;
                self.keep(file, &subject, &calibration, observations)?;
                progress.step();
            }
        }
        match file {
            Some((out, fitted)) if !fitted.families.is_empty() => print(&format!("{}\n", out.display())),
            _ => Err(Failure::Missing("no family was fitted".into())),
        }
    }

    /// The file that a sweep goes to, with the families of this device that it has: before the first is measured, since one that
    /// cannot be read must not be written over.
    fn open<'f>(
        &self,
        file: &'f mut Option<(PathBuf, Fitted)>,
        calibration: &Calibration,
        measured: impl Fn() -> String,
    ) -> Result<&'f mut (PathBuf, Fitted), Failure> {
        let opened = match file.take() {
            Some(opened) => opened,
            None => {
                let out = self.out.clone().unwrap_or_else(|| project().made("prediction", &calibration.device));
                let kept = if out.exists() {
                    of_device(&out, &calibration.device)?
                } else {
                    empty(&calibration.device, calibration, measured())
                };
                (out, self.of_state(kept))
            }
        };
        Ok(file.insert(opened))
    }

    /// Fits a family and writes the file.
    fn keep(
        &self,
        (out, fitted): &mut (PathBuf, Fitted),
        subject: &Subject<'_>,
        calibration: &Calibration,
        observations: Vec<Observation>,
    ) -> Result<(), Failure> {
        let limits = Limits::of(calibration).map_err(Failure::Input)?;
        let before = fitted.swept(subject).filter(|_| self.add).map(|swept| swept.observations.clone());
        let observations = before.into_iter().flatten().chain(observations).collect();
        match fit(subject, observations, &limits) {
            Ok(swept) => {
                fitted.keep(swept);
                // After each family: what was measured outlives whatever ends this process.
                self.of_state(fitted.clone()).write(out).map_err(Failure::Input)
            }
            Err(why) => {
                note(format_args!("{why}; give it more --seconds"));
                Ok(())
            }
        }
    }

    /// Fits what the file has measured once more.
    pub(super) fn run_refit(&self) -> Result<(), Failure> {
        let (calibration, path) = self.places(None)?;
        let (mut fitted, is_older) = Fitted::read_to_refit(&path).map_err(Failure::Input)?;
        let limits = Limits::of(&calibration).map_err(Failure::Input)?;
        let Some(out) = &self.out else {
            return Err(Failure::Input("--refit: say where the file goes by --out".into()));
        };
        let suites: Vec<Suite> = crate::ops::catalogue();
        let selected = self.selection.select(&suites)?;
        let progress = Progress::of(selected.len(), self.selection.quiet);
        let mut before = fitted.clone();
        if is_older {
            // What it says of families that are not fitted again is good for nothing.
            fitted.families.clear();
        }
        for (trial, _) in selected {
            let subject = trial.subject(&suites);
            progress.say(&trial.name);
            for _ in ["alone", "chained"] {
                if let Some(swept) = before.swept(&subject).cloned() {
                    fitted.keep(fit(&subject, swept.observations, &limits).map_err(Failure::Input)?);
                }
                (fitted, before) = (fitted.exchanged(), before.exchanged());
            }
            progress.step();
        }
        if fitted.families.len() < before.families.len() {
            let left = before.families.len() - fitted.families.len();
            note(format_args!(
                "{left} families of an older version were not selected, and are not in {}",
                out.display()
            ));
        }
        fitted.calibrated = calibration.measured;
        fitted.write(out).map_err(Failure::Input)
    }
}

/// A family of these times; how far it is off those that a fit to the others does not see is said.
fn fit(subject: &Subject<'_>, observations: Vec<Observation>, limits: &Limits) -> Result<Swept, String> {
    let (operator, candidate, dtype) = (subject.operator.name(), subject.candidate.name.as_str(), subject.dtype);
    let name = (operator, candidate, dtype);
    // What the operator does not have any more is not kept: every time has its weight.
    let known: Vec<_> = known(subject, &observations).map(|(seen, features)| (seen.clone(), features)).collect();
    let (mut observations, features): (Vec<_>, Vec<_>) = known.into_iter().unzip();
    let measured: Vec<_> = features.into_iter().zip(observations.iter().map(|seen| seen.us)).collect();
    let family = Family::fitted(name, measured.clone(), limits)?;
    let Errors { mean, median, p95, bias } = Errors::left_out(&family, &measured);
    let (count, percent) = (observations.len(), 100.0 * family.process.spread);
    note(format_args!(
        "{operator}::{candidate}::{dtype}: {count} shapes, ± {percent:.1} %; left out: mean {mean:.1} %, median {median:.1} %, \
         P95 {p95:.1} %, bias {bias:.1} %"
    ));
    for (observation, (features, _)) in observations.iter_mut().zip(&measured) {
        let [modelled_us, unasked_us] = family.parameters.times_us(features, limits);
        observation.modelled_us = Some(modelled_us);
        observation.unasked_us = features.unasked().map(|_| unasked_us);
    }
    let swept = Swept::new(name, family.parameters, observations);
    Ok(Swept { process: family.process, unasked: family.unasked, ..swept })
}

/// The families of a file that a sweep of this device may go to.
fn of_device(path: &Path, device: &Fingerprint) -> Result<Fitted, Failure> {
    let instead = "a sweep adds to what is there: name another file by --out, or move this one away";
    let fitted = Fitted::read(path).map_err(|why| Failure::Input(format!("{why}; {instead}")))?;
    if fitted.device.key() != device.key() {
        let (of, here) = (fitted.device.key(), device.key());
        return Err(Failure::Input(format!("{}: families of {of}, not of {here}; {instead}", path.display())));
    }
    Ok(fitted)
}

fn empty(device: &Fingerprint, calibration: &Calibration, measured: String) -> Fitted {
    Fitted {
        version: VERSION,
        device: device.clone(),
        measured,
        revision: project().describe_run(0).revision,
        calibrated: calibration.measured.clone(),
        families: Vec::new(),
        chained: Vec::new(),
    }
}
