//! Layers over images, their channels inside: a row of a buffer is an image.

use super::builder::{Builder, Rows, call};
use super::description::{Extents, View};
use crate::ops::conv2d::{Convolution, Layout};
use crate::ops::conv2d_pool::PooledConvolution;
use crate::ops::max_pool2d::{Activation, Pooling};

/// Taps of a filter along each axis, and places around an image that leave as many outputs as it has places.
const TAPS: usize = 3;
const PADDING: usize = 1;
/// Places of a window along each axis, and from one to the next.
const WINDOW: usize = 2;

/// Rows that are images of `side` by `side` places.
#[derive(Clone, Copy)]
pub struct Images {
    /// An image a row.
    pub rows: Rows,
    side: usize,
    channels: usize,
}

impl Builder {
    /// The images that a run is given.
    pub fn images(&mut self, side: usize, channels: usize) -> Images {
        Images { rows: self.given("images", side * side * channels), side, channels }
    }

    /// Filters of 3 by 3 taps without a bias, as `[filters, 3, 3, channels]`.
    pub fn convolution(&mut self, x: Images, name: &str, filters: usize) -> Images {
        let Images { rows, side, channels } = x;
        let weight = self.weight(&format!("{name}.weight"), &[filters, TAPS, TAPS, channels]);
        let y = self.activation("convolved", side * side * filters, View::New);
        let shape = move |e: &Extents| Convolution {
            batch: e.tokens(),
            channels,
            height: side,
            width: side,
            filters,
            tall: TAPS,
            wide: TAPS,
            stride: 1,
            padding: PADDING,
            dilation: 1,
            layout: Layout::Nhwc,
        };
        self.step(call("conv2d", shape, [rows.at, weight]), y.at);
        Images { rows: y, channels: filters, ..x }
    }

    /// The same with the activation and the pooling behind it in one step.
    pub fn pooled_convolution(&mut self, x: Images, name: &str, filters: usize, activation: Activation) -> Images {
        let Images { rows, side, channels } = x;
        let halved = side / WINDOW;
        let weight = self.weight(&format!("{name}.weight"), &[filters, TAPS, TAPS, channels]);
        let y = self.activation("pooled", halved * halved * filters, View::New);
        let shape = move |e: &Extents| PooledConvolution {
            batch: e.tokens(),
            channels,
            height: side,
            width: side,
            filters,
            taps: TAPS,
            activation,
        };
        self.step(call("conv2d_pool", shape, [rows.at, weight]), y.at);
        Images { rows: y, side: halved, channels: filters }
    }

    /// The activation of every element.
    pub fn activate(&mut self, x: Images, activation: Activation) -> Images {
        let operator = match activation {
            Activation::None => return x,
            Activation::Relu => "relu",
            Activation::Gelu => "gelu",
            Activation::Silu => "silu",
        };
        Images { rows: self.elementwise(operator, &[x.rows]), ..x }
    }

    /// The largest of each 2 by 2 places.
    pub fn pool(&mut self, x: Images) -> Images {
        let Images { rows, side, channels } = x;
        let halved = side / WINDOW;
        let y = self.activation("pooled", halved * halved * channels, View::New);
        let shape = move |e: &Extents| Pooling {
            batch: e.tokens(),
            channels,
            height: side,
            width: side,
            tall: WINDOW,
            wide: WINDOW,
            stride: WINDOW,
            padding: 0,
            layout: Layout::Nhwc,
            activation: Activation::None,
        };
        self.step(call("max_pool2d", shape, [rows.at]), y.at);
        Images { rows: y, side: halved, channels }
    }
}
