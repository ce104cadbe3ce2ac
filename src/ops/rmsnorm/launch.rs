//! Which kernel of RMSNorm serves which row.

use super::Normalised;
use super::rows::Extents;
use super::rows::launch::{self as rows, Blocks, HalfWidth, Line, Unaligned, WideWarp};
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::ops::layernorm::launch::with_scalars;

/// A thread holds half of what it could up to 4096 columns, which leaves registers for its weights.
const BLOCKS: Blocks = Blocks { small_up_to: 4096, block_up_to: 4096 };

/// Few rows of more than 4096 columns are level with `large_block`.
const HALF_WIDTH: HalfWidth =
    HalfWidth { blocks: BLOCKS, few_up_to: 4096, wide: WideWarp { up_to: 1024, rows: 4 }, mma: false };

/// The longer unaligned rows of f32: half of the elements a thread again, since the weights come early.
pub const LINES: &[Line] = &[
    Line { up_to: 4096, name: "line_block", elements: 8 },
    Line { up_to: 8192, name: "line_large_block", elements: 16 },
];

const UNALIGNED: Unaligned = Unaligned { elements_up_to: 512, lines: LINES };

fn kernel(rule: fn(&str, Extents) -> Launch) -> Cuda<Normalised> {
    let plan = move |s: &Normalised| with_scalars(rule("rmsnorm", (s.rows, s.cols)), s);
    kernel!("rmsnorm/rmsnorm.cu", "rmsnorm_naive", plan)
}

pub fn naive() -> Cuda<Normalised> {
    kernel(rows::naive).tile("cols", 256).untimed().lesson()
}

pub fn best_f32() -> Cuda<Normalised> {
    let best = kernel(|op, extents| {
        UNALIGNED.launch(op, extents).unwrap_or_else(|| rows::packed(op, BLOCKS, extents)).dependent()
    });
    UNALIGNED.tiles(rows::packed_tiles(best)).dtypes([DType::F32])
}

pub fn best_half() -> Cuda<Normalised> {
    HALF_WIDTH.tiles(kernel(|op, extents| HALF_WIDTH.launch(op, extents).dependent())).dtypes([DType::F16, DType::BF16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::agreement::is_right_in_bf16;
    use crate::ops::layernorm::EPS;
    use crate::ops::rmsnorm::operator;
    use rstest::rstest;

    /// A few rows are enough to see a kernel of many.
    #[rstest]
    #[case((5, 768))]
    #[case((3, 1015))]
    #[case((2, 1032))]
    #[case((2, 1027))]
    #[case((2, 4099))]
    #[case((1, 8200))]
    #[case((1, 20008))]
    fn kernels_of_many_rows_are_right(#[case] (rows, cols): Extents) {
        is_right_in_bf16(
            operator(),
            kernel(|op, extents| HALF_WIDTH.of_many(op, extents).dependent()),
            Normalised { rows, cols, eps: EPS },
        );
    }
}
