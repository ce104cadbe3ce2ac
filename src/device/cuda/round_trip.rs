//! What a launch costs the host, how long it takes to learn of its end, and what a queue of launches takes longer than a graph.

use super::device::CudaDevice;
use super::driver::{Buffer, Error, Event};
use super::support::{fault, run_support};
use crate::core::launch::Launch;
use crate::core::stats::median;
use crate::device::fault::Fault;
use crate::device::{Device, READ_BYTES, RoundTrip};
use std::time::Instant;

/// Kernels that are launched; those of the first tenth warm up.
const LAUNCHES: usize = 500;

/// Launches in a queue, and queues: a stream takes some thousand launches before it lets the host wait.
const QUEUED: usize = 256;
const QUEUES: usize = 9;

/// So many launches read different bytes, more than a cache holds.
const WINDOWS: usize = 32;

/// How long the stream is held for the host to enqueue them.
const HELD_NS: u64 = 8_000_000;

/// Medians over empty kernels; a queue is held against a graph with such as read too.
///
/// # Errors
/// What the driver said.
pub(super) fn measure(device: &CudaDevice) -> Result<RoundTrip, Fault> {
    device.context.bind().map_err(|e| fault(device, e))?;
    let (mut launched, mut ended) = (Vec::new(), Vec::new());
    for turn in 0..LAUNCHES {
        let begun = Instant::now();
        run_support(device, "kernelgate_gate", &empty())?;
        let launch = begun.elapsed();
        device.context.wait(device.launch_limit()).map_err(|e| fault(device, e))?;
        if turn >= LAUNCHES / 10 {
            launched.push(launch.as_secs_f64() * 1e6);
            ended.push((begun.elapsed() - launch).as_secs_f64() * 1e6);
        }
    }
    let windows = device.context.allocate(WINDOWS * READ_BYTES).map_err(|e| fault(device, e))?;
    Ok(RoundTrip {
        launch_us: median(&launched),
        synchronised_us: median(&ended),
        over_node_us: over_node_us(device, &|i| read(device, &windows, i, 0))?,
        dependent_over_node_us: over_node_us(device, &|i| read(device, &windows, i, 0).dependent())?,
        reading_over_node_us: over_node_us(device, &|i| read(device, &windows, i, READ_BYTES))?,
        dependent_reading_over_node_us: over_node_us(device, &|i| read(device, &windows, i, READ_BYTES).dependent())?,
    })
}

/// It holds the stream for no time, and writes no clock.
fn empty() -> Launch {
    Launch::blocks(1, 1).scalar(0u64).scalar(0u64)
}

/// Two blocks a multiprocessor, so that the next launch has room beside them.
fn read(device: &CudaDevice, windows: &Buffer, i: usize, bytes: usize) -> Launch {
    let address = windows.address() + (i % WINDOWS * READ_BYTES) as u64;
    let launch = Launch::blocks(2 * device.fingerprint().units, 256);
    launch.scalar(address).scalar((bytes / 16) as u64).scalar(0u64)
}

/// A launch in a queue over one in a graph, µs; none where the host never enqueued them in time.
fn over_node_us(device: &CudaDevice, launch: &dyn Fn(usize) -> Launch) -> Result<Option<f64>, Fault> {
    let cuda = |e: Error| fault(device, e);
    let queue = || (0..QUEUED).try_for_each(|i| run_support(device, "kernelgate_read", &launch(i)));
    let graph = device.context.record(queue, cuda)?;
    let ends = (device.context.event().map_err(cuda)?, device.context.event().map_err(cuda)?);
    let (mut queued, mut nodes) = (Vec::new(), Vec::new());
    for _ in 0..QUEUES {
        queued.extend(held_us(device, &ends, &queue)?);
        nodes.extend(held_us(device, &ends, &|| device.context.replay(&graph).map_err(cuda))?);
    }
    let is_known = !queued.is_empty() && !nodes.is_empty();
    Ok(is_known.then(|| ((median(&queued) - median(&nodes)) / QUEUED as f64).max(0.0)))
}

/// How long the device takes over what is enqueued while the stream is held; none if it was not held for long enough.
fn held_us(
    device: &CudaDevice,
    (start, end): &(Event, Event),
    enqueue: &dyn Fn() -> Result<(), Fault>,
) -> Result<Option<f64>, Fault> {
    let cuda = |e: Error| fault(device, e);
    run_support(device, "kernelgate_gate", &Launch::blocks(1, 1).scalar(HELD_NS).scalar(0u64))?;
    start.record().map_err(cuda)?;
    enqueue()?;
    end.record().map_err(cuda)?;
    let is_held = !start.has_passed().map_err(cuda)?;
    device.context.wait(device.launch_limit()).map_err(cuda)?;
    let us = start.until_us(end).map_err(cuda)?;
    Ok(is_held.then_some(us))
}
