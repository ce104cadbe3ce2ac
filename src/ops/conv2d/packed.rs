//! Images and filters as tensor maps take them: channels inside, a multiple of 16 bytes from column to column; or, where that is
//! worth copies, of a line.

use super::{Convolution, Layout};
use crate::core::gpu::multiprocessors;
use crate::core::launch::Launch;
use crate::core::tensor_map::{Im2col, TensorMap};
use crate::ops::family::aligned::{ELEMENT_BYTES, copy_us, is_aligned};

/// Places and channels that a block transposes.
const TRANSPOSED: usize = 64;
/// Most channels for which the columns of a filter become one run of channels.
const FEW_CHANNELS: usize = 24;
/// Elements of a line of the caches.
const LINE: usize = 64;

/// How the images reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Images {
    /// By an im2col map under each tap.
    Im2col,
    /// By an im2col map under each row of taps: the columns of a filter lie behind each other, as further channels, and a
    /// column of the tensor is a place.
    Folded,
    /// One tap without stride and border: as a matrix of places by channels.
    Plain,
    /// The same with channels outside, as they are.
    Direct,
}

/// Where an operand lies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Home {
    /// In its own buffer.
    Own,
    /// So many elements into the workspace.
    Workspace(usize),
}

impl Home {
    fn map(self, name: &str, extents: impl Into<Vec<usize>>) -> TensorMap {
        match self {
            Home::Own => TensorMap::of(name, extents),
            Home::Workspace(offset) => TensorMap::of("workspace", extents).offset(offset * ELEMENT_BYTES),
        }
    }

    fn is_copy(self) -> bool {
        self != Home::Own
    }
}

/// So many channels, and as many more that columns of them begin at lines: a power of two or whole ones.
fn to_lines(channels: usize) -> usize {
    channels.next_multiple_of(channels.next_power_of_two().clamp(8, LINE))
}

/// The operands of a convolution as the kernels take them.
#[derive(Clone, Copy)]
pub struct Packed<'s> {
    shape: &'s Convolution,
    /// How the images reach the kernel.
    pub images: Images,
    x: Home,
    w: Home,
    /// Elements from column to column of copies.
    pitch: usize,
    /// Elements of a row of the images, and of the filters.
    x_row: usize,
    w_row: usize,
    /// Elements of the workspace.
    elements: usize,
}

impl<'s> Packed<'s> {
    /// For kernels that take tensor maps: with what these take as it is, and with copies of that too, whose columns begin at lines.
    pub fn ways(shape: &'s Convolution) -> [Self; 2] {
        let s = shape;
        let outside = s.layout == Layout::Nchw;
        let one_tap = s.tall * s.wide == 1 && s.stride == 1 && s.padding == 0;
        let images = if one_tap && outside && is_aligned(s.height * s.width) {
            Images::Direct
        } else if one_tap {
            Images::Plain
        } else if s.wide > 1 && s.dilation == 1 && s.channels <= FEW_CHANNELS {
            Images::Folded
        } else {
            Images::Im2col
        };
        let as_it_is = Packed::reached(shape, images, false);
        [as_it_is, Packed::reached(shape, images, as_it_is.straddles())]
    }

    /// Decides what is copied, and to where; `all`: images and filters whether they need it or not.
    fn reached(shape: &'s Convolution, images: Images, all: bool) -> Self {
        let s = shape;
        let outside = s.layout == Layout::Nchw;
        let folded = images == Images::Folded;
        // Folded, places are `stride` columns apart: that has to be a multiple of 16 bytes, a column alone has not.
        let half = folded && s.channels <= 4 && is_aligned(4 * s.stride);
        let pitch = match images {
            _ if half => 4,
            // Every tap reads them again.
            Images::Im2col => to_lines(s.channels),
            _ => s.channels.next_multiple_of(8),
        };
        let columns = s.width + if folded { 2 * s.padding } else { 0 };
        let mut elements = 0;
        let mut home = |is_copied: bool, rows: usize| {
            let offset = elements;
            elements += if is_copied { rows } else { 0 };
            if is_copied { Home::Workspace(offset) } else { Home::Own }
        };
        let unaligned = all || folded || !is_aligned(s.channels);
        let row = |is_copied: bool, columns: usize| {
            (columns * if is_copied { pitch } else { s.channels }).next_multiple_of(8)
        };
        let copies_x = images != Images::Direct && (unaligned || outside);
        let x_row = row(copies_x, columns);
        let x = home(copies_x, s.batch * s.height * x_row);
        let copies_w = unaligned || (outside && s.tall * s.wide > 1);
        let w_row = row(copies_w, s.wide);
        let w = home(copies_w, s.filters * s.tall * w_row);
        Packed { shape, images, x, w, pitch, x_row, w_row, elements }
    }

    /// Elements from column to column of an operand.
    fn pitch_of(&self, operand: Home) -> usize {
        if operand.is_copy() { self.pitch } else { self.shape.channels }
    }

    /// Whether an im2col copy brings channels of a place from two lines.
    pub fn straddles(&self) -> bool {
        self.images == Images::Im2col && self.pitch_of(self.x) != to_lines(self.pitch_of(self.x))
    }

    /// About how long the copies take, µs.
    pub fn copy_us(&self) -> f64 {
        let s = self.shape;
        let read = [(self.x, s.batch * s.height * s.width), (self.w, s.filters * s.tall * s.wide)];
        let read: usize = read.iter().filter(|(home, _)| home.is_copy()).map(|(_, places)| places * s.channels).sum();
        if self.elements == 0 { 0.0 } else { copy_us((read + self.elements) * ELEMENT_BYTES) }
    }

    /// Bytes of the copies.
    pub fn bytes(&self) -> usize {
        self.elements * ELEMENT_BYTES
    }

    /// Channels and columns of taps that the kernel sees. Those that fill up a copy are channels too: where all multiprocessors
    /// ask for what lies outside of a tensor, copies take up to twice as long as others.
    pub fn channels(&self) -> (usize, usize) {
        let s = self.shape;
        match self.images {
            Images::Folded => (s.wide * self.pitch, 1),
            Images::Im2col => (self.pitch_of(self.x), s.wide),
            Images::Plain | Images::Direct => (s.channels, s.wide),
        }
    }

    /// Rows and columns from a place to the next, and those of the border before the first place.
    pub fn steps(&self) -> ([usize; 2], [usize; 2]) {
        let s = self.shape;
        if self.images == Images::Folded { ([s.stride, 1], [s.padding, 0]) } else { ([s.stride; 2], [s.padding; 2]) }
    }

    /// The filters: filters, taps, channels.
    pub fn filters(&self) -> TensorMap {
        let (_, wide) = self.channels();
        let pitch = self.w_row / wide;
        let taps = self.shape.tall * wide;
        self.w.map("w", [self.shape.filters, taps, pitch]).strides([taps * pitch, pitch])
    }

    /// The images, of which a copy brings `channels` channels for `places` places.
    pub fn images(&self, places: usize, channels: usize) -> TensorMap {
        let s = self.shape;
        let (all_channels, _) = self.channels();
        let plane = s.height * s.width;
        let (step, border) = self.steps();
        match self.images {
            Images::Direct => self.x.map("x", [s.batch, s.channels, plane]).tile([1, 64, 64]),
            Images::Plain => {
                let map = self.x.map("x", [s.batch * plane, s.channels]).strides([self.pitch_of(self.x)]);
                map.tile([places, channels])
            }
            Images::Im2col | Images::Folded => {
                let (_, across) = s.places();
                let folded = self.images == Images::Folded;
                let columns = if folded { across } else { s.width };
                let column = self.pitch_of(self.x) * if folded { s.stride } else { 1 };
                let map = self.x.map("x", [s.batch, s.height, columns, all_channels]);
                let spanned = |taps: usize| (s.dilation * (taps - 1)) as i32;
                let border = border.map(|zeros| zeros as i32);
                let upper_corner = [border[0] - spanned(s.tall), if folded { 0 } else { border[1] - spanned(s.wide) }];
                let im2col = Im2col { lower_corner: border.map(|zeros| -zeros), upper_corner, stride: step };
                map.strides([s.height * self.x_row, self.x_row, column]).im2col(im2col, places, channels)
            }
        }
    }

    /// The launch that makes the copies, if any is needed.
    pub fn launch(&self) -> Option<Launch> {
        let s = self.shape;
        let plane = s.height * s.width;
        let inside = s.layout == Layout::Nhwc;
        let transposes = self.x.is_copy() && !inside && self.images != Images::Folded;
        let transposing =
            if transposes { s.batch * plane.div_ceil(TRANSPOSED) * self.pitch.div_ceil(TRANSPOSED) } else { 0 };
        let x_units = if self.x.is_copy() && !transposes { s.batch * s.height * self.x_row / 8 } else { 0 };
        let w_units = if self.w.is_copy() { s.filters * s.tall * self.w_row / 8 } else { 0 };
        let others = (x_units + w_units).div_ceil(256).min(8 * multiprocessors());
        let offset = if let Home::Workspace(offset) = self.w { offset } else { 0 };
        let left = if self.images == Images::Folded { s.padding } else { 0 };
        let launch = Launch::blocks(transposing + others, 256).entry("conv2d_pack").without_pointers();
        let launch = launch.pointer("x").pointer("w").pointer("workspace").scalar(offset as i64);
        let extents = [s.channels, s.height, s.width, s.tall, s.wide, self.pitch, left, self.x_row, self.w_row];
        let work = [transposing, x_units, w_units, usize::from(inside)];
        let launch = extents.into_iter().chain(work).fold(launch, |launch, number| launch.scalar(number as i32));
        (self.elements > 0).then_some(launch)
    }
}
