//! The time of a whole run that somebody asked for (`--run-budget`), shared out among its trials.
//!
//! No two kernels take the same time, so no trial has a fixed one: each gets its part of what is left when it starts, and
//! what it does not need is left to those behind it. What a trial then leaves out is cut, and its outcome says so.
//! Without such a time a run plans by work and runs all of it: see `quota`.

use super::ledger::{Account, Ledger};
use super::trial::Trial;
use crate::check::outcome::Check;
use crate::device::DeviceKind;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// What every trial has, also behind trials that took more than their share: a little is better than nothing.
const LEAST: Duration = Duration::from_millis(30);

/// What is left of a run.
pub struct Budget {
    /// Trials that run at once.
    lanes: usize,
    ledger: Ledger,
}

impl Budget {
    /// The budget of `trials` in this process, `lanes` at once, that starts now.
    pub fn new<'a>(time: Duration, lanes: usize, trials: impl IntoIterator<Item = &'a Trial>) -> Self {
        let lanes = lanes.max(1);
        Budget { lanes, ledger: Ledger::here(opened(time, lanes, trials)) }
    }

    /// The same for all processes of the run `id`, of which the first one starts it. `trials` are those that any of them
    /// may run; what they have used so far stands in `file`.
    pub fn shared<'a>(
        time: Duration,
        lanes: usize,
        trials: impl IntoIterator<Item = &'a Trial>,
        file: &Path,
        id: String,
    ) -> Self {
        let lanes = lanes.max(1);
        Budget { lanes, ledger: Ledger::shared(file, id, opened(time, lanes, trials)) }
    }

    /// The share of a trial that starts now.
    pub fn share(&self, trial: &Trial) -> Duration {
        let mine = weight(trial, self.lanes);
        let lanes = if runs_alone(trial) { 1 } else { self.lanes };
        self.ledger.with(|account| {
            let left = account.end.duration_since(SystemTime::now()).unwrap_or_default();
            let part = mine / account.waiting.max(mine);
            account.waiting -= mine;
            left.mul_f64(part * lanes as f64).min(left).max(LEAST)
        })
    }
}

/// The account of a run that starts now.
fn opened<'a>(time: Duration, lanes: usize, trials: impl IntoIterator<Item = &'a Trial>) -> Account {
    let waiting = trials.into_iter().map(|trial| weight(trial, lanes)).sum();
    Account { end: SystemTime::now() + time, waiting }
}

/// Timing keeps the other lanes idle.
fn runs_alone(trial: &Trial) -> bool {
    trial.check == Check::Perf && trial.kind == DeviceKind::Cpu
}

/// How much of the time a trial should have, relative to others. Host candidates come first and use little of theirs.
/// Perf trials come last and cannot be cut to nothing: counts are taken in full, a time needs its samples. So theirs is
/// set aside.
fn weight(trial: &Trial, lanes: usize) -> f64 {
    match (trial.check, trial.kind) {
        (Check::Correctness | Check::Property, DeviceKind::Cpu) => 4.0,
        (Check::Perf, DeviceKind::Cpu) => 4.0 * lanes as f64,
        (Check::Correctness, _) => 2.0,
        (Check::Property, _) => 1.0,
        (Check::Perf, _) => 3.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;

    fn trial(check: Check, kind: DeviceKind) -> Trial {
        Trial {
            name: String::new(),
            suite: 0,
            candidate: 0,
            dtype: DType::F32,
            check,
            kind,
            source: None,
            times_lesson: false,
        }
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
    fn the_time_of_perf_trials_is_set_aside() {
        let kernels = vec![trial(Check::Correctness, DeviceKind::Cuda); 100];
        let perf = [(DeviceKind::Cpu, 10), (DeviceKind::Cuda, 40)];
        let perf: Vec<Trial> = perf.into_iter().flat_map(|(kind, n)| vec![trial(Check::Perf, kind); n]).collect();
        let share = |trials: &[Trial]| Budget::new(Duration::from_secs(100), 2, trials).share(&trials[0]).as_secs_f64();
        let all = [kernels.clone(), perf].concat();
        // 100 kernels of weight 2 beside 10 times of 8, which run alone, and 40 counts of 3.
        assert!((share(&kernels) - 2.0).abs() < 0.1 && (share(&all) - 1.0).abs() < 0.1, "{}", share(&all));
    }

    #[test]
    fn a_spent_budget_gives_the_least() {
        let trials = vec![trial(Check::Property, DeviceKind::Cuda); 2];
        let budget = Budget::new(Duration::ZERO, 2, &trials);
        assert_eq!(budget.share(&trials[0]), LEAST);
    }

    #[test]
    fn processes_of_one_run_share_one_budget() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("budget.json");
        let trials = vec![trial(Check::Correctness, DeviceKind::Cuda); 100];
        let share = |id: &str| {
            let budget = Budget::shared(Duration::from_secs(100), 1, &trials, &file, id.into());
            budget.share(&trials[0]).as_secs_f64()
        };
        let shares: Vec<f64> = (0..100).map(|_| share("a")).collect();
        assert!((shares[0] - 1.0).abs() < 0.1 && (shares[50] - 2.0).abs() < 0.2, "{shares:?}");
        assert!(share("a") > 90.0, "a trial that runs again has what is left");
        assert!((share("b") - 1.0).abs() < 0.1, "another run starts afresh");
        let text = std::fs::read_to_string(&file).unwrap();
        let mut page: serde_json::Value = serde_json::from_str(&text).unwrap();
        page["account"]["end"]["secs_since_epoch"] = 0.into();
        std::fs::write(&file, page.to_string()).unwrap();
        assert!(share("b") < 0.1, "what is spent is spent");
        page["used"]["secs_since_epoch"] = 0.into();
        std::fs::write(&file, page.to_string()).unwrap();
        assert!((share("b") - 1.0).abs() < 0.1, "an id may be used again later");
        std::fs::write(&file, "{").unwrap();
        assert!((share("b") - 1.0).abs() < 0.1, "so does one whose account is damaged");
    }
}
