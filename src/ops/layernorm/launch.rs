//! Which kernel of LayerNorm serves which row.

use super::Normalised;
use super::rows::Extents;
use super::rows::launch::{self as rows, Blocks, Line, Unaligned};
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Launch;

/// Weights and bias stand beside the row, so that blocks of more than four warps have an entry with room for them.
pub const BLOCKS: Blocks = Blocks { small_up_to: 1024, block_up_to: 4096 };

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

/// The headers that norms with weight and bias share.
macro_rules! affine {
    ($file:literal, $entry:literal, $plan:expr) => {
        kernel!(
            $file,
            [
                "common.cuh",
                "lib/rows.cuh",
                "lib/packed_row.cuh",
                "lib/shifted.cuh",
                "lib/element_row.cuh",
                "lib/layernorm.cuh",
                "lib/layernorm_elements.cuh",
                "lib/mma_reduce.cuh",
                "lib/layernorm_mma.cuh"
            ],
            $entry,
            $plan
        )
    };
}
pub(in crate::ops) use affine;

fn kernel(rule: fn(&str, Extents) -> Launch) -> Cuda<Normalised> {
    let plan = move |s: &Normalised| with_scalars(rule("layernorm", (s.rows, s.cols)), s);
    affine!("layernorm/layernorm.cu", "layernorm_naive", plan)
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
    let best = kernel(|op, extents| rows::packed_with_mma(op, BLOCKS, extents));
    rows::packed_tiles(best).dtypes([DType::F16, DType::BF16])
}
