//! Launch rules of the lessons that have one tile.

use super::Product;
use crate::core::launch::Launch;

fn launch(s: &Product, blocks: usize, threads: usize, entry: &str) -> Launch {
    let launch = Launch::blocks(blocks, threads).entry(entry);
    launch.scalar(s.m as i32).scalar(s.n as i32).scalar(s.k as i32)
}

fn tiles(s: &Product, rows: usize, cols: usize) -> usize {
    s.m.div_ceil(rows) * s.n.div_ceil(cols)
}

/// A thread an output.
pub fn naive(s: &Product) -> Launch {
    launch(s, (s.m * s.n).div_ceil(256), 256, "gemm_naive")
}

/// Tiles in shared memory, a thread an output.
pub fn tiled(s: &Product) -> Launch {
    launch(s, tiles(s, 16, 16), 256, "gemm_tiled")
}

/// 8x8 outputs a thread.
pub fn register_tile(s: &Product) -> Launch {
    launch(s, tiles(s, 128, 128), 256, "gemm_register_tile")
}

/// Tensor cores by mma.sync.
pub fn mma(s: &Product) -> Launch {
    launch(s, tiles(s, 128, 128), 128, "gemm_mma")
}
