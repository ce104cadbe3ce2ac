//! Probes of a launch: kernels that do nothing else.

use super::probe::Probe;
use crate::core::candidate::{Cuda, Declare, IntoCandidate};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::device::Heat;

crate::shape! {
    /// Blocks that are launched.
    struct Blocks { blocks: 1..=1 << 20 }
}

/// A kernel of `blocks` blocks that does nothing.
pub fn probe(blocks: usize) -> Probe {
    let operator = Op::<Blocks>::new("empty")
        .input("x", |_| [1])
        .output("y", |_| [1])
        .reference(|_, x, y| y[0].copy_from_slice(x[0]));
    let cuda = Cuda::source(include_str!("../../kernels/calibrate/launch.cu"), "empty", |s: &Blocks| {
        Launch::blocks(s.blocks, 128)
    });
    let cuda = cuda.file("kernels/calibrate/launch.cu").dtypes([DType::F32]);
    Probe::new(operator, vec![cuda.named("cuda")], [Blocks { blocks }, Blocks { blocks: 3 }], DType::F32, Heat::Hot)
}

/// Launches of [`dependent`].
pub const HANDS: usize = 16;

/// A row of kernels each of which waits for what the one before has written.
pub fn dependent() -> Probe {
    let operator = Op::<Blocks>::new("dependent")
        .input("x", |_| [1])
        .output("y", |_| [1])
        .reference(|_, x, y| y[0][0] = x[0][0] + HANDS as f64)
        .depth(|_| HANDS);
    let cuda = Cuda::source(include_str!("../../kernels/calibrate/launch.cu"), "hand_on", |s: &Blocks| {
        let hand = |i: usize| {
            let launch = Launch::blocks(s.blocks, 128).without_pointers();
            let place = |launch: Launch, i: usize| match i {
                0 => launch.pointer("x"),
                HANDS => launch.pointer("y"),
                i => launch.pointer_at("workspace", (i - 1) * size_of::<f32>()),
            };
            place(place(launch, i), i + 1)
        };
        (0..HANDS).map(hand).collect::<Vec<Launch>>()
    });
    let cuda = cuda.file("kernels/calibrate/launch.cu").workspace(|_| HANDS * size_of::<f32>()).dtypes([DType::F32]);
    Probe::new(operator, vec![cuda.named("cuda")], [1, 3].map(|blocks| Blocks { blocks }), DType::F32, Heat::Hot)
}
