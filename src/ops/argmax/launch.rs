//! The launch: a block a row.

use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;
use crate::ops::softmax::Matrix;

const THREADS: usize = 1024;

pub fn best() -> Cuda<Matrix> {
    let plan = |s: &Matrix| Launch::blocks(s.rows, THREADS).dependent().scalar(s.cols as i32);
    let kernel = kernel!("argmax/argmax.cu", "argmax", plan);
    kernel.tiles([("cols", 8), ("cols", THREADS), ("cols", 8 * THREADS)]).needs("sm_90")
}
