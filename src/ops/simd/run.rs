//! One pass over a run of contiguous elements: map, sums, maximum, ragged ends included.

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

/// `y[i] = f(x[i])`.
#[inline(always)]
pub(super) fn map<S: Simd, X: Lane, Y: Lane>(simd: S, stores: Stores, x: &[X], y: &mut [Y], f: impl Fn(S::V) -> S::V) {
    let parameters: [&[X]; 0] = [];
    map_with(simd, stores, x, parameters, y, |x, []| f(x));
}

/// `y[i] = f(x[i], [parameters[..][i]])`.
#[inline(always)]
pub(super) fn map_with<S: Simd, X: Lane, P: Lane, Y: Lane, const N: usize>(
    simd: S,
    stores: Stores,
    x: &[X],
    parameters: [&[P]; N],
    y: &mut [Y],
    f: impl Fn(S::V, [S::V; N]) -> S::V,
) {
    let n = y.len();
    assert!(x.len() == n && parameters.iter().all(|p| p.len() == n));
    let ragged = |from: usize, to: usize, y: &mut [Y]| {
        let p = parameters.map(|p| load_ragged(simd, &p[from..to]));
        let v = f(load_ragged(simd, &x[from..to]), p);
        store_ragged(simd, &mut y[from..to], v);
    };
    let whole = |i: usize| {
        // SAFETY: callers of `whole` have checked i + LANES <= n, the length of all inputs.
        unsafe {
            let p = parameters.map(|p| P::load(simd, p.as_ptr().add(i)));
            f(X::load(simd, x.as_ptr().add(i)), p)
        }
    };
    let mut i = 0;
    if stores == Stores::Streamed {
        i = y.as_ptr().align_offset(S::LANES * size_of::<Y>()).min(n);
        ragged(0, i, y);
        while i + S::LANES <= n {
            // SAFETY: LANES elements from i lie within y, and i is aligned since the first.
            unsafe { Y::stream(simd, y.as_mut_ptr().add(i), whole(i)) };
            i += S::LANES;
        }
        simd.fence();
    }
    while i + S::LANES <= n {
        // SAFETY: LANES elements from i lie within y.
        unsafe { Y::store(simd, y.as_mut_ptr().add(i), whole(i)) };
        i += S::LANES;
    }
    if i < n {
        ragged(i, n, y);
    }
}

/// Feeds `x` vector by vector into `CHAINS` accumulators in turn. Lanes past the end hold `pad`.
#[inline(always)]
fn fold<S: Simd, T: Lane, A: Copy>(simd: S, x: &[T], pad: f32, start: A, f: impl Fn(A, S::V) -> A) -> [A; CHAINS] {
    let mut chains = [start; CHAINS];
    let mut i = 0;
    while i + CHAINS * S::LANES <= x.len() {
        for (c, chain) in chains.iter_mut().enumerate() {
            // SAFETY: CHAINS * LANES elements from i lie within x.
            let v = unsafe { T::load(simd, x.as_ptr().add(i + c * S::LANES)) };
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
    x: &[T],
    pad: f32,
    f: impl Fn(S::V) -> [S::V; N],
) -> [f64; N] {
    let mut totals = [0.0; N];
    for x in x.chunks(F32_RUN) {
        let zero = [simd.splat(0.0); N];
        let [a, b, c, d] = fold(simd, x, pad, zero, |sums, v| {
            let terms = f(v);
            std::array::from_fn(|i| simd.add(sums[i], terms[i]))
        });
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
    let [a, b, c, d] = fold(simd, x, least, simd.splat(least), |max, v| simd.max(v, max));
    simd.maximum(simd.max(simd.max(a, b), simd.max(c, d)))
}
