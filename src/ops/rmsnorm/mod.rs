//! Root-mean-square normalisation: y = x / √(mean(x²) + ε) · weight, the mean of each row.

pub(super) mod launch;

use super::family::rows::{self, double, negate, permute_columns};
use super::float::{Float, sum};
use super::layernorm::{EPS, Normalised, RANGE};
use super::simd;
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

fn operator() -> Op<Normalised> {
    Op::new("rmsnorm")
        .input("x", |s: &Normalised| [s.rows, s.cols])
        .parameter("weight", 1.0, |s| [s.cols])
        .output("y", |s| [s.rows, s.cols])
        .reference(reference)
        // All terms of the sum are positive and the rest are products, so errors are relative to y; but x / root may be
        // a denormal, which has lost digits before the weight multiplies it.
        .magnitude(|s, inputs, y| {
            for row in y[0].chunks_exact_mut(s.cols) {
                row.iter_mut().zip(inputs[1]).for_each(|(y, w)| *y = y.abs() + w.abs() * f64::from(f32::MIN_POSITIVE));
            }
        })
        .depth(|s| s.cols + STEPS)
        .range(RANGE)
        .cost(|s, dtype| Cost { bytes: (2 * s.rows * s.cols + s.cols) * dtype.size(), flops: s.rows * s.cols * FLOPS })
        .separable("rows")
        .exact_relation(
            "odd symmetry",
            |_, inputs, _| negate(&mut inputs[0]),
            |_, _, outputs, _| negate(&mut outputs[0]),
        )
        .relation(
            "doubled weight doubles the output",
            |_, inputs, _| double(&mut inputs[1]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .relation(
            "permuted columns permute the output",
            |s, inputs, rng| permute_columns(inputs, s.cols, rng),
            |s, _, outputs, rng| permute_columns(outputs, s.cols, rng),
        )
        .shapes(rows::cases().map(|(rows, cols)| Normalised { rows, cols, eps: EPS }))
        .perf(rows::TIMED.map(|(rows, cols)| Normalised { rows, cols, eps: EPS }))
}

/// Roundings besides those of the sum: the square, the mean, ε, the root, the quotient, weight.
const STEPS: usize = 6;
/// Two for the mean of the squares, two for the output.
const FLOPS: usize = 4;

fn reference(s: &Normalised, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    let (x, weight) = (inputs[0], inputs[1]);
    for (x, y) in x.chunks_exact(s.cols).zip(outputs[0].chunks_exact_mut(s.cols)) {
        let mean_square = x.iter().map(|x| x * x).sum::<f64>() / s.cols as f64;
        let root = (mean_square + f64::from(s.eps)).sqrt();
        for i in 0..s.cols {
            y[i] = x[i] / root * weight[i];
        }
    }
}

fn naive<T: Float>(s: &Normalised, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let weight = inputs.slice::<T>(1);
    let rows = inputs.slice::<T>(0).chunks_exact(s.cols).zip(outputs.slice::<T>(0).chunks_exact_mut(s.cols));
    for (x, y) in rows {
        let mean_square = sum(s.cols, &|i| x[i].to_f32().powi(2)) / s.cols as f32;
        let root = (mean_square + s.eps).sqrt();
        for i in 0..s.cols {
            y[i] = T::from_f32(x[i].to_f32() / root * weight[i].to_f32());
        }
    }
}

fn tiled<T: Float>(s: &Normalised, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, weight) = (inputs.slice::<T>(0), inputs.slice::<T>(1));
    simd::rmsnorm(s.rows, s.cols, s.eps, x, weight, outputs.slice::<T>(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn a_root_without_eps_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Normalised, inputs, outputs| {
            naive::<f32>(&Normalised { eps: 0.0, ..s.clone() }, inputs, outputs);
        });
        rejects(operator(), wrong);
    }
}
