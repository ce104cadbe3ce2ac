//! The shape of a convolution.

use crate::core::shape::Attribute;
use crate::ops::simd::ConvolutionExtents;

/// Where the channels of images and filters are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    /// Outside of the places: x `[n, c, h, w]`, w `[f, c, a, b]`, y `[n, f, p, q]`.
    Nchw,
    /// Inside: x `[n, h, w, c]`, w `[f, a, b, c]`, y `[n, p, q, f]`.
    Nhwc,
}

impl From<Layout> for Attribute {
    fn from(layout: Layout) -> Self {
        Attribute::Word(if layout == Layout::Nchw { "nchw" } else { "nhwc" })
    }
}

crate::shape! {
    /// The shape of a convolution.
    pub struct Convolution {
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
        /// Rows of a filter.
        tall: 1..=16,
        /// Columns of a filter.
        wide: 1..=16,
        /// Places from one output to the next.
        stride: usize = [1, 2, 3],
        /// Zeros around the image.
        padding: usize = [0, 1, 2],
        /// Places from one tap to the next.
        dilation: usize = [1, 2],
        /// The order of the axes.
        layout: Layout = [Layout::Nchw, Layout::Nhwc],
    }
}

impl Convolution {
    /// Outputs along an axis of `image` places under `taps` taps.
    pub(super) fn outputs(&self, image: usize, taps: usize) -> usize {
        let spanned = self.dilation * (taps - 1) + 1;
        (image + 2 * self.padding).checked_sub(spanned).map_or(0, |free| free / self.stride + 1)
    }

    /// Rows and columns of the output.
    pub(super) fn places(&self) -> (usize, usize) {
        let (down, across) = (self.outputs(self.height, self.tall), self.outputs(self.width, self.wide));
        if down * across == 0 { (0, 0) } else { (down, across) }
    }

    /// Products of one output.
    pub(super) fn taps(&self) -> usize {
        self.channels * self.tall * self.wide
    }

    /// The extents of a tensor of `of` things, each with channels and two further axes.
    pub(super) fn dims(&self, of: usize, channels: usize, (down, across): (usize, usize)) -> [usize; 4] {
        match self.layout {
            Layout::Nchw => [of, channels, down, across],
            Layout::Nhwc => [of, down, across, channels],
        }
    }

    /// The flat index of an element of such a tensor.
    pub(super) fn at(
        &self,
        (of, channel, i, j): (usize, usize, usize, usize),
        channels: usize,
        plane: (usize, usize),
    ) -> usize {
        match self.layout {
            Layout::Nchw => ((of * channels + channel) * plane.0 + i) * plane.1 + j,
            Layout::Nhwc => ((of * plane.0 + i) * plane.1 + j) * channels + channel,
        }
    }

    /// The output (n, f, p, q) that has the flat index `y`.
    pub(super) fn place(&self, y: usize) -> (usize, usize, usize, usize) {
        let (down, across) = self.places();
        let filters = self.filters;
        match self.layout {
            Layout::Nchw => {
                (y / (filters * down * across), y / (down * across) % filters, y / across % down, y % across)
            }
            Layout::Nhwc => {
                (y / (filters * down * across), y % filters, y / (filters * across) % down, y / filters % across)
            }
        }
    }

    /// The extents that the CPU tier takes.
    pub(in crate::ops) fn extents(&self) -> ConvolutionExtents {
        ConvolutionExtents {
            channels: self.channels,
            image: (self.height, self.width),
            filters: self.filters,
            taps: (self.tall, self.wide),
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
            places: self.places(),
            channels_inside: self.layout == Layout::Nhwc,
        }
    }

    /// Calls `visit(x, w)` with the indices of every product that makes output (n, f, p, q).
    pub(in crate::ops) fn each_tap(
        &self,
        (n, f, p, q): (usize, usize, usize, usize),
        mut visit: impl FnMut(usize, usize),
    ) {
        let place = |out: usize, tap: usize, limit: usize| {
            (out * self.stride + tap * self.dilation).checked_sub(self.padding).filter(|&at| at < limit)
        };
        for c in 0..self.channels {
            for a in 0..self.tall {
                let Some(i) = place(p, a, self.height) else { continue };
                for b in 0..self.wide {
                    let Some(j) = place(q, b, self.width) else { continue };
                    let x = self.at((n, c, i, j), self.channels, (self.height, self.width));
                    visit(x, self.at((f, c, a, b), self.channels, (self.tall, self.wide)));
                }
            }
        }
    }

    /// Calls `visit(y, place)` for every output, with its flat index.
    pub(super) fn each_output(&self, mut visit: impl FnMut(usize, (usize, usize, usize, usize))) {
        let (down, across) = self.places();
        for n in 0..self.batch {
            for f in 0..self.filters {
                for p in 0..down {
                    for q in 0..across {
                        visit(self.at((n, f, p, q), self.filters, (down, across)), (n, f, p, q));
                    }
                }
            }
        }
    }
}
