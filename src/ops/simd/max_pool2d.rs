//! Largest of a window, output row by output row: the rows under it are joined first, vector by vector, then the columns.
//!
//! What follows, an activation, falls and then rises: over a window it is largest at one of the ends, so that it is taken of
//! the least and of the largest element and of no other.

use super::elementwise::{Formula, Gelu, Relu, Silu};
use super::lane::Lane;
use super::level::Level;
use super::run::{Ahead, Stores, map, map_with};
use super::scratch::with_scratch;
use super::threads::for_each_piece;
use super::vector::{Kernel, Simd};
use std::ops::Range;

/// The extents of a pooling, of one plane: an image with its channels inside, or one channel of it.
#[derive(Clone, Copy)]
pub struct PoolingExtents {
    /// Elements that lie side by side at a place: the channels where they are inside, else 1.
    pub inner: usize,
    /// Rows and columns of the image.
    pub image: (usize, usize),
    /// Rows and columns of the window.
    pub window: (usize, usize),
    /// Places from one output to the next.
    pub stride: usize,
    /// Places around the image that hold nothing.
    pub padding: usize,
    /// Rows and columns of the output.
    pub places: (usize, usize),
}

impl PoolingExtents {
    /// The places of the image, along an axis of `image` of them, under the window of output `at`.
    fn under(&self, at: usize, window: usize, image: usize) -> Range<usize> {
        let start = at * self.stride;
        let end = (start + window).saturating_sub(self.padding).min(image);
        start.saturating_sub(self.padding).min(end)..end
    }
}

/// What is taken of each element before the largest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooled {
    /// The element.
    Itself,
    /// Its ReLU.
    Relu,
    /// Its GELU.
    Gelu,
    /// Its SiLU.
    Silu,
}

/// `y[p, q] = max f(x under the window)`; NaN where one of them is, minus infinity where there is none.
///
/// # Panics
/// If the slices do not hold a whole number of planes, the same of both.
pub fn max_pool2d<T: Lane>(s: &PoolingExtents, f: Pooled, x: &[T], y: &mut [T]) {
    let (of_image, of_output) = (s.image.0 * s.image.1 * s.inner, s.places.0 * s.places.1 * s.inner);
    assert_eq!(x.len() % of_image, 0, "x does not hold whole planes");
    assert_eq!(y.len(), x.len() / of_image * of_output, "y does not have the planes of x");
    if !y.is_empty() {
        apply(Level::best(), s, f, x, y);
    }
}

fn apply<T: Lane>(level: Level, s: &PoolingExtents, f: Pooled, x: &[T], y: &mut [T]) {
    let (of_image, of_row) = (s.image.0 * s.image.1 * s.inner, s.places.1 * s.inner);
    for_each_piece(of_row, y, &|first, y| {
        for (at, y) in y.chunks_exact_mut(of_row).enumerate() {
            let (plane, p) = ((first + at) / s.places.0, (first + at) % s.places.0);
            let x = &x[plane * of_image..][..of_image];
            with_scratch(3 * s.image.1 * s.inner + 2 * of_row, |scratch| match f {
                Pooled::Itself => level.run(Rising(Same, Row { s, p, x, y, scratch })),
                Pooled::Relu => level.run(Rising(Relu, Row { s, p, x, y, scratch })),
                Pooled::Gelu => level.run(Falling(Gelu, Row { s, p, x, y, scratch })),
                Pooled::Silu => level.run(Falling(Silu, Row { s, p, x, y, scratch })),
            });
        }
    });
}

/// The function that changes nothing.
#[derive(Clone, Copy)]
struct Same;

impl Formula for Same {
    #[inline(always)]
    fn apply<S: Simd>(self, _: S, x: S::V) -> S::V {
        x
    }
}

/// Output row `p` of the plane x.
struct Row<'a, T> {
    s: &'a PoolingExtents,
    p: usize,
    x: &'a [T],
    y: &'a mut [T],
    scratch: &'a mut [f32],
}

/// A row of a function that never falls: that of the largest element.
struct Rising<'a, T, F>(F, Row<'a, T>);

/// A row of a function that falls before it rises.
struct Falling<'a, T, F>(F, Row<'a, T>);

impl<T: Lane, F: Formula> Kernel for Rising<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self(f, Row { s, p, x, y, scratch }) = self;
        let (row, rest) = scratch.split_at_mut(s.image.1 * s.inner);
        let (joined, rest) = rest.split_at_mut(row.len());
        let largest = &mut rest[..y.len()];
        join_rows(simd, s, p, x, row, joined, larger);
        join_columns(s, joined, largest, larger);
        map(
            simd,
            Stores::Cached,
            Ahead::NOTHING,
            largest,
            y,
            #[inline(always)]
            |x| f.apply(simd, x),
        );
        empty(simd, s, p, largest, y);
    }
}

impl<T: Lane, F: Formula> Kernel for Falling<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self(f, Row { s, p, x, y, scratch }) = self;
        let (row, rest) = scratch.split_at_mut(s.image.1 * s.inner);
        let (joined, rest) = rest.split_at_mut(row.len());
        let (largest, rest) = rest.split_at_mut(y.len());
        let least = &mut rest[..y.len()];
        join_rows(simd, s, p, x, row, joined, larger);
        join_columns(s, joined, largest, larger);
        join_rows(simd, s, p, x, row, joined, smaller);
        join_columns(s, joined, least, smaller);
        map_with(
            simd,
            Stores::Cached,
            Ahead::NOTHING,
            largest,
            [&*least],
            y,
            // NaN and minus infinity, whose functions are NaN, are the least of their window too: the second operand's NaN stays.
            #[inline(always)]
            |largest, [least]| simd.max(f.apply(simd, largest), f.apply(simd, least)),
        );
        empty(simd, s, p, largest, y);
    }
}

/// The larger one, or NaN if one is.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if (b > a) | b.is_nan() { b } else { a }
}

/// The smaller one, or NaN if one is.
#[inline(always)]
fn smaller(a: f32, b: f32) -> f32 {
    if (b < a) | b.is_nan() { b } else { a }
}

/// What `choose` leaves of the rows under output row `p`; anything where there is none.
#[inline(always)]
fn join_rows<S: Simd, T: Lane>(
    simd: S,
    s: &PoolingExtents,
    p: usize,
    x: &[T],
    row: &mut [f32],
    joined: &mut [f32],
    choose: impl Fn(f32, f32) -> f32,
) {
    let of_row = row.len();
    for (turn, i) in s.under(p, s.window.0, s.image.0).enumerate() {
        let to = if turn == 0 { &mut *joined } else { &mut *row };
        map(
            simd,
            Stores::Cached,
            Ahead::NOTHING,
            &x[i * of_row..][..of_row],
            to,
            #[inline(always)]
            |x| x,
        );
        if turn > 0 {
            joined.iter_mut().zip(&*row).for_each(|(kept, &next)| *kept = choose(*kept, next));
        }
    }
}

/// What `choose` leaves of the columns under each output; anything where there is none.
#[inline(always)]
fn join_columns(s: &PoolingExtents, joined: &[f32], y: &mut [f32], choose: impl Fn(f32, f32) -> f32) {
    for (q, y) in y.chunks_exact_mut(s.inner).enumerate() {
        for (turn, j) in s.under(q, s.window.1, s.image.1).enumerate() {
            let x = &joined[j * s.inner..][..s.inner];
            if turn == 0 {
                y.copy_from_slice(x);
            } else {
                y.iter_mut().zip(x).for_each(|(kept, &next)| *kept = choose(*kept, next));
            }
        }
    }
}

/// Minus infinity where the window holds nothing; `any` is as long as y.
#[inline(always)]
fn empty<S: Simd, T: Lane>(simd: S, s: &PoolingExtents, p: usize, any: &[f32], y: &mut [T]) {
    let no_rows = s.under(p, s.window.0, s.image.0).is_empty();
    for (q, (any, y)) in any.chunks_exact(s.inner).zip(y.chunks_exact_mut(s.inner)).enumerate() {
        if no_rows || s.under(q, s.window.1, s.image.1).is_empty() {
            map(
                simd,
                Stores::Cached,
                Ahead::NOTHING,
                any,
                y,
                #[inline(always)]
                |_| simd.splat(f32::NEG_INFINITY),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use rstest::rstest;

    use super::super::testing::{Real, assert_close, every_way, reals, reference, values};
    use super::*;

    fn extents(
        inner: usize,
        image: (usize, usize),
        window: (usize, usize),
        stride: usize,
        padding: usize,
    ) -> PoolingExtents {
        let outputs = |image: usize, window: usize| (image + 2 * padding - window) / stride + 1;
        PoolingExtents {
            inner,
            image,
            window,
            stride,
            padding,
            places: (outputs(image.0, window.0), outputs(image.1, window.1)),
        }
    }

    fn of(f: Pooled, x: f64) -> f64 {
        match f {
            Pooled::Itself => x,
            Pooled::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Pooled::Gelu => reference::gelu(x),
            Pooled::Silu => reference::silu(x),
        }
    }

    fn expected(s: &PoolingExtents, f: Pooled, x: &[f64]) -> Vec<f64> {
        let place =
            |at: usize, tap: usize, limit: usize| (at * s.stride + tap).checked_sub(s.padding).filter(|&at| at < limit);
        let mut y = Vec::new();
        for plane in x.chunks_exact(s.image.0 * s.image.1 * s.inner) {
            for at in 0..s.places.0 * s.places.1 * s.inner {
                let (p, q, c) = (at / (s.places.1 * s.inner), at / s.inner % s.places.1, at % s.inner);
                let mut largest = f64::NEG_INFINITY;
                for (a, b) in (0..s.window.0).flat_map(|a| (0..s.window.1).map(move |b| (a, b))) {
                    if let (Some(i), Some(j)) = (place(p, a, s.image.0), place(q, b, s.image.1)) {
                        let x = of(f, plane[(i * s.image.1 + j) * s.inner + c]);
                        largest = if x.is_nan() || x > largest { x } else { largest };
                    }
                }
                y.push(largest);
            }
        }
        y
    }

    fn check<T: Real>(s: &PoolingExtents, f: Pooled, x: &[T]) {
        let want = expected(s, f, &reals(x));
        every_way(want.len(), |level, _, label, y| {
            apply(level, s, f, x, y);
            assert_close(label, y, &want, 0.0, 2e-6);
        });
    }

    #[rstest]
    fn every_window_agrees_with_the_reference(
        #[values(Pooled::Itself, Pooled::Relu, Pooled::Gelu, Pooled::Silu)] f: Pooled,
        #[values((1, (7, 9), (2, 2), 2, 0), (1, (5, 40), (3, 2), 1, 1), (19, (6, 4), (2, 3), 3, 2), (16, (4, 4), (1, 1), 1, 2))]
        shape: (usize, (usize, usize), (usize, usize), usize, usize),
    ) {
        let (inner, image, window, stride, padding) = shape;
        let s = extents(inner, image, window, stride, padding);
        let n = 3 * image.0 * image.1 * inner;
        check::<f32>(&s, f, &values(n, 1));
        check::<f16>(&s, f, &values(n, 2));
        check::<bf16>(&s, f, &values(n, 3));
    }

    #[rstest]
    fn one_element_apart(
        #[values(f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -3e38)] odd: f32,
        #[values(Pooled::Itself, Pooled::Relu)] f: Pooled,
    ) {
        let s = extents(3, (4, 6), (2, 2), 2, 0);
        for position in [0, 3, 18, 21, 71] {
            let mut x = values::<f32>(72, 4);
            x[position] = odd;
            check(&s, f, &x);
        }
    }

    #[rstest]
    fn nan_and_minus_infinity_are_nan_behind_an_activation(
        #[values(f32::NAN, f32::NEG_INFINITY)] odd: f32,
        #[values(Pooled::Gelu, Pooled::Silu)] f: Pooled,
    ) {
        let s = extents(1, (2, 4), (2, 2), 2, 0);
        let mut y = [0.0; 2];
        max_pool2d(&s, f, &[1.0, 2.0, 3.0, 4.0, 1.0, odd, 3.0, 4.0], &mut y);
        assert!(y[0].is_nan() && y[1] > 3.0, "{y:?}");
    }
}
