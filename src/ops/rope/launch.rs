//! How the kernels of rope are launched: a block a token.

use super::Heads;
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;

const WARP: usize = 32;
const MOST_WARPS: usize = 8;
/// Pairs that a warp rotates in one step, a pack of half-width elements a thread: a block has no more warps than find work.
const PAIRS: usize = 256;

fn kernel(entry: &str, warps: fn(&Heads) -> usize) -> Cuda<Heads> {
    let plan = move |s: &Heads| {
        let launch = Launch::blocks(s.tokens, WARP * warps(s));
        launch.scalar(s.heads as i32).scalar(s.half as i32)
    };
    kernel!("rope/rope.cu", entry, plan).tiles([("half", 8), ("half", 256)])
}

pub fn naive() -> Cuda<Heads> {
    kernel("rope_naive", |_| MOST_WARPS).untimed().lesson()
}

pub fn best() -> Cuda<Heads> {
    kernel("rope_pack_per_thread", |s| (s.heads * s.half).div_ceil(PAIRS).min(MOST_WARPS))
}
