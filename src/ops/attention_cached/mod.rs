//! Attention over a cache: y = softmax(q kᵀ / √dim) v, with all tensors position by position, as a model writes them that
//! appends each token's key and value to a cache.
//!
//! Letters: the queries are the last ones of `keys` positions, and each sees the positions up to its own. A query head `h`
//! reads the keys of head `h / group`.

mod launch;

use super::attention::{self, RANGE};
use super::attention_decode;
use super::family::FUNCTION_FLOPS;
use super::family::rows::double;
use super::float::{Float, sum};
use super::simd;
use crate::core::candidate::{Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::launch::Plan;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs, Tensor};

crate::shape! {
    /// The shape of an attention over a cache.
    pub struct Cached {
        /// Sequences, all of the same length.
        batch: 0..=1 << 10,
        /// Heads of keys and values.
        heads: 1..=1 << 8,
        /// Query heads to each of them.
        group: 1..=1 << 6,
        /// Queries of a head: the last positions.
        queries: 1..=1 << 17,
        /// Positions before the first query.
        past: 0..=1 << 17,
        /// Elements of a query, a key, a value.
        dim: 1..=256,
    }
}

impl Cached {
    fn keys(&self) -> usize {
        self.past + self.queries
    }

    fn query_heads(&self) -> usize {
        self.heads * self.group
    }

    fn scale(&self) -> f64 {
        1.0 / (self.dim as f64).sqrt()
    }

    /// Where the vector of a head at a position of a sequence begins, in a tensor of `heads` heads.
    fn at(&self, position: usize, sequence: usize, head: usize, heads: usize) -> usize {
        ((position * self.batch + sequence) * heads + head) * self.dim
    }
}

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", kernel(launch::naive).untimed().lesson())
        .candidate("cuda", best_in_half())
        .candidate("cuda", kernel(launch::naive).dtypes([DType::F32]).untimed())
        .into()
}

fn operator() -> Op<Cached> {
    Op::new("attention_cached")
        .input("q", |s: &Cached| [s.queries, s.batch, s.query_heads(), s.dim])
        .input("k", |s| [s.keys(), s.batch, s.heads, s.dim])
        .input("v", |s| [s.keys(), s.batch, s.heads, s.dim])
        .output("y", |s| [s.queries, s.batch, s.query_heads(), s.dim])
        .reference(|s, inputs, outputs| {
            each_key(s, inputs, &mut outputs[0], |y, weight, _, v| {
                y.iter_mut().zip(v).for_each(|(y, v)| *y += weight * v);
            });
        })
        // An error of a score changes its weight by as much, and a score collects the sizes of its products.
        .magnitude(|s, inputs, outputs| {
            outputs[0].fill(0.0);
            each_key(s, inputs, &mut outputs[0], |y, weight, size, v| {
                y.iter_mut().zip(v).for_each(|(y, v)| *y += weight * (1.0 + size) * v.abs());
            });
        })
        .element(element)
        .depth(|s| s.dim + s.keys() + STEPS)
        .range(RANGE)
        .exclude_distributions(UNDEFINED)
        .cost(cost)
        .separable("batch")
        .relation(
            "doubled values double the output",
            |_, inputs, _| double(&mut inputs[2]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .relation(
            "the last key changes no query before the last",
            |s, inputs, _| change_last_position(s, inputs),
            |s, inputs, outputs, _| {
                let mut changed = inputs.to_vec();
                change_last_position(s, &mut changed);
                let changed: Vec<&[f64]> = changed.iter().map(Vec::as_slice).collect();
                let mut afresh = vec![0.0; outputs[0].len()];
                each_key(s, &changed, &mut afresh, |y, weight, _, v| {
                    y.iter_mut().zip(v).for_each(|(y, v)| *y += weight * v);
                });
                let last = s.at(s.queries - 1, 0, 0, s.query_heads());
                outputs[0][last..].copy_from_slice(&afresh[last..]);
            },
        )
        .varied_around(Cached { batch: 2, heads: 3, group: 2, queries: 5, past: 4, dim: 11 })
        .shapes(cases())
        .perf([
            Cached { batch: 1, heads: 4, group: 8, queries: 1, past: 4095, dim: 64 },
            Cached { batch: 16, heads: 8, group: 4, queries: 1, past: 2047, dim: 64 },
        ])
}

/// Roundings besides those of the two sums: scale, difference, two of the exponential, quotient.
const STEPS: usize = 5;
/// As in attention: nothing to compare, or scores that no exponential resolves.
const UNDEFINED: [Distribution; 3] = [Distribution::Tiny, Distribution::LargeMean, Distribution::NonFinite];

/// As (batch, heads, group, queries, past, dim), always different where they can be: nothing, single queries over few and
/// many keys, every narrow dim, both sides of the stretches that a kernel takes, a whole prompt, pieces of models, tiles of
/// queries, and keys that are split.
fn cases() -> impl Iterator<Item = Cached> {
    let narrow = (1..=17).map(|dim| (1, 2, 1, 3, 4, dim));
    let edges = [(0, 2, 1, 3, 4, 8), (1, 1, 1, 1, 0, 1), (3, 2, 4, 5, 0, 8), (2, 1, 3, 1, 16, 40)];
    let stretches = [(1, 2, 3, 1, 127, 64), (2, 3, 1, 1, 128, 32), (1, 1, 2, 2, 129, 72), (1, 1, 1, 1, 257, 256)];
    let models = [(1, 3, 3, 1, 300, 64), (2, 4, 2, 37, 0, 64), (1, 2, 1, 19, 45, 128), (1, 12, 1, 1, 90, 64)];
    let tiles = [(2, 2, 3, 70, 61, 40), (1, 1, 2, 129, 0, 128), (3, 1, 1, 16, 130, 8)];
    let split_kv = [(2, 3, 5, 1, 1030, 72), (5, 8, 2, 1, 1030, 128), (1, 8, 1, 1, 2111, 64), (17, 8, 1, 1, 70, 16)];
    let all = narrow.chain(edges).chain(stretches).chain(models).chain(tiles).chain(split_kv);
    all.map(|(batch, heads, group, queries, past, dim)| Cached { batch, heads, group, queries, past, dim })
}

/// q, k, v and y once; two products a pair of a query and a key that it sees, and its exponential.
fn cost(s: &Cached, dtype: DType) -> Cost {
    let of_queries = 2 * s.queries * s.batch * s.query_heads() * s.dim;
    let of_keys = 2 * s.keys() * s.batch * s.heads * s.dim;
    let pairs = s.queries * s.past + s.queries * (s.queries + 1) / 2;
    let flops = s.batch * s.query_heads() * pairs * (4 * s.dim + FUNCTION_FLOPS);
    Cost { bytes: (of_queries + of_keys) * dtype.size(), flops }
}

/// Calls `visit(y, weight, score_size, v)` for every key that every query sees.
pub(super) fn each_key(
    s: &Cached,
    inputs: &[&[f64]],
    y: &mut [f64],
    mut visit: impl FnMut(&mut [f64], f64, f64, &[f64]),
) {
    let (q, k, v) = (inputs[0], inputs[1], inputs[2]);
    for (row, (q, y)) in q.chunks_exact(s.dim).zip(y.chunks_exact_mut(s.dim)).enumerate() {
        let (token, head) = (row / s.query_heads(), row % s.query_heads() / s.group);
        let (query, sequence) = (token / s.batch, token % s.batch);
        let key = |position: usize| s.at(position, sequence, head, s.heads);
        let products = |position: usize, size: fn(f64) -> f64| {
            let k = &k[key(position)..][..s.dim];
            q.iter().zip(k).map(|(q, k)| size(q * k)).sum::<f64>() * s.scale()
        };
        let seen = s.past + query + 1;
        let scores: Vec<f64> = (0..seen).map(|position| products(position, |x| x)).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|score| (score - max).exp()).sum();
        for (position, score) in scores.iter().enumerate() {
            let weight = (score - max).exp() / total;
            visit(y, weight, products(position, f64::abs), &v[key(position)..][..s.dim]);
        }
    }
}

/// One element of the output, and its magnitude.
fn element(s: &Cached, inputs: &[Tensor], at: usize) -> [f64; 2] {
    let (token, head) = (at / s.dim / s.query_heads(), at / s.dim % s.query_heads() / s.group);
    let (query, sequence) = (token / s.batch, token % s.batch);
    let seen = 0..=s.past + query;
    attention::element_over(s.dim, inputs, at, seen.map(|position| s.at(position, sequence, head, s.heads)))
}

/// Changes the last position of keys and values: only the last query sees it.
fn change_last_position(s: &Cached, inputs: &mut [Vec<f64>]) {
    let last = s.at(s.keys() - 1, 0, 0, s.heads);
    inputs[1..].iter_mut().for_each(|tensor| tensor[last..].iter_mut().for_each(|x| *x = 1.0 - *x));
}

pub(super) fn naive<T: Float>(s: &Cached, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (q, k, v) = (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2));
    for (row, (q, y)) in q.chunks_exact(s.dim).zip(outputs.slice::<T>(0).chunks_exact_mut(s.dim)).enumerate() {
        let (token, head) = (row / s.query_heads(), row % s.query_heads() / s.group);
        let (query, sequence) = (token / s.batch, token % s.batch);
        let at = |position: usize, d: usize| s.at(position, sequence, head, s.heads) + d;
        let score = |position| sum(s.dim, &|d| q[d].to_f32() * k[at(position, d)].to_f32()) * s.scale() as f32;
        let scores: Vec<f32> = (0..=s.past + query).map(score).collect();
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - max).exp()).collect();
        let total = sum(weights.len(), &|position| weights[position]);
        for (d, y) in y.iter_mut().enumerate() {
            let weighted = sum(weights.len(), &|position| weights[position] * v[at(position, d)].to_f32());
            *y = T::from_f32(weighted / total);
        }
    }
}

pub(super) fn tiled<T: Float>(s: &Cached, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let extents = simd::CachedExtents { batch: s.batch, heads: s.heads, group: s.group, past: s.past, dim: s.dim };
    let (q, k, v) = (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2));
    simd::attention_cached(&extents, q, k, v, outputs.slice::<T>(0));
}

fn kernel(plan: impl Fn(&Cached) -> Plan + Send + Sync + 'static) -> Cuda<Cached> {
    let kernel = kernel!("attention_cached/attention_cached.cu", "attention_cached", plan);
    kernel.tiles([("past", launch::THREADS), ("dim", 32)])
}

/// Attention's kernels, and those of decode attention, on the cache as it is.
fn best_in_half() -> Cuda<Cached> {
    let kernel = kernel(launch::in_half()).workspace(launch::workspace_bytes).needs("sm_90a");
    let kernel = kernel.tiles([("queries", launch::FEWEST_QUERIES), ("queries", 64), ("past", launch::FEWEST_KEYS)]);
    let kernel =
        kernel.tiles([("group", 4), ("group", attention_decode::MOST_ROWS), ("dim", 8), ("dim", 64), ("dim", 128)]);
    kernel.dtypes(attention::HALF).tolerance(attention::rounded_weights())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::case::Case;
    use crate::check::judge::Rejection;
    use crate::check::outcome::Errors;
    use crate::check::verify::verified;
    use crate::check::{Context, Subject};
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::shape::Shape;
    use crate::device::cpu::CpuDevice;
    use crate::ops::agreement::rejects;

    #[test]
    fn a_query_that_sees_the_position_behind_its_own_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Cached, inputs, outputs| {
            let ahead = Cached { past: s.past + usize::from(s.queries > 1), queries: s.queries - 1, ..s.clone() };
            naive::<f32>(s, inputs, outputs);
            if s.queries > 1 && s.batch > 0 {
                let token = s.batch * s.query_heads() * s.dim;
                let q = bytemuck::cast_slice(&inputs.slice::<f32>(0)[..(s.queries - 1) * token]);
                let kept = Inputs(vec![q, inputs.0[1], inputs.0[2]]);
                let y = &mut outputs.0[0][..(s.queries - 1) * token * size_of::<f32>()];
                naive::<f32>(&ahead, &kept, &mut Outputs(vec![y]));
            }
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn a_head_that_reads_its_neighbours_keys_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Cached, inputs, outputs| {
            let turned = Cached { heads: s.heads * s.group, group: 1, ..s.clone() };
            if s.group == 1 {
                naive::<f32>(s, inputs, outputs);
            } else {
                let repeat = |i: usize| -> Vec<f32> {
                    let tokens = inputs.slice::<f32>(i).chunks_exact(s.heads * s.dim);
                    tokens.flat_map(|token| token.repeat(s.group)).collect()
                };
                let (k, v) = (repeat(1), repeat(2));
                let inputs = Inputs(vec![inputs.0[0], bytemuck::cast_slice(&k), bytemuck::cast_slice(&v)]);
                naive::<f32>(&turned, &inputs, outputs);
            }
        });
        rejects(operator(), wrong);
    }

    /// What is compared before a shape is timed that is too large for a whole reference, where `wrong` is changed.
    fn verify_timed(wrong: Option<usize>) -> Result<Option<Errors>, Rejection> {
        let s = Cached { batch: 6, heads: 8, group: 4, queries: 1, past: 16_383, dim: 4 };
        let candidate: Candidate = Cpu::new::<f32>(move |s: &Cached, inputs, outputs| {
            tiled::<f32>(s, inputs, outputs);
            wrong.into_iter().for_each(|at| outputs.slice::<f32>(0)[at] += 0.01);
        })
        .named("c");
        let operator = operator();
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let case = Case::new(s.to_point(), Distribution::Normal, 1);
        let device = CpuDevice::new();
        let context = Context::without_deadline(&device, 1);
        verified(&context, &subject, &case, &case.inputs(&subject)).map(|(_, errors)| errors)
    }

    #[test]
    fn a_timed_shape_is_compared_and_a_wrong_element_found() {
        assert!(verify_timed(None).unwrap().is_some());
        for (at, index) in [(0, [0, 0, 0, 0]), (6 * 32 * 4 - 1, [0, 5, 31, 3])] {
            let Err(Rejection::Failed(failure)) = verify_timed(Some(at)) else { panic!("element {at} is wrong") };
            assert_eq!(failure.check, "values");
            assert_eq!(failure.worst.unwrap().index, index);
        }
    }
}
