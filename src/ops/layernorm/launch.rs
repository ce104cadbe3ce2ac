//! Which kernel of LayerNorm serves which row.

use super::Normalised;
use super::rows::Extents;
use super::rows::launch::{self as rows, Blocks, HalfWidth, Line, Unaligned, WideWarp};
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Launch;

/// Weights and bias stand beside the row, so that blocks of more than four warps have an entry with room for them.
pub const BLOCKS: Blocks = Blocks { small_up_to: 1024, block_up_to: 4096 };

const HALF_WIDTH: HalfWidth =
    HalfWidth { blocks: BLOCKS, few_up_to: 8192, wide: WideWarp { up_to: 768, rows: 4 }, mma: true };

const UNALIGNED: Unaligned = Unaligned {
    elements_up_to: 1024,
    lines: &[
        Line { up_to: 2048, name: "line_small_block", elements: 16 },
        Line { up_to: 8192, name: "line_block", elements: 32 },
    ],
};

/// A launch with what every norm's kernel takes behind its pointers.
pub fn with_scalars(launch: Launch, s: &Normalised) -> Launch {
    launch.scalar(s.rows as i32).scalar(s.cols as i32).scalar(s.eps)
}

fn kernel(rule: fn(&str, Extents) -> Launch) -> Cuda<Normalised> {
    let plan = move |s: &Normalised| with_scalars(rule("layernorm", (s.rows, s.cols)), s);
    kernel!("layernorm/layernorm.cu", "layernorm_naive", plan)
}

pub fn naive() -> Cuda<Normalised> {
    kernel(rows::naive).tile("cols", 256).untimed().lesson()
}

pub fn vectorised() -> Cuda<Normalised> {
    rows::vectorised_tiles(kernel(rows::vectorised)).lesson()
}

pub fn registers() -> Cuda<Normalised> {
    rows::registers_tiles(kernel(rows::registers)).lesson()
}

pub fn best_f32() -> Cuda<Normalised> {
    let best = kernel(|op, extents| UNALIGNED.launch(op, extents).unwrap_or_else(|| rows::packed(op, BLOCKS, extents)));
    UNALIGNED.tiles(rows::packed_tiles(best)).dtypes([DType::F32])
}

pub fn best_half() -> Cuda<Normalised> {
    HALF_WIDTH.tiles(kernel(|op, extents| HALF_WIDTH.launch(op, extents))).dtypes([DType::F16, DType::BF16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::agreement::is_right_in_bf16;
    use crate::ops::layernorm::{EPS, operator};
    use rstest::rstest;

    /// A few rows are enough to see a kernel of many.
    #[rstest]
    #[case((5, 768))]
    #[case((3, 761))]
    #[case((3, 1015))]
    #[case((2, 1024))]
    #[case((2, 1032))]
    #[case((2, 1027))]
    #[case((1, 4096))]
    #[case((1, 4104))]
    #[case((2, 4099))]
    #[case((1, 8200))]
    #[case((2, 9001))]
    #[case((1, 20008))]
    #[case((2, 17003))]
    fn kernels_of_many_rows_are_right(#[case] (rows, cols): Extents) {
        is_right_in_bf16(
            operator(),
            kernel(|op, extents| HALF_WIDTH.of_many(op, extents)),
            Normalised { rows, cols, eps: EPS },
        );
    }
}
