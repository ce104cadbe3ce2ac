//! Attention over a cache, position by position: scores of the keys seen, their softmax, the weighted sum of the values.

use rayon::prelude::*;

use super::lane::Lane;
use super::level::Level;
use super::run::{Ahead, Stores, map, map_with};
use super::scratch::with_scratch;
use super::softmax::softmax;
use super::vector::{Kernel, Simd};

/// The extents of a cache. Tensors are `[positions, batch, heads, dim]`, with `group` query heads to a head of keys.
#[derive(Clone, Copy, Debug)]
pub struct CachedExtents {
    /// Sequences, all of the same length.
    pub batch: usize,
    /// Heads of keys and values.
    pub heads: usize,
    /// Query heads that share keys and values.
    pub group: usize,
    /// Positions before the first query.
    pub past: usize,
    /// Elements of a query, a key, a value.
    pub dim: usize,
}

/// Products below which waking a thread costs more than it computes.
const SERIAL_BELOW: usize = 32 << 10;

/// `y = softmax(q kᵀ / √dim) v`, a query sees the positions up to its own.
///
/// # Panics
/// If the slices do not hold whole tokens, or the keys do not end with the last query.
pub fn attention_cached<T: Lane>(s: &CachedExtents, q: &[T], k: &[T], v: &[T], y: &mut [T]) {
    let of_position = s.batch * s.heads * s.dim;
    if of_position == 0 {
        return;
    }
    let (queries, keys) = (q.len() / (of_position * s.group), k.len() / of_position);
    assert_eq!(keys, s.past + queries, "the keys do not end with the last query");
    assert!(v.len() == k.len() && y.len() == q.len(), "v is not as long as k, or y not as long as q");
    let query_heads = s.heads * s.group;
    let one = |(row, (q, y)): (usize, (&[T], &mut [T]))| {
        let (token, head) = (row / query_heads, row % query_heads / s.group);
        let (query, sequence) = (token / s.batch, token % s.batch);
        let first = (sequence * s.heads + head) * s.dim;
        let seen = s.past + query + 1;
        with_scratch(2 * seen + s.dim, |scratch| {
            let (scores, rest) = scratch.split_at_mut(seen);
            let (weights, sums) = rest.split_at_mut(seen);
            let scale = 1.0 / (s.dim as f32).sqrt();
            Level::best().run(Scores { q, k: &k[first..], stride: of_position, scale, products: sums, scores });
            softmax(1, seen, scores, weights);
            Level::best().run(Weighted { weights, v: &v[first..], stride: of_position, sums, y });
        });
    };
    let rows = q.par_chunks_exact(s.dim).zip(y.par_chunks_exact_mut(s.dim)).enumerate();
    rows.with_min_len(SERIAL_BELOW.div_ceil(keys * s.dim)).for_each(one);
}

struct Scores<'a, T> {
    q: &'a [T],
    k: &'a [T],
    stride: usize,
    scale: f32,
    products: &'a mut [f32],
    scores: &'a mut [f32],
}

impl<T: Lane> Kernel for Scores<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (position, score) in self.scores.iter_mut().enumerate() {
            let k = &self.k[position * self.stride..][..self.q.len()];
            let dot = super::gemv::dot(simd, self.q, k, self.products);
            *score = dot as f32 * self.scale;
        }
    }
}

struct Weighted<'a, T> {
    weights: &'a [f32],
    v: &'a [T],
    stride: usize,
    sums: &'a mut [f32],
    y: &'a mut [T],
}

impl<T: Lane> Kernel for Weighted<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        /// Values added up before they join the sum: errors then grow with the number of stretches.
        const STRETCH: usize = 64;
        let dim = self.y.len();
        let mut total = [0.0f32; MOST_DIM];
        let total = &mut total[..dim];
        for (stretch, weights) in self.weights.chunks(STRETCH).enumerate() {
            let sums = &mut self.sums[..dim];
            sums.fill(0.0);
            for (i, &weight) in weights.iter().enumerate() {
                let v = &self.v[(stretch * STRETCH + i) * self.stride..][..dim];
                add_weighted(simd, weight, v, sums);
            }
            total.iter_mut().zip(sums).for_each(|(total, sum)| *total += *sum);
        }
        map(
            simd,
            Stores::Cached,
            Ahead::NOTHING,
            total,
            self.y,
            #[inline(always)]
            |x| x,
        );
    }
}

/// The largest dim of the operator.
const MOST_DIM: usize = 256;

/// `sums += weight v`.
#[inline(always)]
fn add_weighted<S: Simd, T: Lane>(simd: S, weight: f32, v: &[T], sums: &mut [f32]) {
    let mut added = [0.0f32; MOST_DIM];
    let added = &mut added[..sums.len()];
    let weight = simd.splat(weight);
    map_with(
        simd,
        Stores::Cached,
        Ahead::NOTHING,
        v,
        [&*sums],
        added,
        #[inline(always)]
        |v, [sum]| simd.mul_add(v, weight, sum),
    );
    sums.copy_from_slice(added);
}
