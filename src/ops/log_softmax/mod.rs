//! The logarithm of softmax over the last axis: y = x − max − ln Σ e^(x − max), maximum and sum of each row.

mod launch;

use super::family::FUNCTION_FLOPS;
use super::float::{Float, sum};
use super::simd;
use super::softmax::{Matrix, over_rows};
use crate::core::cost::Cost;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled).shares(|s| simd::rows_shares(s.rows, s.cols)))
        .candidate("lesson1_naive", launch::naive())
        .candidate("cuda", launch::best_f32())
        .candidate("cuda", launch::best_half())
        .into()
}

fn operator() -> Op<Matrix> {
    over_rows("log_softmax")
        .reference(reference)
        .magnitude(magnitude)
        .depth(depth)
        .cost(|s, dtype| Cost { bytes: 2 * s.rows * s.cols * dtype.size(), flops: s.rows * s.cols * FLOPS })
}

/// Roundings besides those of the sum: the difference, two for the exponential, the logarithm.
const STEPS: usize = 4;
/// Maximum, difference, exponential, sum, and the difference from the logarithm.
const FLOPS: usize = FUNCTION_FLOPS + 4;

fn depth(s: &Matrix) -> usize {
    s.cols + STEPS
}

/// The maximum of a row and the logarithm of its sum. A NaN anywhere, or a maximum of ±inf, makes NaN of the logarithm.
fn maximum_and_logarithm(x: &[f64]) -> (f64, f64) {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (max, x.iter().map(|x| (x - max).exp()).sum::<f64>().ln())
}

fn reference(s: &Matrix, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    for (x, y) in inputs[0].chunks_exact(s.cols).zip(outputs[0].chunks_exact_mut(s.cols)) {
        let (max, logarithm) = maximum_and_logarithm(x);
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x - max - logarithm);
    }
}

/// What is relative in the sum is absolute in its logarithm: its own roundings, and those of the differences, each by the
/// share of its exponential. Of both differences that make y none is larger than y, and they are rounded once each.
fn magnitude(s: &Matrix, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    let once = 1.0 / (depth(s) as f64).sqrt();
    for (x, y) in inputs[0].chunks_exact(s.cols).zip(outputs[0].chunks_exact_mut(s.cols)) {
        let (max, logarithm) = maximum_and_logarithm(x);
        let shares = x.iter().map(|x| (max - x, (x - max - logarithm).exp()));
        // An element at −∞ has no share.
        let differences: f64 = shares.filter(|(_, share)| *share > 0.0).map(|(far, share)| far * share).sum();
        y.iter_mut().for_each(|y| *y = 1.0 + differences + once * y.abs());
    }
}

fn naive<T: Float>(s: &Matrix, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let rows = inputs.slice::<T>(0).chunks_exact(s.cols).zip(outputs.slice::<T>(0).chunks_exact_mut(s.cols));
    for (x, y) in rows {
        let max = x.iter().map(|x| x.to_f32()).fold(f32::NEG_INFINITY, f32::max);
        let logarithm = sum(s.cols, &|i| (x[i].to_f32() - max).exp()).ln();
        y.iter_mut().zip(x).for_each(|(y, x)| *y = T::from_f32(x.to_f32() - max - logarithm));
    }
}

fn tiled<T: Float>(s: &Matrix, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    simd::log_softmax(s.rows, s.cols, inputs.slice::<T>(0), outputs.slice::<T>(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    /// Row by row.
    fn by(row: fn(&[f32], &mut [f32])) -> Cpu<Matrix> {
        Cpu::new::<f32>(move |s: &Matrix, inputs, outputs| {
            let rows = inputs.slice::<f32>(0).chunks_exact(s.cols);
            rows.zip(outputs.slice::<f32>(0).chunks_exact_mut(s.cols)).for_each(|(x, y)| row(x, y));
        })
    }

    fn largest(x: &[f32]) -> f32 {
        x.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }

    #[test]
    fn the_logarithm_of_a_softmax_that_vanishes_is_seen() {
        rejects(
            operator(),
            by(|x, y| {
                let max = largest(x);
                let total: f32 = x.iter().map(|x| (x - max).exp()).sum();
                y.iter_mut().zip(x).for_each(|(y, x)| *y = ((x - max).exp() / total).ln());
            }),
        );
    }

    #[test]
    fn a_sum_with_the_maximum_that_cancels_is_seen() {
        rejects(
            operator(),
            by(|x, y| {
                let max = largest(x);
                let logarithm = max + x.iter().map(|x| (x - max).exp()).sum::<f32>().ln();
                y.iter_mut().zip(x).for_each(|(y, x)| *y = x - logarithm);
            }),
        );
    }
}
