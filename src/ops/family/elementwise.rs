//! Activations: one function of one element, over a vector of `n`.

use crate::core::candidate::{Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::seed::{Rng, below};
use crate::core::tensor::{Inputs, Outputs};
use crate::ops::float::Float;

crate::shape! {
    /// The shape of an elementwise operator.
    pub struct Vector {
        /// Elements.
        n: 0..=1 << 32,
    }
}

/// An operator `y[i] = function(x[i])` with `function(x) = x g(x)`, where g rises from 0 to 1 and g(−x) = 1 − g(x).
pub fn activation(name: &str, flops: usize, function: fn(f64) -> f64) -> Op<Vector> {
    Op::new(name)
        .input("x", |s: &Vector| [s.n])
        .output("y", |s| [s.n])
        .reference(move |_, inputs, outputs| {
            for (y, &x) in outputs[0].iter_mut().zip(inputs[0]) {
                *y = function(x);
            }
        })
        .cost(move |s, dtype| Cost { bytes: 2 * s.n * dtype.size(), flops: s.n * flops })
        .separable("n")
        .relation(
            "large inputs pass through",
            |s, inputs, rng| inputs[0] = large(s.n, rng),
            |s, _, outputs, rng| outputs[0] = large(s.n, rng),
        )
        .relation(
            "f(x) - f(-x) = x",
            |_, inputs, _| inputs[0].iter_mut().for_each(|x| *x = x.abs()),
            |_, inputs, outputs, _| outputs[0].iter_mut().zip(&inputs[0]).for_each(|(y, x)| *y += (-x).max(0.0)),
        )
        .shapes(sizes().map(|n| Vector { n }))
        .perf([1 << 20, 1 << 25].map(|n| Vector { n }))
}

/// The magnitude of an activation, element by element: `size(x, y)`.
pub fn pointwise(size: fn(f64, f64) -> f64) -> impl Fn(&Vector, &[&[f64]], &mut [Vec<f64>]) {
    move |_, inputs, outputs| outputs[0].iter_mut().zip(inputs[0]).for_each(|(y, &x)| *y = size(x, *y))
}

/// A naive candidate: `function` in f32 of every element.
pub fn map<T: Float>(inputs: &Inputs<'_>, outputs: &mut Outputs<'_>, function: impl Fn(f32) -> f32) {
    for (y, x) in outputs.slice::<T>(0).iter_mut().zip(inputs.slice::<T>(0)) {
        *y = T::from_f32(function(x.to_f32()));
    }
}

/// Elements that a thread of lessons 2 and 3 maps: independent ones, so that several loads are in flight.
const ELEMENTS: usize = 8;
const THREADS: usize = 256;

/// Lesson 1 of an activation: one element a thread.
pub fn naive(kernel: impl Fn(&'static str, fn(&Vector) -> Launch) -> Cuda<Vector>) -> Cuda<Vector> {
    mapped(1, THREADS, kernel("naive", |s| launch(1, THREADS, s))).untimed().lesson()
}

/// A later lesson, of entry `entry`: several elements a thread.
pub fn lesson(
    entry: &'static str,
    kernel: impl Fn(&'static str, fn(&Vector) -> Launch) -> Cuda<Vector>,
) -> Cuda<Vector> {
    mapped(ELEMENTS, THREADS, kernel(entry, |s| launch(ELEMENTS, THREADS, s))).lesson()
}

/// Elements of a pack of 16 bytes, and threads of a block: at half width a pack has more, and a smaller block starts to write
/// earlier.
const F32: (usize, usize) = (4, 256);
const HALF: (usize, usize) = (8, 128);

/// One pack a thread, in f32.
pub fn pack_f32(kernel: impl Fn(&'static str, fn(&Vector) -> Launch) -> Cuda<Vector>) -> Cuda<Vector> {
    mapped(F32.0, F32.1, kernel("pack_per_thread", launch_f32)).dtypes([DType::F32])
}

/// One pack a thread, in f16 and bf16.
pub fn pack_half(kernel: impl Fn(&'static str, fn(&Vector) -> Launch) -> Cuda<Vector>) -> Cuda<Vector> {
    mapped(HALF.0, HALF.1, kernel("pack_per_thread", launch_half)).dtypes([DType::F16, DType::BF16])
}

/// The launch rules of those two.
pub fn launch_f32(s: &Vector) -> Launch {
    launch(F32.0, F32.1, s)
}
pub fn launch_half(s: &Vector) -> Launch {
    launch(HALF.0, HALF.1, s)
}

/// A grid that covers n.
fn launch(elements: usize, threads: usize, s: &Vector) -> Launch {
    Launch::blocks(s.n.div_ceil(threads * elements), threads).scalar(s.n as i64)
}

/// Declares the extents at which a kernel takes another path: its pack, what a thread maps, its block.
fn mapped(elements: usize, threads: usize, kernel: Cuda<Vector>) -> Cuda<Vector> {
    kernel.tiles([("n", 4), ("n", elements), ("n", elements * threads)])
}

/// Whole numbers in 32..=64: exact in every dtype, and past the bend of every activation.
fn large(n: usize, rng: &mut Rng) -> Vec<f64> {
    (0..n).map(|_| 32.0 + below(rng, 33) as f64).collect()
}

/// Nothing, every width of a tail, both sides of usual block sizes, and what a model holds.
pub fn sizes() -> impl Iterator<Item = usize> {
    let widths = 0..=33;
    let edges = [255, 256, 257, 1023, 1024, 1025];
    let realistic = [197 * 768, 300_001];
    widths.chain(edges).chain(realistic)
}

/// The size of what is cancelled in `y = x/2 (1 + f)` with f → −1 to the left: |x| until f is −1 in f32, after which
/// nothing is left to cancel.
pub fn cancelled(x: f64, y: f64) -> f64 {
    /// Both erf(x/√2) and the tanh of GELU are −1 in f32 left of −8.
    const SATURATED: f64 = 8.0;
    y.abs().max(x.abs().min(SATURATED))
}
