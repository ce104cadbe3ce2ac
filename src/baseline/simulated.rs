//! Timings without a device: what the tests of this module judge.

use crate::check::outcome::{Timing, Verdict};
use crate::device::Heat;

/// A sound timing with an interval of 0.1 % to either side.
pub(crate) fn timing(shape: &str, median_us: f64, copy_us: Option<f64>) -> Timing {
    Timing {
        shape: shape.into(),
        heat: Heat::Cold,
        median_us,
        p5_us: median_us * 0.99,
        p95_us: median_us * 1.01,
        low_us: median_us * 0.999,
        high_us: median_us * 1.001,
        samples: 40,
        dropped: 0,
        clock_mhz: Some(1980.0),
        bytes: 1 << 20,
        flops: 1 << 18,
        copy_us,
        read_us: None,
        fma_us: None,
        floor_us: copy_us,
        of_ceiling: copy_us.map(|us| us / median_us),
        baseline_us: None,
        ratio: None,
        normalised_ratio: None,
        threshold: None,
        verdict: Verdict::Pass,
        peers: Vec::new(),
        code: None,
        predicted_us: None,
        predicted_interval_us: None,
        bound: None,
    }
}
