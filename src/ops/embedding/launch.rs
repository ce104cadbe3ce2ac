//! Which kernel of embedding serves which rows.

use super::Lookup;
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Launch;

/// Threads of a block, and elements that one of them copies at a time.
const THREADS: usize = 256;
const PACK: usize = 8;
const PACK_OF_F32: usize = 4;
const WARP: usize = 32;
/// Elements of y that a block of `output_packs` writes, and its threads.
const OF_OUTPUT_BLOCK: usize = 1024;
const OUTPUT_THREADS: usize = 128;

fn kernel(rule: fn(&Lookup) -> Launch) -> Cuda<Lookup> {
    let plan = move |s: &Lookup| rule(s).scalar(s.ids as i32).scalar(s.dim as i32).scalar(s.vocab as i32);
    kernel!("embedding/embedding.cu", "embedding_naive", plan)
}

pub fn naive() -> Cuda<Lookup> {
    kernel(|s| Launch::blocks(s.ids, THREADS)).tile("dim", 256).untimed().lesson()
}

pub fn vectorised() -> Cuda<Lookup> {
    tiles(kernel(|s| blocks(s, 1).entry("embedding_vectorised"))).lesson()
}

pub fn four_rows() -> Cuda<Lookup> {
    tiles(kernel(rows_in_flight)).lesson()
}

pub fn best_f32() -> Cuda<Lookup> {
    let rule = |s: &Lookup| {
        if s.dim.is_multiple_of(PACK_OF_F32) {
            packs(s)
        } else {
            let blocks = (s.ids * s.dim).div_ceil(OF_OUTPUT_BLOCK);
            Launch::blocks(blocks, OUTPUT_THREADS).entry("embedding_output_packs")
        }
    };
    kernel(rule).tiles([("ids", 128), ("dim", 8), ("dim", 1024)]).dtypes([DType::F32])
}

pub fn best_half() -> Cuda<Lookup> {
    tiles(kernel(packs)).dtypes([DType::F16, DType::BF16])
}

fn tiles(kernel: Cuda<Lookup>) -> Cuda<Lookup> {
    kernel.tiles([("ids", 128), ("dim", 8), ("dim", 256), ("dim", 2048)])
}

/// As many threads a row as have a pack of it, up to a block, each with so many rows.
fn blocks(s: &Lookup, rows_of_thread: usize) -> Launch {
    let of_row = match s.dim {
        ..=256 => s.dim.div_ceil(PACK).next_power_of_two(),
        dim => (WARP * dim.div_ceil(WARP * PACK)).min(THREADS),
    };
    let rows = THREADS / of_row;
    Launch::grid([s.ids.div_ceil(rows_of_thread * rows), 1, 1], [of_row, rows, 1])
}

/// Four rows a thread: the latency of an id is paid once for all of them.
fn rows_in_flight(s: &Lookup) -> Launch {
    blocks(s, 4).entry("embedding_four_rows")
}

/// Rows of whole packs, or rows that start anywhere: a block of two packs a thread each, several to a block where they are
/// short.
fn packs(s: &Lookup) -> Launch {
    const COLUMNS_OF_WARP: usize = 512;
    const MOST_WARPS: usize = 4;
    const SHORT: usize = 256;
    if s.dim.is_multiple_of(PACK) {
        return rows_in_flight(s);
    }
    let warps = s.dim.div_ceil(COLUMNS_OF_WARP).min(MOST_WARPS);
    let shifted = if s.dim > SHORT { Launch::blocks(s.ids, WARP * warps) } else { blocks(s, 1) };
    shifted.entry("embedding_shifted_packs")
}
