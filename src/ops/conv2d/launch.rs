//! Launch rules: the simple kernels, and for the implicit GEMM on warpgroups its tensor maps and tile.

use super::packed::{Images, Packed};
use super::{Convolution, Layout};
use crate::core::gpu::{multiprocessors, scaled};
use crate::core::launch::{Launch, Plan};
use crate::core::tensor_map::{Swizzle, TensorMap};
use crate::core::work::{MatrixTile, Work};
use crate::ops::family::aligned::{ELEMENT_BYTES, is_aligned};

/// Elements of k that the kernels take at a time.
const SLICE: usize = 64;
/// Rows and columns of the outputs that are stored at once.
const BOX: usize = 64;

/// What a tile is made for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// 64 channels a copy.
    Wide,
    /// 32 channels a copy.
    Narrow,
    /// Images with channels outside as they are.
    Direct,
}

/// A tile of the product, as its entry has it.
#[derive(Debug, PartialEq)]
struct Tile {
    entry: &'static str,
    kind: Kind,
    filters: usize,
    places: usize,
    /// Stages.
    stages: usize,
    /// Blocks a multiprocessor.
    blocks: usize,
    /// Blocks that share the k of a tile.
    split: usize,
    /// Times in µs that fit what 53 cases took on an H200: a slice, where as many blocks run as can and where one runs
    /// alone; what else a tile takes; what else a launch takes.
    slice_us: f64,
    alone_us: f64,
    tile_us: f64,
    base_us: f64,
}

const fn tile(
    entry: &'static str,
    kind: Kind,
    [filters, places]: [usize; 2],
    [stages, blocks, split]: [usize; 3],
    [slice_us, alone_us, tile_us, base_us]: [f64; 4],
) -> Tile {
    Tile { entry, kind, filters, places, stages, blocks, split, slice_us, alone_us, tile_us, base_us }
}

use Kind::{Direct, Narrow, Wide};

const TILES: [Tile; 10] = [
    tile("conv2d_wgmma_128x192", Wide, [128, 192], [4, 1, 1], [0.44, 0.44, 1.5, 3.6]),
    tile("conv2d_wgmma_128x128", Wide, [128, 128], [6, 1, 1], [0.302, 0.302, 1.2, 2.9]),
    tile("conv2d_wgmma_64x192", Wide, [64, 192], [6, 1, 1], [0.236, 0.236, 1.57, 2.7]),
    tile("conv2d_wgmma_64x128", Wide, [64, 128], [8, 1, 1], [0.21, 0.21, 1.25, 1.55]),
    tile("conv2d_wgmma_64x64", Wide, [64, 64], [4, 3, 1], [0.166, 0.25, 0.33, 2.0]),
    tile("conv2d_wgmma_64x128_split4", Wide, [64, 128], [8, 1, 4], [0.194, 0.194, 4.5, 0.2]),
    tile("conv2d_wgmma_64x128_split8", Wide, [64, 128], [8, 1, 8], [0.198, 0.198, 4.8, 1.2]),
    tile("conv2d_wgmma_64x256_narrow", Narrow, [64, 256], [5, 1, 1], [0.6, 0.6, 3.5, 0.0]),
    tile("conv2d_wgmma_128x128_direct", Direct, [128, 128], [6, 1, 1], [0.514, 0.514, 1.3, 2.7]),
    tile("conv2d_wgmma_64x64_direct", Direct, [64, 64], [4, 3, 1], [0.2, 0.454, 0.19, 2.25]),
];

/// Most channels under a tap for which 32 of them are copied at a time, and up to which always.
const NARROW_CHANNELS: usize = 48;
const FEW_CHANNELS: usize = 32;

/// How much longer a slice takes where copies bring channels from two lines, as layers of 112 to 1,064 channels took on an H200.
const STRADDLING: f64 = 1.7;

impl Tile {
    /// Channels that a copy brings, in a row of the swizzle of that length.
    fn channels(&self) -> (usize, Swizzle) {
        if self.kind == Narrow { (32, Swizzle::Bytes64) } else { (64, Swizzle::Bytes128) }
    }

    /// Whether the kernel can.
    fn serves(&self, packed: &Packed<'_>) -> bool {
        (self.kind == Direct) == (packed.images == Images::Direct)
    }

    /// Whether it could be the fastest.
    fn suits(&self, packed: &Packed<'_>) -> bool {
        let (channels, _) = packed.channels();
        let suits = match self.kind {
            Narrow => channels <= NARROW_CHANNELS,
            Wide => channels > FEW_CHANNELS,
            Direct => true,
        };
        suits && self.serves(packed)
    }

    /// Clusters that run at the same time: they must fit into groups of 16 or 18 multiprocessors, which leaves some of them empty.
    fn at_once(&self) -> usize {
        match self.split {
            1 => multiprocessors(),
            4 => scaled(30),
            _ => scaled(14),
        }
    }

    /// About how long copies and product take, in µs.
    fn estimate_us(&self, s: &Convolution, packed: &Packed<'_>) -> f64 {
        let (channels, wide) = packed.channels();
        let groups = channels.div_ceil(self.channels().0) * s.tall * wide;
        let slices = groups.div_ceil(SLICE / self.channels().0).div_ceil(self.split) as f64;
        let tiles = self.tiles(s).div_ceil(self.at_once());
        let waves = tiles.div_ceil(self.blocks);
        let slices = slices * if packed.straddles() { STRADDLING } else { 1.0 };
        let busy_us = tiles as f64 * (slices * self.slice_us + self.tile_us);
        let waiting_us = waves as f64 * (slices * self.alone_us + self.tile_us);
        packed.copy_us() + self.base_us + busy_us.max(waiting_us)
    }

    fn tiles(&self, s: &Convolution) -> usize {
        let (down, across) = s.places();
        let places =
            if self.kind == Direct { s.batch * (down * across).next_multiple_of(BOX) } else { s.batch * down * across };
        s.filters.div_ceil(self.filters) * places.div_ceil(self.places)
    }

    /// The tiles of the product, each part of a split one counted.
    fn work(&self, s: &Convolution, packed: &Packed<'_>) -> Work {
        let (channels, wide) = packed.channels();
        let groups = channels.div_ceil(self.channels().0) * s.tall * wide;
        let depth = groups.div_ceil(SLICE / self.channels().0).div_ceil(self.split) * SLICE;
        let extents = [self.filters, self.places];
        let tile = MatrixTile { extents, shared_by: [1, 1], depth, element_bytes: ELEMENT_BYTES };
        Work::product(self.tiles(s) * self.split, self.blocks, &tile)
    }

    /// Threads, and bytes of shared memory.
    fn block(&self) -> (usize, usize) {
        let groups = self.filters / 64;
        let copying = if groups == 2 && self.blocks == 1 { 128 } else { 32 };
        let store_buffers = if self.blocks == 1 { 2 } else { 1 };
        let stage_bytes = (self.filters + self.places) * SLICE * ELEMENT_BYTES;
        let shared = self.stages * (stage_bytes + 16) + groups * store_buffers * BOX * BOX * ELEMENT_BYTES;
        (128 * groups + copying, shared)
    }

    fn launch(&self, s: &Convolution, packed: &Packed<'_>) -> Launch {
        let (down, across) = s.places();
        let (at_once, swizzle) = self.channels();
        let w = packed.filters().tile([self.filters, 1, at_once]).swizzle(swizzle);
        let x = packed.images(self.places, at_once).swizzle(swizzle);
        let inside = s.layout == Layout::Nhwc;
        // Where y goes out row by row, the kernel leaves its map alone.
        let y = TensorMap::of("y", [all_places(s), s.filters]).tile([BOX, BOX]).swizzle(Swizzle::Bytes128);
        let y = if inside && is_aligned(s.filters) { y } else { w.clone() };
        let (threads, shared) = self.block();
        let tiles = self.tiles(s);
        let blocks = if self.split > 1 { tiles } else { tiles.min(multiprocessors() * self.blocks) };
        let launch = Launch::blocks(blocks * self.split, threads)
            .entry(self.entry)
            .cluster(self.split)
            .shared(shared)
            .shares(self.work(s, packed))
            .without_pointers()
            .pointer("y");
        let (channels, wide) = packed.channels();
        let (step, border) = packed.steps();
        let plain = packed.images == Images::Plain;
        let extents = [all_places(s), s.filters, down * across, across, channels, s.tall, wide];
        let im2col = [step[0], step[1], border[0], border[1], s.dilation, usize::from(inside), usize::from(plain)];
        let launch = [w, x, y].into_iter().fold(launch, Launch::map);
        extents.into_iter().chain(im2col).fold(launch, |launch, number| launch.scalar(number as i32))
    }
}

/// Bytes of the copies of images and filters.
pub fn workspace_bytes(s: &Convolution) -> usize {
    choose(s).1.bytes()
}

/// What the kernels without tensor cores take of a shape.
pub(super) fn scalars(s: &Convolution) -> [usize; 12] {
    let (down, across) = s.places();
    let Convolution { batch, channels, height, width, filters, tall, wide, stride, padding, dilation, .. } = *s;
    [batch, channels, height, width, filters, tall, wide, down, across, stride, padding, dilation]
}

fn with_scalars(s: &Convolution, launch: Launch) -> Launch {
    let inside = usize::from(s.layout == Layout::Nhwc);
    scalars(s).into_iter().chain([inside]).fold(launch, |launch, number| launch.scalar(number as i32))
}

pub(super) fn all_places(s: &Convolution) -> usize {
    let (down, across) = s.places();
    s.batch * down * across
}

/// A thread an output.
pub fn naive(s: &Convolution) -> Launch {
    with_scalars(s, Launch::blocks((all_places(s) * s.filters).div_ceil(256), 256))
}

/// Outputs along each side of a tile of the kernel without tensor cores.
pub const SIMT_TILE: usize = 64;

/// Tiles in shared memory.
pub fn tiled(s: &Convolution) -> Launch {
    let blocks = all_places(s).div_ceil(SIMT_TILE) * s.filters.div_ceil(SIMT_TILE);
    with_scalars(s, Launch::blocks(blocks, 256)).entry("conv2d_tiled")
}

/// On warpgroups, with the tile that is estimated to be the fastest.
pub fn wgmma(s: &Convolution) -> Plan {
    let (tile, packed) = choose(s);
    plan_with(tile, s, &packed)
}

fn choose(s: &Convolution) -> (&'static Tile, Packed<'_>) {
    let ways = Packed::ways(s);
    let all = ways.iter().flat_map(|packed| TILES.iter().map(move |tile| (tile, *packed)));
    let suiting = all.filter(|(tile, packed)| tile.suits(packed)).map(|(tile, packed)| {
        let us = tile.estimate_us(s, &packed);
        (us, tile, packed)
    });
    let fastest = suiting.min_by(|a, b| a.0.total_cmp(&b.0));
    fastest.map_or((&TILES[0], ways[0]), |(_, tile, packed)| (tile, packed))
}

fn plan_with(tile: &Tile, s: &Convolution, packed: &Packed<'_>) -> Plan {
    if all_places(s) == 0 {
        return Plan(Vec::new());
    }
    Plan(packed.launch().into_iter().chain([tile.launch(s, packed)]).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{beyond_a_tile, square};
    use super::*;
    use crate::core::candidate::IntoCandidate;
    use crate::core::shape::Shape;
    use crate::ops::agreement::judged_in_simulator;
    use rstest::rstest;

    fn shape(layout: Layout, [batch, channels, side, filters, taps, stride]: [usize; 6]) -> Convolution {
        let padding = taps / 2;
        Convolution { batch, channels, height: side, width: side, filters, stride, padding, layout, ..square(taps) }
    }

    #[rstest]
    #[case(shape(Layout::Nhwc, [32, 128, 28, 128, 3, 1]), "conv2d_wgmma_128x192")]
    #[case(shape(Layout::Nhwc, [32, 256, 14, 256, 3, 1]), "conv2d_wgmma_64x192")]
    #[case(shape(Layout::Nhwc, [32, 512, 7, 512, 3, 1]), "conv2d_wgmma_64x128")]
    #[case(shape(Layout::Nhwc, [32, 512, 7, 2048, 1, 1]), "conv2d_wgmma_128x128")]
    #[case(shape(Layout::Nhwc, [8, 256, 28, 256, 1, 1]), "conv2d_wgmma_64x64")]
    #[case(shape(Layout::Nhwc, [1, 256, 14, 256, 3, 1]), "conv2d_wgmma_64x128_split4")]
    #[case(shape(Layout::Nhwc, [1, 2048, 16, 128, 3, 1]), "conv2d_wgmma_64x128_split8")]
    #[case(shape(Layout::Nhwc, [32, 32, 56, 64, 3, 1]), "conv2d_wgmma_64x256_narrow")]
    #[case(shape(Layout::Nchw, [32, 512, 28, 128, 1, 1]), "conv2d_wgmma_128x128_direct")]
    #[case(shape(Layout::Nchw, [32, 64, 56, 256, 1, 1]), "conv2d_wgmma_64x64_direct")]
    fn the_tile_follows_the_shape(#[case] s: Convolution, #[case] entry: &str) {
        assert_eq!(choose(&s).0.entry, entry);
    }

    /// The gate's shapes are small: most tiles are chosen for none of them.
    #[rstest]
    fn every_tile_is_right_in_the_simulator(
        #[values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)] which: usize,
        #[values(0, 1, 2, 3)] number: usize,
        #[values(Layout::Nchw, Layout::Nhwc)] layout: Layout,
    ) {
        let shape = beyond_a_tile(layout)[number].clone();
        for way in 0..2 {
            if !TILES[which].serves(&Packed::ways(&shape)[way]) {
                continue;
            }
            let plan = move |s: &Convolution| plan_with(&TILES[which], s, &Packed::ways(s)[way]);
            let candidate = super::super::wgmma_kernel(plan).workspace(move |s| Packed::ways(s)[way].bytes());
            let candidate = candidate.named("tile");
            let judged = judged_in_simulator(&super::super::operator(), &candidate, shape.to_point());
            assert!(judged.is_ok(), "{} {shape:?}, way {way}: {judged:#?}", TILES[which].entry);
        }
    }
}
