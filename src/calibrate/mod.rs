//! What a device can really do, measured: peaks by pipe, bandwidth by level and mix, latencies, the cost of a launch.
//! `kernelgate calibrate` writes it to a file, from which rooflines, floors and predictions are made.
//!
//! A [`Probe`] is an operator with kernels that reach one limit and do nothing else. It is checked against its reference
//! before it is timed, like any candidate.

mod access;
mod calibration;
mod factors;
mod latency;
mod launch;
mod levels;
mod math;
mod probe;
mod run;
mod stream;
mod table;
mod tensor;
pub mod versioned;

pub use calibration::{
    Access, Bandwidth, Calibration, Latency, Launch, Level, Pattern, Peak, Pipe, Ridge, VERSION, Wave,
};
pub use factors::{Factor, Quantity};
pub use probe::{Probe, time_case, typical_us};
pub use run::{Effort, calibrate, probes, suites};
