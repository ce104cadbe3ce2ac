//! Row sum: y = Σ x of each row.

use super::family::rows::{self, double, negate, permute_columns};
use super::float::{Float, sum};
use super::simd;
use super::softmax::Matrix;
use crate::core::candidate::{Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .ladder(3, |version| cuda("row_sum", version))
        .into()
}

fn operator() -> Op<Matrix> {
    declare("row_sum", |_| 1.0)
}

/// Sums of 2¹⁸ terms of this size still fit an f32.
const RANGE: f64 = 1e32;

/// The sum of each row times a factor that `scale` takes from the number of columns.
pub(super) fn declare(name: &str, scale: fn(usize) -> f64) -> Op<Matrix> {
    Op::new(name)
        .input("x", |s: &Matrix| [s.rows, s.cols])
        .output("y", |s| [s.rows])
        .reference(move |s, inputs, outputs| fold(s, inputs, outputs, |x| x, scale(s.cols)))
        .magnitude(move |s, inputs, outputs| fold(s, inputs, outputs, f64::abs, scale(s.cols)))
        .depth(|s| s.cols)
        .range(RANGE)
        .cost(|s, dtype| Cost { bytes: (s.rows * s.cols + s.rows) * dtype.size(), flops: s.rows * s.cols })
        .separable("rows")
        .exact_relation(
            "odd symmetry",
            |_, inputs, _| negate(&mut inputs[0]),
            |_, _, outputs, _| negate(&mut outputs[0]),
        )
        .relation(
            "a doubled row doubles its output",
            |_, inputs, _| double(&mut inputs[0]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .relation(
            "the order of the columns does not matter",
            |s, inputs, rng| permute_columns(inputs, s.cols, rng),
            |_, _, _, _| {},
        )
        .shapes(rows::cases().map(|(rows, cols)| Matrix { rows, cols }))
        .perf(rows::TIMED.map(|(rows, cols)| Matrix { rows, cols }))
}

fn fold(s: &Matrix, inputs: &[&[f64]], outputs: &mut [Vec<f64>], term: fn(f64) -> f64, scale: f64) {
    for (x, y) in inputs[0].chunks_exact(s.cols).zip(&mut outputs[0]) {
        *y = x.iter().map(|&x| term(x)).sum::<f64>() * scale;
    }
}

fn naive<T: Float>(s: &Matrix, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    for (x, y) in inputs.slice::<T>(0).chunks_exact(s.cols).zip(outputs.slice::<T>(0)) {
        *y = T::from_f32(sum(s.cols, &|i| x[i].to_f32()));
    }
}

fn tiled<T: Float>(s: &Matrix, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    simd::row_sums(s.cols, inputs.slice::<T>(0), outputs.slice::<T>(0), |sum| T::from_f32(sum as f32));
}

/// Version `version` of operator `op` of the file.
pub(super) fn cuda(op: &'static str, version: usize) -> Cuda<Matrix> {
    let plan = move |s: &Matrix| launch(op, version, s).scalar(s.rows as i32).scalar(s.cols as i32);
    let kernel = kernel!("row_sum.cu", ["common.cuh", "rows.cuh", "held.cuh"], format!("{op}_v{version}"), plan);
    match version {
        1 => kernel.tile("cols", 256),
        2 => kernel.tiles([("rows", 4), ("cols", 8), ("cols", WARP_UP_TO), ("cols", MOST_WARPS * WARP_UP_TO)]),
        _ => kernel.tiles([("rows", 4), ("cols", 8), ("cols", SHARE), ("cols", WARP_UP_TO), ("cols", AT_ONCE_UP_TO)]),
    }
}

/// Columns up to which a warp adds up a row, and of each warp of a block.
const WARP_UP_TO: usize = 1024;
const MOST_WARPS: usize = 16;
/// Of version 3: columns of each warp of a block, and up to which it serves; no more than one warp's are left to version 2.
const SHARE: usize = 512;
const AT_ONCE_UP_TO: usize = 32 * SHARE;

const WARP: usize = 32;

/// The launch rule of each version, without its scalars.
fn launch(op: &str, version: usize, s: &Matrix) -> Launch {
    match version {
        1 => Launch::blocks(s.rows, 256),
        3 if (SHARE + 1..=AT_ONCE_UP_TO).contains(&s.cols) => at_once(op, s),
        _ => in_turns(op, s),
    }
}

/// Version 3.
fn at_once(op: &str, s: &Matrix) -> Launch {
    let (path, warps) = match s.cols {
        WARP_UP_TO => ("warp_full", 1),
        ..WARP_UP_TO => ("warp", 1),
        cols => ("block", cols.div_ceil(SHARE)),
    };
    Launch::blocks(s.rows, WARP * warps).entry(format!("{op}_v3_{path}"))
}

/// Version 2.
fn in_turns(op: &str, s: &Matrix) -> Launch {
    const WARPS_OF_BLOCK: usize = 4;
    if s.cols <= WARP_UP_TO {
        Launch::grid([s.rows.div_ceil(WARPS_OF_BLOCK), 1, 1], [WARP, WARPS_OF_BLOCK, 1]).entry(format!("{op}_v2_warp"))
    } else {
        let warps = s.cols.div_ceil(WARP_UP_TO).min(MOST_WARPS);
        Launch::blocks(s.rows, WARP * warps).entry(format!("{op}_v2_block"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn a_lost_last_column_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Matrix, inputs, outputs| {
            for (x, y) in inputs.slice::<f32>(0).chunks_exact(s.cols).zip(outputs.slice::<f32>(0)) {
                *y = sum(s.cols - 1, &|i| x[i]);
            }
        });
        rejects(operator(), wrong);
    }
}
