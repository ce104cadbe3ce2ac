//! Which kernel of the residual addition with RMSNorm serves which row.

use super::Normalised;
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::ops::family::rows::launch::{self as rows, PACK, Unaligned, WARP, is_unaligned};
use crate::ops::layernorm::launch::with_scalars;
use crate::ops::rmsnorm::launch::LINES;

/// Columns of a row that one warp holds, 16 a thread beside those of the residual, and that one block does. Longer rows take
/// two passes.
const WARP_UP_TO: usize = 512;
const BLOCK_UP_TO: usize = 32 * WARP_UP_TO;

/// Unaligned rows of f32 that outgrow a warp.
const UNALIGNED: Unaligned = Unaligned { elements_up_to: 0, lines: LINES };

fn kernel(rule: fn(&Normalised) -> Launch) -> Cuda<Normalised> {
    let plan = move |s: &Normalised| with_scalars(rule(s), s);
    kernel!(
        "add_rmsnorm/add_rmsnorm.cu",
        ["common.cuh", "lib/rows.cuh", "lib/packed_row.cuh", "lib/shifted.cuh"],
        "add_rmsnorm_naive",
        plan
    )
}

pub fn naive() -> Cuda<Normalised> {
    kernel(|s| rows::naive("add_rmsnorm", (s.rows, s.cols))).tile("cols", 256).untimed().lesson()
}

pub fn best_f32() -> Cuda<Normalised> {
    let from_line = |s: &Normalised| {
        let launch = UNALIGNED.launch("add_rmsnorm", (s.rows, s.cols));
        launch.filter(|_| s.cols > WARP_UP_TO).unwrap_or_else(|| packed(s))
    };
    UNALIGNED.tiles(tiles(kernel(from_line))).dtypes([DType::F32])
}

pub fn best_half() -> Cuda<Normalised> {
    tiles(kernel(packed)).dtypes([DType::F16, DType::BF16])
}

fn tiles(kernel: Cuda<Normalised>) -> Cuda<Normalised> {
    kernel.tiles([("rows", 4), ("cols", PACK), ("cols", WARP_UP_TO), ("cols", BLOCK_UP_TO)])
}

fn packed(s: &Normalised) -> Launch {
    const WARPS_OF_BLOCK: usize = 4;
    let unaligned = if is_unaligned(s.cols) { "_unaligned" } else { "" };
    if s.cols <= WARP_UP_TO {
        let blocks = s.rows.div_ceil(WARPS_OF_BLOCK);
        Launch::grid([blocks, 1, 1], [WARP, WARPS_OF_BLOCK, 1]).entry(format!("add_rmsnorm_warp_per_row{unaligned}"))
    } else if s.cols <= BLOCK_UP_TO {
        Launch::blocks(s.rows, WARP * s.cols.div_ceil(WARP_UP_TO)).entry(format!("add_rmsnorm_block{unaligned}"))
    } else {
        Launch::blocks(s.rows, 1024).entry("add_rmsnorm_two_pass")
    }
}
