//! Launch rules of the kernels on mma.sync.

use super::packed::Packed;
use super::{Convolution, Layout};
use crate::core::launch::{Launch, Plan};
use crate::ops::family::aligned::MULTIPROCESSORS;

/// Places of a tile, and filters of the larger one.
const SIDE: usize = 128;
/// Bytes that four stages take a place or a filter.
const STAGE_BYTES: usize = 4 * 32 * 2;

/// Bytes of the copies of images and filters.
pub fn workspace_bytes(s: &Convolution) -> usize {
    Packed::for_walks(s).bytes()
}

/// Filters of a tile: 128 take as long as one and two thirds of 64, on an H200, and leave more multiprocessors idle
/// where there are few.
fn tile_filters(places: usize, filters: usize) -> usize {
    let rounds = |of: usize| (places.div_ceil(SIDE) * filters.div_ceil(of)).div_ceil(MULTIPROCESSORS);
    if filters <= 64 || 6 * rounds(64) + 1 < 10 * rounds(SIDE) { 64 } else { SIDE }
}

/// The launches of a convolution.
pub fn plan(s: &Convolution) -> Plan {
    let (down, across) = s.places();
    let places = s.batch * down * across;
    if places == 0 {
        return Plan(Vec::new());
    }
    let packed = Packed::for_walks(s);
    let filters = tile_filters(places, s.filters);
    let entry = match (s.layout, filters) {
        (Layout::Nhwc, SIDE) => "conv2d_v3_inside",
        (Layout::Nhwc, _) => "conv2d_v3_inside_64",
        (Layout::Nchw, SIDE) => "conv2d_v3_outside",
        (Layout::Nchw, _) => "conv2d_v3_outside_64",
    };
    let (x, w, offset) = packed.buffers();
    let product = Launch::blocks(places.div_ceil(SIDE) * s.filters.div_ceil(filters), 256)
        .entry(entry)
        .shared((SIDE + filters) * STAGE_BYTES)
        .without_pointers()
        .pointer("y")
        .pointer(x)
        .pointer(w)
        .scalar(offset as i64);
    let extents = [places, s.filters, down, across, s.height, s.width, packed.pitch, s.tall, s.wide];
    let numbers = extents.into_iter().chain([s.stride, s.padding, s.dilation]);
    let product = numbers.fold(product, |launch, number| launch.scalar(number as i32));
    Plan(packed.launch().into_iter().chain([product]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(32 * 28 * 28, 128, 64)]
    #[case(32 * 14 * 14, 256, 128)]
    #[case(32 * 7 * 7, 512, 64)]
    #[case(128 * 14 * 14, 256, 128)]
    fn the_tile_follows_the_shape(#[case] places: usize, #[case] filters: usize, #[case] tile: usize) {
        assert_eq!(tile_filters(places, filters), tile);
    }
}
