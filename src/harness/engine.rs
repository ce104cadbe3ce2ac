//! Runs one trial in this process: device, check, verdict. Nothing that a candidate does may escape from here.

use super::arguments::{Options, Requirement};
use super::devices::Devices;
use super::project::Project;
use super::quota::Quota;
use super::trial::{Trial, trials};
use crate::baseline::{self, BaselineSettings};
use crate::check::case::Case;
use crate::check::outcome::{Check, Outcome};
use crate::check::perf::PerfSettings;
use crate::check::{Context, Subject, correctness, large, property, reference};
use crate::core::distribution::Distribution;
use crate::core::shape::{Point, parse};
use crate::core::suite::Suite;
use crate::device::fingerprint::Fingerprint;
use crate::device::{Device, DeviceKind};
use crate::predict::Predictor;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long a perf trial takes times of each shape at the most, where nothing else is said. That is far more than a shape takes:
/// what is timed does not depend on how busy a machine is.
const TIMING: Duration = Duration::from_secs(5);

/// What timing a shape or two in full takes: a share of less buys a time in brief.
const FULL_TIMING: Duration = Duration::from_secs(1);

/// What came of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// What was found.
    pub outcome: Outcome,
    /// The device that it ran on.
    pub fingerprint: Option<Fingerprint>,
    /// Whether that device is now unusable in the process that answered.
    pub device_lost: bool,
    /// Whether it failed only for want of something that was required.
    pub missing: bool,
}

impl Reply {
    /// A reply from no device.
    pub fn without_device(outcome: Outcome) -> Self {
        Reply { outcome, fingerprint: None, device_lost: false, missing: false }
    }
}

/// Runs trials.
pub struct Engine {
    suites: Vec<Suite>,
    options: Options,
    devices: Devices,
    /// The work that each trial may plan.
    quota: Quota,
    /// The project's folder: kept cases and baselines live below it.
    folder: PathBuf,
    /// What is predicted on the device that perf trials run on, once one has asked.
    predictor: OnceLock<Option<Predictor>>,
}

impl Engine {
    /// An engine for trials of these suites. No device is touched yet.
    pub fn new(project: &Project, suites: Vec<Suite>, options: Options) -> Self {
        quieten_panics();
        reference::keep_in(project.references_folder());
        let devices = Devices::new(options.device, options.requires(Requirement::Cuda))
            .of_project(&project.folder)
            .watched(options.in_process || options.unsupervised);
        let quota = Quota::of(&trials(&suites).unwrap_or_default());
        Engine { suites, options, devices, quota, folder: project.folder.clone(), predictor: OnceLock::new() }
    }

    /// Runs a trial, which has `share` of the time of the run if there is a limit.
    pub fn run(&self, trial: &Trial, share: Option<Duration>) -> Reply {
        if trial.check == Check::Perf && trial.kind == DeviceKind::Cpu && self.times_gpu_only() {
            return Reply::without_device(Outcome::skip("`--device cuda`: only the GPU is timed"));
        }
        let device = match self.devices.for_kind(trial.kind) {
            Ok(device) => device,
            Err(reason) => return self.without_device(trial.kind, &reason),
        };
        let fingerprint = Some(device.fingerprint().clone());
        if device.is_lost() {
            let outcome = Outcome::skip("an earlier trial has crashed the device for this process");
            return Reply { fingerprint, device_lost: true, ..Reply::without_device(outcome) };
        }
        let outcome = guarded(|| self.check(trial, device, share));
        Reply { missing: outcome.lacks_baseline, outcome, fingerprint, device_lost: device.is_lost() }
    }

    /// Whether kernels run in the simulator here.
    fn simulates(&self) -> bool {
        self.devices.for_kind(DeviceKind::Cuda).is_ok_and(|device| device.kind() == DeviceKind::Sim)
    }

    /// A GPU machine is chosen for its GPU: its host has no baselines and need not be quiet.
    fn times_gpu_only(&self) -> bool {
        self.options.device.is_some_and(|choice| choice.kind == DeviceKind::Cuda)
    }

    fn without_device(&self, kind: DeviceKind, reason: &str) -> Reply {
        let missing = kind == DeviceKind::Cuda && self.options.requires(Requirement::Cuda);
        let outcome = if missing {
            Outcome::fail(format!("a GPU is required (--require cuda, KERNELGATE_REQUIRE), but {reason}"))
        } else {
            Outcome::skip(reason)
        };
        Reply { missing, ..Reply::without_device(outcome) }
    }

    fn check(&self, trial: &Trial, device: &dyn Device, share: Option<Duration>) -> Outcome {
        let subject = trial.subject(&self.suites);
        let context = self.context(trial, device, share);
        match (&self.options.shape, trial.check) {
            (Some(shape), Check::Correctness | Check::Property) => self.check_case(&context, &subject, shape),
            (None, Check::Correctness) if self.options.large => large::run(&context, &subject),
            (None, Check::Correctness) => correctness::run(&context, &subject),
            (None, Check::Property) => match property::Settings::from_env(Some(self.folder.join("regressions"))) {
                Ok(settings) => property::run(&context, &subject, &settings),
                Err(why) => Outcome::fail(why),
            },
            (_, Check::Perf) => {
                let mut outcome = self.check_perf(trial, &context, &subject, share);
                self.predict(device, &subject, &mut outcome);
                outcome
            }
        }
    }

    /// Puts what was predicted beside what was measured, where the device was calibrated.
    fn predict(&self, device: &dyn Device, subject: &Subject<'_>, outcome: &mut Outcome) {
        if device.kind() != DeviceKind::Cuda || outcome.timings.is_empty() {
            return;
        }
        let predictor = self.predictor.get_or_init(|| Predictor::stored(&self.folder, device.fingerprint()));
        if let Some(predictor) = predictor {
            predictor.annotate(subject, outcome);
        }
    }

    /// What a trial may plan, and how long it may take to run it: as long as it takes, unless somebody asked for less.
    fn context<'d>(&self, trial: &Trial, device: &'d dyn Device, share: Option<Duration>) -> Context<'d> {
        let (seed, asked) = (self.options.run_seed(), self.options.budget.or(share));
        if trial.check == Check::Perf {
            let shapes = trial.subject(&self.suites).operator.perf_shapes().len().max(1) as u32;
            let whole = TIMING * shapes;
            let budget = self.options.budget.unwrap_or_else(|| share.map_or(whole, |share| share.min(whole)));
            return Context::new(device, seed, budget);
        }
        let context = match asked {
            Some(budget) => Context::new(device, seed, budget),
            None => Context::without_deadline(device, seed),
        };
        let context = context.of_at_most(self.options.most_elements.unwrap_or(usize::MAX));
        let plans_all = self.options.run_budget.is_some_and(|budget| budget.is_zero());
        if plans_all {
            return context;
        }
        let kind = device.kind();
        context.planning(self.quota.work(trial, kind), self.quota.past_16_bits(trial, kind))
    }

    fn check_perf(
        &self,
        trial: &Trial,
        context: &Context<'_>,
        subject: &Subject<'_>,
        share: Option<Duration>,
    ) -> Outcome {
        let only = self.options.shape.as_ref().map(|shape| parse(subject.operator.axes(), shape)).transpose();
        let only = match only {
            Ok(only) => only,
            Err(why) => return Outcome::skip(why),
        };
        let require = self.options.requires(Requirement::Baseline);
        let baselines = BaselineSettings { require, ..BaselineSettings::new(&self.folder) };
        if context.device.kind() == DeviceKind::Sim {
            return baseline::count_gate(context, subject, only.as_ref(), &baselines);
        }
        let planted = self.options.plant.as_ref().map_or(0.0, |plant| plant.share_of(&trial.name));
        let only: Vec<Point> = only.into_iter().collect();
        // What has a baseline is timed in full whatever the run has left: a brief time would miss what that one finds.
        let can_be_brief = self.options.budget.is_none() && only.is_empty() && !require;
        let settings = PerfSettings { only, planted, ..PerfSettings::of(context.device.kind()) };
        let has_baseline = || baselines.snapshot_path(subject, context.device.fingerprint()).exists();
        let is_one_of_many = self.quota.times_in_brief() && trial.kind == DeviceKind::Cpu && self.simulates();
        let is_short_of_time = share.is_some_and(|share| share < FULL_TIMING);
        if can_be_brief && (is_one_of_many || is_short_of_time) && !has_baseline() {
            let baselines = BaselineSettings { write_pending: false, ..baselines };
            return baseline::gate(context, subject, &settings.brief(), &baselines);
        }
        baseline::gate(context, subject, &settings, &baselines)
    }

    /// The one case that the arguments describe.
    fn check_case(&self, context: &Context<'_>, subject: &Subject<'_>, shape: &str) -> Outcome {
        let parsed = parse(subject.operator.axes(), shape);
        match parsed.and_then(|point| subject.objection(&point).map_or(Ok(point), Err)) {
            Ok(point) => {
                let case = Case {
                    point,
                    distribution: self.options.distribution.unwrap_or(Distribution::Normal),
                    seed: self.options.seed.unwrap_or_default(),
                    offset_bytes: self.options.offset_bytes.unwrap_or_default(),
                };
                correctness::run_case(context, subject, case)
            }
            Err(why) => Outcome::skip(why),
        }
    }
}

/// A check whose panic is a failure.
fn guarded(check: impl FnOnce() -> Outcome) -> Outcome {
    let checked = catch_unwind(AssertUnwindSafe(check));
    checked.unwrap_or_else(|payload| Outcome::fail(format!("the trial panicked: {}", panic_message(&*payload))))
}

/// A candidate that panics does so in many cases, above all while a failure is shrunk: each place is reported once.
fn quieten_panics() {
    let seen: Mutex<HashSet<String>> = Mutex::default();
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        if seen.lock().unwrap_or_else(PoisonError::into_inner).insert(place) {
            report(info);
        }
    }));
}

/// What a panic said.
pub(super) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::outcome::Verdict;

    #[test]
    fn a_trial_that_panics_has_failed() {
        let outcome = guarded(|| panic!("no room"));
        assert_eq!((outcome.verdict, outcome.reason.as_str()), (Verdict::Fail, "the trial panicked: no room"));
        assert_eq!(guarded(|| Outcome::new(Verdict::Pass)).verdict, Verdict::Pass);
    }
}
