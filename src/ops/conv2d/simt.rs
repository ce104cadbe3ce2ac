//! The launch rule of the f32 kernels: an implicit GEMM in tiles of multiply-adds, with k split where tiles are few.

use super::launch::{all_places, scalars};
use super::{Convolution, Layout};
use crate::core::gpu::multiprocessors;
use crate::core::launch::{Launch, Plan};
use crate::core::work::{MatrixTile, Work};
use crate::ops::gemm::simt::{PADDING_K_MAJOR, SLICE, STAGES, THREADS, stretch};

/// Places and filters are the rows and columns of the product where channels are inside, its columns and rows where they are outside.
#[derive(Debug, PartialEq)]
pub(super) struct Tile {
    name: &'static str,
    /// Rows and columns of the product.
    extents: [usize; 2],
    /// Blocks a multiprocessor.
    resident: usize,
    /// A slice of a block on an H200, in µs: its share of a multiprocessor that has enough blocks, and from its beginning to its end.
    busy_us: f64,
    slice_us: f64,
}

const fn tile(name: &'static str, extents: [usize; 2], resident: usize, [busy_us, slice_us]: [f64; 2]) -> Tile {
    Tile { name, extents, resident, busy_us, slice_us }
}

pub(super) const TILES: [Tile; 4] = [
    tile("128x128", [128, 128], 2, [0.71, 0.95]),
    tile("128x64", [128, 64], 3, [0.41, 0.6]),
    tile("64x128", [64, 128], 3, [0.4, 0.6]),
    tile("64x64", [64, 64], 5, [0.28, 0.4]),
];

/// Most blocks that share a tile.
const MOST_PARTS: usize = 16;
/// A part is not worth its second pass below this k.
const LEAST_K: usize = 64;
/// What a block takes besides its slices, in slices.
const OTHER_SLICES: usize = 3;
/// The second pass: what it takes to start, and bytes that it reads or writes in a µs.
const ADDING_US: f64 = 3.0;
const ADDED_A_US: f64 = 3.5e6;

const F32_BYTES: usize = 4;

fn outputs(s: &Convolution) -> usize {
    all_places(s) * s.filters
}

/// Slices of a part of k.
fn slices(s: &Convolution, parts: usize) -> usize {
    s.taps().div_ceil(SLICE).div_ceil(parts)
}

impl Tile {
    fn tiles(&self, s: &Convolution) -> usize {
        let [rows, cols] = match s.layout {
            Layout::Nhwc => [all_places(s), s.filters],
            Layout::Nchw => [s.filters, all_places(s)],
        };
        rows.div_ceil(self.extents[0]) * cols.div_ceil(self.extents[1])
    }

    /// About how long the product takes where so many blocks share a tile, in µs.
    fn estimate_us(&self, s: &Convolution, parts: usize) -> f64 {
        let of_each = (self.tiles(s) * parts).div_ceil(multiprocessors());
        // The last blocks of a multiprocessor may be too few to fill it.
        let slice_us = |blocks: usize| (blocks as f64 * self.busy_us).max(self.slice_us);
        let (full, rest) = (of_each / self.resident, of_each % self.resident);
        let all_us = full as f64 * slice_us(self.resident) + if rest > 0 { slice_us(rest) } else { 0.0 };
        let added = outputs(s) * (1 + parts) * F32_BYTES;
        let adding_us = if parts > 1 { ADDING_US + added as f64 / ADDED_A_US } else { 0.0 };
        (slices(s, parts) + OTHER_SLICES) as f64 * all_us + adding_us
    }

    /// Four stages of a slice of both operands, and sums of the tile where a block sums more than a stretch.
    fn shared_bytes(&self, s: &Convolution, parts: usize) -> usize {
        let [rows, cols] = self.extents;
        let cols_pitch = if s.layout == Layout::Nhwc { cols + PADDING_K_MAJOR } else { cols };
        let slices = slices(s, parts);
        let totals = if slices > stretch(s.taps(), slices) { rows * cols } else { 0 };
        (STAGES * SLICE * (rows + PADDING_K_MAJOR + cols_pitch) + totals) * F32_BYTES
    }

    fn launch(&self, s: &Convolution, parts: usize) -> Launch {
        let layout = if s.layout == Layout::Nhwc { "nhwc" } else { "nchw" };
        let depth = slices(s, parts) * SLICE;
        let tile = MatrixTile { extents: self.extents, shared_by: [1, 1], depth, element_bytes: F32_BYTES };
        let blocks = self.tiles(s) * parts;
        let work = Work::product(blocks, self.resident, &tile);
        let work = if parts > 1 { work.with_partial_sums(self.extents) } else { work };
        let launch = Launch::blocks(blocks, THREADS)
            .entry(format!("conv2d_simt_{layout}_{}", self.name))
            .shared(self.shared_bytes(s, parts))
            .shares(work)
            .without_pointers();
        let launch = launch.pointer("x").pointer("w").pointer(if parts > 1 { "workspace" } else { "y" });
        let numbers = scalars(s).into_iter().chain([parts, stretch(s.taps(), slices(s, parts))]);
        numbers.fold(launch, |launch, number| launch.scalar(number as i32))
    }
}

/// The tile that is estimated to be the fastest, and how many blocks share one.
fn choose(s: &Convolution) -> (&'static Tile, usize) {
    let most = (s.taps() / LEAST_K).clamp(1, MOST_PARTS);
    let ways = TILES.iter().flat_map(|tile| (1..=most).map(move |parts| (tile.estimate_us(s, parts), tile, parts)));
    let fastest = ways.min_by(|a, b| a.0.total_cmp(&b.0));
    fastest.map_or((&TILES[0], 1), |(_, tile, parts)| (tile, parts))
}

/// Bytes of the sums of the parts.
pub fn workspace_bytes(s: &Convolution) -> usize {
    sums_bytes(s, choose(s).1)
}

pub(super) fn sums_bytes(s: &Convolution, parts: usize) -> usize {
    if parts > 1 { parts * outputs(s) * F32_BYTES } else { 0 }
}

/// One launch, or one and the sum of its parts.
pub fn plan(s: &Convolution) -> Plan {
    let (tile, parts) = choose(s);
    in_parts(tile, s, parts)
}

pub(super) fn in_parts(tile: &Tile, s: &Convolution, parts: usize) -> Plan {
    if outputs(s) == 0 {
        return Plan(Vec::new());
    }
    let add = Launch::blocks(outputs(s).div_ceil(256), 256).entry("conv2d_simt_reduce").without_pointers();
    let add = add.pointer("workspace").pointer("y").scalar(outputs(s) as i64).scalar(parts as i32);
    let multiply = tile.launch(s, parts);
    Plan(if parts > 1 { vec![multiply, add] } else { vec![multiply] })
}

#[cfg(test)]
mod tests {
    use super::super::{beyond_a_tile, operator, simt_kernel, square};
    use super::*;
    use crate::core::candidate::IntoCandidate;
    use crate::core::shape::Shape;
    use crate::ops::agreement::judged_in_simulator;
    use rstest::rstest;

    /// The gate's shapes are small: most tiles are chosen for none of them. The last of these has the most taps.
    #[rstest]
    fn every_tile_is_right_in_the_simulator(
        #[values(0, 1, 2, 3)] which: usize,
        #[values(0, 1, 2, 3, 4)] number: usize,
        #[values(1, 2)] parts: usize,
        #[values(Layout::Nchw, Layout::Nhwc)] layout: Layout,
    ) {
        let most_taps = Convolution { channels: 2, height: 17, width: 19, filters: 5, padding: 1, ..square(16) };
        let shape = match beyond_a_tile(layout).get(number) {
            Some(shape) => shape.clone(),
            None => Convolution { batch: 2, layout, ..most_taps },
        };
        let candidate =
            simt_kernel(move |s| in_parts(&TILES[which], s, parts)).workspace(move |s| sums_bytes(s, parts));
        let judged = judged_in_simulator(&operator(), &candidate.named("tile"), shape.to_point());
        assert!(judged.is_ok(), "{} {shape:?} in {parts} parts: {judged:#?}", TILES[which].name);
    }
}
