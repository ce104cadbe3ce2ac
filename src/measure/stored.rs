//! A time against one of another session: as it is, and with what the environment explains taken away.
//!
//! Between sessions the device itself changes. Another card of the model is slower by some share; and on one and the same
//! card every launch of a batch costs one of several fixed times, 1.10, 1.28 or 1.45 µs on an H200, depending on nothing
//! that a program can see. The yardstick of each session, a copy of as many bytes, shows both: the first scales it, the
//! second shifts it.

use super::change::{Change, Comparison, Estimate};

/// A time of one session against a time of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stored {
    /// As they are.
    pub plain: Comparison,
    /// With the change of the yardstick explained away, where both sessions have the same one.
    pub explained: Option<Explained>,
}

/// The two ways in which the environment can change a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Explained {
    /// Both in units of the yardstick of their session.
    pub scaled: Comparison,
    /// Both relative to the yardstick of their session: the head less what the yardstick gained.
    pub shifted: Comparison,
}

impl Stored {
    /// Holds `head` against `base`, with the yardsticks of their sessions where they have the same one.
    pub fn of(base: Estimate, head: Estimate, yardsticks_us: Option<(f64, f64)>, threshold: f64) -> Self {
        // Yardsticks are sampled as often as the candidate and scatter less; their doubt is not stored.
        let explained = yardsticks_us.map(|(base_unit_us, head_unit_us)| {
            let compare = |head_us: f64| {
                let half_width = head.half_width * head.us / head_us;
                Comparison::of(base, Estimate { us: head_us, half_width }, threshold)
            };
            Explained {
                scaled: compare(head.us * base_unit_us / head_unit_us),
                shifted: compare(head.us - (head_unit_us - base_unit_us)),
            }
        });
        Stored { plain: Comparison::of(base, head, threshold), explained }
    }

    /// Slower, or faster, only if that is so however the environment is accounted for. Where one view sees no change,
    /// or two see opposite ones, the environment explains it.
    pub fn change(&self) -> Change {
        let views: Vec<Change> = self.views().map(|view| view.change).collect();
        let any = |change: Change| views.contains(&change);
        if views.iter().all(|&view| view == views[0]) {
            views[0]
        } else if any(Change::Same) || (any(Change::Slower) && any(Change::Faster)) {
            Change::Same
        } else {
            Change::Unclear
        }
    }

    /// The ratio of the view that sees the least change, 1 where two see opposite ones: what the noise of stored times
    /// has to be judged by.
    pub fn least_ratio(&self) -> f64 {
        let ratios: Vec<f64> = self.views().map(|view| view.ratio).collect();
        if ratios.iter().any(|&r| r > 1.0) && ratios.iter().any(|&r| r < 1.0) {
            return 1.0;
        }
        ratios.into_iter().min_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs())).unwrap_or(f64::NAN)
    }

    fn views(&self) -> impl Iterator<Item = Comparison> + '_ {
        let explained = self.explained.iter().flat_map(|explained| [explained.scaled, explained.shifted]);
        std::iter::once(self.plain).chain(explained)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn compare(head_us: f64, yardsticks_us: Option<(f64, f64)>) -> Stored {
        let sure = |us| Estimate { us, half_width: 0.001 };
        Stored::of(sure(10.0), sure(head_us), yardsticks_us, 0.01)
    }

    #[rstest]
    #[case::same(10.0, 8.0, Change::Same)]
    #[case::slower(10.3, 8.0, Change::Slower)]
    #[case::faster(9.7, 8.0, Change::Faster)]
    #[case::slower_card(11.0, 8.8, Change::Same)]
    #[case::slower_than_the_slower_card(11.6, 8.8, Change::Slower)]
    #[case::dearer_launches(10.35, 8.35, Change::Same)]
    #[case::slower_than_dearer_launches(10.65, 8.35, Change::Slower)]
    #[case::cheaper_launches(9.65, 7.65, Change::Same)]
    #[case::lucky_yardstick(10.0, 7.0, Change::Same)]
    fn the_environment_is_no_regression(#[case] head_us: f64, #[case] unit_us: f64, #[case] expected: Change) {
        let stored = compare(head_us, Some((8.0, unit_us)));
        assert_eq!(stored.change(), expected, "{stored:?}");
    }

    #[test]
    fn without_a_yardstick_the_plain_time_decides() {
        assert_eq!(compare(10.3, None).change(), Change::Slower);
        approx::assert_relative_eq!(compare(10.3, None).least_ratio(), 1.03);
    }

    #[test]
    fn the_least_ratio_is_what_the_environment_leaves() {
        approx::assert_relative_eq!(compare(11.6, Some((8.0, 8.8))).least_ratio(), 11.6 / 11.0, max_relative = 1e-12);
        assert_eq!(compare(10.35, Some((8.0, 8.5))).least_ratio(), 1.0);
    }

    #[test]
    fn one_view_too_noisy_to_tell_makes_it_unclear() {
        let noisy = Estimate { us: 10.3, half_width: 0.1 };
        let stored = Stored::of(Estimate { us: 10.0, half_width: 0.0 }, noisy, Some((8.0, 8.0)), 0.01);
        assert_eq!(stored.change(), Change::Unclear);
    }
}
