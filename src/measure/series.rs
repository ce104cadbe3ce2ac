//! The samples of one contestant, and what they say about its time.

use super::clock::ClockWatch;
use crate::core::stats::{Interval, Z95, median, median_interval, quantile_sorted, sorted};
use crate::device::Sample;

/// Samples by recorded instance: each instance has a small offset of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    instances: Vec<Vec<Sample>>,
}

/// What a series says.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Typical time a launch, µs, as [`typical`] has it; NaN without samples.
    pub median_us: f64,
    /// 5th percentile, µs.
    pub p5_us: f64,
    /// 95th percentile, µs.
    pub p95_us: f64,
    /// 95 % interval of the typical time, µs.
    pub interval_us: Interval,
    /// Samples that count.
    pub samples: usize,
    /// Samples left out by the throttle watch.
    pub dropped: usize,
    /// Median clock of the samples that count, MHz.
    pub clock_mhz: Option<f64>,
}

impl Series {
    /// A series of samples by instance.
    pub fn of(instances: Vec<Vec<Sample>>) -> Self {
        Series { instances }
    }

    /// A series without samples yet.
    pub fn with_instances(instances: usize) -> Self {
        Series { instances: vec![Vec::new(); instances] }
    }

    /// Adds a sample of an instance.
    pub fn push(&mut self, instance: usize, sample: Sample) {
        self.instances[instance].push(sample);
    }

    /// Every clock that was seen.
    pub fn clocks_mhz(&self) -> impl Iterator<Item = f64> + '_ {
        self.instances.iter().flatten().filter_map(|sample| sample.clock_mhz)
    }

    /// The times that count, by instance, µs.
    pub fn kept_us(&self, watch: &ClockWatch) -> Vec<Vec<f64>> {
        let kept = |samples: &Vec<Sample>| {
            samples.iter().filter(|sample| watch.keeps(sample)).map(|sample| sample.launch_us).collect()
        };
        self.instances.iter().map(kept).collect()
    }

    /// The statistics of the samples that count.
    pub fn summary(&self, watch: &ClockWatch) -> Summary {
        let kept = self.kept_us(watch);
        let pooled = sorted(&kept.concat());
        let clocks: Vec<f64> = self
            .instances
            .iter()
            .flatten()
            .filter(|sample| watch.keeps(sample))
            .filter_map(|sample| sample.clock_mhz)
            .collect();
        Summary {
            median_us: typical(&kept),
            p5_us: quantile_sorted(&pooled, 0.05),
            p95_us: quantile_sorted(&pooled, 0.95),
            interval_us: interval_of_typical(&kept),
            samples: pooled.len(),
            dropped: self.instances.iter().map(Vec::len).sum::<usize>() - pooled.len(),
            clock_mhz: (!clocks.is_empty()).then(|| median(&clocks)),
        }
    }
}

/// The fewest instances whose spread says anything: Student's factor is 3.2 for four, 12.7 for two.
const MIN_INSTANCES: usize = 4;

/// The typical time of samples by instance: the mean over the instances of their medians. Outliers within an instance
/// do not count; the instances themselves often fall into two or three groups, and where a median of them all would jump
/// from one group to another, their mean stays.
pub fn typical(instances: &[Vec<f64>]) -> f64 {
    let medians = medians(instances);
    if medians.len() < MIN_INSTANCES { median(&instances.concat()) } else { mean(&medians) }
}

/// The 95 % interval of the typical time: from the spread of the medians of the instances, or by order statistics where
/// there are too few of them. Samples of one instance share its offset, so that order statistics of many samples make an
/// interval narrower than the truth.
pub fn interval_of_typical(instances: &[Vec<f64>]) -> Interval {
    let medians = medians(instances);
    if medians.len() < MIN_INSTANCES {
        return median_interval(&instances.concat(), Z95);
    }
    let (n, centre) = (medians.len() as f64, mean(&medians));
    let variance = medians.iter().map(|m| (m - centre).powi(2)).sum::<f64>() / (n - 1.0);
    let reach = student_95(medians.len() - 1) * (variance / n).sqrt();
    Interval { low: centre - reach, high: centre + reach }
}

fn medians(instances: &[Vec<f64>]) -> Vec<f64> {
    instances.iter().filter(|samples| !samples.is_empty()).map(|samples| median(samples)).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The two-sided 95 % quantile of Student's t with three or more degrees of freedom (Cornish-Fisher expansion).
fn student_95(freedom: usize) -> f64 {
    let (z, v) = (Z95, freedom as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / v + second / v.powi(2) + third / v.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::seed::rng;
    use crate::measure::simulated::Noise;
    use rstest::rstest;

    #[rstest]
    #[case(3, 3.182)]
    #[case(7, 2.365)]
    #[case(30, 2.042)]
    fn quantiles_of_student(#[case] freedom: usize, #[case] expected: f64) {
        approx::assert_relative_eq!(student_95(freedom), expected, max_relative = 0.01);
    }

    #[test]
    fn the_interval_covers_the_truth_in_spite_of_instance_offsets() {
        let noise = Noise { instance_sd: 0.004, sample_sd: 0.002, ..Noise::default() };
        let mut rng = rng(4);
        let (mut covered, mut by_order_alone) = (0, 0);
        for _ in 0..1000 {
            let series = noise.series(&mut rng, 10.0, 8, 5);
            covered += usize::from(interval_of_typical(&series).contains(10.0));
            by_order_alone += usize::from(median_interval(&series.concat(), Z95).contains(10.0));
        }
        assert!(covered >= 940, "{covered} of 1000");
        assert!(by_order_alone < 800, "the case must be one where order statistics alone fail: {by_order_alone}");
    }

    #[test]
    fn two_groups_of_instances_do_not_make_the_typical_time_jump() {
        let side = |slow: usize| -> Vec<Vec<f64>> {
            (0..16).map(|i| vec![if i < slow { 6.15 } else { 5.75 } + 0.001 * i as f64; 5]).collect()
        };
        let (seven, nine) = (side(7), side(9));
        assert!(typical(&nine) / typical(&seven) < 1.01);
        assert!(median(&nine.concat()) / median(&seven.concat()) > 1.06, "the case must be one where medians jump");
    }

    #[test]
    fn a_summary_counts_what_it_dropped() {
        let sample = |launch_us: f64, mhz: f64| Sample { launch_us, clock_mhz: Some(mhz) };
        let mut series = Series::with_instances(2);
        for i in 0..10 {
            series.push(i % 2, sample(5.0 + i as f64 * 0.01, 1980.0));
        }
        series.push(0, sample(9.0, 1200.0));
        let summary = series.summary(&ClockWatch::over(std::slice::from_ref(&series)));
        assert_eq!((summary.samples, summary.dropped, summary.clock_mhz), (10, 1, Some(1980.0)));
        approx::assert_relative_eq!(summary.median_us, 5.045);
        assert!(summary.p95_us < 5.1);
    }

    #[test]
    fn no_samples_make_no_number() {
        let series = Series::with_instances(3);
        let summary = series.summary(&ClockWatch::over(&[]));
        assert!(summary.median_us.is_nan() && summary.samples == 0);
    }
}
