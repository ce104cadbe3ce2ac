//! GELU by tanh: y = x/2 (1 + tanh u), u = √(2/π) (x + 0.044715 x³).

use super::family::FUNCTION_FLOPS;
use super::family::elementwise::{self, Vector, activation, cancelled, map, pointwise};
use super::float::Float;
use super::simd;
use crate::core::candidate::Cuda;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};
use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", elementwise::naive(kernel))
        .candidate("cuda", elementwise::pack_f32(kernel))
        .candidate("cuda", elementwise::pack_half(kernel))
        .into()
}

fn operator() -> Op<Vector> {
    activation("gelu_tanh", FUNCTION_FLOPS + 8, gelu_tanh).depth(|_| STEPS).magnitude(pointwise(cancelled))
}

/// Roundings of one element: four for the cube and its factor, two for u, tanh, add, halve, multiply.
const STEPS: usize = 10;

/// √(2/π)
const SCALE: f64 = FRAC_2_SQRT_PI / SQRT_2;
const CUBIC: f64 = 0.044_715;

/// (1 + tanh u)/2 = 1/(1 + e^-2u), which keeps the digits that the sum would cancel.
pub(super) fn gelu_tanh(x: f64) -> f64 {
    x / (1.0 + (-twice_inner(x)).exp())
}

/// 2u
pub(super) fn twice_inner(x: f64) -> f64 {
    2.0 * SCALE * (x + CUBIC * x.powi(3))
}

pub(super) fn naive<T: Float>(_: &Vector, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    map::<T>(inputs, outputs, |x| {
        let u = SCALE as f32 * (x + CUBIC as f32 * (x * x * x));
        0.5 * x * (1.0 + u.tanh())
    });
}

fn kernel(entry: &str, launch: fn(&Vector) -> Launch) -> Cuda<Vector> {
    kernel!("gelu/gelu.cu", format!("gelu_tanh_{entry}"), launch)
}

fn tiled<T: Float>(_: &Vector, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    simd::gelu_tanh(inputs.slice::<T>(0), outputs.slice::<T>(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn a_rounded_constant_is_seen() {
        let wrong = Cpu::new::<f32>(|_: &Vector, inputs, outputs| {
            map::<f32>(inputs, outputs, |x| 0.5 * x * (1.0 + (0.7979 * (x + 0.0447 * x.powi(3))).tanh()));
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn it_stays_within_a_thousandth_of_gelu() {
        let worst =
            (-500..500).map(|i| f64::from(i) / 100.0).map(|x| (gelu_tanh(x) - super::super::gelu::gelu(x)).abs());
        let worst = worst.fold(0.0, f64::max);
        assert!((1e-4..1e-3).contains(&worst), "{worst}");
    }
}
