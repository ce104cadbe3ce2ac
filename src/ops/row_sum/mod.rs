//! Row sum: y = Σ x of each row.

pub(super) mod launch;

use super::family::rows::{self, double, negate, permute_columns};
use super::float::{Float, sum};
use super::simd;
use super::softmax::Matrix;
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", launch::naive("row_sum"))
        .candidate("lesson2_vectorised", launch::pack_loop("row_sum"))
        .candidate("cuda", launch::best("row_sum"))
        .into()
}

fn operator() -> Op<Matrix> {
    declare("row_sum", |_| 1.0)
}

/// Sums of 2¹⁸ terms of this size still fit an f32.
const RANGE: f64 = 1e32;

/// Long sums of terms around one large mean differ by less than their roundings: no tolerance can tell them from a constant.
const UNDEFINED: [Distribution; 1] = [Distribution::LargeMean];

/// The sum of each row times a factor that `scale` takes from the number of columns.
pub(super) fn declare(name: &str, scale: fn(usize) -> f64) -> Op<Matrix> {
    Op::new(name)
        .input("x", |s: &Matrix| [s.rows, s.cols])
        .output("y", |s| [s.rows])
        .reference(move |s, inputs, outputs| fold(s, inputs, outputs, |x| x, scale(s.cols)))
        .magnitude(move |s, inputs, outputs| fold(s, inputs, outputs, f64::abs, scale(s.cols)))
        .depth(|s| s.cols)
        .range(RANGE)
        .exclude_distributions(UNDEFINED)
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
