//! The throttle watch: samples taken while the clock was low say nothing about the kernel.

use super::series::Series;
use crate::core::stats::median;
use crate::device::Sample;

/// The lowest clock at which a sample counts, as a share of the session's median clock.
pub const CLOCK_SHARE: f64 = 0.9;

/// Keeps the samples of one session that ran at about its usual clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockWatch {
    floor_mhz: f64,
}

impl ClockWatch {
    /// A watch around the median clock of all contestants together: they share the device and its power budget.
    pub fn over(series: &[Series]) -> Self {
        let clocks: Vec<f64> = series.iter().flat_map(Series::clocks_mhz).collect();
        // Without any clock the median is NaN, and no comparison with it drops a sample.
        ClockWatch { floor_mhz: CLOCK_SHARE * median(&clocks) }
    }

    /// Whether the sample counts; one without a clock always does.
    pub fn keeps(&self, sample: &Sample) -> bool {
        !sample.clock_mhz.is_some_and(|mhz| mhz < self.floor_mhz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn at(clock_mhz: Option<f64>) -> Sample {
        Sample { launch_us: 1.0, clock_mhz }
    }

    #[rstest]
    #[case(Some(1980.0), true)]
    #[case(Some(1790.0), true)]
    #[case(Some(1700.0), false)]
    #[case(None, true)]
    fn low_clocks_are_dropped(#[case] clock_mhz: Option<f64>, #[case] kept: bool) {
        let series = Series::of(vec![vec![at(Some(1980.0)); 9], vec![at(Some(1000.0)); 3]]);
        assert_eq!(ClockWatch::over(&[series]).keeps(&at(clock_mhz)), kept);
    }

    #[test]
    fn a_device_without_a_clock_keeps_everything() {
        let watch = ClockWatch::over(&[Series::of(vec![vec![at(None); 5]])]);
        assert!(watch.keeps(&at(None)));
    }
}
