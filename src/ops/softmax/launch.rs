//! Which kernel of softmax serves which row: the thread group that holds it in registers.

use super::Matrix;
use super::rows::Extents;
use super::rows::launch::{self as rows, Blocks};
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;

/// A thread of `block` holds as many elements as it can up to 8192 columns: softmax keeps no weights beside them.
pub const BLOCKS: Blocks = Blocks { small_up_to: 1024, block_up_to: 8192 };

fn kernel(rule: fn(&str, Extents) -> Launch) -> Cuda<Matrix> {
    let plan = move |s: &Matrix| rule("softmax", (s.rows, s.cols)).scalar(s.rows as i32).scalar(s.cols as i32);
    kernel!(
        "softmax/softmax.cu",
        ["common.cuh", "lib/rows.cuh", "lib/packed_row.cuh", "lib/shifted.cuh", "lib/softmax.cuh"],
        "softmax_naive",
        plan
    )
}

pub fn naive() -> Cuda<Matrix> {
    kernel(rows::naive).tile("cols", 256).untimed().lesson()
}

pub fn vectorised() -> Cuda<Matrix> {
    rows::vectorised_tiles(kernel(rows::vectorised)).lesson()
}

pub fn registers() -> Cuda<Matrix> {
    rows::registers_tiles(kernel(rows::registers)).lesson()
}

pub fn best() -> Cuda<Matrix> {
    rows::packed_tiles(kernel(|op, extents| rows::packed(op, BLOCKS, extents)))
}
