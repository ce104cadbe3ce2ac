//! How a time stands against an accepted one: as it is, and in units of the yardstick of its own session.

use super::row::{Row, half_width_of, yardstick_of};
use crate::check::outcome::Timing;
use crate::measure::{Change, Comparison, Estimate};

/// Slow creep is called at this many times the threshold: a few changes, each too small to see, add up to it.
const CREEP_TIMES: f64 = 3.0;

/// Less than this is never creep.
const LEAST_CREEP: f64 = 0.05;

/// Where a time stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The result.
    pub change: Change,
    /// Median over the accepted median.
    pub ratio: f64,
    /// The same, both in units of the yardstick of their session.
    pub normalised_ratio: Option<f64>,
    /// Whether it is slower only against the pinned epoch.
    pub is_creep: bool,
    /// The ratio to the pinned epoch.
    pub epoch_ratio: f64,
    /// Whether the epoch should begin anew with this time.
    pub new_epoch: bool,
}

/// Holds a timing against the accepted row. It is slower, or faster, only if both the plain and the normalised time
/// say so: a slower card of the same model slows the yardstick too, and a yardstick that was lucky does not slow the
/// candidate.
pub fn stand(row: &Row, timing: &Timing, threshold: f64) -> Standing {
    let now = Estimate { us: timing.median_us, half_width: half_width_of(timing) };
    let accepted = Estimate { us: row.median_us, half_width: row.half_width };
    let epoch = Estimate { us: row.epoch_us.0, half_width: row.half_width };
    let unit_now = yardstick_of(timing);
    let unit_then = row.yardstick.filter(|then| unit_now.is_some_and(|now| now.unit == then.unit));
    let unit_epoch = unit_then.and(row.epoch_us.1);

    let last = Against::of(accepted, unit_then.map(|y| y.us), now, unit_now.map(|y| y.us), threshold);
    let creep_threshold = LEAST_CREEP.max(CREEP_TIMES * threshold);
    let first = Against::of(epoch, unit_epoch, now, unit_now.map(|y| y.us), creep_threshold);
    let is_creep = last.change() == Change::Same && first.change() == Change::Slower;
    Standing {
        change: if is_creep { Change::Slower } else { last.change() },
        ratio: last.plain.ratio,
        normalised_ratio: last.normalised.map(|comparison| comparison.ratio),
        is_creep,
        epoch_ratio: first.plain.ratio,
        // A gain is kept as the new mark; a loss beyond the creep threshold is in plain sight once it is accepted.
        new_epoch: last.change() == Change::Faster || first.change() == Change::Slower,
    }
}

/// A time against one other, plain and normalised.
struct Against {
    plain: Comparison,
    normalised: Option<Comparison>,
}

impl Against {
    fn of(
        base: Estimate,
        base_unit_us: Option<f64>,
        head: Estimate,
        head_unit_us: Option<f64>,
        threshold: f64,
    ) -> Self {
        // Yardsticks are sampled as often as the candidate and scatter less; their doubt is not stored.
        let exact = |us| Estimate { us, half_width: 0.0 };
        let units = base_unit_us.zip(head_unit_us);
        Against {
            plain: Comparison::of(base, head, threshold),
            normalised: units.map(|(base_unit, head_unit)| {
                Comparison::of(base.over(exact(base_unit)), head.over(exact(head_unit)), threshold)
            }),
        }
    }

    fn change(&self) -> Change {
        match (self.plain.change, self.normalised.map(|comparison| comparison.change)) {
            (plain, None) => plain,
            (plain, Some(normalised)) if plain == normalised => plain,
            // One of them sees no change: the environment changed, not the kernel.
            (Change::Same, Some(_)) | (_, Some(Change::Same)) => Change::Same,
            _ => Change::Unclear,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::simulated::timing;
    use rstest::rstest;

    #[rstest]
    #[case::same(10.0, 8.0, Change::Same)]
    #[case::slower(10.3, 8.0, Change::Slower)]
    #[case::faster(9.7, 8.0, Change::Faster)]
    #[case::slower_card(11.0, 8.8, Change::Same)]
    #[case::slower_than_the_slower_card(11.6, 8.8, Change::Slower)]
    #[case::lucky_yardstick(10.0, 7.0, Change::Same)]
    #[case::contradiction(10.5, 9.5, Change::Unclear)]
    fn both_ratios_must_agree(#[case] median_us: f64, #[case] copy_us: f64, #[case] expected: Change) {
        let row = Row::of(&timing("n=1", 10.0, Some(8.0)), None);
        let standing = stand(&row, &timing("n=1", median_us, Some(copy_us)), 0.01);
        assert_eq!(standing.change, expected, "{standing:?}");
    }

    #[test]
    fn without_a_yardstick_the_plain_time_decides() {
        let row = Row::of(&timing("n=1", 10.0, None), None);
        assert_eq!(stand(&row, &timing("n=1", 10.3, Some(9.0)), 0.01).change, Change::Slower);
        let row = Row::of(&timing("n=1", 10.0, Some(9.0)), None);
        let standing = stand(&row, &timing("n=1", 10.3, None), 0.01);
        assert_eq!((standing.change, standing.normalised_ratio), (Change::Slower, None));
    }

    #[test]
    fn a_wide_interval_is_unclear() {
        let row = Row::of(&timing("n=1", 10.0, Some(8.0)), None);
        let noisy = Timing { low_us: 9.0, high_us: 12.0, ..timing("n=1", 10.3, Some(8.0)) };
        assert_eq!(stand(&row, &noisy, 0.01).change, Change::Unclear);
    }

    #[test]
    fn creep_is_slower_and_begins_a_new_epoch_once_accepted() {
        // Accepted at 10.45 after several small steps from 10.0; now in tolerance of the last, but not of the first.
        let row = Row::of(&timing("n=1", 10.45, Some(8.0)), Some((10.0, Some(8.0))));
        let now = timing("n=1", 10.52, Some(8.0));
        let standing = stand(&row, &now, 0.01);
        assert!(standing.change == Change::Slower && standing.is_creep && standing.new_epoch, "{standing:?}");
        assert_eq!(stand(&Row::of(&now, None), &now, 0.01).change, Change::Same);
    }

    #[test]
    fn small_steps_keep_the_epoch() {
        let row = Row::of(&timing("n=1", 10.0, Some(8.0)), None);
        assert!(!stand(&row, &timing("n=1", 10.2, Some(8.0)), 0.01).new_epoch);
        assert!(stand(&row, &timing("n=1", 9.7, Some(8.0)), 0.01).new_epoch, "a gain is the new mark");
        assert!(stand(&row, &timing("n=1", 12.0, Some(8.0)), 0.01).new_epoch, "a large loss is in plain sight");
    }
}
