//! Softmax over the last axis: y = e^(x − max) / Σ e^(x − max), maximum and sum of each row.

pub(super) mod launch;

use super::family::FUNCTION_FLOPS;
use super::family::rows::{self, permute_columns, shift_rows};
use super::family::triton::built;
use super::float::{Float, sum};
use super::simd;
use crate::core::cost::Cost;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};
use crate::core::tolerance::ACCUMULATOR_EPSILON;

crate::shape! {
    /// The shape of a softmax.
    pub struct Matrix {
        /// Rows, each with a sum of 1.
        rows: 0..=1 << 20,
        /// Elements of a row.
        cols: 1..=1 << 18,
    }
}

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled).shares(|s| simd::rows_shares(s.rows, s.cols)))
        .candidate("lesson1_naive", launch::naive())
        .candidate("lesson2_vectorised", launch::vectorised())
        .candidate("lesson3_registers", launch::registers())
        .candidate("cuda", launch::best_f32())
        .candidate("cuda", launch::best_half())
        .candidate(
            "triton",
            built!("softmax")
                .over_rows(|s: &Matrix| (s.rows, s.cols), |s| vec![(s.rows as i32).into(), (s.cols as i32).into()]),
        )
        .into()
}

fn operator() -> Op<Matrix> {
    over_rows("softmax")
        .reference(reference)
        .magnitude(magnitude)
        .depth(|s| s.cols + STEPS)
        .cost(|s, dtype| Cost { bytes: 2 * s.rows * s.cols * dtype.size(), flops: s.rows * s.cols * FLOPS })
}

/// What softmax and its logarithm have in common: tensors, relations, shapes.
pub(super) fn over_rows(name: &str) -> Op<Matrix> {
    Op::new(name)
        .input("x", |s: &Matrix| [s.rows, s.cols])
        .output("y", |s| [s.rows, s.cols])
        .separable("rows")
        .relation("shift invariance", |s, inputs, rng| shift_rows(&mut inputs[0], s.cols, rng), |_, _, _, _| {})
        .relation(
            "permuted columns permute the output",
            |s, inputs, rng| permute_columns(inputs, s.cols, rng),
            |s, _, outputs, rng| permute_columns(outputs, s.cols, rng),
        )
        .shapes(rows::cases().map(|(rows, cols)| Matrix { rows, cols }))
        .perf(rows::TIMED.map(|(rows, cols)| Matrix { rows, cols }))
}

/// Roundings besides those of the sum: the difference, two for the exponential, the quotient.
const STEPS: usize = 4;
/// Maximum, difference, exponential, sum, quotient.
const FLOPS: usize = FUNCTION_FLOPS + 4;

/// A NaN anywhere, or a maximum of ±inf, makes all of the row NaN: inf − inf is.
fn reference(s: &Matrix, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    for (x, y) in inputs[0].chunks_exact(s.cols).zip(outputs[0].chunks_exact_mut(s.cols)) {
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
        for (y, x) in y.iter_mut().zip(x) {
            *y = (x - max).exp() / sum;
        }
    }
}

/// A rounding of x − max changes the exponential by |x − max| roundings.
fn magnitude(s: &Matrix, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    /// Past it the exponential is 0 in f64 too.
    const FARTHEST: f64 = 1e3;
    /// What leaves the normal numbers of f32 may be flushed to 0.
    const FLUSHED: f64 = f32::MIN_POSITIVE as f64 / ACCUMULATOR_EPSILON;
    for (x, y) in inputs[0].chunks_exact(s.cols).zip(outputs[0].chunks_exact_mut(s.cols)) {
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for (y, x) in y.iter_mut().zip(x) {
            *y = *y * (1.0 + (max - x).min(FARTHEST)) + FLUSHED;
        }
    }
}

fn naive<T: Float>(s: &Matrix, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let rows = inputs.slice::<T>(0).chunks_exact(s.cols).zip(outputs.slice::<T>(0).chunks_exact_mut(s.cols));
    for (x, y) in rows {
        let max = x.iter().map(|x| x.to_f32()).fold(f32::NEG_INFINITY, f32::max);
        let exponentials: Vec<f32> = x.iter().map(|x| (x.to_f32() - max).exp()).collect();
        let sum = sum(s.cols, &|i| exponentials[i]);
        for (y, e) in y.iter_mut().zip(exponentials) {
            *y = T::from_f32(e / sum);
        }
    }
}

fn tiled<T: Float>(s: &Matrix, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    simd::softmax(s.rows, s.cols, inputs.slice::<T>(0), outputs.slice::<T>(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn exponentials_that_overflow_are_seen() {
        let wrong = Cpu::new::<f32>(|s: &Matrix, inputs, outputs| {
            let rows = inputs.slice::<f32>(0).chunks_exact(s.cols);
            for (x, y) in rows.zip(outputs.slice::<f32>(0).chunks_exact_mut(s.cols)) {
                let total: f32 = x.iter().map(|x| x.exp()).sum();
                y.iter_mut().zip(x).for_each(|(y, x)| *y = x.exp() / total);
            }
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn a_forgotten_last_column_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Matrix, inputs, outputs| {
            naive::<f32>(s, inputs, outputs);
            for row in outputs.slice::<f32>(0).chunks_exact_mut(s.cols) {
                let seen = 1.0 - row[s.cols - 1];
                row.iter_mut().for_each(|y| *y /= seen);
            }
        });
        rejects(operator(), wrong);
    }
}
