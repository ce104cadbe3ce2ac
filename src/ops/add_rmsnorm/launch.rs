//! Which kernel of the residual addition with RMSNorm serves which row.

use super::Normalised;
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::gpu::Gpu;
use crate::core::launch::Launch;
use crate::ops::family::rows::launch::{self as rows, PACK, Unaligned, WARP, is_unaligned};
use crate::ops::layernorm::launch::with_scalars;
use crate::ops::rmsnorm::launch::LINES;

/// Elements that a thread holds, beside those of the residual.
const ELEMENTS: usize = 16;
/// Columns of a row that one warp holds, and that one block does. What a cluster does not hold either is read twice.
const WARP_UP_TO: usize = 32 * ELEMENTS;
const BLOCK_UP_TO: usize = 10_240;
/// Columns of a block of a cluster, at the most.
const SLICE_UP_TO: usize = 1024 * ELEMENTS;

/// More columns than this are enough to keep the threads of few rows busy.
const FEW_UP_TO: usize = 1024;

/// Unaligned rows of f32 that outgrow a warp.
const UNALIGNED: Unaligned = Unaligned { elements_up_to: 0, lines: LINES };

fn kernel(rule: fn(&Normalised) -> Launch) -> Cuda<Normalised> {
    let plan = move |s: &Normalised| with_scalars(rule(s), s);
    kernel!("add_rmsnorm/add_rmsnorm.cu", "add_rmsnorm_naive", plan)
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
    let best = |s: &Normalised| rows::few_rows("add_rmsnorm", FEW_UP_TO, (s.rows, s.cols)).unwrap_or_else(|| packed(s));
    tiles(kernel(best)).tile("cols", FEW_UP_TO).dtypes([DType::F16, DType::BF16])
}

fn tiles(kernel: Cuda<Normalised>) -> Cuda<Normalised> {
    kernel.tiles([
        ("rows", 4),
        ("cols", PACK),
        ("cols", WARP_UP_TO),
        ("cols", BLOCK_UP_TO),
        ("cols", rows::PORTABLE_UP_TO),
    ])
}

fn packed(s: &Normalised) -> Launch {
    const WARPS_OF_BLOCK: usize = 4;
    let largest = Gpu::current().largest_cluster();
    let unaligned = if is_unaligned(s.cols) { "_unaligned" } else { "" };
    if s.cols <= WARP_UP_TO {
        let blocks = s.rows.div_ceil(WARPS_OF_BLOCK);
        Launch::grid([blocks, 1, 1], [WARP, WARPS_OF_BLOCK, 1]).entry(format!("add_rmsnorm_warp_per_row{unaligned}"))
    } else if s.cols <= BLOCK_UP_TO {
        Launch::blocks(s.rows, WARP * s.cols.div_ceil(WARP_UP_TO)).entry(format!("add_rmsnorm_block{unaligned}"))
    } else if largest > 1 && s.cols <= largest * SLICE_UP_TO {
        rows::cluster((s.rows, s.cols), ELEMENTS, largest).entry(format!("add_rmsnorm_cluster{unaligned}"))
    } else {
        rows::naive("add_rmsnorm", (s.rows, s.cols))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::add_rmsnorm::operator;
    use crate::ops::agreement::is_right_in_bf16;
    use crate::ops::family::rows::Extents;
    use crate::ops::layernorm::EPS;
    use rstest::rstest;

    /// A few rows are enough to see a kernel of many.
    #[rstest]
    #[case((5, 768))]
    #[case((3, 1015))]
    fn kernels_of_many_rows_are_right(#[case] (rows, cols): Extents) {
        is_right_in_bf16(operator(), kernel(packed), Normalised { rows, cols, eps: EPS });
    }
}
