//! How much work the cases of each trial may take in a run that nobody gave a time.
//!
//! What is judged must not depend on the clock: a busy machine, or one that compiles every kernel first, would judge
//! less. So the work of a gate is counted beforehand, and shared out by what is declared: the trials of the whole gate,
//! whichever of them a run selects, and the kind of device. A run then takes as long as it takes.

use super::trial::Trial;
use crate::check::outcome::Check;
use crate::core::dtype::DType;
use crate::device::DeviceKind;
use std::collections::HashMap;

/// The work of all trials of kernels in the simulator, in the unit of `check::pace::work`: two minutes of two cores.
const SIMULATED: f64 = 1e9;

/// The work of all trials of host candidates, beside a simulator: three quarters of a minute of two cores.
const HOST: f64 = 1e9;

/// The most work of one trial. On a GPU, where a case takes milliseconds, nothing else limits it.
const MOST: f64 = 4e9;

/// The work that a kernel in the simulator may take beside for extents that 16 bits do not hold: a block of a few warps a row,
/// and what a kernel does wrong there it does in every dtype. So it is given to one trial of a candidate.
const PAST_16_BITS: f64 = 2e8;

/// What every trial has in a gate of any size.
const LEAST: f64 = 1e6;

/// Timed host candidates that are timed in full beside a simulator; of more, all are timed in brief.
const TIMED_IN_FULL: usize = 20;

/// The weights of the trials of a gate, by the kind of their candidates.
pub struct Quota {
    kernels: f64,
    host: f64,
    timed_host: usize,
    /// The dtype of the first trial of each candidate, whose name it has in every dtype.
    first_dtypes: HashMap<String, DType>,
}

impl Quota {
    /// The quota of a gate with these trials.
    pub fn of(all: &[Trial]) -> Self {
        let weights = |kind: DeviceKind| all.iter().filter(|trial| trial.kind == kind).map(weight).sum();
        let is_timed = |trial: &&Trial| trial.check == Check::Perf && trial.kind == DeviceKind::Cpu;
        let mut first_dtypes = HashMap::new();
        for trial in all {
            first_dtypes.entry(candidate(trial).to_owned()).or_insert(trial.dtype);
        }
        Quota {
            first_dtypes,
            kernels: weights(DeviceKind::Cuda),
            host: weights(DeviceKind::Cpu),
            timed_host: all.iter().filter(is_timed).count(),
        }
    }

    /// The work that a trial may plan on a device of `kind`.
    pub fn work(&self, trial: &Trial, kind: DeviceKind) -> f64 {
        let share = |all: f64, weights: f64| all * weight(trial) / weights.max(weight(trial));
        let work = match kind {
            DeviceKind::Sim => share(SIMULATED, self.kernels),
            DeviceKind::Cpu => share(HOST, self.host),
            DeviceKind::Cuda => MOST,
        };
        work.clamp(LEAST, MOST)
    }

    /// The work that it may plan beside that for extents that 16 bits do not hold.
    pub fn past_16_bits(&self, trial: &Trial, kind: DeviceKind) -> f64 {
        let is_first = self.first_dtypes.get(candidate(trial)) == Some(&trial.dtype);
        let is_given = kind == DeviceKind::Sim && trial.check == Check::Correctness && is_first;
        if is_given { PAST_16_BITS } else { 0.0 }
    }

    /// Whether host candidates are too many to time each of them in full.
    pub fn times_in_brief(&self) -> bool {
        self.timed_host > TIMED_IN_FULL
    }
}

/// The operator and the name of a trial's candidate: what stands before dtype and check.
fn candidate(trial: &Trial) -> &str {
    trial.name.rsplitn(3, "::").last().unwrap_or_default()
}

/// How much of the work a trial should have, relative to others. Perf trials plan no cases.
fn weight(trial: &Trial) -> f64 {
    match trial.check {
        Check::Correctness => 2.0,
        Check::Property => 1.0,
        Check::Perf => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trials(kind: DeviceKind, candidates: usize) -> Vec<Trial> {
        let trial = |candidate, check: Check| Trial {
            name: format!("op::c{candidate}::f32::{}", check.name()),
            suite: 0,
            candidate,
            dtype: DType::F32,
            check,
            kind,
            source: None,
            times_lesson: false,
        };
        (0..candidates).flat_map(|candidate| Check::ALL.map(|check| trial(candidate, check))).collect()
    }

    #[test]
    fn the_size_of_the_gate_and_the_device_decide() {
        let (few, many) = (trials(DeviceKind::Cuda, 10), trials(DeviceKind::Cuda, 200));
        let work = |all: &[Trial], kind| Quota::of(all).work(&all[0], kind);
        approx::assert_relative_eq!(work(&few, DeviceKind::Sim), 20.0 * work(&many, DeviceKind::Sim));
        approx::assert_relative_eq!(work(&many, DeviceKind::Sim), SIMULATED / 300.0);
        approx::assert_relative_eq!(Quota::of(&many).work(&many[1], DeviceKind::Sim), SIMULATED / 600.0);
        approx::assert_relative_eq!(work(&many, DeviceKind::Cuda), MOST);
        let both = [many.clone(), trials(DeviceKind::Cpu, 7)].concat();
        approx::assert_relative_eq!(work(&both, DeviceKind::Sim), work(&many, DeviceKind::Sim));
    }

    #[test]
    fn a_gate_of_any_size_gives_a_trial_something() {
        let all = trials(DeviceKind::Cuda, 100_000);
        approx::assert_relative_eq!(Quota::of(&all).work(&all[0], DeviceKind::Sim), LEAST);
    }

    #[test]
    fn one_trial_of_a_candidate_goes_past_16_bits() {
        let mut all = trials(DeviceKind::Cuda, 2);
        // A candidate may be declared once for each dtype.
        all.extend(trials(DeviceKind::Cuda, 2).into_iter().map(|trial| {
            let name = trial.name.replace("f32", "bf16");
            Trial { name, candidate: trial.candidate + 2, dtype: DType::BF16, ..trial }
        }));
        let quota = Quota::of(&all);
        let given = |kind| all.iter().filter(|trial| quota.past_16_bits(trial, kind) > 0.0).collect::<Vec<_>>();
        let of_sim = given(DeviceKind::Sim);
        assert_eq!(of_sim.len(), 2);
        assert!(of_sim.iter().all(|trial| trial.check == Check::Correctness && trial.dtype == DType::F32));
        assert!(given(DeviceKind::Cuda).is_empty() && given(DeviceKind::Cpu).is_empty());
    }

    #[test]
    fn many_timed_host_candidates_are_timed_in_brief() {
        let of = |candidates| Quota::of(&trials(DeviceKind::Cpu, candidates)).times_in_brief();
        assert!(!of(TIMED_IN_FULL) && of(TIMED_IN_FULL + 1));
    }
}
