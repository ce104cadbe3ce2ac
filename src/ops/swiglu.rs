//! SwiGLU: y = silu(gate) · up, the gated half of a feed-forward layer.

use super::family::FUNCTION_FLOPS;
use super::family::elementwise::{Vector, launch, sizes, step};
use super::family::rows::{double, negate};
use super::float::Float;
use super::silu::{self, silu};
use super::simd;
use crate::core::candidate::{Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator()).cpu_tiers(every_float!(naive), every_float!(tiled)).ladder(5, cuda).into()
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

/// What a block of versions 4 and 5 maps.
const OF_BLOCK: usize = 4096;

fn cuda(version: usize) -> Cuda<Vector> {
    let (before, rule) = like(version);
    let plan = move |s: &Vector| in_whole_blocks(version, s).unwrap_or_else(|| launch(rule, s));
    let kernel = step(rule, kernel!("swiglu.cu", ["common.cuh"], format!("swiglu_v{before}"), plan));
    match version {
        4 => kernel.tile("n", OF_BLOCK),
        5 => kernel.tile("n", OF_BLOCK).dtypes([DType::F16, DType::BF16]),
        _ => kernel,
    }
}

/// The version that serves what this one does not (or this one), and the version of the activations that it is like.
const fn like(version: usize) -> (usize, usize) {
    match version {
        1 => (1, 1),
        3 | 4 => (3, 6),
        _ => (2, 5),
    }
}

/// The launch rule of versions 4 and 5, where n is a whole number of blocks.
fn in_whole_blocks(version: usize, s: &Vector) -> Option<Launch> {
    let threads = match version {
        4 => 1024,
        5 => 512,
        _ => return None,
    };
    let launch = || Launch::blocks(s.n / OF_BLOCK, threads).scalar(s.n as i64).entry(format!("swiglu_v{version}"));
    s.n.is_multiple_of(OF_BLOCK).then(launch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn gate_and_up_exchanged_are_seen() {
        let wrong = Cpu::new::<f32>(|_: &Vector, inputs, outputs| {
            let factors = inputs.slice::<f32>(1).iter().zip(inputs.slice::<f32>(0));
            for (y, (gate, up)) in outputs.slice::<f32>(0).iter_mut().zip(factors) {
                *y = gate / (1.0 + (-gate).exp()) * up;
            }
        });
        rejects(operator(), wrong);
    }
}
