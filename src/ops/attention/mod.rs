//! Attention: y = softmax(q kᵀ / √dim) v, head by head; several query heads may share one head of keys and values.
//!
//! Letters: a query head `h` of a batch reads the keys of head `h / group`. With `causal`, the last query sees all keys
//! and each one before it one fewer; a query that sees none gives zeros.

mod launch;
#[cfg(feature = "cuda")]
pub(super) mod vendor;

use super::family::FUNCTION_FLOPS;
use super::family::rows::double;
use super::family::triton::{Entry, built};
use super::float::{Float, sum};
use super::gemm::dot;
use super::simd;
use crate::core::candidate::{Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::launch::{Plan, Scalar};
use crate::core::operator::Op;
use crate::core::seed::{Rng, permutation};
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs, Tensor};
use crate::core::tolerance::{Override, Tolerance};
pub(super) use launch::{naive_launch, wgmma as wgmma_plan, with_scalars};
use rayon::prelude::*;

crate::shape! {
    /// The shape of an attention.
    pub struct Heads {
        /// Sequences.
        batch: 0..=1 << 10,
        /// Heads of keys and values.
        heads: 1..=1 << 8,
        /// Query heads to each of them.
        group: 1..=1 << 6,
        /// Queries of a head.
        queries: 1..=1 << 17,
        /// Keys of a head.
        keys: 1..=1 << 17,
        /// Elements of a query, a key, a value.
        dim: 1..=256,
        /// Whether a query sees only the keys up to its own place, counted from the end.
        causal: bool = [false, true],
    }
}

impl Heads {
    /// Query heads of all sequences.
    pub(super) fn query_heads(&self) -> usize {
        self.batch * self.heads * self.group
    }

    /// Keys that query `i` sees: always the first ones.
    fn seen(&self, i: usize) -> usize {
        if self.causal { (i + 1 + self.keys).saturating_sub(self.queries) } else { self.keys }
    }

    /// Pairs of a query and a key that it sees, of one head.
    fn pairs(&self) -> usize {
        if !self.causal {
            return self.queries * self.keys;
        }
        // The last `steps` queries see one key more than the one before, the last of them all.
        let steps = self.queries.min(self.keys);
        steps * self.keys - steps * (steps - 1) / 2
    }

    pub(super) fn scale(&self) -> f64 {
        1.0 / (self.dim as f64).sqrt()
    }
}

/// The operator with its candidates.
pub fn suite() -> Suite {
    let own = Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", naive_kernel().untimed().lesson())
        .candidate("lesson2_mma", mma_kernel().dtypes(HALF).tolerance(rounded_weights()).lesson())
        .candidate("cuda", wgmma_kernel().dtypes(HALF).tolerance(rounded_weights()))
        .candidate("cuda", naive_kernel().dtypes([DType::F32]).untimed())
        .candidate("triton", triton().dtypes(HALF).tolerance(rounded_weights()));
    with_vendor!(own, "cudnn", vendor::cudnn)
}

/// What tensor cores and bulk copies by tensor maps serve.
pub(super) const HALF: [DType; 2] = [DType::F16, DType::BF16];

fn operator() -> Op<Heads> {
    declare("attention").shapes(cases()).perf([
        Heads { batch: 2, heads: 16, group: 1, queries: 512, keys: 512, dim: 64, causal: true },
        Heads { batch: 4, heads: 32, group: 1, queries: 2048, keys: 2048, dim: 128, causal: true },
        Heads { batch: 4, heads: 32, group: 1, queries: 2048, keys: 2048, dim: 128, causal: false },
        Heads { batch: 4, heads: 32, group: 1, queries: 2048, keys: 2048, dim: 64, causal: true },
        Heads { batch: 4, heads: 16, group: 1, queries: 2048, keys: 2048, dim: 96, causal: false },
        Heads { batch: 4, heads: 16, group: 1, queries: 2048, keys: 2048, dim: 256, causal: true },
    ])
}

/// The operator under a name, without shapes.
pub(super) fn declare(name: &str) -> Op<Heads> {
    Op::new(name)
        .input("q", |s: &Heads| [s.batch, s.heads * s.group, s.queries, s.dim])
        .input("k", |s| [s.batch, s.heads, s.keys, s.dim])
        .input("v", |s| [s.batch, s.heads, s.keys, s.dim])
        .output("y", |s| [s.batch, s.heads * s.group, s.queries, s.dim])
        .reference(|s, inputs, outputs| each_query(s, inputs, outputs, |y, keys| keys.for_each(|key| key.add_to(y))))
        // An error of a score changes its weight by as much, and a score collects the sizes of its products.
        .magnitude(|s, inputs, outputs| {
            each_query(s, inputs, outputs, |y, keys| {
                keys.for_each(|key| {
                    let weight = key.weight * (1.0 + key.score_size);
                    y.iter_mut().zip(key.value).for_each(|(y, v)| *y += weight * v.abs());
                });
            });
        })
        .element(element)
        .depth(|s| s.dim + s.keys + STEPS)
        .range(RANGE)
        .exclude_distributions(UNDEFINED)
        .cost(cost)
        .separable("batch")
        .relation(
            "doubled values double the output",
            |_, inputs, _| double(&mut inputs[2]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .relation("the order of keys is free where all are seen", permute_keys, |_, _, _, _| {})
        .relation(
            "the last key changes no query before the last",
            |s, inputs, _| change_last_key(s, inputs),
            expect_last_query,
        )
        .varied_around(Heads { batch: 2, heads: 3, group: 2, queries: 5, keys: 9, dim: 11, causal: true })
}

/// Roundings besides those of the two sums: scale, difference, two of the exponential, quotient.
const STEPS: usize = 5;
/// Scores stay below 16 √256 then, which an exponential resolves.
pub(super) const RANGE: f64 = 4.0;
/// A mean larger than the range and values near the smallest number leave nothing to compare. What a key that is not
/// seen holds, blocks of matrix products multiply by zero: there NaN and infinity are not defined.
const UNDEFINED: [Distribution; 3] = [Distribution::Tiny, Distribution::LargeMean, Distribution::NonFinite];

/// q, k, v and y once; two products a pair, and its exponential.
fn cost(s: &Heads, dtype: DType) -> Cost {
    let of_queries = 2 * s.query_heads() * s.queries * s.dim;
    let of_keys = 2 * s.batch * s.heads * s.keys * s.dim;
    let flops = s.query_heads() * s.pairs() * (4 * s.dim + FUNCTION_FLOPS);
    Cost { bytes: (of_queries + of_keys) * dtype.size(), flops }
}

/// As (batch, heads, group, queries, keys, dim), always different where they can be: one of everything, every narrow
/// dim, both sides of usual tiles, single queries over many keys, fewer keys than queries, wide dims.
fn cases() -> impl Iterator<Item = Heads> {
    let narrow = (1..=17).map(|dim| (1, 2, 1, 5, 7, dim));
    let edges = [(0, 2, 1, 3, 4, 8), (1, 1, 1, 1, 1, 1), (1, 1, 1, 9, 5, 16), (2, 3, 4, 5, 6, 8)];
    let tiles = [(1, 1, 1, 63, 65, 64), (1, 2, 1, 64, 128, 64), (1, 1, 2, 65, 63, 128), (1, 1, 1, 129, 127, 72)];
    let models = [(2, 1, 3, 1, 300, 64), (1, 2, 4, 1, 1025, 128), (1, 1, 1, 3, 257, 256), (1, 2, 2, 96, 160, 80)];
    let wide = [(1, 1, 2, 131, 97, 88), (1, 1, 1, 140, 230, 184), (1, 2, 1, 67, 100, 191), (1, 1, 2, 130, 170, 256)];
    let all = narrow.chain(edges).chain(tiles).chain(models).chain(wide);
    all.flat_map(|(batch, heads, group, queries, keys, dim)| {
        [false, true].map(|causal| Heads { batch, heads, group, queries, keys, dim, causal })
    })
}

/// A key as one query sees it.
struct Key<'a> {
    /// Its share of the softmax.
    weight: f64,
    /// The size of the products that its score is made of.
    score_size: f64,
    value: &'a [f64],
}

impl Key<'_> {
    fn add_to(&self, y: &mut [f64]) {
        y.iter_mut().zip(self.value).for_each(|(y, v)| *y += self.weight * v);
    }
}

/// Fills each row of the output, zeros at first, from the keys that its query sees.
fn each_query(
    s: &Heads,
    inputs: &[&[f64]],
    outputs: &mut [Vec<f64>],
    fill: impl Fn(&mut [f64], &mut dyn Iterator<Item = Key<'_>>) + Sync,
) {
    /// Products of scores that a thread takes at once at least.
    const SHARE: usize = 1 << 15;
    let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
    let of_head = s.keys * s.dim;
    let rows = q.par_chunks_exact(s.dim).zip(outputs[0].par_chunks_exact_mut(s.dim)).enumerate();
    rows.with_min_len(SHARE.div_ceil(of_head)).for_each(|(row, (q, y))| {
        let head = row / s.queries / s.group * of_head;
        let seen = s.seen(row % s.queries);
        let (k, v) = (&k[head..][..seen * s.dim], &v[head..][..seen * s.dim]);
        let products =
            |k: &[f64], size: fn(f64) -> f64| q.iter().zip(k).map(|(q, k)| size(q * k)).sum::<f64>() * s.scale();
        let scores: Vec<f64> = k.chunks_exact(s.dim).map(|k| products(k, |x| x)).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|score| (score - max).exp()).sum();
        y.fill(0.0);
        let keys = scores.iter().zip(k.chunks_exact(s.dim)).zip(v.chunks_exact(s.dim));
        fill(
            y,
            &mut keys.map(|((score, k), value)| Key {
                weight: (score - max).exp() / total,
                score_size: products(k, f64::abs),
                value,
            }),
        );
    });
}

/// One element of one query's output, and its magnitude.
fn element(s: &Heads, inputs: &[Tensor], at: usize) -> [f64; 2] {
    let row = at / s.dim;
    let head = row / s.queries / s.group * s.keys;
    element_over(s.dim, inputs, at, (0..s.seen(row % s.queries)).map(|key| (head + key) * s.dim))
}

/// Element `at` of the output, which lies as the queries do, and its magnitude, over the keys that its query sees: where the
/// vector of each begins, in the keys and in the values.
pub(super) fn element_over(dim: usize, inputs: &[Tensor], at: usize, keys: impl Iterator<Item = usize>) -> [f64; 2] {
    let (query, d) = (at - at % dim, at % dim);
    let scale = 1.0 / (dim as f64).sqrt();
    let scored = keys.map(|key| {
        let [score, size] = dot(dim, |i| inputs[0].get(query + i) * inputs[1].get(key + i));
        (inputs[2].get(key + d), score * scale, size * scale)
    });
    let scored: Vec<(f64, f64, f64)> = scored.collect();
    let max = scored.iter().map(|(_, score, _)| *score).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scored.iter().map(|(_, score, _)| (score - max).exp()).sum();
    scored.iter().fold([0.0, 0.0], |[sum, magnitude], (value, score, size)| {
        let weighted = (score - max).exp() / total * value;
        [sum + weighted, magnitude + weighted.abs() * (1.0 + size)]
    })
}

/// Puts keys and values of every head into one random order; with `causal` only those that all queries see.
fn permute_keys(s: &Heads, inputs: &mut [Vec<f64>], rng: &mut Rng) {
    let order = permutation(rng, s.seen(0));
    for head in inputs[1..].iter_mut().flat_map(|tensor| tensor.chunks_exact_mut(s.keys * s.dim)) {
        let before = head.to_vec();
        for (to, &from) in head.chunks_exact_mut(s.dim).zip(&order) {
            to.copy_from_slice(&before[from * s.dim..][..s.dim]);
        }
    }
}

/// Changes the last key and value of every head; with `causal` only the last query sees them.
fn change_last_key(s: &Heads, inputs: &mut [Vec<f64>]) {
    if s.causal {
        for head in inputs[1..].iter_mut().flat_map(|tensor| tensor.chunks_exact_mut(s.keys * s.dim)) {
            head[(s.keys - 1) * s.dim..].iter_mut().for_each(|x| *x = 1.0 - *x);
        }
    }
}

/// What the last queries then give; all others stay.
fn expect_last_query(s: &Heads, inputs: &[Vec<f64>], outputs: &mut [Vec<f64>], _: &mut Rng) {
    let mut changed = inputs.to_vec();
    change_last_key(s, &mut changed);
    let changed: Vec<&[f64]> = changed.iter().map(Vec::as_slice).collect();
    let mut afresh = [vec![0.0; outputs[0].len()]];
    each_query(s, &changed, &mut afresh, |y, keys| keys.for_each(|key| key.add_to(y)));
    let last = (s.queries - 1) * s.dim;
    for (y, afresh) in outputs[0].chunks_exact_mut(s.queries * s.dim).zip(afresh[0].chunks_exact(s.queries * s.dim)) {
        y[last..].copy_from_slice(&afresh[last..]);
    }
}

/// The definition in f32, a query at a time.
pub(super) fn naive<T: Float>(s: &Heads, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (q, k, v) = (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2));
    let queries = q.chunks_exact(s.dim).zip(outputs.slice::<T>(0).chunks_exact_mut(s.dim));
    for (row, (q, y)) in queries.enumerate() {
        let head = row / s.queries / s.group * s.keys;
        let at = |key: usize, d: usize| (head + key) * s.dim + d;
        let score = |key| sum(s.dim, &|d| q[d].to_f32() * k[at(key, d)].to_f32()) * s.scale() as f32;
        let scores: Vec<f32> = (0..s.seen(row % s.queries)).map(score).collect();
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - max).exp()).collect();
        let total = sum(weights.len(), &|key| weights[key]);
        for (d, y) in y.iter_mut().enumerate() {
            let weighted = sum(weights.len(), &|key| weights[key] * v[at(key, d)].to_f32());
            *y = T::from_f32(if weights.is_empty() { 0.0 } else { weighted / total });
        }
    }
}

pub(super) fn tiled<T: Float>(s: &Heads, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let extents =
        simd::AttentionExtents { group: s.group, queries: s.queries, keys: s.keys, dim: s.dim, causal: s.causal };
    simd::attention(&extents, inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2), outputs.slice::<T>(0));
}

fn kernel(entry: &str, plan: fn(&Heads) -> Plan) -> Cuda<Heads> {
    kernel!("attention/attention.cu", entry, plan)
}

/// The definition, a query a block.
fn naive_kernel() -> Cuda<Heads> {
    kernel("attention_naive", launch::naive).tiles([("keys", 256), ("dim", 32)])
}

/// 64 queries a block on mma.sync, scores in registers.
fn mma_kernel() -> Cuda<Heads> {
    let kernel = kernel("attention_mma_64", launch::mma);
    kernel.tiles([("queries", launch::MMA_QUERIES), ("keys", 64), ("dim", 64), ("dim", 8), ("dim", 128)])
}

/// Warp-specialised: a producer that copies by TMA, consumer warpgroups on wgmma.
pub(super) fn wgmma_kernel() -> Cuda<Heads> {
    let kernel = kernel!("attention/attention_wgmma.cu", "attention_wgmma_64x128", launch::wgmma);
    let tiles =
        kernel.tiles([("queries", 64), ("queries", 128), ("queries", 192), ("keys", 128), ("dim", 8), ("dim", 64)]);
    tiles
        .tiles([("dim", 80), ("dim", 96), ("dim", 128), ("dim", 192)])
        .workspace(launch::workspace_bytes)
        .needs("sm_90a")
}

fn triton() -> Cuda<Heads> {
    let programs = |s: &Heads, entry: &Entry| s.query_heads() * s.queries.div_ceil(entry.per_program);
    let kernel = built!("attention").candidate(|s| s.dim, |s| s.dim, programs, |s| scalars(s).to_vec());
    kernel.tiles([("queries", 64), ("queries", 128), ("keys", 32), ("keys", 64), ("dim", 16), ("dim", 64)])
}

/// What most kernels and the Triton program take behind the tensors.
fn scalars(s: &Heads) -> [Scalar; 6] {
    let [group, queries, keys, dim] = [s.group, s.queries, s.keys, s.dim].map(|extent| Scalar::I32(extent as i32));
    [group, queries, keys, dim, Scalar::I32(i32::from(s.causal)), Scalar::F32(s.scale() as f32)]
}

/// What a candidate may lose that rounds the weights to the dtype before the second product: half an ulp each.
pub(super) fn rounded_weights() -> Override {
    Tolerance::default().intermediate(1.0).because("tensor cores take the weights in the dtype")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;
    use rstest::rstest;

    /// The naive candidate on another shape of the same tensors.
    fn as_if(change: fn(&Heads) -> Heads) -> Cpu<Heads> {
        Cpu::new::<f32>(move |s: &Heads, inputs, outputs| naive::<f32>(&change(s), inputs, outputs))
    }

    #[test]
    fn a_key_too_many_is_seen() {
        rejects(operator(), as_if(|s| Heads { causal: false, ..s.clone() }));
    }

    #[rstest]
    #[case(4, 6, true, 3 + 4 + 5 + 6)]
    #[case(4, 6, false, 24)]
    #[case(6, 4, true, 1 + 2 + 3 + 4)]
    #[case(1, 9, true, 9)]
    fn pairs_are_those_that_are_seen(
        #[case] queries: usize,
        #[case] keys: usize,
        #[case] causal: bool,
        #[case] pairs: usize,
    ) {
        let s = Heads { batch: 1, heads: 1, group: 1, queries, keys, dim: 1, causal };
        assert_eq!(s.pairs(), pairs);
        assert_eq!((0..queries).map(|i| s.seen(i)).sum::<usize>(), pairs);
    }
}
