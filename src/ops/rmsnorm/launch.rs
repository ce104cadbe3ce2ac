//! Which kernel of RMSNorm serves which row.

use super::Normalised;
use super::rows::Extents;
use super::rows::launch::{self as rows, Blocks, Line, Unaligned};
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::ops::layernorm::launch::with_scalars;

/// A thread holds half of what it could up to 4096 columns, which leaves registers for its weights.
const BLOCKS: Blocks = Blocks { small_up_to: 4096, block_up_to: 4096 };

/// The longer unaligned rows of f32: half of the elements a thread again, since the weights come early.
pub const LINES: &[Line] = &[
    Line { up_to: 4096, name: "line_block", elements: 8 },
    Line { up_to: 8192, name: "line_large_block", elements: 16 },
];

const UNALIGNED: Unaligned = Unaligned { elements_up_to: 512, lines: LINES };

fn kernel(rule: fn(&str, Extents) -> Launch) -> Cuda<Normalised> {
    let plan = move |s: &Normalised| with_scalars(rule("rmsnorm", (s.rows, s.cols)), s);
    kernel!(
        "rmsnorm/rmsnorm.cu",
        [
            "common.cuh",
            "lib/rows.cuh",
            "lib/packed_row.cuh",
            "lib/shifted.cuh",
            "lib/element_row.cuh",
            "lib/dependent.cuh"
        ],
        "rmsnorm_naive",
        plan
    )
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
    let best = kernel(|op, extents| rows::packed(op, BLOCKS, extents).dependent());
    rows::packed_tiles(best).dtypes([DType::F16, DType::BF16])
}
