//! A convolution with an activation and pooling behind it, for which the convolution's output never goes to memory:
//! y[n, p, q, g] = max f(z[n, 2p + i, 2q + j, g]) over i, j < 2, z = x ∗ w with as many places as x has, f an activation or none.
//!
//! Letters: n images, c channels, g filters, taps (a, b) of a filter, (p, q) places of the output. Channels are inside. Taps that
//! fall beside the image count nothing; a last odd row or column of z is of no window.

mod launch;

use super::conv2d::{self, Convolution, Layout};
use super::float::{Float, sum};
use super::max_pool2d::{Activation, Pooling};
use super::simd;
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::operator::Op;
use crate::core::seed::{Rng, permutation};
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

crate::shape! {
    /// The shape of a convolution with pooling behind it.
    pub struct PooledConvolution {
        /// Images.
        batch: 0..=1 << 17,
        /// Channels of an image.
        channels: 1..=1 << 17,
        /// Rows of an image.
        height: 1..=1 << 17,
        /// Columns of an image.
        width: 1..=1 << 17,
        /// Channels of the output.
        filters: 1..=1 << 17,
        /// Taps of a filter along each axis.
        taps: usize = [1, 3, 5, 7],
        /// What is taken of each element before the largest is.
        activation: Activation = [Activation::None, Activation::Relu, Activation::Gelu, Activation::Silu],
    }
}

/// Places of a window along each axis, and from one to the next.
const WINDOW: usize = 2;

impl PooledConvolution {
    /// The convolution, with as many places as the image has.
    fn convolution(&self) -> Convolution {
        Convolution {
            batch: self.batch,
            channels: self.channels,
            height: self.height,
            width: self.width,
            filters: self.filters,
            tall: self.taps,
            wide: self.taps,
            stride: 1,
            padding: self.taps / 2,
            dilation: 1,
            layout: Layout::Nhwc,
        }
    }

    /// The pooling behind it.
    fn pooling(&self) -> Pooling {
        Pooling {
            batch: self.batch,
            channels: self.filters,
            height: self.height,
            width: self.width,
            tall: WINDOW,
            wide: WINDOW,
            stride: WINDOW,
            padding: 0,
            layout: Layout::Nhwc,
            activation: self.activation,
        }
    }

    /// Rows and columns of the output.
    fn places(&self) -> (usize, usize) {
        (self.height / WINDOW, self.width / WINDOW)
    }

    fn outputs(&self) -> usize {
        let (down, across) = self.places();
        self.batch * down * across * self.filters
    }

    /// Products of one element of z.
    fn products(&self) -> usize {
        self.channels * self.taps * self.taps
    }

    /// The elements of z, as (n, g, row, column), in the window of the output with the flat index `at`.
    fn window(&self, at: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> {
        let (down, across) = self.places();
        let (place, filter) = (at / self.filters, at % self.filters);
        let (image, p, q) = (place / (down * across), place / across % down, place % across);
        (0..WINDOW * WINDOW).map(move |i| (image, filter, WINDOW * p + i / WINDOW, WINDOW * q + i % WINDOW))
    }

    /// The output with the flat index `at`, and what its error is relative to. The largest of a window is off by no more than the
    /// element of the window that is off most.
    fn output(&self, at: usize, product: impl Fn(usize, usize) -> f64) -> [f64; 2] {
        let convolution = self.convolution();
        let mut result = [f64::NEG_INFINITY, 0.0];
        for element in self.window(at) {
            let (mut z, mut size) = (0.0, 0.0);
            convolution.each_tap(element, |x, w| {
                let product = product(x, w);
                z += product;
                size += product.abs();
            });
            let y = self.activation.of(z);
            let off = size * STEEPEST + self.activation.magnitude(z, y);
            result = [if y > result[0] || y.is_nan() { y } else { result[0] }, off.max(result[1])];
        }
        result
    }
}

/// No activation is steeper: the derivative of GELU at √2.
const STEEPEST: f64 = 1.13;
/// Roundings of an activation.
const STEPS: usize = 5;

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", launch::naive())
        .candidate("cuda", launch::half())
        .candidate("cuda", launch::full())
        .into()
}

fn operator() -> Op<PooledConvolution> {
    Op::new("conv2d_pool")
        .input("x", |s: &PooledConvolution| [s.batch, s.height, s.width, s.channels])
        .input("w", |s| [s.filters, s.taps, s.taps, s.channels])
        .output("y", |s| [s.batch, s.height / WINDOW, s.width / WINDOW, s.filters])
        .reference(|s, inputs, outputs| each(s, inputs, outputs, 0))
        .magnitude(|s, inputs, outputs| each(s, inputs, outputs, 1))
        .element(|s, x, at| s.output(at, |i, j| x[0].get(i) * x[1].get(j)))
        .depth(|s| s.products() + STEPS)
        .range(conv2d::RANGE)
        .exclude_distributions(conv2d::UNDEFINED)
        .cost(cost)
        .separable("batch")
        .exact_relation(
            "permuted filters permute the channels of the output",
            |s, inputs, rng| permute(s, &mut inputs[1], s.products(), rng),
            |s, _, outputs, rng| permute_channels(s, &mut outputs[0], rng),
        )
        .varied_around(PooledConvolution {
            batch: 3,
            channels: 5,
            height: 9,
            width: 7,
            filters: 4,
            taps: 3,
            activation: Activation::Gelu,
        })
        .shapes(cases())
        .perf(layers())
}

/// What is timed: both layers of a classifier of digits, and those of a small one of photographs.
fn layers() -> impl Iterator<Item = PooledConvolution> {
    // (batch, channels, side, filters, taps).
    let all = [(1024, 1, 28, 32, 3), (1024, 32, 14, 64, 3), (64, 32, 14, 64, 3), (64, 3, 96, 64, 5)];
    all.into_iter().map(|(batch, channels, side, filters, taps)| PooledConvolution {
        batch,
        channels,
        height: side,
        width: side,
        filters,
        taps,
        activation: Activation::Relu,
    })
}

/// As (batch, channels, height, width, filters, taps, activation): extents always different, every attribute, filters larger than
/// the image, no output at all, both sides of packs, of groups of filters, of slices of channels and of tiles, few tiles and many.
fn cases() -> impl Iterator<Item = PooledConvolution> {
    use Activation::{Gelu, None, Relu, Silu};
    let all = [
        (0, 3, 5, 6, 4, 3, None),
        (2, 1, 1, 5, 3, 1, Relu),
        (2, 1, 2, 3, 1, 3, None),
        (1, 1, 28, 26, 32, 3, Relu),
        (2, 3, 7, 5, 4, 1, None),
        (3, 2, 9, 8, 5, 3, Relu),
        (1, 4, 9, 11, 3, 5, Gelu),
        (2, 5, 10, 7, 6, 7, Silu),
        (1, 8, 6, 10, 8, 3, None),
        (2, 32, 14, 12, 64, 3, Relu),
        (1, 40, 9, 7, 72, 3, Gelu),
        (3, 33, 8, 9, 63, 3, None),
        (1, 16, 33, 31, 24, 5, Silu),
        (1, 64, 20, 37, 8, 7, None),
        (150, 8, 6, 10, 16, 3, Silu),
        (140, 1, 6, 4, 9, 3, Gelu),
        (67, 40, 5, 37, 72, 1, Relu),
        // Sums so long that equal terms lean to one side.
        (1, 5000, 2, 3, 2, 1, None),
        (1, 4104, 3, 2, 16, 1, None),
    ];
    all.into_iter().map(|(batch, channels, height, width, filters, taps, activation)| PooledConvolution {
        batch,
        channels,
        height,
        width,
        filters,
        taps,
        activation,
    })
}

/// x, w and y once; every tap of the elements of z that are of a window, beside the image too; the pooling.
fn cost(s: &PooledConvolution, dtype: DType) -> Cost {
    let outputs = s.outputs();
    let elements = s.batch * s.channels * s.height * s.width + s.filters * s.products() + outputs;
    let of_window = WINDOW * WINDOW * (2 * s.products() + 1) + s.activation.flops();
    Cost { bytes: elements * dtype.size(), flops: outputs * of_window }
}

/// One of the two that an output has, of all outputs.
fn each(s: &PooledConvolution, inputs: &[&[f64]], outputs: &mut [Vec<f64>], which: usize) {
    for at in 0..s.outputs() {
        outputs[0][at] = s.output(at, |i, j| inputs[0][i] * inputs[1][j])[which];
    }
}

/// Puts the runs of `length` values, a filter each, into one random order.
fn permute(s: &PooledConvolution, values: &mut [f64], length: usize, rng: &mut Rng) {
    let (order, before) = (permutation(rng, s.filters), values.to_vec());
    for (to, from) in values.chunks_exact_mut(length).zip(order) {
        to.copy_from_slice(&before[from * length..][..length]);
    }
}

/// The same of the channels of every place.
fn permute_channels(s: &PooledConvolution, values: &mut [f64], rng: &mut Rng) {
    let order = permutation(rng, s.filters);
    for place in values.chunks_exact_mut(s.filters) {
        let before = place.to_vec();
        place.iter_mut().zip(&order).for_each(|(to, &from)| *to = before[from]);
    }
}

/// The definition in f32.
fn naive<T: Float>(s: &PooledConvolution, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, w, y) = (inputs.slice::<T>(0), inputs.slice::<T>(1), outputs.slice::<T>(0));
    let convolution = s.convolution();
    let mut terms = Vec::with_capacity(s.products());
    for (at, y) in y.iter_mut().enumerate() {
        let largest = s.window(at).fold(f32::NEG_INFINITY, |largest, element| {
            terms.clear();
            convolution.each_tap(element, |i, j| terms.push(x[i].to_f32() * w[j].to_f32()));
            let value = s.activation.of_f32(sum(terms.len(), &|i| terms[i]));
            if value > largest || value.is_nan() { value } else { largest }
        });
        *y = T::from_f32(largest);
    }
}

/// Image by image, so that z stays in the caches.
fn tiled<T: Float>(s: &PooledConvolution, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, w, y) = (inputs.slice::<T>(0), inputs.slice::<T>(1), outputs.slice::<T>(0));
    let (of_image, of_output) = (s.channels * s.height * s.width, y.len() / s.batch.max(1));
    if of_output == 0 {
        return;
    }
    let w: Vec<f32> = w.iter().map(|w| w.to_f32()).collect();
    let (convolution, pooling) = (s.convolution().extents(), s.pooling().extents());
    let mut image = vec![0.0; of_image];
    let mut z = vec![0.0; s.filters * s.height * s.width];
    let mut pooled = vec![0.0; of_output];
    for (x, y) in x.chunks_exact(of_image).zip(y.chunks_exact_mut(of_output)) {
        image.iter_mut().zip(x).for_each(|(to, from)| *to = from.to_f32());
        simd::conv2d(&convolution, &image, &w, &mut z);
        simd::max_pool2d(&pooling, s.activation.pooled(), &z, &mut pooled);
        y.iter_mut().zip(&pooled).for_each(|(to, &from)| *to = T::from_f32(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;
    use half::bf16;

    /// The operator with products by `product`, of the indices in x and in w.
    fn by(product: fn(&PooledConvolution, &[f32], &[f32], usize, usize) -> f64) -> Cpu<PooledConvolution> {
        Cpu::new::<f32>(move |s: &PooledConvolution, inputs, outputs| {
            let (x, w, y) = (inputs.slice::<f32>(0), inputs.slice::<f32>(1), outputs.slice::<f32>(0));
            for (at, y) in y.iter_mut().enumerate() {
                *y = s.output(at, |i, j| product(s, x, w, i, j))[0] as f32;
            }
        })
    }

    #[test]
    fn a_mirrored_filter_is_seen() {
        rejects(
            operator(),
            by(|s, x, w, i, j| {
                let (filter, tap, c) = (j / s.products(), j % s.products() / s.channels, j % s.channels);
                let mirrored = s.taps * s.taps - 1 - tap;
                f64::from(x[i]) * f64::from(w[filter * s.products() + mirrored * s.channels + c])
            }),
        );
    }

    #[test]
    fn products_in_tf32_are_seen() {
        rejects(operator(), by(|_, x, w, i, j| f64::from(x[i]) * f64::from(f32::from_bits(w[j].to_bits() & !0x1fff))));
    }

    #[test]
    fn a_window_without_its_last_element_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &PooledConvolution, inputs, outputs| {
            let (x, w, y) = (inputs.slice::<f32>(0), inputs.slice::<f32>(1), outputs.slice::<f32>(0));
            let convolution = s.convolution();
            for (at, y) in y.iter_mut().enumerate() {
                let values = s.window(at).take(WINDOW * WINDOW - 1).map(|element| {
                    let mut z = 0.0;
                    convolution.each_tap(element, |i, j| z += f64::from(x[i]) * f64::from(w[j]));
                    s.activation.of(z)
                });
                *y = values.fold(f64::NEG_INFINITY, f64::max) as f32;
            }
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn a_rounding_before_the_pooling_is_seen() {
        let wrong = Cpu::new::<bf16>(|s: &PooledConvolution, inputs, outputs| {
            let (x, w, y) = (inputs.slice::<bf16>(0), inputs.slice::<bf16>(1), outputs.slice::<bf16>(0));
            let plain = PooledConvolution { activation: Activation::None, ..s.clone() };
            for (at, y) in y.iter_mut().enumerate() {
                let z = bf16::from_f64(plain.output(at, |i, j| x[i].to_f64() * w[j].to_f64())[0]);
                *y = bf16::from_f64(s.activation.of(z.to_f64()));
            }
        });
        rejects(operator(), wrong);
    }
}
