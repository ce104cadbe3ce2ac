//! swiglu, rope, sums of rows, and RMSNorm of a sum: operators of several inputs or outputs, each in one pass.

use super::lane::Lane;
use super::level::Level;
use super::math;
use super::norm::inverse_root;
use super::run::{Ahead, Stores, map, map_with, sums};
use super::scratch::with_scratch;
use super::threads::{for_each_pair, for_each_piece, for_each_row};
use super::vector::{Kernel, Simd};

struct Gated<'a, T> {
    stores: Stores,
    gate: &'a [T],
    up: &'a [T],
    y: &'a mut [T],
}

impl<T: Lane> Kernel for Gated<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        map_with(
            simd,
            self.stores,
            Ahead::NOTHING,
            self.gate,
            [self.up],
            self.y,
            #[inline(always)]
            |gate, [up]| simd.mul(math::silu(simd, gate), up),
        );
    }
}

/// `y = gate / (1 + e^-gate) * up`.
///
/// # Panics
/// If the slices differ in length.
pub fn swiglu<T: Lane>(gate: &[T], up: &[T], y: &mut [T]) {
    assert!(gate.len() == y.len() && up.len() == y.len(), "gate, up and y differ in length");
    let stores = Stores::of::<T>(1, y.len());
    for_each_piece(1, y, &|first, y| {
        let (gate, up) = (&gate[first..][..y.len()], &up[first..][..y.len()]);
        Level::best().run(Gated { stores, gate, up, y });
    });
}

struct Sum<'a, T> {
    stores: Stores,
    a: &'a [T],
    b: &'a [T],
    y: &'a mut [T],
}

impl<T: Lane> Kernel for Sum<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        map_with(
            simd,
            self.stores,
            Ahead::NOTHING,
            self.a,
            [self.b],
            self.y,
            #[inline(always)]
            |a, [b]| simd.add(a, b),
        );
    }
}

/// `y = a + b`.
///
/// # Panics
/// If the slices differ in length.
pub fn add<T: Lane>(a: &[T], b: &[T], y: &mut [T]) {
    assert!(a.len() == y.len() && b.len() == y.len(), "a, b and y differ in length");
    let stores = Stores::of::<T>(1, y.len());
    for_each_piece(1, y, &|first, y| {
        let (a, b) = (&a[first..][..y.len()], &b[first..][..y.len()]);
        Level::best().run(Sum { stores, a, b, y });
    });
}

/// The heads of one token.
struct Turned<'a, T> {
    x: &'a [T],
    cosine: &'a [T],
    sine: &'a [T],
    y: &'a mut [T],
}

impl<T: Lane> Kernel for Turned<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let half = self.cosine.len();
        let angles = [self.cosine, self.sine];
        for (x, y) in self.x.chunks_exact(2 * half).zip(self.y.chunks_exact_mut(2 * half)) {
            let (low, high) = x.split_at(half);
            let (y_low, y_high) = y.split_at_mut(half);
            map_with(
                simd,
                Stores::Cached,
                Ahead::NOTHING,
                low,
                [high, angles[0], angles[1]],
                y_low,
                #[inline(always)]
                |a, [b, cosine, sine]| simd.sub(simd.mul(a, cosine), simd.mul(b, sine)),
            );
            map_with(
                simd,
                Stores::Cached,
                Ahead::NOTHING,
                high,
                [low, angles[0], angles[1]],
                y_high,
                #[inline(always)]
                |b, [a, cosine, sine]| simd.add(simd.mul(b, cosine), simd.mul(a, sine)),
            );
        }
    }
}

/// Turns element `i` of each head with element `half + i` by the angle `i` of its token.
///
/// # Panics
/// If a slice does not have the length that `heads` and `half` give it.
pub fn rope<T: Lane>(heads: usize, half: usize, x: &[T], cosine: &[T], sine: &[T], y: &mut [T]) {
    let width = 2 * heads * half;
    assert_eq!(x.len(), y.len(), "x and y differ in length");
    assert!(cosine.len() == sine.len() && cosine.len() * width == y.len() * half, "the angles are not tokens x half");
    if y.is_empty() {
        return;
    }
    for_each_piece(width, y, &|first, y| {
        for (i, y) in y.chunks_exact_mut(width).enumerate() {
            let token = first + i;
            let x = &x[token * width..][..width];
            let (cosine, sine) = (&cosine[token * half..][..half], &sine[token * half..][..half]);
            Level::best().run(Turned { x, cosine, sine, y });
        }
    });
}

struct Total<'a, T>(&'a [T]);

impl<T: Lane> Kernel for Total<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f64 {
        let [total] = sums(
            simd,
            Ahead::NOTHING,
            self.0,
            0.0,
            #[inline(always)]
            |x| [x],
        );
        total
    }
}

/// `y[i] = finish(sum of row i)`.
///
/// # Panics
/// If `x` is not as many rows of `cols` as `y` has elements.
pub fn row_sums<T: Lane>(cols: usize, x: &[T], y: &mut [T], finish: impl Fn(f64) -> T + Sync) {
    assert_eq!(x.len(), y.len() * cols, "x is not rows x cols");
    for_each_row(cols, y, &|row, y| *y = finish(Level::best().run(Total(&x[row * cols..][..cols]))));
}

/// One row, and where its sum is kept as f32.
struct Added<'a, T> {
    eps: f32,
    x: &'a [T],
    residual: &'a [T],
    weight: &'a [T],
    sum: &'a mut [f32],
    y: &'a mut [T],
    total: &'a mut [T],
}

impl<T: Lane> Kernel for Added<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        map_with(
            simd,
            Stores::Cached,
            Ahead::NOTHING,
            self.x,
            [self.residual],
            self.sum,
            #[inline(always)]
            |x, [residual]| simd.add(x, residual),
        );
        let [squares] = sums(
            simd,
            Ahead::NOTHING,
            self.sum,
            0.0,
            #[inline(always)]
            |x| [simd.mul(x, x)],
        );
        let scale = simd.splat(inverse_root(squares / self.sum.len() as f64, self.eps));
        map(simd, Stores::Cached, Ahead::NOTHING, self.sum, self.total, |x| x);
        map_with(
            simd,
            Stores::Cached,
            Ahead::NOTHING,
            self.sum,
            [self.weight],
            self.y,
            #[inline(always)]
            |x, [w]| simd.mul(simd.mul(x, scale), w),
        );
    }
}

/// `total = x + residual` and `y = total / sqrt(mean(total²) + eps) * weight`, row by row, with nothing rounded between.
///
/// # Panics
/// If the tensors differ in length or are no rows of the weight's length.
pub fn add_rmsnorm<T: Lane>(eps: f32, x: &[T], residual: &[T], weight: &[T], y: &mut [T], total: &mut [T]) {
    let cols = weight.len();
    let len = y.len();
    assert!([x.len(), residual.len(), total.len()] == [len; 3], "x, residual, y and total differ in length");
    assert!(len.is_multiple_of(cols), "y is not rows x cols");
    for_each_pair(cols, y, total, &|first, y, total| {
        with_scratch(cols, |sum| {
            for (i, (y, total)) in y.chunks_exact_mut(cols).zip(total.chunks_exact_mut(cols)).enumerate() {
                let at = (first + i) * cols;
                let (x, residual) = (&x[at..][..cols], &residual[at..][..cols]);
                Level::best().run(Added { eps, x, residual, weight, sum, y, total });
            }
        });
    });
}
