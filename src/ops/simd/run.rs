//! One pass over a run of contiguous elements: map, sums, maximum, ragged ends included.

use std::ops::Range;

use super::lane::{Lane, load_ragged, store_ragged};
use super::vector::Simd;

/// Independent partial results, so that the latency of an addition is hidden by its neighbours.
const CHAINS: usize = 4;

/// Where the results of a map go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stores {
    /// Through the cache, where the next reader finds them.
    Cached,
    /// Past the cache: a line written whole is not read first, a third of the traffic of a copy.
    Streamed,
}

impl Stores {
    /// Half the last-level cache of a server: what is larger has left it before anyone reads it.
    const STREAMED_FROM_BYTES: usize = 16 << 20;
    /// Shorter rows are mostly ends, which go through the cache and would tear streamed lines apart.
    const SHORTEST_STREAMED_ROW: usize = 512;

    /// The choice for an output of `rows` rows of `cols` elements.
    pub(super) fn of<T>(rows: usize, cols: usize) -> Stores {
        let bytes = rows * cols * size_of::<T>();
        if bytes >= Self::STREAMED_FROM_BYTES && cols >= Self::SHORTEST_STREAMED_ROW {
            Stores::Streamed
        } else {
            Stores::Cached
        }
    }
}

/// How many bytes ahead a pass may fetch what the next one reads: an eighth of a second-level cache,
/// which the row at hand and its results share.
const FURTHEST_FETCH_BYTES: usize = 128 << 10;

/// Elements from each that is read to the one to ask for meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead(Option<usize>);

impl Ahead {
    /// No fetching: what follows is not read next, or is in cache.
    pub(super) const NOTHING: Ahead = Ahead(None);

    /// What follows `x` in memory, as many elements as `x` has. A pass that computes leaves the memory
    /// idle; it is the time to fetch for the pass that only reads.
    pub(super) fn of<T>(x: &[T]) -> Ahead {
        Ahead((size_of_val(x) <= FURTHEST_FETCH_BYTES).then_some(x.len()))
    }

    #[inline(always)]
    fn fetch<S: Simd, T>(self, simd: S, p: *const T) {
        if let Ahead(Some(distance)) = self {
            simd.prefetch(p.wrapping_add(distance).cast());
        }
    }
}

/// `y[i] = f(x[i])`.
#[inline(always)]
pub(super) fn map<S: Simd, X: Lane, Y: Lane>(
    simd: S,
    stores: Stores,
    ahead: Ahead,
    x: &[X],
    y: &mut [Y],
    f: impl Fn(S::V) -> S::V,
) {
    let parameters: [&[X]; 0] = [];
    map_with(
        simd,
        stores,
        ahead,
        x,
        parameters,
        y,
        #[inline(always)]
        |x, []| f(x),
    );
}

/// `y[i] = f(x[i], [parameters[..][i]])`.
#[inline(always)]
pub(super) fn map_with<S: Simd, X: Lane, P: Lane, Y: Lane, const N: usize>(
    simd: S,
    stores: Stores,
    ahead: Ahead,
    x: &[X],
    parameters: [&[P]; N],
    y: &mut [Y],
    f: impl Fn(S::V, [S::V; N]) -> S::V,
) {
    let n = y.len();
    assert!(x.len() == n && parameters.iter().all(|p| p.len() == n));
    let mut i = 0;
    if stores == Stores::Streamed {
        i = y.as_ptr().align_offset(S::LANES * size_of::<Y>()).min(n);
        ragged(simd, 0..i, x, &parameters, y, &f);
        while i + S::LANES <= n {
            ahead.fetch(simd, x.as_ptr().wrapping_add(i));
            // SAFETY: LANES elements from i lie within all slices, and y + i is aligned since the first.
            unsafe { Y::stream(simd, y.as_mut_ptr().add(i), whole(simd, i, x, &parameters, &f)) };
            i += S::LANES;
        }
        simd.fence();
    }
    while i + S::LANES <= n {
        ahead.fetch(simd, x.as_ptr().wrapping_add(i));
        // SAFETY: LANES elements from i lie within all slices.
        unsafe { Y::store(simd, y.as_mut_ptr().add(i), whole(simd, i, x, &parameters, &f)) };
        i += S::LANES;
    }
    if i < n {
        ragged(simd, i..n, x, &parameters, y, &f);
    }
}

/// `f` of the `LANES` elements from `i` on.
///
/// # Safety
/// They lie within all slices.
#[inline(always)]
unsafe fn whole<S: Simd, X: Lane, P: Lane, const N: usize>(
    simd: S,
    i: usize,
    x: &[X],
    parameters: &[&[P]; N],
    f: &impl Fn(S::V, [S::V; N]) -> S::V,
) -> S::V {
    let mut p = [simd.splat(0.0); N];
    for (p, from) in p.iter_mut().zip(parameters) {
        // SAFETY: the caller's word.
        *p = unsafe { P::load(simd, from.as_ptr().add(i)) };
    }
    // SAFETY: the caller's word.
    f(unsafe { X::load(simd, x.as_ptr().add(i)) }, p)
}

/// The map over fewer than `LANES` elements.
#[inline(always)]
fn ragged<S: Simd, X: Lane, P: Lane, Y: Lane, const N: usize>(
    simd: S,
    range: Range<usize>,
    x: &[X],
    parameters: &[&[P]; N],
    y: &mut [Y],
    f: &impl Fn(S::V, [S::V; N]) -> S::V,
) {
    let mut p = [simd.splat(0.0); N];
    for (p, from) in p.iter_mut().zip(parameters) {
        *p = load_ragged(simd, &from[range.clone()]);
    }
    let v = f(load_ragged(simd, &x[range.clone()]), p);
    store_ragged(simd, &mut y[range], v);
}

/// Feeds `x` vector by vector into `CHAINS` accumulators in turn. Lanes past the end hold `pad`.
#[inline(always)]
fn fold<S: Simd, T: Lane, A: Copy>(
    simd: S,
    ahead: Ahead,
    x: &[T],
    pad: f32,
    start: A,
    f: impl Fn(A, S::V) -> A,
) -> [A; CHAINS] {
    let mut chains = [start; CHAINS];
    let mut i = 0;
    while i + CHAINS * S::LANES <= x.len() {
        for (c, chain) in chains.iter_mut().enumerate() {
            // SAFETY: CHAINS * LANES elements from i lie within x.
            let v = unsafe { T::load(simd, x.as_ptr().add(i + c * S::LANES)) };
            ahead.fetch(simd, x.as_ptr().wrapping_add(i + c * S::LANES));
            *chain = f(*chain, v);
        }
        i += CHAINS * S::LANES;
    }
    for (c, part) in x[i..].chunks(S::LANES).enumerate() {
        let v = simd.first(part.len(), load_ragged(simd, part), simd.splat(pad));
        chains[c] = f(chains[c], v);
    }
    chains
}

/// Elements that are summed in f32 before the sum goes on in f64: long rows lose no digits.
const F32_RUN: usize = 4096;

/// The sums of `f(x[i])`; `f(pad)` must be zero.
#[inline(always)]
pub(super) fn sums<S: Simd, T: Lane, const N: usize>(
    simd: S,
    ahead: Ahead,
    x: &[T],
    pad: f32,
    f: impl Fn(S::V) -> [S::V; N],
) -> [f64; N] {
    let mut totals = [0.0; N];
    for x in x.chunks(F32_RUN) {
        let zero = [simd.splat(0.0); N];
        let [a, b, c, d] = fold(
            simd,
            ahead,
            x,
            pad,
            zero,
            #[inline(always)]
            |mut sums, v| {
                for (sum, term) in sums.iter_mut().zip(f(v)) {
                    *sum = simd.add(*sum, term);
                }
                sums
            },
        );
        for i in 0..N {
            let sum = simd.add(simd.add(a[i], b[i]), simd.add(c[i], d[i]));
            totals[i] += f64::from(simd.sum(sum));
        }
    }
    totals
}

/// The largest element, NaN left out of account; minus infinity if there is none.
#[inline(always)]
pub(super) fn maximum<S: Simd, T: Lane>(simd: S, x: &[T]) -> f32 {
    let least = f32::NEG_INFINITY;
    let [a, b, c, d] = fold(
        simd,
        Ahead::NOTHING,
        x,
        least,
        simd.splat(least),
        #[inline(always)]
        |max, v| simd.max(v, max),
    );
    simd.maximum(simd.max(simd.max(a, b), simd.max(c, d)))
}
