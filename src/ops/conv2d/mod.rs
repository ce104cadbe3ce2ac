//! Convolution in two dimensions: y[n, f, p, q] = Σ x[n, c, p·stride + a·dilation − padding, …] · w[f, c, a, b].
//!
//! Letters: n images, c channels, f filters, taps (a, b) of a filter, (p, q) places of the output. Taps that fall beside
//! the image count nothing.

mod launch;
mod packed;
mod shape;
mod simt;
#[cfg(feature = "cuda")]
mod vendor;

pub use shape::{Convolution, Layout};

use super::family::rows::double;
use super::float::{Float, sum};
use super::simd;
use crate::core::candidate::{Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::launch::{Launch, Plan};
use crate::core::operator::Op;
use crate::core::seed::{Rng, permutation};
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

/// The operator with its candidates.
pub fn suite() -> Suite {
    let own = Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", lesson(launch::naive).untimed().lesson())
        .candidate("lesson2_tiled", tiled_kernel().lesson())
        .candidate("cuda", wgmma_kernel(launch::wgmma))
        .candidate("cuda", simt_kernel(simt::plan).workspace(simt::workspace_bytes));
    with_vendor!(own, "cudnn", vendor::cudnn)
}

fn operator() -> Op<Convolution> {
    Op::new("conv2d")
        .input("x", |s: &Convolution| s.dims(s.batch, s.channels, (s.height, s.width)))
        .input("w", |s| s.dims(s.filters, s.channels, (s.tall, s.wide)))
        .output("y", |s| s.dims(s.batch, s.filters, s.places()))
        .reference(|s, inputs, outputs| convolve(s, inputs, outputs, |x, w| x * w))
        .magnitude(|s, inputs, outputs| convolve(s, inputs, outputs, |x, w| (x * w).abs()))
        .element(|s, x, at| {
            let (mut value, mut size) = (0.0, 0.0);
            s.each_tap(s.place(at), |i, w| {
                let product = x[0].get(i) * x[1].get(w);
                value += product;
                size += product.abs();
            });
            [value, size]
        })
        .depth(Convolution::taps)
        .range(RANGE)
        .exclude_distributions(UNDEFINED)
        .cost(cost)
        .separable("batch")
        .exact_relation(
            "a doubled image doubles the output",
            |_, inputs, _| double(&mut inputs[0]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .relation("the order of channels is free", permute_channels, |_, _, _, _| {})
        .varied_around(Convolution { batch: 2, channels: 5, height: 9, width: 7, filters: 4, wide: 2, ..square(3) })
        .shapes(cases())
        .perf(layers())
}

/// What is timed: layers of residual networks.
fn layers() -> impl Iterator<Item = Convolution> {
    // (batch, channels, side, filters, taps, stride, layout).
    let all = [
        (32, 64, 56, 128, 3, 1, Layout::Nchw),
        (8, 256, 28, 256, 1, 1, Layout::Nhwc),
        (32, 128, 28, 128, 3, 1, Layout::Nhwc),
        (32, 128, 56, 128, 3, 2, Layout::Nhwc),
        (32, 512, 7, 512, 3, 1, Layout::Nhwc),
        (32, 1024, 14, 256, 1, 1, Layout::Nhwc),
        (32, 256, 14, 256, 3, 1, Layout::Nchw),
    ];
    all.into_iter().map(|(batch, channels, side, filters, taps, stride, layout)| {
        let padding = taps / 2;
        Convolution { batch, channels, height: side, width: side, filters, stride, padding, layout, ..square(taps) }
    })
}

/// 2¹⁷ products of two such values still fit an f32 sum.
pub(super) const RANGE: f64 = 1e16;

/// What gemm is not defined for either, and NaN and infinity: a zero beside the image makes NaN
/// of an infinite weight if it is multiplied, and nothing if it is left out.
pub(super) const UNDEFINED: [Distribution; 3] = [Distribution::Tiny, Distribution::LargeMean, Distribution::NonFinite];

/// One place under square filters of `taps` by `taps`, for the rest of a shape.
fn square(taps: usize) -> Convolution {
    Convolution {
        batch: 1,
        channels: 1,
        height: 1,
        width: 1,
        filters: 1,
        tall: taps,
        wide: taps,
        stride: 1,
        padding: 0,
        dilation: 1,
        layout: Layout::Nchw,
    }
}

/// More places and filters than a tile, and two images in one; strides, dilation and odd extents; few channels; one tap.
#[cfg(test)]
fn beyond_a_tile(layout: Layout) -> [Convolution; 4] {
    let two = Convolution { batch: 2, layout, ..square(3) };
    let uneven = Convolution { channels: 35, height: 17, width: 11, filters: 65, padding: 2, ..two.clone() };
    [
        Convolution { channels: 72, height: 9, width: 11, filters: 136, padding: 1, ..two.clone() },
        Convolution { stride: 2, dilation: 2, ..uneven },
        Convolution { channels: 3, height: 15, width: 19, filters: 24, padding: 2, stride: 2, tall: 7, ..two.clone() },
        Convolution { channels: 136, height: 4, width: 18, filters: 32, tall: 1, wide: 1, ..two },
    ]
}

/// x, w and y once, and every tap, beside the image too.
fn cost(s: &Convolution, dtype: DType) -> Cost {
    let (down, across) = s.places();
    let outputs = s.batch * s.filters * down * across;
    let elements = s.batch * s.channels * s.height * s.width + s.filters * s.taps() + outputs;
    Cost { bytes: elements * dtype.size(), flops: 2 * outputs * s.taps() }
}

/// As (batch, channels, height, width, filters, tall, wide, stride, padding, dilation), in both layouts: extents always
/// different, every attribute, filters larger than the image, no output at all, both sides of usual tiles.
fn cases() -> impl Iterator<Item = Convolution> {
    let all = [
        (0, 3, 5, 6, 4, 3, 2, 1, 0, 1),
        (1, 1, 1, 1, 1, 1, 1, 1, 0, 1),
        (2, 3, 4, 5, 1, 6, 7, 1, 0, 1),
        (2, 3, 7, 5, 4, 1, 1, 1, 0, 1),
        (2, 3, 7, 5, 4, 3, 2, 1, 1, 1),
        (3, 2, 8, 9, 5, 2, 3, 2, 1, 1),
        (1, 4, 9, 11, 3, 3, 3, 1, 2, 2),
        (2, 5, 10, 7, 6, 4, 5, 3, 2, 1),
        (1, 1, 2, 3, 2, 3, 3, 1, 1, 1),
        (1, 7, 1, 33, 2, 1, 5, 1, 2, 1),
        (5, 17, 6, 4, 15, 3, 3, 1, 1, 1),
        (1, 16, 8, 8, 64, 3, 3, 1, 1, 1),
        (1, 31, 9, 7, 65, 3, 3, 1, 1, 1),
        (2, 33, 8, 9, 63, 1, 1, 2, 0, 1),
        (1, 3, 33, 31, 16, 7, 7, 2, 2, 1),
        (3, 64, 6, 5, 32, 3, 3, 1, 1, 2),
        // Sums so long that equal terms lean to one side.
        (1, 5000, 2, 3, 2, 2, 2, 1, 0, 1),
        // One for each tile that a product of few operations takes.
        (1, 1032, 2, 5, 9, 1, 1, 1, 0, 1),
        (1, 4104, 2, 5, 9, 1, 1, 1, 0, 1),
        (1, 136, 128, 130, 9, 1, 1, 1, 0, 1),
        (1, 8, 160, 205, 72, 1, 1, 1, 0, 1),
    ];
    all.into_iter().flat_map(|(batch, channels, height, width, filters, tall, wide, stride, padding, dilation)| {
        [Layout::Nchw, Layout::Nhwc].map(|layout| Convolution {
            batch,
            channels,
            height,
            width,
            filters,
            tall,
            wide,
            stride,
            padding,
            dilation,
            layout,
        })
    })
}

fn convolve(s: &Convolution, inputs: &[&[f64]], outputs: &mut [Vec<f64>], term: fn(f64, f64) -> f64) {
    s.each_output(|y, place| {
        outputs[0][y] = 0.0;
        s.each_tap(place, |x, w| outputs[0][y] += term(inputs[0][x], inputs[1][w]));
    });
}

/// Puts the channels of image and filters into one random order.
fn permute_channels(s: &Convolution, inputs: &mut [Vec<f64>], rng: &mut Rng) {
    let order = permutation(rng, s.channels);
    let (image, filter) = ((s.batch, (s.height, s.width)), (s.filters, (s.tall, s.wide)));
    for (tensor, (of, plane)) in inputs.iter_mut().zip([image, filter]) {
        let before = tensor.clone();
        for n in 0..of {
            for (channel, &from) in order.iter().enumerate() {
                for at in 0..plane.0 * plane.1 {
                    let (i, j) = (at / plane.1, at % plane.1);
                    let to = s.at((n, channel, i, j), s.channels, plane);
                    tensor[to] = before[s.at((n, from, i, j), s.channels, plane)];
                }
            }
        }
    }
}

/// The definition in f32.
fn naive<T: Float>(s: &Convolution, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, w, y) = (inputs.slice::<T>(0), inputs.slice::<T>(1), outputs.slice::<T>(0));
    let mut terms = Vec::with_capacity(s.taps());
    s.each_output(|at, place| {
        terms.clear();
        s.each_tap(place, |i, j| terms.push(x[i].to_f32() * w[j].to_f32()));
        y[at] = T::from_f32(sum(terms.len(), &|i| terms[i]));
    });
}

fn tiled<T: Float>(s: &Convolution, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    simd::conv2d(&s.extents(), inputs.slice::<T>(0), inputs.slice::<T>(1), outputs.slice::<T>(0));
}

/// A teaching kernel.
fn lesson(plan: fn(&Convolution) -> Launch) -> Cuda<Convolution> {
    kernel!("conv2d/conv2d.cu", "conv2d_naive", plan)
}

/// Tiles of 64 places by 64 filters in shared memory: an implicit GEMM.
fn tiled_kernel() -> Cuda<Convolution> {
    lesson(launch::tiled).tiles([("filters", launch::SIMT_TILE), ("channels", 16)])
}

/// gemm's tiles of multiply-adds in f32 under a launch rule of theirs.
fn simt_kernel(plan: impl Fn(&Convolution) -> Plan + Send + Sync + 'static) -> Cuda<Convolution> {
    kernel!("conv2d/conv2d_simt.cu", "conv2d_simt_nhwc_128x128", plan)
        .tiles([("filters", 64), ("filters", 128), ("channels", 8)])
        .dtypes([DType::F32])
}

const HALF: [DType; 2] = [DType::F16, DType::BF16];

/// The implicit GEMM on warpgroups under a launch rule of theirs.
fn wgmma_kernel(plan: impl Fn(&Convolution) -> Plan + Send + Sync + 'static) -> Cuda<Convolution> {
    kernel!("conv2d/conv2d_wgmma.cu", "conv2d_wgmma_128x192", plan)
        .workspace(launch::workspace_bytes)
        .needs("sm_90a")
        .tiles([("filters", 64), ("channels", 64)])
        .dtypes(HALF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::case::Case;
    use crate::check::judge::judge_case;
    use crate::check::{Context, Subject};
    use crate::core::candidate::{Cpu, IntoCandidate};
    use crate::core::shape::Shape;
    use crate::ops::agreement::{rejects, simulator};
    use rstest::rstest;
    use std::time::Duration;

    #[test]
    fn a_mirrored_filter_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Convolution, inputs, outputs| {
            let (x, w, y) = (inputs.slice::<f32>(0), inputs.slice::<f32>(1), outputs.slice::<f32>(0));
            let plane = s.tall * s.wide;
            s.each_output(|at, place| {
                y[at] = 0.0;
                s.each_tap(place, |i, j| {
                    let mirrored = match s.layout {
                        Layout::Nchw => j / plane * plane + plane - 1 - j % plane,
                        Layout::Nhwc => j,
                    };
                    y[at] += x[i] * w[mirrored];
                });
            });
        });
        rejects(operator(), wrong);
    }

    #[rstest]
    #[case(5, 3, 1, 0, 1, 3)]
    #[case(5, 3, 1, 1, 1, 5)]
    #[case(6, 3, 2, 1, 1, 3)]
    #[case(5, 3, 1, 0, 2, 1)]
    #[case(4, 3, 1, 0, 2, 0)]
    fn outputs_along_an_axis(
        #[case] image: usize,
        #[case] taps: usize,
        #[case] stride: usize,
        #[case] padding: usize,
        #[case] dilation: usize,
        #[case] outputs: usize,
    ) {
        let s = Convolution { stride, padding, dilation, ..square(1) };
        assert_eq!(s.outputs(image, taps), outputs);
    }

    /// 512 equal products a place, whose roundings all go one way.
    #[rstest]
    fn a_long_sum_does_not_lean(
        #[values("lesson1_naive", "lesson2_tiled", "cuda")] name: &str,
        #[values(1, 2, 3)] seed: u64,
    ) {
        let device = simulator();
        let kernel = match name {
            "lesson1_naive" => lesson(launch::naive),
            "lesson2_tiled" => tiled_kernel(),
            _ => simt_kernel(|s| simt::in_parts(&simt::TILES[0], s, 1)),
        };
        let (operator, candidate) = (operator(), kernel.named(name));
        let shape = Convolution { channels: 512, height: 3, width: 5, filters: 7, layout: Layout::Nhwc, ..square(1) };
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let case = Case::new(shape.to_point(), Distribution::ConstantRows, seed);
        let judged = judge_case(&Context::new(&device, 1, Duration::from_secs(60)), &subject, &case);
        assert!(judged.is_ok(), "{judged:#?}");
    }
}
