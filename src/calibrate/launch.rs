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
