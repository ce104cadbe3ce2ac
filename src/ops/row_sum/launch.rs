//! Which kernel of row sum and row mean serves which row.

use super::Matrix;
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;

const WARP: usize = 32;
/// Columns up to which a warp adds up a row, and of each warp of a block that loops.
const WARP_UP_TO: usize = 1024;
const MOST_WARPS: usize = 16;
/// Columns of each warp of a block whose loads are all in flight at once, and the longest row of such a block. A row of no
/// more than one warp's columns is too little for a block of its own.
const AT_ONCE: usize = 512;
const AT_ONCE_UP_TO: usize = 32 * AT_ONCE;

fn kernel(op: &'static str, rule: fn(&str, &Matrix) -> Launch) -> Cuda<Matrix> {
    let plan = move |s: &Matrix| rule(op, s).scalar(s.rows as i32).scalar(s.cols as i32);
    let entry = format!("{op}_naive");
    kernel!("row_sum/row_sum.cu", entry, plan)
}

pub fn naive(op: &'static str) -> Cuda<Matrix> {
    kernel(op, |_, s| Launch::blocks(s.rows, 256)).tile("cols", 256).untimed().lesson()
}

pub fn pack_loop(op: &'static str) -> Cuda<Matrix> {
    let ends = [("rows", 4), ("cols", 8), ("cols", WARP_UP_TO), ("cols", MOST_WARPS * WARP_UP_TO)];
    kernel(op, in_a_loop).tiles(ends).lesson()
}

pub fn best(op: &'static str) -> Cuda<Matrix> {
    let ends = [("rows", 4), ("cols", 8), ("cols", AT_ONCE), ("cols", WARP_UP_TO), ("cols", AT_ONCE_UP_TO)];
    kernel(op, |op, s| if s.cols > AT_ONCE && s.cols <= AT_ONCE_UP_TO { at_once(op, s) } else { in_a_loop(op, s) })
        .tiles(ends)
}

/// One trip to memory.
fn at_once(op: &str, s: &Matrix) -> Launch {
    let (path, warps) = match s.cols {
        WARP_UP_TO => ("warp_full", 1),
        ..WARP_UP_TO => ("warp", 1),
        cols => ("block", cols.div_ceil(AT_ONCE)),
    };
    Launch::blocks(s.rows, WARP * warps).entry(format!("{op}_one_trip_{path}"))
}

/// A few packs a thread at a time.
fn in_a_loop(op: &str, s: &Matrix) -> Launch {
    const WARPS_OF_BLOCK: usize = 4;
    if s.cols <= WARP_UP_TO {
        let blocks = s.rows.div_ceil(WARPS_OF_BLOCK);
        Launch::grid([blocks, 1, 1], [WARP, WARPS_OF_BLOCK, 1]).entry(format!("{op}_pack_loop_warp"))
    } else {
        let warps = s.cols.div_ceil(WARP_UP_TO).min(MOST_WARPS);
        Launch::blocks(s.rows, WARP * warps).entry(format!("{op}_pack_loop_block"))
    }
}
