//! What binds a measured time: a class without hardware counters, from a calibration.

use super::features::Features;
use super::limits::Limits;
use crate::check::outcome::Bound;

/// A time within this factor of an empty launch is one.
const LAUNCH: f64 = 2.0;

/// A limit that takes less than this share of the time does not bind it: the share that Nsight Compute's rules have for
/// throughput.
pub const BINDING: f64 = 0.6;

/// What binds a time, and the share of the time that the binding limit takes by itself.
pub fn classify(us: f64, features: &Features, limits: &Limits) -> (Bound, f64) {
    // At the bandwidth of a large copy: what a small one takes beside that is latency.
    classify_beside(us, limits.roofline_memory_us(features.bytes()), features, limits)
}

/// The same where its bytes take `memory_us` by themselves: out of a cache, say.
pub fn classify_beside(us: f64, memory_us: f64, features: &Features, limits: &Limits) -> (Bound, f64) {
    let memory = memory_us / us;
    let pipe = limits.pipe_us(features.flops, features.on_tensor_cores, features.dtype).unwrap_or(0.0) / us;
    let launch = limits.launch_us * features.launches / us;
    if memory.max(pipe) >= BINDING {
        if memory >= pipe { (Bound::Memory, memory) } else { (Bound::Compute, pipe) }
    } else if launch * LAUNCH >= 1.0 {
        (Bound::Launch, launch)
    } else {
        (Bound::Latency, memory.max(pipe))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fit::tests::{TRUTH, h200, products};
    use super::*;

    #[test]
    fn each_class_is_found() {
        let limits = h200();
        let product = products(&TRUTH, 1, 0.0, 1).remove(0).0;
        let large = Features { flops: 1e12, read_bytes: 1e8, written_bytes: 1e8, ..product.clone() };
        assert_eq!(classify(1300.0, &large, &limits).0, Bound::Compute);
        assert_eq!(classify(4000.0, &large, &limits).0, Bound::Latency);
        let stream = Features { flops: 1e6, on_tensor_cores: false, read_bytes: 1e8, written_bytes: 1e8, ..product };
        let (bound, share) = classify(60.0, &stream, &limits);
        assert!(bound == Bound::Memory && share > 0.7, "{share}");
        let small = Features { read_bytes: 1e3, written_bytes: 1e3, ..stream };
        assert_eq!(classify(1.2, &small, &limits).0, Bound::Launch);
        assert_eq!(classify(12.0, &small, &limits).0, Bound::Latency);
    }
}
