//! The launch: a pair of elements a thread.

use super::Append;
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;

const THREADS: usize = 256;

pub fn best() -> Cuda<Append> {
    let plan = |s: &Append| {
        let launch = Launch::blocks((s.batch * s.rows() / 2).div_ceil(THREADS), THREADS).dependent();
        [s.batch, s.heads, s.kv_heads, s.half].into_iter().fold(launch, |launch, extent| launch.scalar(extent as i32))
    };
    let kernel = kernel!("rope_append/rope_append.cu", "rope_append", plan);
    kernel.tile("half", 32).needs("sm_90")
}
