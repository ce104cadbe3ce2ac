//! Residual addition and RMSNorm in one pass: total = x + residual, y = total / √(mean(total²) + ε) · weight, nothing
//! rounded in between.

mod launch;

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
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", launch::naive())
        .candidate("cuda", launch::best_f32())
        .candidate("cuda", launch::best_half())
        .into()
}

fn operator() -> Op<Normalised> {
    Op::new("add_rmsnorm")
        .input("x", |s: &Normalised| [s.rows, s.cols])
        .input("residual", |s| [s.rows, s.cols])
        .parameter("weight", 1.0, |s| [s.cols])
        .output("y", |s| [s.rows, s.cols])
        .output("total", |s| [s.rows, s.cols])
        .reference(reference)
        // The sum is rounded once, all terms of the mean are positive, the rest are products: errors are relative to y;
        // but total / root may be a denormal, which has lost digits before the weight multiplies it.
        .magnitude(|s, inputs, outputs| {
            for row in outputs[0].chunks_exact_mut(s.cols) {
                row.iter_mut().zip(inputs[2]).for_each(|(y, w)| *y = y.abs() + w.abs() * f64::from(f32::MIN_POSITIVE));
            }
            outputs[1].iter_mut().for_each(|total| *total = total.abs());
        })
        .depth(|s| s.cols + STEPS)
        .range(RANGE)
        .cost(|s, dtype| Cost { bytes: (4 * s.rows * s.cols + s.cols) * dtype.size(), flops: s.rows * s.cols * FLOPS })
        .separable("rows")
        .exact_relation(
            "odd symmetry",
            |_, inputs, _| inputs[..2].iter_mut().for_each(|addend| negate(addend)),
            |_, _, outputs, _| outputs.iter_mut().for_each(|output| negate(output)),
        )
        .exact_relation("the addends may be swapped", |_, inputs, _| inputs.swap(0, 1), |_, _, _, _| {})
        .relation(
            "a doubled weight doubles the normalised sum alone",
            |_, inputs, _| double(&mut inputs[2]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .relation(
            "permuted columns permute the outputs",
            |s, inputs, rng| permute_columns(inputs, s.cols, rng),
            |s, _, outputs, rng| permute_columns(outputs, s.cols, rng),
        )
        .shapes(rows::cases().map(|(rows, cols)| Normalised { rows, cols, eps: EPS }))
        .perf(rows::TIMED.map(|(rows, cols)| Normalised { rows, cols, eps: EPS }))
}

/// Roundings besides those of the sum: the addition, the square, the mean, ε, the root, the quotient, weight.
const STEPS: usize = 7;
/// The addition, two for the mean of the squares, two for the output.
const FLOPS: usize = 5;

fn reference(s: &Normalised, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    let (y, total) = outputs.split_at_mut(1);
    let addends = inputs[0].iter().zip(inputs[1]);
    total[0].iter_mut().zip(addends).for_each(|(total, (x, residual))| *total = x + residual);
    for (total, y) in total[0].chunks_exact(s.cols).zip(y[0].chunks_exact_mut(s.cols)) {
        let mean_square = total.iter().map(|x| x * x).sum::<f64>() / s.cols as f64;
        let root = (mean_square + f64::from(s.eps)).sqrt();
        for i in 0..s.cols {
            y[i] = total[i] / root * inputs[2][i];
        }
    }
}

fn naive<T: Float>(s: &Normalised, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, residual, weight) = (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2));
    let rows: Vec<f32> = x.iter().zip(residual).map(|(x, residual)| x.to_f32() + residual.to_f32()).collect();
    for (y, total) in outputs.slice::<T>(1).iter_mut().zip(&rows) {
        *y = T::from_f32(*total);
    }
    for (total, y) in rows.chunks_exact(s.cols).zip(outputs.slice::<T>(0).chunks_exact_mut(s.cols)) {
        let mean_square = sum(s.cols, &|i| total[i].powi(2)) / s.cols as f32;
        let root = (mean_square + s.eps).sqrt();
        for i in 0..s.cols {
            y[i] = T::from_f32(total[i] / root * weight[i].to_f32());
        }
    }
}

fn tiled<T: Float>(s: &Normalised, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, residual, weight) = (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2));
    let (y, total) = outputs.pair::<T, T>(0, 1);
    simd::add_rmsnorm(s.eps, x, residual, weight, y, total);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;
    use half::bf16;

    #[test]
    fn a_sum_rounded_before_it_is_normalised_is_seen() {
        let wrong = Cpu::new::<bf16>(|s: &Normalised, inputs, outputs| {
            let (x, residual) = (inputs.slice::<bf16>(0), inputs.slice::<bf16>(1));
            let total: Vec<bf16> =
                x.iter().zip(residual).map(|(&x, &r)| bf16::from_f32(x.to_f32() + r.to_f32())).collect();
            outputs.slice::<bf16>(1).copy_from_slice(&total);
            for (total, y) in total.chunks_exact(s.cols).zip(outputs.slice::<bf16>(0).chunks_exact_mut(s.cols)) {
                let mean_square = sum(s.cols, &|i| total[i].to_f32().powi(2)) / s.cols as f32;
                let root = (mean_square + s.eps).sqrt();
                for i in 0..s.cols {
                    y[i] = bf16::from_f32(total[i].to_f32() / root * inputs.slice::<bf16>(2)[i].to_f32());
                }
            }
        });
        rejects(operator(), wrong);
    }
}
