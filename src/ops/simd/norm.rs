//! layernorm, layernorm_gelu and rmsnorm over the rows of a matrix.

use super::lane::Lane;
use super::level::Level;
use super::math;
use super::run::{Ahead, Stores, map_with, sums};
use super::threads::for_each_piece;
use super::vector::{Kernel, Simd};

/// What a row is normalised by, and what follows.
#[derive(Clone, Copy)]
enum Norm<'a, T> {
    Layer { bias: &'a [T], gelu: bool },
    RootMeanSquare,
}

struct Rows<'a, T> {
    norm: Norm<'a, T>,
    eps: f32,
    weight: &'a [T],
    stores: Stores,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Lane> Kernel for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let cols = self.weight.len();
        for (x, y) in self.x.chunks_exact(cols).zip(self.y.chunks_exact_mut(cols)) {
            match self.norm {
                Norm::Layer { bias, gelu } => {
                    let centre = Centre::of(simd, x, self.eps);
                    let parameters = [self.weight, bias];
                    if gelu {
                        map_with(
                            simd,
                            self.stores,
                            Ahead::NOTHING,
                            x,
                            parameters,
                            y,
                            #[inline(always)]
                            |x, p| math::gelu(simd, centre.normalise(simd, x, p)),
                        );
                    } else {
                        map_with(
                            simd,
                            self.stores,
                            Ahead::NOTHING,
                            x,
                            parameters,
                            y,
                            #[inline(always)]
                            |x, p| centre.normalise(simd, x, p),
                        );
                    }
                }
                Norm::RootMeanSquare => {
                    let [squares] = sums(
                        simd,
                        Ahead::NOTHING,
                        x,
                        0.0,
                        #[inline(always)]
                        |x| [simd.mul(x, x)],
                    );
                    let scale = simd.splat(inverse_root(squares / cols as f64, self.eps));
                    map_with(
                        simd,
                        self.stores,
                        Ahead::of(x),
                        x,
                        [self.weight],
                        y,
                        #[inline(always)]
                        |x, [w]| simd.mul(simd.mul(x, scale), w),
                    );
                }
            }
        }
    }
}

pub(super) fn inverse_root(variance: f64, eps: f32) -> f32 {
    (1.0 / (variance + f64::from(eps)).sqrt()) as f32
}

/// The statistics of a row for layernorm.
struct Centre {
    mean: f32,
    /// What the rounded mean lacks: without it a row far from zero would keep an offset.
    rest: f32,
    scale: f32,
}

impl Centre {
    /// Mean first, then the squares of the centred row, which is still in cache.
    #[inline(always)]
    fn of<S: Simd, T: Lane>(simd: S, x: &[T], eps: f32) -> Centre {
        let n = x.len() as f64;
        let [sum] = sums(
            simd,
            Ahead::NOTHING,
            x,
            0.0,
            #[inline(always)]
            |x| [x],
        );
        let mean = (sum / n) as f32;
        let centre = simd.splat(mean);
        let [offsets, squares] = sums(
            simd,
            Ahead::of(x),
            x,
            mean,
            #[inline(always)]
            |x| {
                let d = simd.sub(x, centre);
                [d, simd.mul(d, d)]
            },
        );
        let rest = offsets / n;
        // Rounding may leave a constant row a hair below zero; NaN has to stay.
        let variance = squares / n - rest * rest;
        let variance = if variance < 0.0 { 0.0 } else { variance };
        Centre { mean, rest: rest as f32, scale: inverse_root(variance, eps) }
    }

    #[inline(always)]
    fn normalise<S: Simd>(&self, simd: S, x: S::V, [weight, bias]: [S::V; 2]) -> S::V {
        let d = simd.sub(simd.sub(x, simd.splat(self.mean)), simd.splat(self.rest));
        simd.mul_add(simd.mul(d, simd.splat(self.scale)), weight, bias)
    }
}

/// The extents of the operands of a norm.
fn check<T>(rows: usize, cols: usize, x: &[T], parameters: &[&[T]], y: &[T]) {
    assert_eq!(x.len(), rows * cols, "x is not rows x cols");
    assert_eq!(y.len(), rows * cols, "y is not rows x cols");
    for parameter in parameters {
        assert_eq!(parameter.len(), cols, "a weight or bias does not have cols elements");
    }
}

fn normalise<T: Lane>(level: Level, stores: Stores, norm: Norm<T>, eps: f32, x: &[T], weight: &[T], y: &mut [T]) {
    if y.is_empty() {
        return;
    }
    let cols = weight.len();
    for_each_piece(cols, y, &|first, y| {
        let x = &x[first * cols..][..y.len()];
        level.run(Rows { norm, eps, weight, stores, x, y });
    });
}

/// `y = (x - mean) / sqrt(variance + eps) * weight + bias`, row by row.
///
/// # Panics
/// If a slice does not have the length that `rows` and `cols` give it.
pub fn layernorm<T: Lane>(rows: usize, cols: usize, eps: f32, x: &[T], weight: &[T], bias: &[T], y: &mut [T]) {
    check(rows, cols, x, &[weight, bias], y);
    let norm = Norm::Layer { bias, gelu: false };
    let stores = Stores::of::<T>(rows, cols);
    normalise(Level::best(), stores, norm, eps, x, weight, y);
}

/// `gelu(layernorm(x))` with the erf form of gelu, in f32 between the two.
///
/// # Panics
/// If a slice does not have the length that `rows` and `cols` give it.
pub fn layernorm_gelu<T: Lane>(rows: usize, cols: usize, eps: f32, x: &[T], weight: &[T], bias: &[T], y: &mut [T]) {
    check(rows, cols, x, &[weight, bias], y);
    let norm = Norm::Layer { bias, gelu: true };
    let stores = Stores::of::<T>(rows, cols);
    normalise(Level::best(), stores, norm, eps, x, weight, y);
}

/// `y = x / sqrt(mean(x²) + eps) * weight`, row by row.
///
/// # Panics
/// If a slice does not have the length that `rows` and `cols` give it.
pub fn rmsnorm<T: Lane>(rows: usize, cols: usize, eps: f32, x: &[T], weight: &[T], y: &mut [T]) {
    check(rows, cols, x, &[weight], y);
    let norm = Norm::RootMeanSquare;
    let stores = Stores::of::<T>(rows, cols);
    normalise(Level::best(), stores, norm, eps, x, weight, y);
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use rstest::rstest;

    use super::super::testing::{Real, assert_close, every_way, reals, reference, values};
    use super::*;

    const EPS: f32 = 1e-5;
    /// An outlier rounds all that is added to it in its run of f32 sums.
    const NOISE: f64 = 3e-6;

    /// Layernorm of one row in f64.
    fn centred(x: &[f64]) -> Vec<f64> {
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let root = (variance + f64::from(EPS)).sqrt();
        x.iter().map(|x| (x - mean) / root).collect()
    }

    fn check<T: Real>(cols: usize, x: &[T]) {
        let (weight, bias) = (values::<T>(cols, 8), values::<T>(cols, 9));
        let (w, b) = (reals(&weight), reals(&bias));
        let affine = |y: Vec<f64>| (0..cols).map(|j| y[j] * w[j] + b[j]).collect::<Vec<f64>>();
        let rows = || x.chunks(cols).map(reals);
        let layer: Vec<f64> = rows().flat_map(|x| affine(centred(&x))).collect();
        let gelu: Vec<f64> = layer.iter().copied().map(reference::gelu).collect();
        let root_mean_square: Vec<f64> = rows()
            .flat_map(|x| {
                let square = x.iter().map(|x| x * x).sum::<f64>() / cols as f64;
                let root = (square + f64::from(EPS)).sqrt();
                (0..cols).map(|j| x[j] / root * w[j]).collect::<Vec<f64>>()
            })
            .collect();
        every_way(x.len(), |level, stores, label, y| {
            let mut run = |norm| normalise(level, stores, norm, EPS, x, &weight, y);
            run(Norm::Layer { bias: &bias, gelu: false });
            assert_close(label, y, &layer, 4.0, NOISE);
            let mut run = |norm| normalise(level, stores, norm, EPS, x, &weight, y);
            run(Norm::Layer { bias: &bias, gelu: true });
            assert_close(label, y, &gelu, 4.0, NOISE);
            let mut run = |norm| normalise(level, stores, norm, EPS, x, &weight, y);
            run(Norm::RootMeanSquare);
            assert_close(label, y, &root_mean_square, 0.0, NOISE);
        });
    }

    #[rstest]
    fn every_shape_agrees_with_the_reference(
        #[values((1, 1), (3, 1), (5, 7), (2, 8), (4, 16), (3, 33), (2, 1000), (70, 1025), (1, 9000))] (rows, cols): (
            usize,
            usize,
        ),
    ) {
        check::<f32>(cols, &values(rows * cols, 1));
        check::<f16>(cols, &values(rows * cols, 2));
        check::<bf16>(cols, &values(rows * cols, 3));
    }

    #[rstest]
    #[case::nan(|i| if i == 3 { f32::NAN } else { 1.0 })]
    #[case::infinity(|i| if i == 3 { f32::INFINITY } else { 1.0 })]
    #[case::constant(|_| 12345.678)]
    #[case::far_from_zero(|i| 1e6 + (i % 7) as f32)]
    #[case::outlier(|i| if i == 77 { 1e5 } else { (i % 5) as f32 })]
    #[case::tiny(|i| (i % 9) as f32 * 1e-40)]
    fn rows_of_a_kind(#[case] row: fn(usize) -> f32) {
        for cols in [100, 5000] {
            let x: Vec<f32> = (0..2 * cols).map(|i| row(i % cols)).collect();
            check(cols, &x);
        }
    }
}
