//! Convolution as a matrix product: every output's taps as a row or a column of a matrix, filters as the other.
//!
//! A task owns an image. With the channels outside, y (filters x places) = w (filters x taps) · columns; with the
//! channels inside, y (places x filters) = rows · wᵀ, with the filters transposed once for all images.

use rayon::prelude::*;

use super::convert::convert;
use super::gemm::gemm;
use super::lane::Lane;
use super::level::Level;
use super::scratch::with_scratch;

/// The extents of a convolution, of one image.
pub struct ConvolutionExtents {
    /// Channels of the image.
    pub channels: usize,
    /// Rows and columns of the image.
    pub image: (usize, usize),
    /// Channels of the output.
    pub filters: usize,
    /// Rows and columns of a filter.
    pub taps: (usize, usize),
    /// Places from one output to the next.
    pub stride: usize,
    /// Zeros around the image.
    pub padding: usize,
    /// Places from one tap to the next.
    pub dilation: usize,
    /// Rows and columns of the output.
    pub places: (usize, usize),
    /// Whether the channels are the last axis of image, filters and output; else they come before rows and columns.
    pub channels_inside: bool,
}

impl ConvolutionExtents {
    fn of_image(&self) -> usize {
        self.channels * self.image.0 * self.image.1
    }

    fn of_filter(&self) -> usize {
        self.channels * self.taps.0 * self.taps.1
    }

    fn of_place(&self) -> usize {
        self.places.0 * self.places.1
    }

    /// The place of the image under a tap, if there is one.
    fn under(&self, (p, q): (usize, usize), (a, b): (usize, usize)) -> Option<(usize, usize)> {
        let i = (p * self.stride + a * self.dilation).checked_sub(self.padding)?;
        let j = (q * self.stride + b * self.dilation).checked_sub(self.padding)?;
        (i < self.image.0 && j < self.image.1).then_some((i, j))
    }

    fn all_places(&self) -> impl Iterator<Item = (usize, usize)> {
        let across = self.places.1;
        (0..self.of_place()).map(move |at| (at / across, at % across))
    }

    fn all_taps(&self) -> impl Iterator<Item = (usize, usize)> {
        let wide = self.taps.1;
        (0..self.taps.0 * wide).map(move |at| (at / wide, at % wide))
    }
}

/// `y[f] = Σ x[c, under the taps] · w[f, c, taps]`, image by image.
///
/// # Panics
/// If the slices do not have the lengths that the extents and a whole number of images give them.
pub fn conv2d<T: Lane>(s: &ConvolutionExtents, x: &[T], w: &[T], y: &mut [T]) {
    let of_output = s.filters * s.of_place();
    assert_eq!(x.len() % s.of_image(), 0, "x does not hold whole images");
    assert_eq!(w.len(), s.filters * s.of_filter(), "w does not hold the filters");
    assert_eq!(y.len(), x.len() / s.of_image() * of_output, "y does not have the images of x");
    if y.is_empty() {
        return;
    }
    let mut filters = vec![0.0; w.len()];
    convert(Level::best(), w, &mut filters);
    if s.channels_inside {
        filters = transposed(&filters, s.of_filter());
    }
    let images = x.par_chunks_exact(s.of_image()).zip(y.par_chunks_exact_mut(of_output));
    images.for_each(|(x, y)| image(s, x, &filters, y));
}

fn transposed(matrix: &[f32], width: usize) -> Vec<f32> {
    let height = matrix.len() / width;
    (0..matrix.len()).map(|at| matrix[at % height * width + at / height]).collect()
}

fn image<T: Lane>(s: &ConvolutionExtents, x: &[T], filters: &[f32], y: &mut [T]) {
    let unrolled = s.of_filter() * s.of_place();
    with_scratch(x.len() + unrolled + y.len(), |scratch| {
        let (wide, rest) = scratch.split_at_mut(x.len());
        let (matrix, sums) = rest.split_at_mut(unrolled);
        convert(Level::best(), x, wide);
        if s.channels_inside {
            rows(s, wide, matrix);
            gemm(s.of_place(), s.filters, s.of_filter(), matrix, filters, sums);
        } else {
            columns(s, wide, matrix);
            gemm(s.filters, s.of_place(), s.of_filter(), filters, matrix, sums);
        }
        convert(Level::best(), sums, y);
    });
}

/// A row a place: the channels under its taps, tap by tap.
fn rows(s: &ConvolutionExtents, x: &[f32], matrix: &mut [f32]) {
    let places = s.all_places().flat_map(|place| s.all_taps().map(move |tap| (place, tap)));
    for (to, (place, tap)) in matrix.chunks_exact_mut(s.channels).zip(places) {
        match s.under(place, tap) {
            Some((i, j)) => to.copy_from_slice(&x[(i * s.image.1 + j) * s.channels..][..s.channels]),
            None => to.fill(0.0),
        }
    }
}

/// A row a channel and tap: what is under it at every place.
fn columns(s: &ConvolutionExtents, x: &[f32], matrix: &mut [f32]) {
    let planes = x.chunks_exact(s.image.0 * s.image.1).flat_map(|plane| s.all_taps().map(move |tap| (plane, tap)));
    for (row, (plane, tap)) in matrix.chunks_exact_mut(s.of_place()).zip(planes) {
        for (to, place) in row.iter_mut().zip(s.all_places()) {
            *to = s.under(place, tap).map_or(0.0, |(i, j)| plane[i * s.image.1 + j]);
        }
    }
}
