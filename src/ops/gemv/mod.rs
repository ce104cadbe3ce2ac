//! Matrix times few vectors: y = x Wᵀ, with x `batch`×`k`, W `n`×`k` and y `batch`×`n`, all row-major: a linear layer of a
//! model that writes a word at a time.

mod cluster;
mod launch;

use super::family::rows::double;
use super::float::{Float, sum};
use super::gemm::dot;
use super::simd;
use crate::core::candidate::{Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::seed::{Rng, below, permutation};
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

crate::shape! {
    /// The shape of a matrix and its vectors.
    pub struct Vectors {
        /// Vectors.
        batch: 0..=1 << 10,
        /// Rows of the matrix: elements of an output.
        n: 1..=1 << 18,
        /// Columns of the matrix: elements of a vector.
        k: 1..=1 << 18,
    }
}

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", kernel(launch::naive).tile("k", 256).untimed().lesson())
        .candidate(
            "lesson2_warp_per_row",
            kernel(launch::warp_per_row).tiles([("n", 8), ("k", 8), ("k", 1024)]).lesson(),
        )
        .candidate(
            "lesson3_block_per_row",
            kernel(launch::block_per_row).tiles(ROWS).tile("k", launch::LONG_K).lesson(),
        )
        .candidate("cuda", kernel(launch::best_in_f32).tiles(LINES_F32).dtypes([DType::F32]).needs("sm_90"))
        .candidate("cuda", kernel(launch::best_in_half).tiles(LINES).dtypes([DType::F16, DType::BF16]))
        .into()
}

fn operator() -> Op<Vectors> {
    Op::new("gemv")
        .input("x", |s: &Vectors| [s.batch, s.k])
        .input("w", |s| [s.n, s.k])
        .output("y", |s| [s.batch, s.n])
        .reference(|s, inputs, outputs| multiply(s, inputs, outputs, |x, w| x * w))
        .magnitude(|s, inputs, outputs| multiply(s, inputs, outputs, |x, w| (x * w).abs()))
        .element(|s, x, at| dot(s.k, |p| x[0].get(at / s.n * s.k + p) * x[1].get(at % s.n * s.k + p)))
        .depth(|s| s.k)
        .range(RANGE)
        .exclude_distributions(UNDEFINED)
        .cost(|s, dtype| Cost {
            bytes: (s.batch * s.k + s.n * s.k + s.batch * s.n) * dtype.size(),
            flops: 2 * s.batch * s.n * s.k,
        })
        .separable("batch")
        .exact_relation(
            "doubled x doubles y",
            |_, inputs, _| double(&mut inputs[0]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .exact_relation("permuted rows of w permute y", permute_rows, permute_outputs)
        .relation("the order of summation is free", permute_terms, |_, _, _, _| {})
        // (W + E) x = W x + E x, with one element in E.
        .relation(
            "additive in w",
            |s, inputs, rng| {
                let (row, column, value) = single(s, rng);
                inputs[1][row * s.k + column] += value;
            },
            |s, inputs, outputs, rng| {
                let (row, column, value) = single(s, rng);
                (0..s.batch).for_each(|b| outputs[0][b * s.n + row] += inputs[0][b * s.k + column] * value);
            },
        )
        .shapes(CASES.map(|(batch, n, k)| Vectors { batch, n, k }))
        .perf(TIMED.map(|(batch, n, k)| Vectors { batch, n, k }))
}

/// As in gemm: products of two tiny values are 0, and sums of products of two large means overflow f16.
const UNDEFINED: [Distribution; 2] = [Distribution::Tiny, Distribution::LargeMean];

/// 2¹⁸ products of two such values still fit an f32 sum.
const RANGE: f64 = 1e16;

/// As (batch, n, k), always different from each other: nothing, single vectors and rows, both sides of what a pack, a
/// lane, a warp and a block take, and layers of models.
const CASES: [(usize, usize, usize); 24] = [
    (0, 8, 16),
    (1, 2, 3),
    (2, 1, 5),
    (1, 17, 8),
    (3, 16, 24),
    (8, 15, 32),
    (7, 33, 40),
    (9, 31, 64),
    (1, 5, 1024),
    (1, 9, 1032),
    (1, 3, 2047),
    (1, 7, 2048),
    (2, 6, 2056),
    (4, 13, 4096),
    (5, 18, 4104),
    (1, 11, 4100),
    (6, 130, 1000),
    (8, 257, 2048),
    (1, 300, 5632),
    (3, 130, 2048),
    (9, 430, 2304),
    (1, 2, 32_768),
    // Clusters of four groups of rows in f32, and more rows than wide blocks take.
    (3, 2531, 160),
    (2, 2117, 24),
];

/// Layers of models with 1 and 8 billion weights: 32, 22, 125, 112 and 22 MiB in half-width types.
const TIMED: [(usize, usize, usize); 5] =
    [(1, 4096, 4096), (1, 2048, 5632), (1, 32_000, 2048), (8, 4096, 14_336), (8, 5632, 2048)];

/// One element of an `n`×`k` matrix: its row, its column, and a multiple of 1/8 in [1/8, 4].
fn single(s: &Vectors, rng: &mut Rng) -> (usize, usize, f64) {
    (below(rng, s.n), below(rng, s.k), (1 + below(rng, 32)) as f64 / 8.0)
}

fn permute_rows(s: &Vectors, inputs: &mut [Vec<f64>], rng: &mut Rng) {
    let before = inputs[1].clone();
    for (to, &from) in inputs[1].chunks_exact_mut(s.k).zip(&permutation(rng, s.n)) {
        to.copy_from_slice(&before[from * s.k..][..s.k]);
    }
}

fn permute_outputs(s: &Vectors, _: &[Vec<f64>], outputs: &mut [Vec<f64>], rng: &mut Rng) {
    let order = permutation(rng, s.n);
    for y in outputs[0].chunks_exact_mut(s.n) {
        let before = y.to_vec();
        y.iter_mut().zip(&order).for_each(|(y, &from)| *y = before[from]);
    }
}

/// Puts the columns of x and w into one random order.
fn permute_terms(s: &Vectors, inputs: &mut [Vec<f64>], rng: &mut Rng) {
    let order = permutation(rng, s.k);
    for row in inputs.iter_mut().flat_map(|tensor| tensor.chunks_exact_mut(s.k)) {
        let before = row.to_vec();
        row.iter_mut().zip(&order).for_each(|(x, &from)| *x = before[from]);
    }
}

/// y[b, i] = Σ term(x[b, j], W[i, j]) over j.
fn multiply(s: &Vectors, inputs: &[&[f64]], outputs: &mut [Vec<f64>], term: fn(f64, f64) -> f64) {
    let vectors = inputs[0].chunks_exact(s.k).zip(outputs[0].chunks_exact_mut(s.n));
    for (x, y) in vectors {
        for (y, w) in y.iter_mut().zip(inputs[1].chunks_exact(s.k)) {
            *y = x.iter().zip(w).map(|(&x, &w)| term(x, w)).sum();
        }
    }
}

fn naive<T: Float>(s: &Vectors, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, w) = (inputs.slice::<T>(0), inputs.slice::<T>(1));
    for (at, y) in outputs.slice::<T>(0).iter_mut().enumerate() {
        let (x, w) = (&x[at / s.n * s.k..], &w[at % s.n * s.k..]);
        *y = T::from_f32(sum(s.k, &|j| x[j].to_f32() * w[j].to_f32()));
    }
}

fn tiled<T: Float>(s: &Vectors, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let round = |sum| T::from_f32(sum as f32);
    simd::gemv(s.k, inputs.slice::<T>(0), inputs.slice::<T>(1), outputs.slice::<T>(0), round);
}

/// Tiles along which boundary shapes are made.
const ROWS: [(&str, usize); 4] = [("batch", 1), ("batch", launch::MOST_BATCH), ("n", 16), ("k", 8)];
const LINES: [(&str, usize); 5] = [("batch", 1), ("batch", launch::MOST_BATCH), ("n", 12), ("k", 64), ("k", 1024)];
const LINES_F32: [(&str, usize); 6] =
    [("batch", 1), ("batch", launch::MOST_BATCH), ("n", 16), ("n", 32), ("k", 128), ("k", 512)];

fn kernel(plan: fn(&Vectors) -> Launch) -> Cuda<Vectors> {
    kernel!("gemv/gemv.cu", "gemv_naive", plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn a_forgotten_last_product_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Vectors, inputs, outputs| {
            naive::<f32>(s, inputs, outputs);
            let (x, w) = (inputs.slice::<f32>(0), inputs.slice::<f32>(1));
            for (at, y) in outputs.slice::<f32>(0).iter_mut().enumerate() {
                *y -= x[(at / s.n + 1) * s.k - 1] * w[(at % s.n + 1) * s.k - 1];
            }
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn vectors_in_the_wrong_order_are_seen() {
        let wrong = Cpu::new::<f32>(|s: &Vectors, inputs, outputs| {
            naive::<f32>(s, inputs, outputs);
            outputs.slice::<f32>(0).rotate_left(if s.batch > 1 { s.n } else { 0 });
        });
        rejects(operator(), wrong);
    }
}
