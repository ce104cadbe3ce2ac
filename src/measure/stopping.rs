//! The stopping rule: a session ends when every median is known well enough, or when its time is spent.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When to end a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoppingRule {
    /// The relative half width of the 95 % interval that every median must reach.
    pub half_width: f64,
    /// Rounds before precision is asked for: fewer make an interval that says nothing.
    pub min_rounds: usize,
    /// Rounds after which a session ends whatever was reached.
    pub max_rounds: usize,
    /// Time after which a session ends whatever was reached, once `min_rounds` are done.
    pub budget: Duration,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// Every median is as precise as was asked.
    Precise,
    /// The time was spent.
    Budget,
    /// The most rounds were done.
    Rounds,
}

impl StoppingRule {
    /// How much longer than the budget the first `min_rounds` may take: slow kernels get fewer rounds instead of
    /// holding up the gate.
    const PATIENCE: u32 = 4;

    /// How long a session may take at the most, to the end of its round.
    pub fn longest(&self) -> Duration {
        self.budget * Self::PATIENCE
    }

    /// Whether to end after `rounds` rounds and `elapsed` time, given the half width of every median.
    pub fn ending(
        &self,
        rounds: usize,
        elapsed: Duration,
        half_widths: impl IntoIterator<Item = f64>,
    ) -> Option<Ending> {
        if rounds < self.min_rounds {
            return (rounds > 0 && elapsed > self.longest()).then_some(Ending::Budget);
        }
        // A NaN half width (no sample left) is not precise.
        if half_widths.into_iter().all(|width| width <= self.half_width) {
            Some(Ending::Precise)
        } else if rounds >= self.max_rounds {
            Some(Ending::Rounds)
        } else if elapsed >= self.budget {
            Some(Ending::Budget)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::too_early(2, 0, &[0.001], None)]
    #[case::precise(3, 0, &[0.001, 0.005], Some(Ending::Precise))]
    #[case::one_is_not(3, 0, &[0.001, 0.006], None)]
    #[case::nothing_known(3, 0, &[f64::NAN], None)]
    #[case::out_of_time(3, 100, &[0.1], Some(Ending::Budget))]
    #[case::out_of_rounds(9, 0, &[0.1], Some(Ending::Rounds))]
    #[case::slow_kernel(1, 401, &[0.1], Some(Ending::Budget))]
    #[case::slow_but_patient(1, 400, &[0.1], None)]
    #[case::nothing_yet(0, 1000, &[], None)]
    fn endings(#[case] rounds: usize, #[case] ms: u64, #[case] widths: &[f64], #[case] expected: Option<Ending>) {
        let rule = StoppingRule { half_width: 0.005, min_rounds: 3, max_rounds: 9, budget: Duration::from_millis(100) };
        assert_eq!(rule.ending(rounds, Duration::from_millis(ms), widths.iter().copied()), expected);
    }
}
