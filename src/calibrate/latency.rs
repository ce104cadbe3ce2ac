//! Probes of latency: chains of dependent loads.

use super::probe::Probe;
use crate::core::candidate::{Cpu, Cuda, Declare, IntoCandidate};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::tensor::{Inputs, Outputs};
use crate::device::Heat;

crate::shape! {
    /// Segments that are chased through at once, 128-byte lines of each (a power of two), loads of each.
    struct Chain { segments: 1..=1 << 10, lines: 1..=1 << 24, steps: 1..=1 << 24 }
}

/// Integers of a line.
const LINE: usize = 32;

/// A chain of `steps` loads in each of `segments` segments, `footprint` bytes together.
pub fn probe(segments: usize, footprint: usize, steps: usize) -> Probe {
    let operator = Op::<Chain>::new("chase")
        // Indices below 1 are zeros.
        .index("x", |s| [s.segments * s.lines * LINE], |_| 1)
        .output("y", |s| [s.segments])
        .in_dtype(DType::I32)
        .reference(|s, _, y| y[0].fill(f64::from(end(s, |_| 0))));
    let cuda = Cuda::source(include_str!("../../kernels/calibrate/chase.cu"), "chase", |s: &Chain| {
        Launch::blocks(s.segments, 1).scalar(s.lines as i32).scalar(s.steps as i32)
    });
    let cuda = cuda.file("kernels/calibrate/chase.cu").dtypes([DType::F32]);
    let lines = (footprint / segments / (LINE * size_of::<i32>())).max(1).next_power_of_two();
    let candidates = vec![cuda.named("cuda"), Cpu::new::<f32>(on_host).named("cpu")];
    let small = Chain { segments: 2, lines: 128, steps: 500 };
    Probe::new(operator, candidates, [Chain { segments, lines, steps }, small], DType::F32, Heat::Hot)
}

/// Where a chain ends that begins at line 0.
fn end(s: &Chain, found: impl Fn(usize) -> u32) -> u32 {
    (0..s.steps).fold(0u32, |at, _| {
        let next = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223).wrapping_add(found(at as usize * LINE));
        next & (s.lines as u32 - 1)
    })
}

fn on_host(s: &Chain, x: &Inputs<'_>, y: &mut Outputs<'_>) {
    let segments = x.slice::<i32>(0).chunks(s.lines * LINE);
    for (y, segment) in y.slice::<i32>(0).iter_mut().zip(segments) {
        *y = end(s, |at| segment[at] as u32) as i32;
    }
}
