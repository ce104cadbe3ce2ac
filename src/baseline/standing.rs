//! How a time stands against an accepted one: as it is, and in units of the yardstick of its own session.

use super::row::{Row, half_width_of, yardstick_of};
use crate::check::outcome::Timing;
use crate::measure::{Change, Estimate, Stored};

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
    /// Whether it is unclear because the very code of the accepted time took another time.
    pub is_of_environment: bool,
    /// The ratio to the pinned epoch.
    pub epoch_ratio: f64,
    /// Whether the epoch should begin anew with this time.
    pub new_epoch: bool,
}

/// Holds a timing against the accepted row; what the yardstick explains is no change of the candidate.
pub fn stand(row: &Row, timing: &Timing, threshold: f64) -> Standing {
    let now = Estimate { us: timing.median_us, half_width: half_width_of(timing) };
    let accepted = Estimate { us: row.median_us, half_width: row.half_width };
    let epoch = Estimate { us: row.epoch_us.0, half_width: row.half_width };
    let units = row.yardstick.zip(yardstick_of(timing)).filter(|(then, now)| then.unit == now.unit);
    let epoch_units = units.and_then(|(_, now)| row.epoch_us.1.map(|then_us| (then_us, now.us)));

    let last = Stored::of(accepted, now, units.map(|(then, now)| (then.us, now.us)), threshold);
    let first = Stored::of(epoch, now, epoch_units, LEAST_CREEP.max(CREEP_TIMES * threshold));
    let is_creep = last.change() == Change::Same && first.change() == Change::Slower;
    let change = if is_creep { Change::Slower } else { last.change() };
    let is_other = matches!(change, Change::Slower | Change::Faster);
    let is_of_environment = is_other && row.code.is_some() && row.code == timing.code;
    Standing {
        change: if is_of_environment { Change::Unclear } else { change },
        ratio: last.plain.ratio,
        normalised_ratio: last.explained.map(|explained| explained.scaled.ratio),
        is_creep,
        is_of_environment,
        epoch_ratio: first.plain.ratio,
        // A gain is kept as the new mark; a loss beyond the creep threshold is in plain sight once it is accepted.
        new_epoch: last.change() == Change::Faster || first.change() == Change::Slower,
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
    fn a_change_is_one_of_the_candidate(#[case] median_us: f64, #[case] copy_us: f64, #[case] expected: Change) {
        let row = Row::of(&timing("n=1", 10.0, Some(8.0)), None);
        let standing = stand(&row, &timing("n=1", median_us, Some(copy_us)), 0.01);
        assert_eq!(standing.change, expected, "{standing:?}");
    }

    #[rstest]
    #[case::unknown(None, None, Change::Slower)]
    #[case::unknown_then(None, Some("a"), Change::Slower)]
    #[case::unknown_now(Some("a"), None, Change::Slower)]
    #[case::other_code(Some("a"), Some("b"), Change::Slower)]
    #[case::same_code(Some("a"), Some("a"), Change::Unclear)]
    fn the_same_code_did_not_become_slower(
        #[case] then: Option<&str>,
        #[case] now: Option<&str>,
        #[case] expected: Change,
    ) {
        let timed = |us: f64, code: Option<&str>| Timing { code: code.map(Into::into), ..timing("n=1", us, Some(8.0)) };
        let row = Row::of(&timed(10.0, then), None);
        for us in [10.3, 9.7] {
            let standing = stand(&row, &timed(us, now), 0.01);
            let expected = if us < 10.0 && expected == Change::Slower { Change::Faster } else { expected };
            assert_eq!((standing.change, standing.is_of_environment), (expected, expected == Change::Unclear));
        }
        assert_eq!(stand(&row, &timed(10.0, now), 0.01).change, Change::Same);
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
