//! Attention by matrix products: the scores of a block of queries, their softmax, the weighted sum of the values.
//!
//! A task owns a head of keys and values and all queries that share it. The keys are transposed once, so that both
//! products have the layout of `gemm`; what a causal query does not see is computed and then weighted with zero.

use rayon::prelude::*;

use super::convert::convert;
use super::gemm::gemm;
use super::lane::Lane;
use super::level::Level;
use super::scratch::with_scratch;
use super::softmax::softmax;

/// Queries at a time: with their scores against 2048 keys they take 1 MiB.
const BLOCK: usize = 128;

/// The extents of a head. Tensors are `[heads, queries or keys, dim]`, with `group` query heads to a head of keys.
pub struct AttentionExtents {
    /// Query heads that share keys and values.
    pub group: usize,
    /// Queries of a head.
    pub queries: usize,
    /// Keys of a head.
    pub keys: usize,
    /// Elements of a query, a key, a value.
    pub dim: usize,
    /// Whether query i sees only keys up to i + keys - queries.
    pub causal: bool,
}

/// `y = softmax(q kᵀ / √dim) v`, head by head; a query that sees no key gives zeros.
///
/// # Panics
/// If the slices do not hold whole heads, or not as many.
pub fn attention<T: Lane>(s: &AttentionExtents, q: &[T], k: &[T], v: &[T], y: &mut [T]) {
    let (of_queries, of_keys) = (s.group * s.queries * s.dim, s.keys * s.dim);
    assert_eq!(k.len() % of_keys, 0, "k does not hold whole heads");
    assert_eq!(v.len(), k.len(), "v is not as long as k");
    assert_eq!(q.len(), k.len() / of_keys * of_queries, "q does not have the heads of k");
    assert_eq!(y.len(), q.len(), "y is not as long as q");
    let heads = k.par_chunks_exact(of_keys).zip(v.par_chunks_exact(of_keys));
    let queries = q.par_chunks_exact(of_queries).zip(y.par_chunks_exact_mut(of_queries));
    heads.zip(queries).for_each(|((k, v), (q, y))| head(s, k, v, q, y));
}

fn head<T: Lane>(s: &AttentionExtents, k: &[T], v: &[T], q: &[T], y: &mut [T]) {
    let of_keys = s.keys * s.dim;
    with_scratch(3 * of_keys + 2 * BLOCK * (s.keys + s.dim), |scratch| {
        let (transposed, rest) = scratch.split_at_mut(of_keys);
        let (values, rest) = rest.split_at_mut(of_keys);
        let (wide, rest) = rest.split_at_mut(of_keys);
        convert(Level::best(), v, values);
        convert(Level::best(), k, wide);
        for (key, row) in wide.chunks_exact(s.dim).enumerate() {
            row.iter().enumerate().for_each(|(d, &element)| transposed[d * s.keys + key] = element);
        }
        let heads = q.chunks_exact(s.queries * s.dim).zip(y.chunks_exact_mut(s.queries * s.dim));
        for (q, y) in heads {
            let blocks = q.chunks(BLOCK * s.dim).zip(y.chunks_mut(BLOCK * s.dim));
            for (i, (q, y)) in blocks.enumerate() {
                block(s, i * BLOCK, (transposed, values), q, y, rest);
            }
        }
    });
}

/// The queries from `first` on that `q` holds, against the keys, transposed, and the values of their head.
fn block<T: Lane>(
    s: &AttentionExtents,
    first: usize,
    (keys, values): (&[f32], &[f32]),
    q: &[T],
    y: &mut [T],
    scratch: &mut [f32],
) {
    let rows = q.len() / s.dim;
    let (scaled, rest) = scratch.split_at_mut(rows * s.dim);
    let (sums, rest) = rest.split_at_mut(rows * s.dim);
    let (scores, rest) = rest.split_at_mut(rows * s.keys);
    let weights = &mut rest[..rows * s.keys];
    convert(Level::best(), q, scaled);
    let scale = 1.0 / (s.dim as f32).sqrt();
    scaled.iter_mut().for_each(|q| *q *= scale);
    gemm(rows, s.keys, s.dim, scaled, keys, scores);
    let both = scores.chunks_exact(s.keys).zip(weights.chunks_exact_mut(s.keys));
    for (i, (scores, weights)) in both.enumerate() {
        let seen = if s.causal { (first + i + 1 + s.keys).saturating_sub(s.queries) } else { s.keys };
        softmax(1, seen, &scores[..seen], &mut weights[..seen]);
        weights[seen..].fill(0.0);
    }
    gemm(rows, s.dim, s.keys, weights, values, sums);
    convert(Level::best(), sums, y);
}
