//! Tensor maps: how the bulk tensor copies of a kernel for compute capability 9.0 and up see a buffer of the case.

use super::dtype::DType;

/// How a box is laid out in shared memory: the bits of an address above the row are mixed into its 16-byte units, so
/// that neighbours along a column stand in different banks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Swizzle {
    /// As it is.
    #[default]
    None,
    /// Rows of up to 32 bytes.
    Bytes32,
    /// Rows of up to 64 bytes.
    Bytes64,
    /// Rows of up to 128 bytes.
    Bytes128,
}

/// What a copy brings for elements outside the tensor.
/// ```
/// use kernelgate::prelude::*;
/// assert_eq!(Fill::default(), Fill::Zeros);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// Zeros.
    #[default]
    Zeros,
    /// NaN, for float types.
    Nan,
}

/// The im2col mode of a copy: it goes over the pixels of a tensor of images, `[images, rows, columns, channels]`: columns
/// first, then rows, then images, inside a bounding box that each image has. Pairs are (rows, columns).
/// ```
/// use kernelgate::prelude::*;
///
/// // The pixels under a 3 × 3 filter with a border of one.
/// let border = Im2col { lower_corner: [-1, -1], upper_corner: [-1, -1], stride: [1, 1] };
/// assert_eq!(border.stride, [1, 1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Im2col {
    /// The first pixel, counted from the first row and column: negative before the image.
    pub lower_corner: [i32; 2],
    /// No pixel lies past this one, counted from the last row and column.
    pub upper_corner: [i32; 2],
    /// Rows and columns from a pixel to the next.
    pub stride: [usize; 2],
}

/// A tiled view of one buffer, passed to a kernel as a `__grid_constant__ const CUtensorMap` of 128 bytes. Extents go
/// from the outermost to the innermost, as those of the operator's tensors do.
///
/// The device encodes it when the address of the buffer is known. A map that the driver would refuse, or that reaches
/// past its buffer, fails the candidate with a message that names the map.
///
/// ```
/// use kernelgate::prelude::*;
/// shape! { struct Matrix { rows: 1..=4096, cols: 8..=4096 } }
/// let tiles = |s: &Matrix| {
///     let x = TensorMap::of("x", [s.rows, s.cols]).tile([64, 64]).swizzle(Swizzle::Bytes128);
///     let y = TensorMap::of("y", [s.rows, s.cols]).tile([64, 64]).swizzle(Swizzle::Bytes128);
///     // The kernel takes (const CUtensorMap x, const CUtensorMap y, int rows, int cols) and no pointers.
///     Launch::blocks(s.rows.div_ceil(64) * s.cols.div_ceil(64), 128)
///         .without_pointers()
///         .map(x)
///         .map(y)
///         .scalar(s.rows as i32)
///         .scalar(s.cols as i32)
/// };
/// let source = "/* a kernel for sm_90a */";
/// let hopper = Cuda::source(source, "transform", tiles).needs("sm_90a").dtypes([F16, BF16]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TensorMap {
    /// The input, the output, or `workspace`.
    pub buffer: String,
    /// Bytes from its start to the first element.
    pub offset_bytes: usize,
    /// The type of the elements, when it is not that of the buffer.
    pub dtype: Option<DType>,
    /// Elements along each dimension.
    pub extents: Vec<usize>,
    /// Elements from a neighbour to the next along each dimension but the innermost, when they are not packed.
    pub strides: Option<Vec<usize>>,
    /// Elements of the box that one copy moves.
    pub tile: Vec<usize>,
    /// Layout of the box in shared memory.
    pub swizzle: Swizzle,
    /// What lies outside.
    pub fill: Fill,
    /// The im2col mode, when a copy does not bring a box of neighbours.
    pub im2col: Option<Im2col>,
}

impl TensorMap {
    /// The whole of a packed tensor; the box is one element until [`TensorMap::tile`] says otherwise.
    pub fn of(buffer: impl Into<String>, extents: impl Into<Vec<usize>>) -> Self {
        let extents = extents.into();
        TensorMap {
            buffer: buffer.into(),
            offset_bytes: 0,
            dtype: None,
            tile: vec![1; extents.len()],
            extents,
            strides: None,
            swizzle: Swizzle::None,
            fill: Fill::Zeros,
            im2col: None,
        }
    }

    /// A copy brings `pixels` pixels, `channels` of each, instead of a box: what lies under one tap of a convolution. The
    /// tensor has four dimensions; the copy's coordinates name the first channel and pixel, its offsets lead from the
    /// pixels to the tap.
    pub fn im2col(mut self, im2col: Im2col, pixels: usize, channels: usize) -> Self {
        self.im2col = Some(im2col);
        self.tile = vec![pixels, 1, 1, channels];
        self
    }

    /// The box that one copy moves.
    pub fn tile(mut self, extents: impl Into<Vec<usize>>) -> Self {
        self.tile = extents.into();
        self
    }

    /// Elements from a neighbour to the next, for each dimension but the innermost.
    pub fn strides(mut self, elements: impl Into<Vec<usize>>) -> Self {
        self.strides = Some(elements.into());
        self
    }

    /// The first element stands `bytes` into the buffer.
    pub fn offset(mut self, bytes: usize) -> Self {
        self.offset_bytes = bytes;
        self
    }

    /// The elements have another type than the buffer's: the workspace is taken for the case's dtype.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// The layout of the box in shared memory.
    pub fn swizzle(mut self, swizzle: Swizzle) -> Self {
        self.swizzle = swizzle;
        self
    }

    /// What a copy brings for elements outside.
    pub fn fill(mut self, fill: Fill) -> Self {
        self.fill = fill;
        self
    }
}
