//! SwiGLU: y = silu(gate) · up, the gated half of a feed-forward layer.

use super::family::FUNCTION_FLOPS;
mod launch;

use super::family::elementwise::{self, Vector, sizes};
use super::family::rows::{double, negate};
use super::float::Float;
use super::silu::{self, silu};
use super::simd;
use crate::core::candidate::Cuda;
use crate::core::cost::Cost;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", elementwise::naive(kernel))
        .candidate("cuda", launch::tiles(elementwise::pack_f32(|entry, _| kernel(entry, launch::f32))))
        .candidate("cuda", launch::tiles(elementwise::pack_half(|entry, _| kernel(entry, launch::half))))
        .into()
}

fn operator() -> Op<Vector> {
    Op::new("swiglu")
        .input("gate", |s: &Vector| [s.n])
        .input("up", |s| [s.n])
        .output("y", |s| [s.n])
        .reference(|_, inputs, outputs| {
            let factors = inputs[0].iter().zip(inputs[1]);
            outputs[0].iter_mut().zip(factors).for_each(|(y, (&gate, &up))| *y = silu(gate) * up);
        })
        .magnitude(|_, inputs, outputs| {
            let factors = inputs[0].iter().zip(inputs[1]);
            for (y, (&gate, &up)) in outputs[0].iter_mut().zip(factors) {
                *y = silu::magnitude(gate, silu(gate)) * up.abs();
            }
        })
        .depth(|_| STEPS)
        .cost(|s, dtype| Cost { bytes: 3 * s.n * dtype.size(), flops: s.n * FLOPS })
        .separable("n")
        .exact_relation(
            "the sign of up is the sign of the output",
            |_, inputs, _| negate(&mut inputs[1]),
            |_, _, outputs, _| negate(&mut outputs[0]),
        )
        .relation(
            "a doubled up doubles the output",
            |_, inputs, _| double(&mut inputs[1]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .shapes(sizes().map(|n| Vector { n }))
        .perf([1 << 20, 1 << 25].map(|n| Vector { n }))
}

/// Roundings of one element: those of SiLU and the product.
const STEPS: usize = 5;
const FLOPS: usize = FUNCTION_FLOPS + 4;

fn naive<T: Float>(_: &Vector, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let factors = inputs.slice::<T>(0).iter().zip(inputs.slice::<T>(1));
    for (y, (gate, up)) in outputs.slice::<T>(0).iter_mut().zip(factors) {
        let x = gate.to_f32();
        *y = T::from_f32(x / (1.0 + (-x).exp()) * up.to_f32());
    }
}

fn tiled<T: Float>(_: &Vector, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    simd::swiglu(inputs.slice::<T>(0), inputs.slice::<T>(1), outputs.slice::<T>(0));
}

fn kernel(entry: &str, launch: fn(&Vector) -> Launch) -> Cuda<Vector> {
    kernel!("swiglu/swiglu.cu", format!("swiglu_{entry}"), launch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn swapped_gate_and_up_are_seen() {
        let wrong = Cpu::new::<f32>(|_: &Vector, inputs, outputs| {
            let factors = inputs.slice::<f32>(1).iter().zip(inputs.slice::<f32>(0));
            for (y, (gate, up)) in outputs.slice::<f32>(0).iter_mut().zip(factors) {
                *y = gate / (1.0 + (-gate).exp()) * up;
            }
        });
        rejects(operator(), wrong);
    }
}
