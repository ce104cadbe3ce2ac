//! Which kernel of SwiGLU serves which n: whole blocks without bounds tests, or one pack a thread.

use super::Vector;
use super::elementwise::{launch_f32, launch_half};
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;

/// Elements of a whole block: large enough that few blocks have to start, small enough that usual sizes are a multiple.
const OF_BLOCK: usize = 4096;

/// f32: a pack of 4 a thread.
pub fn f32(s: &Vector) -> Launch {
    whole_blocks(s, OF_BLOCK / 4).unwrap_or_else(|| launch_f32(s)).dependent()
}

/// f16 and bf16: a pack of 8 a thread.
pub fn half(s: &Vector) -> Launch {
    whole_blocks(s, OF_BLOCK / 8).unwrap_or_else(|| launch_half(s)).dependent()
}

/// The launch where n is a whole number of blocks.
fn whole_blocks(s: &Vector, threads: usize) -> Option<Launch> {
    let launch = || Launch::blocks(s.n / OF_BLOCK, threads).scalar(s.n as i64).entry("swiglu_whole_blocks");
    s.n.is_multiple_of(OF_BLOCK).then(launch)
}

/// Declares the extent at which whole blocks serve.
pub fn tiles(kernel: Cuda<Vector>) -> Cuda<Vector> {
    kernel.tile("n", OF_BLOCK)
}
