//! Max pooling in two dimensions: y[n, c, p, q] = max f(x[n, c, p·stride + a − padding, …]) over the places (a, b) of a
//! window, with an activation f or none before it.
//!
//! Places beside the image hold nothing; a window of nothing gives −∞. NaN is larger than everything.
//! Letters: n images, c channels, (a, b) places of the window, (p, q) places of the output.

mod launch;

use super::conv2d::Layout;
use super::family::FUNCTION_FLOPS;
use super::family::elementwise::cancelled;
use super::float::Float;
use super::gelu::{gelu, gelu_f32};
use super::relu::{relu, relu_f32};
use super::silu::{self, silu};
use super::simd::{self, Pooled, PoolingExtents};
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::operator::Op;
use crate::core::seed::{Rng, permutation};
use crate::core::shape::Attribute;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

/// What is taken of each element before the largest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    None,
    /// ReLU.
    Relu,
    /// GELU with the error function.
    Gelu,
    /// SiLU.
    Silu,
}

impl From<Activation> for Attribute {
    fn from(activation: Activation) -> Self {
        Attribute::Word(match activation {
            Activation::None => "none",
            Activation::Relu => "relu",
            Activation::Gelu => "gelu",
            Activation::Silu => "silu",
        })
    }
}

impl Activation {
    /// f(x)
    pub(super) fn of(self, x: f64) -> f64 {
        match self {
            Activation::None => x,
            Activation::Relu => relu(x),
            Activation::Gelu => gelu(x),
            Activation::Silu => silu(x),
        }
    }

    /// f(x) in f32.
    pub(super) fn of_f32(self, x: f32) -> f32 {
        match self {
            Activation::None => x,
            Activation::Relu => relu_f32(x),
            Activation::Gelu => gelu_f32(x),
            Activation::Silu => x / (1.0 + (-x).exp()),
        }
    }

    /// What a rounding of f is relative to; a comparison rounds nothing.
    pub(super) fn magnitude(self, x: f64, y: f64) -> f64 {
        match self {
            Activation::None | Activation::Relu => 0.0,
            Activation::Gelu => cancelled(x, y),
            Activation::Silu => silu::magnitude(x, y),
        }
    }

    /// Operations of a window: of those that fall before they rise, it is taken of the least and the largest element.
    pub(super) fn flops(self) -> usize {
        match self {
            Activation::None => 0,
            Activation::Relu => 1,
            Activation::Gelu | Activation::Silu => 2 * FUNCTION_FLOPS,
        }
    }

    /// The same for the CPU tier.
    pub(super) fn pooled(self) -> Pooled {
        match self {
            Activation::None => Pooled::Itself,
            Activation::Relu => Pooled::Relu,
            Activation::Gelu => Pooled::Gelu,
            Activation::Silu => Pooled::Silu,
        }
    }
}

crate::shape! {
    /// The shape of a pooling.
    pub struct Pooling {
        /// Images.
        batch: 0..=1 << 17,
        /// Channels of an image.
        channels: 1..=1 << 17,
        /// Rows of an image.
        height: 1..=1 << 17,
        /// Columns of an image.
        width: 1..=1 << 17,
        /// Rows of the window.
        tall: 1..=16,
        /// Columns of the window.
        wide: 1..=16,
        /// Places from one output to the next.
        stride: usize = [1, 2, 3],
        /// Places around the image that hold nothing.
        padding: usize = [0, 1, 2],
        /// The order of the axes.
        layout: Layout = [Layout::Nchw, Layout::Nhwc],
        /// What is taken of each element before the largest is.
        activation: Activation = [Activation::None, Activation::Relu, Activation::Gelu, Activation::Silu],
    }
}

impl Pooling {
    /// Rows and columns of the output.
    fn places(&self) -> (usize, usize) {
        let outputs = |image: usize, window: usize| {
            (image + 2 * self.padding).checked_sub(window).map_or(0, |free| free / self.stride + 1)
        };
        let (down, across) = (outputs(self.height, self.tall), outputs(self.width, self.wide));
        if down * across == 0 { (0, 0) } else { (down, across) }
    }

    fn dims(&self, (down, across): (usize, usize)) -> [usize; 4] {
        match self.layout {
            Layout::Nchw => [self.batch, self.channels, down, across],
            Layout::Nhwc => [self.batch, down, across, self.channels],
        }
    }

    /// Planes of a tensor, and what lies side by side at a place of one: channels are one or the other.
    fn planes(&self) -> (usize, usize) {
        match self.layout {
            Layout::Nchw => (self.batch * self.channels, 1),
            Layout::Nhwc => (self.batch, self.channels),
        }
    }

    /// The extents that the CPU tier takes.
    pub(super) fn extents(&self) -> PoolingExtents {
        PoolingExtents {
            inner: self.planes().1,
            image: (self.height, self.width),
            window: (self.tall, self.wide),
            stride: self.stride,
            padding: self.padding,
            places: self.places(),
        }
    }

    /// Calls `visit(y, x, c)` with the index of every output, in order, and with those of the elements under its window, to
    /// each of which c is to be added: windows side by side differ in nothing else.
    fn each_window(&self, mut visit: impl FnMut(usize, &[usize], usize)) {
        let ((planes, inner), (down, across)) = (self.planes(), self.places());
        let under = |at: usize, window: usize, image: usize| {
            let (from, to) = (at * self.stride, at * self.stride + window);
            from.saturating_sub(self.padding)..to.saturating_sub(self.padding).min(image)
        };
        let (mut window, mut y) = (Vec::new(), 0);
        for (plane, p) in (0..planes).flat_map(|plane| (0..down).map(move |p| (plane, p))) {
            for q in 0..across {
                window.clear();
                for i in under(p, self.tall, self.height) {
                    let row = (plane * self.height + i) * self.width;
                    window.extend(under(q, self.wide, self.width).map(|j| (row + j) * inner));
                }
                (0..inner).for_each(|c| visit(y + c, &window, c));
                y += inner;
            }
        }
    }
}

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", launch::naive())
        .candidate("cuda", launch::best())
        .into()
}

fn operator() -> Op<Pooling> {
    Op::new("max_pool2d")
        .input("x", |s: &Pooling| s.dims((s.height, s.width)))
        .output("y", |s| s.dims(s.places()))
        .reference(|s, inputs, outputs| pool(s, inputs[0], &mut outputs[0], |_, y| y))
        .magnitude(|s, inputs, outputs| pool(s, inputs[0], &mut outputs[0], |x, y| s.activation.magnitude(x, y)))
        .depth(|_| STEPS)
        .cost(cost)
        .separable("batch")
        .exact_relation(
            "permuted images permute the output",
            |s, inputs, rng| permute_images(s, &mut inputs[0], rng),
            |s, _, outputs, rng| permute_images(s, &mut outputs[0], rng),
        )
        .exact_relation(
            "a constant channel stays one and changes no other",
            |s, inputs, _| each_of_last_channel(s, &mut inputs[0], |x| *x = CONSTANT),
            |s, _, outputs, _| each_of_last_channel(s, &mut outputs[0], |y| *y = of_constant(*y)),
        )
        .varied_around(Pooling { batch: 5, channels: 3, height: 7, width: 9, ..windows(2, 2, Layout::Nhwc) })
        .shapes(cases())
        .perf(layers())
}

/// Roundings of an activation.
const STEPS: usize = 5;

/// Two images of a channel and a place each under a window without padding, for the rest of a shape.
const fn windows(side: usize, stride: usize, layout: Layout) -> Pooling {
    Pooling {
        batch: 2,
        channels: 1,
        height: 1,
        width: 1,
        tall: side,
        wide: side,
        stride,
        padding: 0,
        layout,
        activation: Activation::None,
    }
}

/// What is timed: pooling of small classifiers, and of the stem of residual networks.
fn layers() -> impl Iterator<Item = Pooling> {
    let stem = Pooling { batch: 32, channels: 64, height: 112, width: 112, padding: 1, ..windows(3, 2, Layout::Nhwc) };
    let halved = Pooling { batch: 1024, channels: 32, height: 28, width: 28, ..windows(2, 2, Layout::Nhwc) };
    let outside = Pooling { layout: Layout::Nchw, ..stem };
    [
        Pooling { activation: Activation::Relu, ..halved },
        Pooling { activation: Activation::Gelu, ..halved },
        stem,
        outside,
    ]
    .into_iter()
}

/// As (batch, channels, height, width, tall, wide, stride, padding, activation), in both layouts: extents always different,
/// every attribute, windows larger than the image, windows of nothing, no output at all, both sides of a pack of channels.
fn cases() -> impl Iterator<Item = Pooling> {
    use Activation::{Gelu, None, Relu, Silu};
    let all = [
        (0, 3, 5, 6, 2, 2, 2, 0, None),
        (1, 1, 1, 1, 1, 1, 1, 0, Relu),
        (2, 3, 4, 5, 6, 7, 1, 0, None),
        (2, 3, 7, 5, 2, 2, 2, 0, None),
        (3, 2, 8, 9, 3, 3, 2, 1, Relu),
        (1, 4, 9, 11, 3, 2, 1, 1, Gelu),
        (2, 5, 10, 7, 4, 5, 3, 2, Silu),
        (1, 1, 2, 3, 3, 3, 1, 2, None),
        (1, 2, 3, 4, 1, 2, 1, 2, Gelu),
        (2, 8, 5, 3, 2, 1, 3, 2, Relu),
        (2, 16, 14, 12, 2, 2, 2, 0, Relu),
        (3, 24, 9, 7, 2, 2, 2, 0, Gelu),
        (5, 8, 28, 26, 2, 2, 2, 0, Silu),
        (1, 64, 7, 9, 3, 3, 2, 1, None),
        (2, 40, 6, 33, 2, 3, 1, 0, Silu),
        (1, 7, 3, 700, 2, 2, 2, 0, None),
        (1, 128, 33, 31, 2, 2, 2, 0, Relu),
        (2, 3, 9, 32, 2, 2, 2, 0, Silu),
        (1, 3, 6, 24, 3, 3, 1, 1, None),
        (2, 2, 7, 48, 3, 3, 2, 1, Gelu),
        (1, 2, 1, 8, 3, 3, 1, 1, Relu),
    ];
    all.into_iter().flat_map(|(batch, channels, height, width, tall, wide, stride, padding, activation)| {
        [Layout::Nchw, Layout::Nhwc].map(|layout| Pooling {
            batch,
            channels,
            height,
            width,
            tall,
            wide,
            stride,
            padding,
            layout,
            activation,
        })
    })
}

/// x and y once; a comparison a place of each window, and its activation.
fn cost(s: &Pooling, dtype: DType) -> Cost {
    let elements = |dims: [usize; 4]| dims.into_iter().product::<usize>();
    let (read, written) = (elements(s.dims((s.height, s.width))), elements(s.dims(s.places())));
    Cost { bytes: (read + written) * dtype.size(), flops: written * (s.tall * s.wide + s.activation.flops()) }
}

/// What `result` makes of the largest of each window and of the element that it is of.
fn pool(s: &Pooling, x: &[f64], y: &mut [f64], result: impl Fn(f64, f64) -> f64) {
    s.each_window(|at, window, c| {
        let mut largest = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        for &i in window {
            let value = s.activation.of(x[i + c]);
            if value > largest.1 || value.is_nan() {
                largest = (x[i + c], value);
            }
            if value.is_nan() {
                break;
            }
        }
        // A window of nothing, or of nothing but −∞, is no rounding's.
        y[at] = if largest.1 == f64::NEG_INFINITY { largest.1 } else { result(largest.0, largest.1) };
    });
}

fn permute_images(s: &Pooling, values: &mut [f64], rng: &mut Rng) {
    let order = permutation(rng, s.batch);
    if values.is_empty() {
        return;
    }
    let (before, of_image) = (values.to_vec(), values.len() / s.batch);
    for (to, from) in values.chunks_exact_mut(of_image).zip(order) {
        to.copy_from_slice(&before[from * of_image..][..of_image]);
    }
}

/// What a channel is filled with: past every bend of an activation, and exact in every dtype.
const CONSTANT: f64 = 64.0;

/// The largest of a window of it; one of nothing stays what it was.
fn of_constant(y: f64) -> f64 {
    if y == f64::NEG_INFINITY { y } else { CONSTANT }
}

/// Calls `visit` with every element of the last channel.
fn each_of_last_channel(s: &Pooling, values: &mut [f64], mut visit: impl FnMut(&mut f64)) {
    let (planes, inner) = s.planes();
    if values.is_empty() {
        return;
    }
    let of_plane = values.len() / planes;
    for (plane, values) in values.chunks_exact_mut(of_plane).enumerate() {
        for (at, value) in values.iter_mut().enumerate() {
            let channel = if inner == 1 { plane % s.channels } else { at % inner };
            if channel == s.channels - 1 {
                visit(value);
            }
        }
    }
}

/// The definition in f32.
fn naive<T: Float>(s: &Pooling, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, y) = (inputs.slice::<T>(0), outputs.slice::<T>(0));
    s.each_window(|at, window, c| {
        let values = window.iter().map(|&i| s.activation.of_f32(x[i + c].to_f32()));
        let largest = values.fold(
            f32::NEG_INFINITY,
            |largest, value| {
                if value > largest || value.is_nan() { value } else { largest }
            },
        );
        y[at] = T::from_f32(largest);
    });
}

fn tiled<T: Float>(s: &Pooling, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    simd::max_pool2d(&s.extents(), s.activation.pooled(), inputs.slice::<T>(0), outputs.slice::<T>(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    /// The largest of each window by `larger`.
    fn by(larger: fn(f32, f32) -> f32) -> Cpu<Pooling> {
        Cpu::new::<f32>(move |s: &Pooling, inputs, outputs| {
            let (x, y) = (inputs.slice::<f32>(0), outputs.slice::<f32>(0));
            s.each_window(|at, window, c| {
                let values = window.iter().map(|&i| s.activation.of_f32(x[i + c]));
                y[at] = values.fold(f32::NEG_INFINITY, larger);
            });
        })
    }

    #[test]
    fn a_maximum_that_loses_nan_is_seen() {
        rejects(operator(), by(f32::max));
    }

    #[test]
    fn padding_with_zeros_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Pooling, inputs, outputs| {
            naive::<f32>(s, inputs, outputs);
            let y = outputs.slice::<f32>(0);
            s.each_window(|at, window, _| {
                if window.len() < s.tall * s.wide {
                    y[at] = y[at].max(0.0);
                }
            });
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn an_activation_of_the_largest_alone_is_seen() {
        // SiLU falls before it rises.
        let wrong = Cpu::new::<f32>(|s: &Pooling, inputs, outputs| {
            let (x, y) = (inputs.slice::<f32>(0), outputs.slice::<f32>(0));
            s.each_window(|at, window, c| {
                let is_larger = |a: f32, b: f32| if b > a || b.is_nan() { b } else { a };
                let largest = window.iter().map(|&i| x[i + c]).fold(f32::NEG_INFINITY, is_larger);
                y[at] = if window.is_empty() { largest } else { s.activation.of_f32(largest) };
            });
        });
        rejects(operator(), wrong);
    }
}
