//! The rule that tells a change from noise: large enough to matter, and larger than the measurement's own doubt.
//! Where the measurement can't tell, it says so.

use super::series::{interval_of_typical, typical};
use crate::core::stats::Interval;
use serde::{Deserialize, Serialize};

/// What became of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Within the threshold, and the measurement would have shown more.
    Same,
    /// Faster by more than the threshold.
    Faster,
    /// Slower by more than the threshold.
    Slower,
    /// Too noisy, or too few samples, to tell.
    Unclear,
}

/// A typical time with its doubt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The typical time, µs.
    pub us: f64,
    /// Half the 95 % interval, as a share of it.
    pub half_width: f64,
}

/// Fewer samples than this make no estimate: the 95 % interval of a median needs six.
pub const MIN_SAMPLES: usize = 6;

impl Estimate {
    /// The estimate from the times of each instance; `None` for too few.
    pub fn of(instances: &[Vec<f64>]) -> Option<Self> {
        let samples: usize = instances.iter().map(Vec::len).sum();
        let half_width = interval_of_typical(instances).relative_half_width();
        (samples >= MIN_SAMPLES).then(|| Estimate { us: typical(instances), half_width })
    }
}

/// A change must be this many times half its 95 % interval, which makes three standard deviations of two: noisy
/// sessions then raise about a tenth of the false alarms, and quiet ones miss nothing more.
const DECISIVE: f64 = 1.5;

/// Two times against each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The result.
    pub change: Change,
    /// Head over base: above 1 is slower.
    pub ratio: f64,
    /// 95 % interval of the ratio.
    pub interval: Interval,
}

impl Comparison {
    /// Holds `head` against `base`: a change must exceed `threshold`, and be `DECISIVE` against the doubt of the
    /// measurement. Within the threshold it is the same only if the interval is narrow enough to have shown a change of
    /// that size.
    pub fn of(base: Estimate, head: Estimate, threshold: f64) -> Self {
        let ratio = head.us / base.us;
        let half_width = base.half_width.hypot(head.half_width);
        let interval = Interval { low: ratio * (1.0 - half_width), high: ratio * (1.0 + half_width) };
        let beyond = ratio > 1.0 + threshold || ratio < 1.0 / (1.0 + threshold);
        let decisive = (ratio - 1.0).abs() > DECISIVE * half_width * ratio;
        let change = match (beyond, decisive) {
            _ if !(ratio.is_finite() && half_width.is_finite()) => Change::Unclear,
            (true, true) if ratio > 1.0 => Change::Slower,
            (true, true) => Change::Faster,
            (true, false) => Change::Unclear,
            (false, _) if half_width > threshold => Change::Unclear,
            (false, _) => Change::Same,
        };
        Comparison { change, ratio, interval }
    }
}

/// Compares two contestants of one session by their times, an inner list an instance.
pub fn paired(base: &[Vec<f64>], head: &[Vec<f64>], threshold: f64) -> Comparison {
    match (Estimate::of(base), Estimate::of(head)) {
        (Some(base), Some(head)) => Comparison::of(base, head, threshold),
        _ => Comparison {
            change: Change::Unclear,
            ratio: typical(head) / typical(base),
            interval: Interval { low: f64::NAN, high: f64::NAN },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::seed::rng;
    use crate::measure::simulated::Noise;
    use rstest::rstest;

    fn estimate(us: f64, half_width: f64) -> Estimate {
        Estimate { us, half_width }
    }

    #[rstest]
    #[case::equal(1.0, 0.001, Change::Same)]
    #[case::inside(1.009, 0.001, Change::Same)]
    #[case::just_slower(1.011, 0.001, Change::Slower)]
    #[case::just_faster(0.989, 0.001, Change::Faster)]
    #[case::beyond_but_doubtful(1.02, 0.03, Change::Unclear)]
    #[case::faster_but_doubtful(0.97, 0.05, Change::Unclear)]
    #[case::inside_but_blind(1.0, 0.02, Change::Unclear)]
    #[case::far_in_spite_of_doubt(1.5, 0.05, Change::Slower)]
    #[case::past_its_interval_but_not_decisive(1.02, 0.015, Change::Unclear)]
    #[case::nothing_measured(f64::NAN, 0.001, Change::Unclear)]
    #[case::no_interval(1.0, f64::NAN, Change::Unclear)]
    fn the_rule(#[case] ratio: f64, #[case] half_width: f64, #[case] expected: Change) {
        assert_eq!(Comparison::of(estimate(4.0, 0.0), estimate(4.0 * ratio, half_width), 0.01).change, expected);
    }

    #[test]
    fn too_few_samples_are_unclear_whatever_they_say() {
        let comparison = paired(&[vec![1.0; 5]], &[vec![2.0; 50]], 0.01);
        assert_eq!((comparison.change, comparison.ratio), (Change::Unclear, 2.0));
        assert_eq!(paired(&[], &[], 0.01).change, Change::Unclear);
    }

    /// The noise of kernels of 2 to 4 µs in graph batches: instances differ by 0.2 %, batches by 0.5 %, and some are
    /// hit by something else on the machine.
    const GRAPH_BATCHES: Noise =
        Noise { instance_sd: 0.002, sample_sd: 0.005, outlier_share: 0.02, outlier_factor: 1.3, throttled_share: 0.0 };

    fn share(noise: Noise, planted: f64, tries: usize, expected: Change) -> f64 {
        let mut rng = rng(11);
        let found = (0..tries).filter(|_| {
            let base = noise.series(&mut rng, 3.0, 16, 5);
            let head = noise.series(&mut rng, 3.0 * (1.0 + planted), 16, 5);
            paired(&base, &head, 0.01).change == expected
        });
        found.count() as f64 / tries as f64
    }

    #[test]
    fn one_kernel_against_itself_is_never_slower() {
        assert_eq!(share(GRAPH_BATCHES, 0.0, 1000, Change::Slower), 0.0);
        assert!(share(GRAPH_BATCHES, 0.0, 1000, Change::Same) > 0.99);
    }

    #[test]
    fn noise_far_above_the_threshold_is_unclear_and_no_alarm() {
        let noisy = Noise { sample_sd: 0.04, ..GRAPH_BATCHES };
        assert!(share(noisy, 0.0, 2000, Change::Slower) <= 0.004);
        assert!(share(noisy, 0.0, 2000, Change::Unclear) > 0.9);
    }

    #[test]
    fn two_percent_are_found() {
        assert!(share(GRAPH_BATCHES, 0.02, 200, Change::Slower) >= 0.99);
        assert!(share(GRAPH_BATCHES, -0.02, 200, Change::Faster) >= 0.99);
    }

    #[test]
    fn the_interval_is_that_of_the_ratio() {
        let comparison = Comparison::of(estimate(4.0, 0.03), estimate(6.0, 0.04), 0.01);
        // Doubts of 3 and 4 % are one of 5 %.
        let Interval { low, high } = comparison.interval;
        assert!((low - 1.425).abs() < 1e-12 && (high - 1.575).abs() < 1e-12, "{low} to {high}");
    }
}
