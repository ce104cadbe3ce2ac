//! The time of a whole run, shared out among its trials.
//!
//! Where kernels are simulated, work that a GPU does in milliseconds takes seconds, and no two kernels are alike. So
//! no trial has a fixed time: each gets its part of what is left when it starts, and what it does not need is left to
//! those behind it. What a trial then leaves out stands in its outcome.

use super::trial::Trial;
use crate::check::outcome::Check;
use crate::device::DeviceKind;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long all trials together take where nothing else is said.
pub const DEFAULT: Duration = Duration::from_secs(45);

/// What every trial has, also behind trials that took more than their share: a little is better than nothing.
const LEAST: Duration = Duration::from_millis(30);

/// What is left of a run.
pub struct Budget {
    end: Instant,
    /// Trials that run at once.
    lanes: usize,
    /// The weights of the trials that have not started.
    waiting: Mutex<f64>,
}

impl Budget {
    /// The budget of a run of `trials`, `lanes` at once, that starts now.
    pub fn new<'a>(time: Duration, lanes: usize, trials: impl IntoIterator<Item = &'a Trial>) -> Self {
        let weights: f64 = trials.into_iter().map(|trial| weight(trial, lanes)).sum();
        Budget { end: Instant::now() + time, lanes: lanes.max(1), waiting: Mutex::new(weights) }
    }

    /// The share of a trial that starts now.
    pub fn share(&self, trial: &Trial) -> Duration {
        let left = self.end.saturating_duration_since(Instant::now());
        let mine = weight(trial, self.lanes);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let part = mine / waiting.max(mine);
        *waiting -= mine;
        let lanes = if runs_alone(trial) { 1 } else { self.lanes };
        left.mul_f64(part * lanes as f64).min(left).max(LEAST)
    }
}

/// Timing keeps the other lanes idle.
fn runs_alone(trial: &Trial) -> bool {
    trial.check == Check::Perf && trial.kind == DeviceKind::Cpu
}

/// How much of the time a trial should have, relative to others. Host candidates come first and use little of theirs.
fn weight(trial: &Trial, lanes: usize) -> f64 {
    match (trial.check, trial.kind) {
        (Check::Correctness | Check::Property, DeviceKind::Cpu) => 4.0,
        (Check::Perf, DeviceKind::Cpu) => lanes as f64,
        (Check::Correctness, _) => 2.0,
        (Check::Property, _) => 1.0,
        (Check::Perf, _) => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;

    fn trial(check: Check, kind: DeviceKind) -> Trial {
        Trial { name: String::new(), suite: 0, candidate: 0, dtype: DType::F32, check, kind }
    }

    #[test]
    fn what_a_trial_leaves_goes_to_those_behind_it() {
        let trials = vec![trial(Check::Correctness, DeviceKind::Cuda); 100];
        let budget = Budget::new(Duration::from_secs(100), 2, &trials);
        // None of them takes any time here.
        let shares: Vec<f64> = trials.iter().map(|trial| budget.share(trial).as_secs_f64()).collect();
        assert!((shares[0] - 2.0).abs() < 0.1, "{shares:?}");
        assert!(shares[..90].is_sorted() && (shares[50] - 4.0).abs() < 0.2, "{shares:?}");
        assert!(shares[99] <= 100.0 && shares[99] > 99.0, "{shares:?}");
    }

    #[test]
    fn a_spent_budget_gives_the_least() {
        let trials = vec![trial(Check::Property, DeviceKind::Cuda); 2];
        let budget = Budget::new(Duration::ZERO, 2, &trials);
        assert_eq!(budget.share(&trials[0]), LEAST);
    }
}
