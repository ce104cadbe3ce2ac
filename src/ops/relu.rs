//! ReLU: y = max(x, 0), and NaN stays NaN.

use super::family::elementwise::{Vector, activation, map};
use super::family::triton::built;
use super::float::Float;
use super::simd;
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("cuda", cuda())
        .candidate("triton", built!("relu").over_elements())
        .into()
}

fn operator() -> Op<Vector> {
    // A comparison: nothing is rounded, so nothing may be lost.
    activation("relu", 1, relu).magnitude(|_, _, y| y[0].fill(0.0))
}

/// `x.max(0.0)` would turn NaN into 0.
pub(super) fn relu(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// relu(x) in f32.
pub(super) fn relu_f32(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

fn naive<T: Float>(_: &Vector, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    map::<T>(inputs, outputs, relu_f32);
}

fn tiled<T: Float>(_: &Vector, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    simd::relu(inputs.slice::<T>(0), outputs.slice::<T>(0));
}

fn cuda() -> Cuda<Vector> {
    /// Threads of a block, and elements of each.
    const THREADS: usize = 128;
    const ELEMENTS: usize = 8;
    let plan = |s: &Vector| Launch::blocks(s.n.div_ceil(THREADS * ELEMENTS), THREADS).scalar(s.n as i64);
    kernel!("relu/relu.cu", "relu", plan).tiles([("n", 4), ("n", ELEMENTS), ("n", THREADS * ELEMENTS)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn a_leak_is_seen() {
        let wrong = Cpu::new::<f32>(|_: &Vector, inputs, outputs| {
            map::<f32>(inputs, outputs, |x| if x < 0.0 { x * 1e-3 } else { x });
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn nan_turned_into_zero_is_seen() {
        rejects(operator(), Cpu::new::<f32>(|_: &Vector, inputs, outputs| map::<f32>(inputs, outputs, |x| x.max(0.0))));
    }
}
