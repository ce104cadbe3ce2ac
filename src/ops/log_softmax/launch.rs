//! Which kernel of log_softmax serves which row: as softmax's, whose rows it holds in the same way.

use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;
use crate::ops::family::rows::Extents;
use crate::ops::family::rows::launch as rows;
use crate::ops::softmax::{BLOCKS, Matrix};

fn kernel(rule: fn(&str, Extents) -> Launch) -> Cuda<Matrix> {
    let plan = move |s: &Matrix| rule("log_softmax", (s.rows, s.cols)).scalar(s.rows as i32).scalar(s.cols as i32);
    kernel!(
        "log_softmax/log_softmax.cu",
        ["common.cuh", "lib/rows.cuh", "lib/packed_row.cuh", "lib/shifted.cuh", "lib/softmax.cuh"],
        "log_softmax_naive",
        plan
    )
}

pub fn naive() -> Cuda<Matrix> {
    kernel(rows::naive).tile("cols", 256).untimed().lesson()
}

pub fn best() -> Cuda<Matrix> {
    rows::packed_tiles(kernel(|op, extents| rows::packed(op, BLOCKS, extents)))
}
