//! Which kernel of softmax serves which row: the thread group that holds it in registers.

use super::Matrix;
use super::rows::Extents;
use super::rows::launch::{self as rows, Blocks, HalfWidth, WideWarp};
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Launch;

/// A thread of `block` holds as many elements as it can up to 8192 columns: softmax keeps no weights beside them.
pub const BLOCKS: Blocks = Blocks { small_up_to: 1024, block_up_to: 8192 };

pub const HALF_WIDTH: HalfWidth =
    HalfWidth { blocks: BLOCKS, few_up_to: 8192, wide: WideWarp { up_to: 768, rows: 4 }, mma: false };

fn kernel(rule: fn(&str, Extents) -> Launch) -> Cuda<Matrix> {
    let plan = move |s: &Matrix| rule("softmax", (s.rows, s.cols)).scalar(s.rows as i32).scalar(s.cols as i32);
    kernel!("softmax/softmax.cu", "softmax_naive", plan)
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
    use crate::ops::softmax::operator;
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
