//! The search modes of the simulator: which of the lawful executions a run is. A right kernel passes all of them, a
//! lucky one fails some.

use crate::core::seed::derive;
use crate::sim::{Accumulation, Checks, Completion, Options, WarpOrder};

/// The longest axis for which the simulator's own budget of work is enough.
const USUAL_EXTENT: u64 = 1024;
const MOST_WORK: u64 = 300_000_000;

/// Work of a block, about one a warp instruction, past which it does not end: a block that sums 65,537 products an
/// element needs more than one that sums a thousand, and a loop that never ends should not run for as long as both.
pub fn work_budget(point: &[usize]) -> u64 {
    let longest = point.iter().max().map_or(0, |extent| *extent as u64);
    Options::default().work_budget.saturating_mul(1 + longest / USUAL_EXTENT).min(MOST_WORK)
}

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Blocks and warps by number, asynchronous copies done at once.
    Plain,
    /// The same, without the checks that cost time: to count.
    Counted,
    /// The same values, another schedule: turns of warps and order of blocks drawn, copies as late as may be.
    Rescheduled,
    /// The same values, one of many schedules.
    Repeated(usize),
    /// Other values too, as far as they are open: approximate operations moved within their bounds, sums of matrix
    /// operations in another order.
    Varied,
}

/// The options of a run of the case that `seed` stands for.
pub fn options(mode: Mode, seed: u64, work_budget: u64) -> Options {
    let plain = Options { work_budget, ..Options::default() };
    // Seed 0 is the order by number.
    let seeded = |what: &str| derive(seed, &["simulator", what]).max(1);
    match mode {
        Mode::Plain => plain,
        Mode::Counted => Options { checks: Checks::NONE, ..plain },
        Mode::Rescheduled => {
            Options { seed: seeded("second"), warp_order: WarpOrder::Seeded, completion: Completion::Late, ..plain }
        }
        Mode::Repeated(n) => Options {
            seed: seeded(&n.to_string()),
            warp_order: if n.is_multiple_of(3) { WarpOrder::Descending } else { WarpOrder::Seeded },
            completion: if n.is_multiple_of(2) { Completion::Early } else { Completion::Late },
            ..plain
        },
        Mode::Varied => Options {
            seed: seeded("varied"),
            warp_order: WarpOrder::Descending,
            accumulation: Accumulation::Shuffled,
            adversarial_approximations: true,
            ..plain
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_must_agree_share_their_values_and_nothing_else() {
        let options = |mode, seed| options(mode, seed, 1);
        let plain = options(Mode::Plain, 7);
        let mut seen = vec![plain];
        for mode in [Mode::Rescheduled, Mode::Repeated(0), Mode::Repeated(1), Mode::Repeated(2), Mode::Repeated(3)] {
            let other = options(mode, 7);
            assert_eq!((other.accumulation, other.adversarial_approximations), (plain.accumulation, false));
            assert!(!seen.contains(&other), "{mode:?}");
            seen.push(other);
        }
        assert_ne!(options(Mode::Rescheduled, 7), options(Mode::Rescheduled, 8));
        let varied = options(Mode::Varied, 7);
        assert!(varied.adversarial_approximations && varied.accumulation != plain.accumulation);
    }

    #[test]
    fn long_sums_have_time_and_short_ones_no_more_than_they_need() {
        let usual = Options::default().work_budget;
        assert_eq!(work_budget(&[256, 1023]), usual);
        assert_eq!(work_budget(&[3, 65_537]), MOST_WORK);
        assert_eq!(work_budget(&[3000, 2]), 3 * usual);
    }
}
