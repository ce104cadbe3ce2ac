//! Layer normalisation and GELU in one pass: y = gelu(layernorm(x)), with no rounding between.

mod launch;

use super::family::FUNCTION_FLOPS;
use super::family::elementwise::cancelled;
use super::family::triton::built;
use super::float::Float;
use super::gelu::{gelu, gelu_f32};
use super::layernorm::{self, Normalised};
use super::simd;
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
        .candidate("triton", layernorm::triton(built!("layernorm_gelu")))
        .into()
}

fn operator() -> Op<Normalised> {
    layernorm::declare("layernorm_gelu")
        .reference(reference)
        .magnitude(magnitude)
        .cost(|s, dtype| layernorm::cost(s, dtype, FLOPS))
}

/// Those of the normalisation and of GELU.
const FLOPS: usize = 8 + FUNCTION_FLOPS + 4;
/// The steepest slope of GELU, at √2: an error of its argument grows by as much.
const STEEPEST: f64 = 1.13;

fn reference(s: &Normalised, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    layernorm::reference(s, inputs, outputs);
    outputs[0].iter_mut().for_each(|y| *y = gelu(*y));
}

/// That of the normalisation, and what GELU cancels of its own.
fn magnitude(s: &Normalised, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    let y = outputs[0].clone();
    layernorm::reference(s, inputs, outputs);
    let own: Vec<f64> = outputs[0].iter().zip(&y).map(|(&normalised, &y)| cancelled(normalised, y)).collect();
    layernorm::magnitude(s, inputs, outputs);
    for (size, own) in outputs[0].iter_mut().zip(own) {
        *size = STEEPEST * *size + own;
    }
}

fn naive<T: Float>(s: &Normalised, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    layernorm::normalise::<T>(s, inputs, outputs, gelu_f32);
}

fn tiled<T: Float>(s: &Normalised, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, weight, bias) = (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2));
    simd::layernorm_gelu(s.rows, s.cols, s.eps, x, weight, bias, outputs.slice::<T>(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;
    use half::bf16;

    #[test]
    fn a_rounding_between_is_seen() {
        let wrong = Cpu::new::<bf16>(|s: &Normalised, inputs, outputs| {
            layernorm::normalise::<bf16>(s, inputs, outputs, |z| gelu_f32(bf16::from_f32(z).to_f32()));
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn no_slope_is_steeper() {
        let slopes = (-600..600).map(|i| f64::from(i) / 100.0).map(|x| (gelu(x + 1e-5) - gelu(x)) / 1e-5);
        let steepest = slopes.fold(0.0, f64::max);
        assert!((1.12..STEEPEST).contains(&steepest), "{steepest}");
    }
}
