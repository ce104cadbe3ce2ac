//! Launch rules: which kernel takes which shape.

use super::{Vectors, cluster};
use crate::core::gpu::multiprocessors;
use crate::core::launch::Launch;

/// Vectors that most kernels take together.
pub const MOST_BATCH: usize = 8;
/// Elements from which a row is for a whole block.
pub const LONG_K: usize = 4096;
/// Rows of w that a block of `gemv_lines` takes: in half width, and in f32.
const LINES_N: usize = 12;
const LINES_N_F32: usize = 16;
const THREADS: usize = 256;

/// Extents, behind what else a launch has.
pub fn with_scalars(s: &Vectors, launch: Launch) -> Launch {
    launch.scalar(s.batch as i32).scalar(s.n as i32).scalar(s.k as i32)
}

/// `rows` rows of w a block, for all vectors.
fn blocks_of(s: &Vectors, rows: usize) -> Launch {
    with_scalars(s, Launch::blocks(s.n.div_ceil(rows), THREADS))
}

/// `rows` rows of w a block and eight vectors.
fn tiles_of(s: &Vectors, rows: usize, threads: usize) -> Launch {
    with_scalars(s, Launch::blocks(s.n.div_ceil(rows) * s.batch.div_ceil(MOST_BATCH), threads))
}

/// The formula, an output a block.
pub fn naive(s: &Vectors) -> Launch {
    with_scalars(s, Launch::blocks(s.n * s.batch, THREADS)).entry("gemv_naive")
}

/// A warp a row and vector. Rows that do not start on 16 bytes are for the naive kernel.
pub fn warp_per_row(s: &Vectors) -> Launch {
    if s.batch == 0 || !s.k.is_multiple_of(8) {
        return naive(s);
    }
    with_scalars(s, Launch::blocks(s.n.div_ceil(8) * s.batch, THREADS)).entry("gemv_warp_per_row")
}

/// One vector: a row a block, or half a block where rows are short. Up to eight vectors: sixteen rows a block.
pub fn block_per_row(s: &Vectors) -> Launch {
    match s.batch {
        _ if !s.k.is_multiple_of(8) => naive(s),
        1 if s.k >= LONG_K => blocks_of(s, 1).entry("gemv_block_per_row"),
        1 => blocks_of(s, 2).entry("gemv_half_block_per_row"),
        2..=MOST_BATCH => blocks_of(s, 16).entry("gemv_row_tile"),
        _ => warp_per_row(s),
    }
}

/// In half width: several vectors against whole lines of w, on tensor cores.
pub fn best_in_half(s: &Vectors) -> Launch {
    if s.batch < 2 || s.n < LINES_N || !s.k.is_multiple_of(8) {
        return block_per_row(s);
    }
    tiles_of(s, LINES_N, THREADS).entry("gemv_lines")
}

/// In f32: several vectors by clusters that split the columns, else against whole lines of w.
pub fn best_in_f32(s: &Vectors) -> Launch {
    if let Some(launch) = cluster::launch(s) {
        return launch;
    }
    if s.batch < 2 || s.n < LINES_N_F32 || !s.k.is_multiple_of(8) {
        return block_per_row(s);
    }
    // Sixteen warps a block in place of eight, where that is a block for each multiprocessor.
    if s.n <= LINES_N_F32 * multiprocessors() {
        tiles_of(s, LINES_N_F32, 512).entry("gemv_lines_wide")
    } else {
        tiles_of(s, LINES_N_F32, THREADS).entry("gemv_lines")
    }
}
