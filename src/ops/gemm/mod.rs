//! Matrix product: C = A B, with A `m`×`k`, B `k`×`n` and C `m`×`n`, all row-major.

pub(super) mod batched;
mod launch;
mod shape;
pub(super) mod simt;
pub mod tile;
mod times;
pub mod tuning;
#[cfg(feature = "cuda")]
mod vendor;
pub(super) mod wgmma;

pub use shape::Product;

use super::family::rows::{double, permute_columns};
use super::family::stretch::STRETCH;
use super::family::triton::{Entry, built};
use super::float::Float;
use super::simd;
use crate::core::candidate::{Cpu, Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::seed::{Rng, below, permutation};
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

/// The operator with its candidates.
pub fn suite() -> Suite {
    let own = Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled).shares(|s| simd::gemm_shares(s.m, s.n, s.k)))
        .candidate("library", Cpu::new::<f32>(library))
        .candidate("lesson1_naive", ladder(launch::naive).tile("n", 256).untimed().lesson())
        .candidate("lesson2_tiled", ladder(launch::tiled).tiles([("m", 16), ("n", 16), ("k", 16)]).lesson())
        .candidate(
            "lesson3_register_tile",
            ladder(launch::register_tile).tiles([("m", 128), ("n", 128), ("k", 8)]).lesson(),
        )
        .candidate("lesson4_mma", ladder(launch::mma).tiles([("m", 128), ("n", 128), ("k", 32)]).dtypes(HALF).lesson())
        .candidate(
            "lesson5_wgmma",
            wgmma_kernel(|_| &tile::TILES[0]).tiles([("m", 128), ("n", 256), ("k", 64)]).lesson(),
        )
        .candidate("cuda", wgmma_kernel(|s| wgmma::GEMM.choose(s, false)).tiles([("m", 128), ("n", 64), ("k", 64)]))
        .candidate("cuda", simt_kernel())
        .candidate("triton", triton());
    with_vendor!(own, "cublaslt", vendor::cublaslt)
}

fn operator() -> Op<Product> {
    Op::new("gemm")
        .input("a", |s: &Product| [s.m, s.k])
        .input("b", |s| [s.k, s.n])
        .output("c", |s| [s.m, s.n])
        .reference(|s, inputs, outputs| multiply(s, inputs[0], inputs[1], &mut outputs[0], |a, b| a * b))
        .magnitude(|s, inputs, outputs| multiply(s, inputs[0], inputs[1], &mut outputs[0], |a, b| (a * b).abs()))
        .element(|s, x, at| {
            let (i, j) = (at / s.n, at % s.n);
            dot(s.k, |p| x[0].get(i * s.k + p) * x[1].get(p * s.n + j))
        })
        .depth(|s| s.k)
        .range(RANGE)
        .exclude_distributions(UNDEFINED)
        .cost(|s, dtype| Cost { bytes: (s.m * s.k + s.k * s.n + s.m * s.n) * dtype.size(), flops: 2 * s.m * s.n * s.k })
        .separable("m")
        .exact_relation(
            "doubled a doubles c",
            |_, inputs, _| double(&mut inputs[0]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .exact_relation(
            "permuted columns of b permute those of c",
            |s, inputs, rng| permute_columns(&mut inputs[1..], s.n, rng),
            |s, _, outputs, rng| permute_columns(outputs, s.n, rng),
        )
        .exact_relation(
            "the order of summation is free",
            |s, inputs, rng| {
                let order = permutation(rng, s.k);
                let (a, b) = (inputs[0].clone(), inputs[1].clone());
                for (to, &from) in order.iter().enumerate() {
                    (0..s.m).for_each(|i| inputs[0][i * s.k + to] = a[i * s.k + from]);
                    inputs[1][to * s.n..][..s.n].copy_from_slice(&b[from * s.n..][..s.n]);
                }
            },
            |_, _, _, _| {},
        )
        // A (B + E) = A B + A E, with one element in E.
        .relation(
            "additive in b",
            |s, inputs, rng| {
                let (row, column, value) = single(s, rng);
                inputs[1][row * s.n + column] += value;
            },
            |s, inputs, outputs, rng| {
                let (row, column, value) = single(s, rng);
                (0..s.m).for_each(|i| outputs[0][i * s.n + column] += inputs[0][i * s.k + row] * value);
            },
        )
        .shapes(CASES.map(|(m, n, k)| Product { m, n, k }))
        .perf([(1024, 1024, 1024), (512, 5632, 2048)].map(|(m, n, k)| Product { m, n, k }))
}

/// Of two tiny values the product is 0 in every dtype, as is the output of a kernel that does nothing; sums of products
/// of two large means overflow f16, and elsewhere differ from each other by less than their tolerance.
const UNDEFINED: [Distribution; 2] = [Distribution::Tiny, Distribution::LargeMean];

/// 2¹⁸ products of two such values still fit an f32 sum.
const RANGE: f64 = 1e16;

/// As (m, n, k), always different from each other: nothing, single rows, columns and products, both sides of usual
/// tiles, layers of models, and sums of thousands of terms.
const CASES: [(usize, usize, usize); 34] = [
    (0, 8, 16),
    (1, 2, 3),
    (1, 17, 33),
    (17, 1, 9),
    (5, 7, 1),
    (1, 512, 384),
    (384, 1, 512),
    (15, 16, 17),
    (16, 17, 15),
    (17, 15, 16),
    (33, 31, 32),
    (63, 65, 64),
    (65, 64, 63),
    (64, 48, 80),
    (127, 129, 128),
    (129, 128, 127),
    (128, 256, 64),
    (255, 257, 31),
    (3, 1025, 130),
    (100, 200, 300),
    (320, 256, 288),
    (8, 96, 1024),
    (3, 9, 4099),
    (5, 16, 6152),
    // One for each tile that a product of few operations takes.
    (144, 3072, 8),
    (20, 1, 512),
    (3, 2, 4096),
    (1, 16_384, 8),
    (9, 2, 8),
    (41, 1, 8),
    (3072, 144, 8),
    (448, 2560, 8),
    (416, 2560, 8),
    (2560, 416, 8),
];

/// One element of a `k`×`n` matrix: its row, its column, and a multiple of 1/8 in [1/8, 4].
fn single(s: &Product, rng: &mut Rng) -> (usize, usize, f64) {
    (below(rng, s.k), below(rng, s.n), (1 + below(rng, 32)) as f64 / 8.0)
}

/// A sum of `k` products and the sum of their sizes.
pub(super) fn dot(k: usize, product: impl Fn(usize) -> f64) -> [f64; 2] {
    (0..k).map(product).fold([0.0, 0.0], |[value, size], term| [value + term, size + term.abs()])
}

/// C[i, j] = Σ term(A[i, p], B[p, j]) over p; the inner loop runs along rows of B and C.
pub(super) fn multiply(s: &Product, a: &[f64], b: &[f64], c: &mut [f64], term: fn(f64, f64) -> f64) {
    for (a, c) in a.chunks_exact(s.k).zip(c.chunks_exact_mut(s.n)) {
        c.fill(0.0);
        for (&a, b) in a.iter().zip(b.chunks_exact(s.n)) {
            c.iter_mut().zip(b).for_each(|(c, &b)| *c += term(a, b));
        }
    }
}

/// The same loops in f32.
fn naive<T: Float>(s: &Product, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    naive_product(s, inputs.slice::<T>(0), inputs.slice::<T>(1), outputs.slice::<T>(0));
}

pub(super) fn naive_product<T: Float>(s: &Product, a: &[T], b: &[T], c: &mut [T]) {
    let b: Vec<f32> = b.iter().map(|b| b.to_f32()).collect();
    let (mut totals, mut sums) = (vec![0.0f32; s.n], vec![0.0f32; s.n]);
    for (a, c) in a.chunks_exact(s.k).zip(c.chunks_exact_mut(s.n)) {
        totals.fill(0.0);
        for (a, b) in a.chunks(STRETCH).zip(b.chunks(STRETCH * s.n)) {
            sums.fill(0.0);
            for (a, b) in a.iter().zip(b.chunks_exact(s.n)) {
                let a = a.to_f32();
                sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * b);
            }
            totals.iter_mut().zip(&sums).for_each(|(total, sum)| *total += sum);
        }
        c.iter_mut().zip(&totals).for_each(|(c, &total)| *c = T::from_f32(total));
    }
}

fn tiled<T: Float>(s: &Product, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    simd::gemm(s.m, s.n, s.k, inputs.slice::<T>(0), inputs.slice::<T>(1), outputs.slice::<T>(0));
}

/// faer, on all threads of the pool where that is worth their waking.
fn library(s: &Product, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let a = MatRef::from_row_major_slice(inputs.slice::<f32>(0), s.m, s.k);
    let b = MatRef::from_row_major_slice(inputs.slice::<f32>(1), s.k, s.n);
    let c = MatMut::from_row_major_slice_mut(outputs.slice::<f32>(0), s.m, s.n);
    let threads = if s.m * s.n * s.k < simd::SERIAL_BELOW { Par::Seq } else { Par::rayon(0) };
    matmul(c, Accum::Replace, a, b, 1.0, threads);
}

const HALF: [DType; 2] = [DType::F16, DType::BF16];

/// The kernels of the ladder that need nothing of compute capability 9.0.
fn ladder(plan: fn(&Product) -> Launch) -> Cuda<Product> {
    kernel!("gemm/gemm.cu", "gemm_naive", plan)
}

/// 128x128 tiles of multiply-adds in f32, with split-K where tiles are few.
fn simt_kernel() -> Cuda<Product> {
    kernel!("gemm/gemm_simt.cu", "gemm_simt", simt::plan)
        .workspace(|s| simt::workspace_bytes(1, s))
        .tiles([("m", 128), ("n", 128), ("k", 8)])
        .dtypes([DType::F32])
}

/// The kernels on warpgroups, with the tile that `choose` says.
fn wgmma_kernel(choose: impl Fn(&Product) -> &'static tile::Tile + Clone + Send + Sync + 'static) -> Cuda<Product> {
    let chosen = choose.clone();
    kernel!("gemm/gemm_wgmma.cu", "gemm_128x256", move |s| wgmma::GEMM.plan(choose(s), s, &[]))
        .workspace(move |s| wgmma::GEMM.workspace_bytes(chosen(s), s))
        .needs("sm_90a")
        .dtypes(HALF)
}

/// The product as a user of Triton would write it.
fn triton() -> Cuda<Product> {
    let programs = |s: &Product, entry: &Entry| s.m.div_ceil(entry.constants["M"]) * s.n.div_ceil(entry.constants["N"]);
    // A row of b or c starts on 16 bytes if n allows it, a row of a if k does.
    let rows = |s: &Product| if s.n.is_multiple_of(16) { s.k } else { s.n };
    let extents = |s: &Product| [s.m, s.n, s.k].map(|extent| (extent as i32).into()).to_vec();
    let kernel = built!("gemm").candidate(|s| s.m, rows, programs, extents);
    let kernel = [16, 64, 128, 1024].into_iter().fold(kernel, |kernel, rows| kernel.tile("m", rows));
    kernel.tiles([("n", 16), ("n", 128), ("k", 16), ("k", 64)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::agreement::rejects;
    use half::{bf16, f16};

    #[test]
    fn a_forgotten_product_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Product, inputs, outputs| {
            naive::<f32>(s, inputs, outputs);
            let (a, b) = (inputs.slice::<f32>(0), inputs.slice::<f32>(1));
            for (at, c) in outputs.slice::<f32>(0).iter_mut().enumerate() {
                let (i, j) = (at / s.n, at % s.n);
                *c -= a[(i + 1) * s.k - 1] * b[(s.k - 1) * s.n + j];
            }
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn inputs_rounded_to_bf16_are_seen() {
        let wrong = Cpu::new::<f32>(|s: &Product, inputs, outputs| {
            let coarse =
                |i: usize| -> Vec<f32> { inputs.slice::<f32>(i).iter().map(|&x| bf16::from_f32(x).to_f32()).collect() };
            let (a, b) = (coarse(0), coarse(1));
            for (at, c) in outputs.slice::<f32>(0).iter_mut().enumerate() {
                let (i, j) = (at / s.n, at % s.n);
                *c = (0..s.k).map(|p| a[i * s.k + p] * b[p * s.n + j]).sum();
            }
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn an_accumulator_in_f16_is_seen() {
        let wrong = Cpu::new::<f16>(|s: &Product, inputs, outputs| {
            let (a, b) = (inputs.slice::<f16>(0), inputs.slice::<f16>(1));
            for (at, c) in outputs.slice::<f16>(0).iter_mut().enumerate() {
                let (i, j) = (at / s.n, at % s.n);
                *c = (0..s.k).fold(f16::ZERO, |sum, p| sum + a[i * s.k + p] * b[p * s.n + j]);
            }
        });
        rejects(operator(), wrong);
    }
}
