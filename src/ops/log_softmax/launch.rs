//! Which kernel of log_softmax serves which row: as softmax's, whose rows it holds in the same way.

use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::ops::family::rows::Extents;
use crate::ops::family::rows::launch::{self as rows};
use crate::ops::softmax::Matrix;
use crate::ops::softmax::launch::{BLOCKS, HALF_WIDTH};

fn kernel(rule: fn(&str, Extents) -> Launch) -> Cuda<Matrix> {
    let plan = move |s: &Matrix| rule("log_softmax", (s.rows, s.cols)).scalar(s.rows as i32).scalar(s.cols as i32);
    kernel!("log_softmax/log_softmax.cu", "log_softmax_naive", plan)
}

pub fn naive() -> Cuda<Matrix> {
    kernel(rows::naive).tile("cols", 256).untimed().lesson()
}

pub fn best_f32() -> Cuda<Matrix> {
    rows::packed_tiles(kernel(|op, extents| rows::packed(op, BLOCKS, extents))).dtypes([DType::F32])
}

pub fn best_half() -> Cuda<Matrix> {
    HALF_WIDTH.tiles(kernel(|op, extents| HALF_WIDTH.launch(op, extents))).dtypes([DType::F16, DType::BF16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::agreement::is_right_in_bf16;
    use crate::ops::log_softmax::operator;
    use rstest::rstest;

    /// A few rows are enough to see a kernel of many.
    #[rstest]
    #[case((5, 768))]
    #[case((3, 761))]
    #[case((3, 1023))]
    #[case((2, 1024))]
    #[case((2, 1032))]
    #[case((3, 4099))]
    #[case((2, 8200))]
    #[case((1, 20008))]
    fn kernels_of_many_rows_are_right(#[case] (rows, cols): Extents) {
        is_right_in_bf16(operator(), kernel(|op, extents| HALF_WIDTH.of_many(op, extents)), Matrix { rows, cols });
    }
}
