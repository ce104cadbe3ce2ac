//! SiLU: y = x σ(x) = x / (1 + e^-x).

use super::family::FUNCTION_FLOPS;
use super::family::elementwise::{self, Vector, activation, map, pointwise};
use super::family::triton::built;
use super::float::Float;
use super::simd;
use crate::core::candidate::Cuda;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};
use crate::core::tolerance::ACCUMULATOR_EPSILON;

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", elementwise::naive(kernel))
        .candidate("cuda", elementwise::pack_f32(kernel))
        .candidate("cuda", elementwise::pack_half(kernel))
        .candidate("triton", built!("silu").over_elements())
        .into()
}

fn operator() -> Op<Vector> {
    activation("silu", FUNCTION_FLOPS + 3, silu).depth(|_| STEPS).magnitude(pointwise(magnitude))
}

/// Roundings of one element: the exponential counts twice, add, divide.
const STEPS: usize = 4;

pub(super) fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// A rounding of the argument changes e^-x by |x| roundings, and y by the share that e^-x has in the denominator.
pub(super) fn magnitude(x: f64, y: f64) -> f64 {
    /// Left of it e^-x, or its reciprocal, leaves the range of f32, and the quotient may be 0.
    const EXP_OVERFLOWS: f64 = -87.0;
    if x < EXP_OVERFLOWS {
        return y.abs() / ACCUMULATOR_EPSILON;
    }
    y.abs() * (1.0 + x.abs() / (1.0 + x.exp()))
}

fn naive<T: Float>(_: &Vector, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    map::<T>(inputs, outputs, |x| x / (1.0 + (-x).exp()));
}

fn kernel(entry: &str, launch: fn(&Vector) -> Launch) -> Cuda<Vector> {
    kernel!("silu/silu.cu", format!("silu_{entry}"), launch)
}

fn tiled<T: Float>(_: &Vector, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    simd::silu(inputs.slice::<T>(0), outputs.slice::<T>(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;
    use rstest::rstest;

    #[test]
    fn an_exponential_of_a_thousandth_too_much_is_seen() {
        let wrong = Cpu::new::<f32>(|_: &Vector, inputs, outputs| {
            map::<f32>(inputs, outputs, |x| x / (1.0 + 1.001 * (-x).exp()));
        });
        rejects(operator(), wrong);
    }

    #[rstest]
    #[case(-50.0, 51.0)] // all of the error of the exponential
    #[case(50.0, 1.0)] // none of it
    fn the_exponential_counts_where_it_matters(#[case] x: f64, #[case] roundings: f64) {
        approx::assert_relative_eq!(magnitude(x, silu(x)) / silu(x).abs(), roundings, max_relative = 1e-9);
    }
}
