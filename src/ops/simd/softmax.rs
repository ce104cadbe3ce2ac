//! softmax and its logarithm over the rows of a matrix.

use super::lane::Lane;
use super::level::Level;
use super::math;
use super::run::{Ahead, Stores, map, maximum, sums};
use super::scratch::with_scratch;
use super::threads::for_each_piece;
use super::vector::{Kernel, Simd};

/// Columns at a time: their input and exponentials stay in the first-level cache together.
const CHUNK: usize = 4096;

/// LOG: of each element less the maximum the logarithm of the sum is taken, in place of a quotient.
struct Rows<'a, T, const LOG: bool> {
    cols: usize,
    stores: Stores,
    x: &'a [T],
    y: &'a mut [T],
    /// The exponentials of a row.
    exponentials: &'a mut [f32],
    /// The maximum that each chunk's exponentials were taken against.
    maxima: &'a mut [f32],
}

impl<T: Lane, const LOG: bool> Kernel for Rows<'_, T, LOG> {
    type Output = ();

    /// One reading of the row and one exponential an element: each chunk is taken against the largest
    /// element so far and corrected when the largest of all is known.
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let rows = self.x.chunks_exact(self.cols).zip(self.y.chunks_exact_mut(self.cols));
        for (x, y) in rows {
            let (mut max, mut total) = (f32::NEG_INFINITY, 0.0);
            let chunks = x.chunks(CHUNK).zip(self.exponentials.chunks_mut(CHUNK));
            for ((x, e), seen) in chunks.zip(self.maxima.iter_mut()) {
                let before = max;
                max = max.max(maximum(simd, x));
                *seen = max;
                // Nothing but minus infinities yet: their exponentials are 0 against any number.
                let shift = simd.splat(if max == f32::NEG_INFINITY { 0.0 } else { max });
                map(
                    simd,
                    Stores::Cached,
                    Ahead::of(x),
                    x,
                    e,
                    #[inline(always)]
                    |x| math::exp(simd, simd.sub(x, shift)),
                );
                let [sum] = sums(
                    simd,
                    Ahead::NOTHING,
                    e,
                    0.0,
                    #[inline(always)]
                    |e| [e],
                );
                total = total * correction(before, max) + sum;
            }
            if LOG {
                let (max, logarithm) = (simd.splat(max), simd.splat(total.ln() as f32));
                map(
                    simd,
                    self.stores,
                    Ahead::NOTHING,
                    x,
                    y,
                    // Two differences: the sum of both would cancel where the maximum is large.
                    #[inline(always)]
                    |x| simd.sub(simd.sub(x, max), logarithm),
                );
                continue;
            }
            let chunks = self.exponentials.chunks(CHUNK).zip(y.chunks_mut(CHUNK));
            for ((e, y), &seen) in chunks.zip(self.maxima.iter()) {
                let scale = simd.splat((correction(seen, max) / total) as f32);
                map(
                    simd,
                    self.stores,
                    Ahead::NOTHING,
                    e,
                    y,
                    #[inline(always)]
                    |e| simd.mul(e, scale),
                );
            }
        }
    }
}

/// What turns an exponential taken against `from` into one against `to`.
fn correction(from: f32, to: f32) -> f64 {
    if from == to { 1.0 } else { (f64::from(from) - f64::from(to)).exp() }
}

/// `y = e^(x - max) / sum(e^(x - max))`, row by row.
///
/// # Panics
/// If a slice does not have the length that `rows` and `cols` give it.
pub fn softmax<T: Lane>(rows: usize, cols: usize, x: &[T], y: &mut [T]) {
    checked::<T, false>(rows, cols, x, y);
}

/// `y = x - max - ln(sum(e^(x - max)))`, row by row.
///
/// # Panics
/// As [`softmax`].
pub fn log_softmax<T: Lane>(rows: usize, cols: usize, x: &[T], y: &mut [T]) {
    checked::<T, true>(rows, cols, x, y);
}

fn checked<T: Lane, const LOG: bool>(rows: usize, cols: usize, x: &[T], y: &mut [T]) {
    assert_eq!(x.len(), rows * cols, "x is not rows x cols");
    assert_eq!(y.len(), rows * cols, "y is not rows x cols");
    apply::<T, LOG>(Level::best(), Stores::of::<T>(rows, cols), cols, x, y);
}

fn apply<T: Lane, const LOG: bool>(level: Level, stores: Stores, cols: usize, x: &[T], y: &mut [T]) {
    if y.is_empty() {
        return;
    }
    for_each_piece(cols, y, &|first, y| {
        let x = &x[first * cols..][..y.len()];
        with_scratch(cols + cols.div_ceil(CHUNK), |scratch| {
            let (exponentials, maxima) = scratch.split_at_mut(cols);
            level.run(Rows::<T, LOG> { cols, stores, x, y, exponentials, maxima });
        });
    });
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use rstest::rstest;

    use super::super::testing::{Real, assert_close, every_way, reals, values};
    use super::*;

    fn reference(cols: usize, x: &[f64], log: bool) -> Vec<f64> {
        let rows = x.chunks(cols).flat_map(|x| {
            let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
            let of = move |x: &f64| if log { x - max - sum.ln() } else { (x - max).exp() / sum };
            x.iter().map(of).collect::<Vec<_>>()
        });
        rows.collect()
    }

    fn check<T: Real>(cols: usize, x: &[T]) {
        let want = reference(cols, &reals(x), false);
        every_way(x.len(), |level, stores, label, y| {
            apply::<T, false>(level, stores, cols, x, y);
            assert_close(label, y, &want, 0.0, 1e-6);
        });
        let want = reference(cols, &reals(x), true);
        every_way(x.len(), |level, stores, label, y| {
            apply::<T, true>(level, stores, cols, x, y);
            assert_close(label, y, &want, 1.0, 1e-6);
        });
    }

    #[rstest]
    fn every_shape_agrees_with_the_reference(
        #[values((1, 1), (3, 1), (5, 7), (2, 8), (4, 16), (3, 33), (2, 1000), (70, 1025), (1, CHUNK),
            (2, CHUNK + 1), (3, 3 * CHUNK + 5))]
        (rows, cols): (usize, usize),
    ) {
        check::<f32>(cols, &values(rows * cols, 1));
        check::<f16>(cols, &values(rows * cols, 2));
        check::<bf16>(cols, &values(rows * cols, 3));
    }

    #[rstest]
    #[case::nan(f32::NAN)]
    #[case::infinity(f32::INFINITY)]
    #[case::minus_infinity(f32::NEG_INFINITY)]
    #[case::large(3e38)]
    #[case::minus_large(-3e38)]
    fn one_element_apart(#[case] odd: f32) {
        for position in [0, 15, CHUNK - 1, CHUNK, CHUNK + 30] {
            let mut x = values::<f32>(2 * (CHUNK + 31), 4);
            x[position] = odd;
            check(CHUNK + 31, &x);
        }
    }

    #[rstest]
    #[case::all_minus_infinity(|_| f32::NEG_INFINITY)]
    #[case::minus_infinity_but_the_last_chunk(|i| if i < CHUNK { f32::NEG_INFINITY } else { 1.0 })]
    #[case::rising_from_chunk_to_chunk(|i| (i / CHUNK) as f32 * 60.0)]
    #[case::falling_from_chunk_to_chunk(|i| (i / CHUNK) as f32 * -60.0)]
    #[case::constant(|_| -1e30)]
    #[case::far_from_zero(|i| 1e4 + (i % 7) as f32)]
    fn rows_of_a_kind(#[case] row: fn(usize) -> f32) {
        let x: Vec<f32> = (0..2 * CHUNK + 9).map(row).collect();
        check(x.len(), &x);
    }

    #[test]
    fn no_rows_and_no_columns_are_nothing_to_do() {
        softmax::<f32>(0, 5, &[], &mut []);
        softmax::<f32>(5, 0, &[], &mut []);
        log_softmax::<f32>(0, 5, &[], &mut []);
    }
}
