//! A matrix times few vectors: a dot product a row, in stretches whose products stay in the cache.

use super::lane::Lane;
use super::level::Level;
use super::run::{Ahead, Stores, map_with, sums};
use super::scratch::with_scratch;
use super::threads::for_each_row;
use super::vector::{Kernel, Simd};

/// Products of a stretch: 16 KiB. Sums of many equal products in one go would lean to one side.
const STRETCH: usize = 4096;

struct Dot<'a, A, B> {
    a: &'a [A],
    b: &'a [B],
    products: &'a mut [f32],
}

impl<A: Lane, B: Lane> Kernel for Dot<'_, A, B> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f64 {
        dot(simd, self.a, self.b, self.products)
    }
}

/// The sum of `a[i] b[i]`; `products` holds as many as a stretch has, or as there are.
#[inline(always)]
pub(super) fn dot<S: Simd, A: Lane, B: Lane>(simd: S, a: &[A], b: &[B], products: &mut [f32]) -> f64 {
    let mut total = 0.0;
    for (a, b) in a.chunks(STRETCH).zip(b.chunks(STRETCH)) {
        let products = &mut products[..a.len()];
        map_with(
            simd,
            Stores::Cached,
            Ahead::NOTHING,
            a,
            [b],
            products,
            #[inline(always)]
            |a, [b]| simd.mul(a, b),
        );
        let [sum] = sums(
            simd,
            Ahead::NOTHING,
            products,
            0.0,
            #[inline(always)]
            |product| [product],
        );
        total += sum;
    }
    total
}

/// `y = x wᵀ`, with rows of `k` elements in `x` and `w`, of one dtype or two; `finish` rounds a sum.
///
/// # Panics
/// If the slices do not hold whole rows, or `y` not an element for each pair of them.
pub fn gemv<X: Lane, W: Lane, Y: Send>(k: usize, x: &[X], w: &[W], y: &mut [Y], finish: impl Fn(f64) -> Y + Sync) {
    assert!(x.len().is_multiple_of(k) && w.len().is_multiple_of(k), "x and w are not rows of k");
    let rows = w.len() / k;
    assert_eq!(y.len(), x.len() / k * rows, "y is not rows of x by rows of w");
    for_each_row(k, y, &|at, y| {
        let (x, w) = (&x[at / rows * k..][..k], &w[at % rows * k..][..k]);
        with_scratch(STRETCH.min(k), |products| *y = finish(Level::best().run(Dot { a: x, b: w, products })));
    });
}
