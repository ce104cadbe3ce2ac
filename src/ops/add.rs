//! Addition of two tensors, element by element: y = a + b. A residual, or the positions of a model that learns them.

use super::family::elementwise::{Vector, sizes};
use super::family::rows::{double, negate};
use super::float::Float;
use super::simd;
use crate::core::candidate::{Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator()).cpu_tiers(every_float!(naive), every_float!(tiled)).candidate("cuda", cuda()).into()
}

fn operator() -> Op<Vector> {
    Op::new("add")
        .input("a", |s: &Vector| [s.n])
        .input("b", |s| [s.n])
        .output("y", |s| [s.n])
        .reference(|_, inputs, outputs| {
            let addends = inputs[0].iter().zip(inputs[1]);
            outputs[0].iter_mut().zip(addends).for_each(|(y, (a, b))| *y = a + b);
        })
        // One rounding, of the sum itself.
        .cost(|s, dtype| Cost { bytes: 3 * s.n * dtype.size(), flops: s.n })
        .separable("n")
        .exact_relation(
            "odd symmetry",
            |_, inputs, _| inputs.iter_mut().for_each(|addend| negate(addend)),
            |_, _, outputs, _| negate(&mut outputs[0]),
        )
        .exact_relation("the addends commute", |_, inputs, _| inputs.swap(0, 1), |_, _, _, _| {})
        .relation(
            "doubled addends double the sum",
            |_, inputs, _| inputs.iter_mut().for_each(|addend| double(addend)),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .shapes(sizes().map(|n| Vector { n }))
        .perf([1 << 20, 1 << 25].map(|n| Vector { n }))
}

fn naive<T: Float>(_: &Vector, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let addends = inputs.slice::<T>(0).iter().zip(inputs.slice::<T>(1));
    for (y, (a, b)) in outputs.slice::<T>(0).iter_mut().zip(addends) {
        *y = T::from_f32(a.to_f32() + b.to_f32());
    }
}

fn tiled<T: Float>(_: &Vector, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    simd::add(inputs.slice::<T>(0), inputs.slice::<T>(1), outputs.slice::<T>(0));
}

fn cuda() -> Cuda<Vector> {
    /// Threads of a block, and elements of each.
    const THREADS: usize = 128;
    const ELEMENTS: usize = 8;
    let plan = |s: &Vector| Launch::blocks(s.n.div_ceil(THREADS * ELEMENTS), THREADS).scalar(s.n as i64);
    kernel!("add/add.cu", "add", plan).tiles([("n", 4), ("n", ELEMENTS), ("n", THREADS * ELEMENTS)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn a_difference_is_seen() {
        let wrong = Cpu::new::<f32>(|_: &Vector, inputs, outputs| {
            let addends = inputs.slice::<f32>(0).iter().zip(inputs.slice::<f32>(1));
            outputs.slice::<f32>(0).iter_mut().zip(addends).for_each(|(y, (a, b))| *y = a - b);
        });
        rejects(operator(), wrong);
    }
}
