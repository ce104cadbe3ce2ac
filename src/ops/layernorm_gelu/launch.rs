//! Which kernel of LayerNorm with GELU serves which row: as LayerNorm, but for the longest unaligned rows of f32.

use super::Normalised;
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::ops::family::rows::Extents;
use crate::ops::family::rows::launch::{self as rows, Line, Unaligned};
use crate::ops::layernorm::launch::{BLOCKS, affine, with_scalars};

/// GELU takes registers too: rows past 4096 columns load their weights late.
const UNALIGNED: Unaligned = Unaligned {
    elements_up_to: 1024,
    lines: &[
        Line { up_to: 2048, name: "line_small_block", elements: 16 },
        Line { up_to: 4096, name: "line_block", elements: 32 },
        Line { up_to: 8192, name: "line_large_block", elements: 32 },
    ],
};

fn kernel(rule: fn(&str, Extents) -> Launch) -> Cuda<Normalised> {
    let plan = move |s: &Normalised| with_scalars(rule("layernorm_gelu", (s.rows, s.cols)), s);
    affine!("layernorm_gelu/layernorm_gelu.cu", "layernorm_gelu_naive", plan)
}

pub fn naive() -> Cuda<Normalised> {
    kernel(rows::naive).tile("cols", 256).untimed().lesson()
}

pub fn best_f32() -> Cuda<Normalised> {
    let best = kernel(|op, extents| UNALIGNED.launch(op, extents).unwrap_or_else(|| rows::packed(op, BLOCKS, extents)));
    UNALIGNED.tiles(rows::packed_tiles(best)).dtypes([DType::F32])
}

pub fn best_half() -> Cuda<Normalised> {
    let best = kernel(|op, extents| rows::packed_with_mma(op, BLOCKS, extents));
    rows::packed_tiles(best).dtypes([DType::F16, DType::BF16])
}
