//! A linear layer: y = act(x Wᵀ + bias) (+ residual), with x `m`×`k`, W `n`×`k` as frameworks store it, bias `n`, residual
//! and y `m`×`n`, all row-major.
//!
//! GELU is the one by tanh: it is what libraries fuse into their products.

mod simt;
#[cfg(feature = "cuda")]
mod vendor;
mod wgmma;

use super::family::rows::double;
use super::float::{Float, sum};
use super::gelu_tanh::{gelu_tanh, twice_inner};
use super::gemm::tile::{Tile, tiles};
use super::gemm::tuning::Tuned;
use super::gemm::{Product, dot, tuning};
use super::silu::silu;
use super::simd;
use crate::core::candidate::{Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::seed::{Rng, below, permutation};
use crate::core::shape::{Attribute, Shape as _};
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs, Tensor};
use crate::core::tolerance::ACCUMULATOR_EPSILON;
use wgmma::LINEAR;

/// What is done to a sum and its bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    None,
    /// GELU by tanh.
    GeluTanh,
    /// SiLU.
    Silu,
}

impl From<Activation> for Attribute {
    fn from(activation: Activation) -> Self {
        Attribute::Word(match activation {
            Activation::None => "none",
            Activation::GeluTanh => "gelu_tanh",
            Activation::Silu => "silu",
        })
    }
}

impl Activation {
    /// f(z)
    fn of(self, z: f64) -> f64 {
        match self {
            Activation::None => z,
            Activation::GeluTanh => gelu_tanh(z),
            Activation::Silu => silu(z),
        }
    }

    /// v of f(z) = z / (1 + e^-v).
    fn exponent(self, z: f64) -> f64 {
        match self {
            Activation::None => f64::INFINITY,
            Activation::GeluTanh => twice_inner(z),
            Activation::Silu => z,
        }
    }
}

crate::shape! {
    /// The shape of a linear layer.
    pub struct Layer {
        /// Rows of x and y: tokens.
        m: 0..=1 << 20,
        /// Rows of W, columns of y: features out.
        n: 1..=1 << 18,
        /// Columns of x and W: features in.
        k: 1..=1 << 18,
        /// What is done to a sum and its bias.
        activation: Activation = [Activation::None, Activation::GeluTanh, Activation::Silu],
        /// Whether something is added at the end.
        residual: bool = [false, true],
    }
}

impl Layer {
    fn product(&self) -> Product {
        Product { m: self.m, n: self.n, k: self.k }
    }

    /// The extents of the residual.
    fn added(&self) -> [usize; 2] {
        [if self.residual { self.m } else { 0 }, self.n]
    }

    /// What every kernel takes last: the activation's number and whether there is a residual.
    fn scalars(&self) -> [i32; 2] {
        [self.activation as i32, i32::from(self.residual)]
    }
}

/// The operator with its candidates.
pub fn suite() -> Suite {
    let own = Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", naive_kernel().untimed().lesson())
        .candidate(
            "cuda",
            wgmma_kernel(|s| LINEAR.choose(&s.product(), s.residual)).tiles([
                ("m", 16),
                ("m", 128),
                ("n", 64),
                ("k", 64),
            ]),
        )
        .candidate("cuda", simt_kernel());
    with_vendor!(own, "cublaslt", vendor::cublaslt)
}

/// The layer without activation and residual, for timing the tiles of its product.
pub fn tuned() -> Tuned {
    let suite = Suite::of(operator());
    let own = tiles().fold(suite, |suite, tile| suite.candidate(tile.name, wgmma_kernel(move |_| tile)));
    Tuned {
        tiles: tiles().collect(),
        suite: with_vendor!(own, "cublaslt", vendor::cublaslt),
        problem: |point| (LINEAR, Product::from_point(point)),
        extents: 3,
        point: |extents| {
            let Product { m, n, k } = Product::from_point(extents);
            Layer { m, n, k, activation: Activation::None, residual: false }.to_point()
        },
        listed: tuning::points(),
    }
}

fn operator() -> Op<Layer> {
    Op::new("linear")
        .input("x", |s: &Layer| [s.m, s.k])
        .weight("w", |s| s.k, |s| [s.n, s.k])
        .parameter("bias", 0.0, |s| [s.n])
        .input("residual", Layer::added)
        .output("y", |s| [s.m, s.n])
        .reference(reference)
        .magnitude(magnitude)
        .element(element)
        .depth(|s| s.k + STEPS)
        .range(RANGE)
        .cost(cost)
        .separable("m")
        .relation("what is added to the residual is added to y", shift_residual, shift_outputs)
        .exact_relation("permuted features permute y", permute_features, permute_outputs)
        .relation("the order of summation is free", permute_terms, |_, _, _, _| {})
        .relation(
            "doubled x and bias double y where nothing follows",
            |s, inputs, _| {
                if s.activation == Activation::None {
                    [0, 2, 3].into_iter().for_each(|i| double(&mut inputs[i]));
                }
            },
            |s, _, outputs, _| {
                if s.activation == Activation::None {
                    double(&mut outputs[0]);
                }
            },
        )
        .varied_around(Layer { m: 5, n: 37, k: 11, activation: Activation::None, residual: true })
        .shapes(cases())
        .perf(TIMED)
}

/// Roundings besides those of the sum: the bias, five of an exponent, the exponential counts twice, add, reciprocal,
/// multiply, the residual.
const STEPS: usize = 12;

/// 2¹⁸ products of two such values still fit an f32 sum.
const RANGE: f64 = 1e16;

/// A layer of a model, plain and with all that can follow, and a word at a time.
const TIMED: [Layer; 4] = [
    Layer { m: 512, n: 5632, k: 2048, activation: Activation::None, residual: false },
    Layer { m: 512, n: 5632, k: 2048, activation: Activation::GeluTanh, residual: false },
    Layer { m: 512, n: 2048, k: 5632, activation: Activation::None, residual: true },
    Layer { m: 16, n: 4096, k: 4096, activation: Activation::Silu, residual: true },
];

/// As (m, n, k), always different from each other: nothing, single rows, columns and products, both sides of usual tiles,
/// few rows and long sums.
const EXTENTS: [(usize, usize, usize); 31] = [
    (0, 8, 16),
    (1, 2, 3),
    (1, 17, 33),
    (17, 1, 9),
    (5, 7, 1),
    (1, 512, 384),
    (384, 2, 512),
    (15, 16, 17),
    (33, 31, 32),
    (63, 65, 64),
    (64, 48, 80),
    (127, 129, 128),
    (128, 256, 64),
    (255, 257, 31),
    (3, 1025, 130),
    (32, 72, 2048),
    (320, 256, 288),
    (8, 96, 1024),
    (3, 9, 4099),
    (5, 16, 6152),
    // One for each tile that a product of few operations takes.
    (144, 3072, 8),
    (20, 1, 512),
    (100, 2, 9000),
    (1, 16_384, 8),
    (9, 2, 8),
    (41, 1, 8),
    (3072, 144, 8),
    (448, 2560, 8),
    (416, 2560, 8),
    (2560, 416, 8),
    (72, 16_384, 8),
];

/// Every activation, with a residual and without, in turn.
fn cases() -> impl Iterator<Item = Layer> {
    let follows = [Activation::None, Activation::GeluTanh, Activation::Silu].into_iter().cycle();
    let extents = EXTENTS.into_iter().zip(follows).enumerate();
    extents.map(|(i, ((m, n, k), activation))| Layer { m, n, k, activation, residual: i % 2 == 1 })
}

fn cost(s: &Layer, dtype: DType) -> Cost {
    let added: usize = s.added().into_iter().product();
    let elements = s.m * s.k + s.n * s.k + s.n + added + s.m * s.n;
    Cost { bytes: elements * dtype.size(), flops: 2 * s.m * s.n * s.k }
}

/// Calls `visit(place, z, size)` for every output with the sum of its products and bias, and the sum of their sizes.
fn each_sum(s: &Layer, inputs: &[&[f64]], mut visit: impl FnMut(usize, f64, f64)) {
    for (i, x) in inputs[0].chunks_exact(s.k).enumerate() {
        for (j, w) in inputs[1].chunks_exact(s.k).enumerate() {
            let start = (inputs[2][j], inputs[2][j].abs());
            let products = x.iter().zip(w).map(|(x, w)| x * w);
            let (z, size) = products.fold(start, |(z, size), product| (z + product, size + product.abs()));
            visit(i * s.n + j, z, size);
        }
    }
}

fn reference(s: &Layer, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    let added = |at: usize| if s.residual { inputs[3][at] } else { 0.0 };
    each_sum(s, inputs, |at, z, _| outputs[0][at] = s.activation.of(z) + added(at));
}

/// One output, and its magnitude.
fn element(s: &Layer, inputs: &[Tensor], at: usize) -> [f64; 2] {
    let (i, j) = (at / s.n, at % s.n);
    let bias = inputs[2].get(j);
    let [z, size] = dot(s.k, |p| inputs[0].get(i * s.k + p) * inputs[1].get(j * s.k + p));
    let (z, size) = (z + bias, size + bias.abs());
    let added = if s.residual { inputs[3].get(at) } else { 0.0 };
    [s.activation.of(z) + added, carried(s.activation, z, size, unit(s)) + added.abs()]
}

/// Roundings of a sum as a part of their size, as the gate's tolerance has them.
fn unit(s: &Layer) -> f64 {
    4.0 * ACCUMULATOR_EPSILON * ((s.k + STEPS) as f64).sqrt()
}

/// How far the activation carries what a sum may be off by, what it adds of its own, and the last addition.
fn magnitude(s: &Layer, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
    each_sum(s, inputs, |at, z, size| {
        let carried = carried(s.activation, z, size, unit(s));
        let added = if s.residual { inputs[3][at].abs() } else { 0.0 };
        outputs[0][at] = carried + added;
    });
}

/// The size of an output behind the activation: `size` is that of its sum z, of which `unit` may be an error.
fn carried(activation: Activation, z: f64, size: f64, unit: f64) -> f64 {
    /// Left of it the exponential, or its reciprocal, leaves the range of f32, and the output may be 0.
    const EXP_OVERFLOWS: f64 = -87.0;
    if activation == Activation::None {
        return size;
    }
    let (y, v) = (activation.of(z), activation.exponent(z));
    let moved = [-1.0, 1.0].map(|sign| (activation.of(z + sign * unit * size) - y).abs() / unit);
    let own =
        if v < EXP_OVERFLOWS { y.abs() / ACCUMULATOR_EPSILON } else { y.abs() * (1.0 + v.abs() / (1.0 + v.exp())) };
    moved[0].max(moved[1]) + own
}

fn shift_residual(s: &Layer, inputs: &mut [Vec<f64>], rng: &mut Rng) {
    let (at, value) = single(s.m * s.n, rng);
    if s.residual {
        inputs[3][at] += value;
    }
}

fn shift_outputs(s: &Layer, _: &[Vec<f64>], outputs: &mut [Vec<f64>], rng: &mut Rng) {
    let (at, value) = single(s.m * s.n, rng);
    if s.residual {
        outputs[0][at] += value;
    }
}

/// One of `count` places, and a multiple of 1/8 in [1/8, 4].
fn single(count: usize, rng: &mut Rng) -> (usize, f64) {
    (below(rng, count), (1 + below(rng, 32)) as f64 / 8.0)
}

/// Puts rows of w, elements of the bias and columns of the residual into one random order.
fn permute_features(s: &Layer, inputs: &mut [Vec<f64>], rng: &mut Rng) {
    let order = permutation(rng, s.n);
    permute(&mut inputs[1], s.k, &order);
    permute(&mut inputs[2], 1, &order);
    inputs[3].chunks_exact_mut(s.n).for_each(|row| permute(row, 1, &order));
}

fn permute_outputs(s: &Layer, _: &[Vec<f64>], outputs: &mut [Vec<f64>], rng: &mut Rng) {
    let order = permutation(rng, s.n);
    outputs[0].chunks_exact_mut(s.n).for_each(|row| permute(row, 1, &order));
}

/// Puts runs of `width` elements into this order.
fn permute(values: &mut [f64], width: usize, order: &[usize]) {
    let before = values.to_vec();
    for (to, &from) in values.chunks_exact_mut(width).zip(order) {
        to.copy_from_slice(&before[from * width..][..width]);
    }
}

/// Puts the columns of x and w into one random order.
fn permute_terms(s: &Layer, inputs: &mut [Vec<f64>], rng: &mut Rng) {
    let order = permutation(rng, s.k);
    inputs[..2].iter_mut().flat_map(|tensor| tensor.chunks_exact_mut(s.k)).for_each(|row| permute(row, 1, &order));
}

fn naive<T: Float>(s: &Layer, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, w, bias, residual) =
        (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2), inputs.slice::<T>(3));
    for (at, y) in outputs.slice::<T>(0).iter_mut().enumerate() {
        let (x, w) = (&x[at / s.n * s.k..], &w[at % s.n * s.k..]);
        let z = sum(s.k, &|i| x[i].to_f32() * w[i].to_f32()) + bias[at % s.n].to_f32();
        let activated = match s.activation {
            Activation::None => z,
            _ => z / (1.0 + (-s.activation.exponent(f64::from(z)) as f32).exp()),
        };
        let added = if s.residual { residual[at].to_f32() } else { 0.0 };
        *y = T::from_f32(activated + added);
    }
}

fn tiled<T: Float>(s: &Layer, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, w, bias) = (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2));
    let activation: Option<simd::Elementwise> = match s.activation {
        Activation::None => None,
        Activation::GeluTanh => Some(simd::gelu_tanh),
        Activation::Silu => Some(simd::silu),
    };
    let residual = s.residual.then(|| inputs.slice::<T>(3));
    simd::linear(s.k, x, w, bias, activation, residual, outputs.slice::<T>(0));
}

const HALF: [DType; 2] = [DType::F16, DType::BF16];

/// A thread an output.
fn naive_kernel() -> Cuda<Layer> {
    kernel!("linear/linear.cu", "linear_naive", |s: &Layer| {
        with_scalars(s, Launch::blocks((s.m * s.n).div_ceil(256), 256))
    })
    .tile("n", 256)
}

/// gemm's tiles of multiply-adds in f32, with the epilogue.
fn simt_kernel() -> Cuda<Layer> {
    kernel!("linear/linear_simt.cu", "linear_simt", simt::plan)
        .workspace(simt::workspace_bytes)
        .tiles([("m", 128), ("n", 128), ("k", 8)])
        .dtypes([DType::F32])
}

fn with_scalars(s: &Layer, launch: Launch) -> Launch {
    let extents = [s.m as i32, s.n as i32, s.k as i32];
    extents.into_iter().chain(s.scalars()).fold(launch, Launch::scalar)
}

/// gemm's kernels on warpgroups with the epilogue, with the tile that `choose` says.
fn wgmma_kernel(choose: impl Fn(&Layer) -> &'static Tile + Clone + Send + Sync + 'static) -> Cuda<Layer> {
    let chosen = choose.clone();
    let plan = move |s: &Layer| LINEAR.plan(choose(s), &s.product(), &s.scalars());
    kernel!("linear/linear_wgmma.cu", "linear_128x256", plan)
        .workspace(move |s| LINEAR.workspace_bytes(chosen(s), &s.product()))
        .needs("sm_90a")
        .dtypes(HALF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;
    use half::bf16;

    #[test]
    fn a_sum_rounded_before_the_activation_is_seen() {
        let wrong = Cpu::new::<bf16>(|s: &Layer, inputs, outputs| {
            let plain = Layer { activation: Activation::None, residual: false, ..s.clone() };
            naive::<bf16>(&plain, inputs, outputs);
            let residual = inputs.slice::<bf16>(3);
            for (at, y) in outputs.slice::<bf16>(0).iter_mut().enumerate() {
                let added = if s.residual { residual[at].to_f64() } else { 0.0 };
                *y = bf16::from_f64(s.activation.of(y.to_f64()) + added);
            }
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn a_residual_added_before_the_activation_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Layer, inputs, outputs| {
            let plain = Layer { activation: Activation::None, ..s.clone() };
            naive::<f32>(&plain, inputs, outputs);
            outputs.slice::<f32>(0).iter_mut().for_each(|y| *y = s.activation.of(f64::from(*y)) as f32);
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn a_forgotten_bias_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Layer, inputs, outputs| {
            naive::<f32>(s, inputs, outputs);
            let last = inputs.slice::<f32>(2)[s.n - 1];
            outputs.slice::<f32>(0).chunks_exact_mut(s.n).for_each(|row| row[s.n - 1] -= last);
        });
        rejects(operator(), wrong);
    }
}
