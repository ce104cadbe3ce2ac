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

/// Threads of a block of version `version`.
const fn threads(version: usize) -> usize {
    if version == 5 { 128 } else { 256 }
}

/// Elements that a thread of version `version` maps.
const fn elements_of_thread(version: usize) -> usize {
    match version {
        1 => 1,
        4 => 16,
        6 => 4,
        _ => 8,
    }
}

/// The launch rule of version `version` of an activation's kernel.
pub fn launch(version: usize, s: &Vector) -> Launch {
    let threads = threads(version);
    Launch::blocks(s.n.div_ceil(threads * elements_of_thread(version)), threads).scalar(s.n as i64)
}

/// Version `version` of an activation from the kernel that computes it. The last gives a thread one pack, which is what the
/// one before does at half width.
pub fn step(version: usize, kernel: Cuda<Vector>) -> Cuda<Vector> {
    let kernel = tiles(version, kernel);
    if version == 6 { kernel.dtypes([DType::F32]) } else { kernel }
}

/// Declares the extents at which version `version` takes another path: its pack, what a thread maps, its block.
fn tiles(version: usize, kernel: Cuda<Vector>) -> Cuda<Vector> {
    let thread = elements_of_thread(version);
    kernel.tiles([("n", 4), ("n", thread), ("n", thread * threads(version))])
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
