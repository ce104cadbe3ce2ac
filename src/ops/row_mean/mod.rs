//! Row mean: y = Σ x / cols of each row.

use super::float::{Float, sum};
use super::row_sum::{declare, launch};
use super::simd;
use super::softmax::Matrix;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", launch::naive("row_mean"))
        .candidate("cuda", launch::best("row_mean"))
        .into()
}

fn operator() -> Op<Matrix> {
    declare("row_mean", |cols| 1.0 / cols as f64).depth(|s| s.cols + 1)
}

fn naive<T: Float>(s: &Matrix, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    for (x, y) in inputs.slice::<T>(0).chunks_exact(s.cols).zip(outputs.slice::<T>(0)) {
        *y = T::from_f32(sum(s.cols, &|i| x[i].to_f32()) / s.cols as f32);
    }
}

fn tiled<T: Float>(s: &Matrix, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let cols = s.cols as f64;
    simd::row_sums(s.cols, inputs.slice::<T>(0), outputs.slice::<T>(0), |sum| T::from_f32((sum / cols) as f32));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn a_divisor_of_one_too_many_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Matrix, inputs, outputs| {
            for (x, y) in inputs.slice::<f32>(0).chunks_exact(s.cols).zip(outputs.slice::<f32>(0)) {
                *y = sum(s.cols, &|i| x[i]) / (s.cols + 1) as f32;
            }
        });
        rejects(operator(), wrong);
    }
}
