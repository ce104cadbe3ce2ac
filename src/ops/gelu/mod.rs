//! GELU: y = x Φ(x) = x/2 (1 + erf(x/√2)), with Φ the normal distribution function.

use super::family::FUNCTION_FLOPS;
use super::family::elementwise::{self, Vector, activation, cancelled, map, pointwise};
use super::family::triton::built;
use super::float::Float;
use super::simd;
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", elementwise::naive(kernel))
        .candidate("lesson2_vectorised", elementwise::lesson("vectorised", kernel))
        .candidate("lesson3_fast_math", elementwise::lesson("fast_math", kernel).dtypes([DType::F16, DType::BF16]))
        .candidate("cuda", elementwise::pack_f32(kernel))
        .candidate("cuda", elementwise::pack_half(kernel))
        .candidate("triton", built!("gelu").over_elements())
        .into()
}

fn operator() -> Op<Vector> {
    activation("gelu", FUNCTION_FLOPS + 4, gelu).depth(|_| STEPS).magnitude(pointwise(cancelled))
}

/// Roundings of one element: scale, erf, add, halve, multiply.
const STEPS: usize = 5;

/// 1 + erf(t) = erfc(-t), which keeps the digits that the sum would cancel.
pub(super) fn gelu(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x / std::f64::consts::SQRT_2)
}

/// The formula in f32.
pub(super) fn gelu_f32(x: f32) -> f32 {
    0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2))
}

fn naive<T: Float>(_: &Vector, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    map::<T>(inputs, outputs, gelu_f32);
}

fn kernel(entry: &str, launch: fn(&Vector) -> Launch) -> Cuda<Vector> {
    kernel!("gelu/gelu.cu", format!("gelu_{entry}"), launch)
}

fn tiled<T: Float>(_: &Vector, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    simd::gelu(inputs.slice::<T>(0), outputs.slice::<T>(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn the_tanh_approximation_is_another_operator() {
        rejects(operator(), Cpu::new::<f32>(super::super::gelu_tanh::naive::<f32>));
    }

    #[test]
    fn known_values() {
        assert_eq!(gelu(0.0), 0.0);
        approx::assert_relative_eq!(gelu(1.0), 0.841_344_746_068_542_9, max_relative = 1e-15);
        approx::assert_relative_eq!(gelu(-10.0), -7.619_853_024_160_527e-23, max_relative = 1e-12);
        assert!(gelu(f64::NEG_INFINITY).is_nan());
    }
}
