//! Which kernel of LayerNorm with GELU serves which row: as LayerNorm, but for the longest unaligned rows of f32.

use super::Normalised;
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::ops::family::rows::Extents;
use crate::ops::family::rows::launch::{self as rows, HalfWidth, Line, Unaligned, WideWarp};
use crate::ops::layernorm::launch::{BLOCKS, with_scalars};

/// GELU takes registers too: rows past 4096 columns load their weights late.
const UNALIGNED: Unaligned = Unaligned {
    elements_up_to: 1024,
    lines: &[
        Line { up_to: 2048, name: "line_small_block", elements: 16 },
        Line { up_to: 4096, name: "line_block", elements: 32 },
        Line { up_to: 8192, name: "line_large_block", elements: 32 },
    ],
};

/// Where a row leaves a quarter of two warps' registers empty, one warp does with fewer instructions.
const HALF_WIDTH: HalfWidth =
    HalfWidth { blocks: BLOCKS, few_up_to: 8192, wide: WideWarp { up_to: 768, rows: 2 }, mma: true };

fn kernel(rule: fn(&str, Extents) -> Launch) -> Cuda<Normalised> {
    let plan = move |s: &Normalised| with_scalars(rule("layernorm_gelu", (s.rows, s.cols)), s);
    kernel!("layernorm_gelu/layernorm_gelu.cu", "layernorm_gelu_naive", plan)
}

pub fn naive() -> Cuda<Normalised> {
    kernel(rows::naive).tile("cols", 256).untimed().lesson()
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
    use crate::ops::layernorm::EPS;
    use crate::ops::layernorm_gelu::operator;
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
