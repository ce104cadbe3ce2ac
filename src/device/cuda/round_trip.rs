//! What a launch costs the host, and how long it takes to learn of its end.

use super::device::CudaDevice;
use super::support::{fault, run_support};
use crate::core::launch::Launch;
use crate::core::stats::median;
use crate::device::RoundTrip;
use crate::device::fault::Fault;
use std::time::Instant;

/// Kernels that are launched; those of the first tenth warm up.
const LAUNCHES: usize = 500;

/// Medians over empty kernels, each of which is waited for.
///
/// # Errors
/// What the driver said.
pub(super) fn measure(device: &CudaDevice) -> Result<RoundTrip, Fault> {
    device.context.bind().map_err(|e| fault(device, e))?;
    // It holds the stream for no time, and writes no clock.
    let empty = Launch::blocks(1, 1).scalar(0u64).scalar(0u64);
    let (mut launched, mut ended) = (Vec::new(), Vec::new());
    for turn in 0..LAUNCHES {
        let begun = Instant::now();
        run_support(device, "kernelgate_gate", &empty)?;
        let launch = begun.elapsed();
        device.context.wait(device.launch_limit()).map_err(|e| fault(device, e))?;
        if turn >= LAUNCHES / 10 {
            launched.push(launch.as_secs_f64() * 1e6);
            ended.push((begun.elapsed() - launch).as_secs_f64() * 1e6);
        }
    }
    Ok(RoundTrip { launch_us: median(&launched), synchronised_us: median(&ended) })
}
