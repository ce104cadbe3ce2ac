//! Layer normalisation: y = (x − mean) / √(variance + ε) · weight + bias, mean and variance of each row.

pub(super) mod launch;

use super::family::rows::{self, double, negate, permute_columns, shift_rows};
use super::family::triton::{Built, built};
use super::float::{Float, sum};
use super::simd;
use crate::core::candidate::Cuda;
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

crate::shape! {
    /// The shape of a normalisation.
    pub struct Normalised {
        /// Rows, each normalised alone.
        rows: 0..=1 << 20,
        /// Elements of a row.
        cols: 1..=1 << 18,
        /// What is added to the variance.
        eps: f32 = [1e-5, 1e-6],
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
        .candidate("triton", triton(built!("layernorm")))
        .into()
}

fn operator() -> Op<Normalised> {
    declare("layernorm")
        .reference(reference)
        .magnitude(magnitude)
        .cost(|s, dtype| cost(s, dtype, FLOPS))
        .exact_relation(
            "odd symmetry",
            |_, inputs, _| [0, 2].into_iter().for_each(|i| negate(&mut inputs[i])),
            |_, _, outputs, _| negate(&mut outputs[0]),
        )
        .relation(
            "doubled weight and bias double the output",
            |_, inputs, _| inputs[1..].iter_mut().for_each(|parameter| double(parameter)),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
}

/// An operator with the tensors, cases and row relations of a layer normalisation, whatever follows it.
pub(super) fn declare(name: &str) -> Op<Normalised> {
    Op::new(name)
        .input("x", |s: &Normalised| [s.rows, s.cols])
        .parameter("weight", 1.0, |s| [s.cols])
        .parameter("bias", 0.0, |s| [s.cols])
        .output("y", |s| [s.rows, s.cols])
        .depth(|s| s.cols + STEPS)
        .range(RANGE)
        .separable("rows")
        .relation("shift invariance", |s, inputs, rng| shift_rows(&mut inputs[0], s.cols, rng), |_, _, _, _| {})
        .relation(
            "permuted columns permute the output",
            |s, inputs, rng| permute_columns(inputs, s.cols, rng),
            |s, _, outputs, rng| permute_columns(outputs, s.cols, rng),
        )
        .shapes(rows::cases().map(|(rows, cols)| Normalised { rows, cols, eps: EPS }))
        .perf(rows::TIMED.map(|(rows, cols)| Normalised { rows, cols, eps: EPS }))
}

/// The usual ε, first of the list.
pub(super) const EPS: f32 = 1e-5;
/// Roundings besides those of the sums: the deviation, its square, ε, the root, the quotient, weight, bias.
const STEPS: usize = 7;
/// Two for the mean, three for the variance, four for the output.
const FLOPS: usize = 8;
/// Squares of twice as much, 2¹⁸ of them, still fit an f32 sum.
pub(super) const RANGE: f64 = 1e16;

/// x once, both parameters once, y once.
pub(super) fn cost(s: &Normalised, dtype: DType, flops: usize) -> Cost {
    Cost { bytes: (2 * s.rows * s.cols + 2 * s.cols) * dtype.size(), flops: s.rows * s.cols * flops }
}

pub(super) fn reference(s: &Normalised, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    let (x, weight, bias) = (inputs[0], inputs[1], inputs[2]);
    for (x, y) in x.chunks_exact(s.cols).zip(outputs[0].chunks_exact_mut(s.cols)) {
        let mean = x.iter().sum::<f64>() / s.cols as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / s.cols as f64;
        let deviation = (variance + f64::from(s.eps)).sqrt();
        for i in 0..s.cols {
            y[i] = (x[i] - mean) / deviation * weight[i] + bias[i];
        }
    }
}

/// The mean is subtracted from x, so the size of both counts, in units of the deviation.
pub(super) fn magnitude(s: &Normalised, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    let (x, weight, bias) = (inputs[0], inputs[1], inputs[2]);
    for (x, size) in x.chunks_exact(s.cols).zip(outputs[0].chunks_exact_mut(s.cols)) {
        let n = s.cols as f64;
        let mean = x.iter().sum::<f64>() / n;
        let mean_size = x.iter().map(|x| x.abs()).sum::<f64>() / n;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let deviation = (variance + f64::from(s.eps)).sqrt();
        for i in 0..s.cols {
            size[i] = (x[i].abs() + mean_size) / deviation * weight[i].abs() + bias[i].abs();
        }
    }
}

/// Normalises in f32 and hands each value to `finish` before it is rounded.
pub(super) fn normalise<T: Float>(
    s: &Normalised,
    inputs: &Inputs<'_>,
    outputs: &mut Outputs<'_>,
    finish: fn(f32) -> f32,
) {
    let (weight, bias) = (inputs.slice::<T>(1), inputs.slice::<T>(2));
    let rows = inputs.slice::<T>(0).chunks_exact(s.cols).zip(outputs.slice::<T>(0).chunks_exact_mut(s.cols));
    for (x, y) in rows {
        let mean = sum(s.cols, &|i| x[i].to_f32()) / s.cols as f32;
        let variance = sum(s.cols, &|i| (x[i].to_f32() - mean).powi(2)) / s.cols as f32;
        let deviation = (variance + s.eps).sqrt();
        for i in 0..s.cols {
            let normalised = (x[i].to_f32() - mean) / deviation;
            y[i] = T::from_f32(finish(normalised * weight[i].to_f32() + bias[i].to_f32()));
        }
    }
}

fn naive<T: Float>(s: &Normalised, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    normalise::<T>(s, inputs, outputs, |y| y);
}

/// The Triton programs of an operator with the arguments of a layer normalisation.
pub(super) fn triton(built: Built) -> Cuda<Normalised> {
    built.over_rows(|s| (s.rows, s.cols), |s| vec![(s.rows as i32).into(), (s.cols as i32).into(), s.eps.into()])
}

fn tiled<T: Float>(s: &Normalised, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, weight, bias) = (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2));
    simd::layernorm(s.rows, s.cols, s.eps, x, weight, bias, outputs.slice::<T>(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    /// A candidate whose variance is `variance(mean of x², mean, cols)`.
    fn with_variance(variance: fn(f32, f32, usize) -> f32) -> Cpu<Normalised> {
        Cpu::new::<f32>(move |s: &Normalised, inputs, outputs| {
            let (x, weight, bias) = (inputs.slice::<f32>(0), inputs.slice::<f32>(1), inputs.slice::<f32>(2));
            for (x, y) in x.chunks_exact(s.cols).zip(outputs.slice::<f32>(0).chunks_exact_mut(s.cols)) {
                let mean = sum(s.cols, &|i| x[i]) / s.cols as f32;
                let squares = sum(s.cols, &|i| x[i] * x[i]) / s.cols as f32;
                let deviation = (variance(squares, mean, s.cols) + s.eps).sqrt();
                for i in 0..s.cols {
                    y[i] = (x[i] - mean) / deviation * weight[i] + bias[i];
                }
            }
        })
    }

    #[test]
    fn a_variance_that_cancels_is_seen() {
        rejects(operator(), with_variance(|squares, mean, _| squares - mean * mean));
    }

    #[test]
    fn the_variance_of_a_sample_is_seen() {
        rejects(
            operator(),
            with_variance(|squares, mean, cols| (squares - mean * mean) * cols as f32 / (cols as f32 - 1.0)),
        );
    }
}
