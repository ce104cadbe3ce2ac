//! Launch rules of a convolution with pooling: on tensor cores where channels and filters come in chunks of 16 bytes, else by
//! multiplications; tiles of as many places as a block has threads for, or smaller ones where those would be few.

use super::{PooledConvolution, WINDOW};
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::gpu::multiprocessors;
use crate::core::launch::Launch;
use crate::ops::family::aligned::ELEMENT_BYTES;
use crate::ops::family::rows::launch::WARP;

const THREADS: usize = 256;
/// Blocks a multiprocessor that loop over tiles, at the most.
const BLOCKS: usize = 8;
/// Bytes of shared memory of a multiprocessor, and what a block that multiplies may have of it.
const SHARED_BYTES: usize = 224 << 10;
const SHARED_SHARE: usize = SHARED_BYTES / 2;
const F32_BYTES: usize = 4;
/// Stages of shared memory: one is computed while the other arrives.
const STAGES: usize = 2;
/// Floats behind the filters of a tap, so that neighbouring channels are in different banks.
const PITCH: usize = 4;
/// Channels of a stage at the most: of f32, 32 bytes that lie side by side.
const CHANNELS: usize = 8;
/// Rows of a tile are so many floats apart, and the columns of it: half of the banks.
const BANKS: usize = 16;
/// Channels that tensor cores take at a time, and elements of 16 bytes.
const SLICE: usize = 32;
const CHUNK: usize = 8;

/// A kernel: its name, filters of a block, places that its threads have room for, most columns of a tile, and what those are a
/// multiple of.
struct Kind {
    entry: &'static str,
    filters: usize,
    places: usize,
    columns: usize,
    side_by_side: usize,
}

const MMA: Kind = Kind { entry: "conv2d_pool_mma", filters: 64, places: 64, columns: 8, side_by_side: 1 };
const MMA_FEW: Kind = Kind { entry: "conv2d_pool_mma_few", filters: 16, places: 32, columns: 8, side_by_side: 1 };

/// By multiplications: filters of a block at the most; a thread has so many filters at so many places side by side.
struct Direct {
    entry: &'static str,
    group: usize,
    of_thread: usize,
    side_by_side: usize,
}

const WIDE: Direct = Direct { entry: "conv2d_pool_direct", group: 64, of_thread: 8, side_by_side: 2 };
const MANY: Direct = Direct { group: 32, ..WIDE };
const FEW: Direct = Direct { entry: "conv2d_pool_direct_few", group: 32, of_thread: 2, side_by_side: 1 };

impl Direct {
    fn kind(&self, s: &PooledConvolution) -> Kind {
        let Self { entry, group, of_thread, side_by_side } = *self;
        let filters = s.filters.next_multiple_of(of_thread).min(group);
        Kind { entry, filters, places: THREADS / (filters / of_thread) * side_by_side, columns: 16, side_by_side }
    }

    fn launch(&self, s: &PooledConvolution) -> Launch {
        let kind = self.kind(s);
        let (rows, columns) = kind.tile(s);
        let (tall, wide) = kind.under(s);
        let pitch = wide + (columns + BANKS - wide % BANKS) % BANKS;
        let image = F32_BYTES * ((tall * pitch) | 1);
        let filters = F32_BYTES * s.taps * s.taps * (kind.filters + PITCH);
        let threads = (rows * columns / self.side_by_side * (kind.filters / self.of_thread)).next_multiple_of(WARP);
        // Registers leave room for two whole blocks a multiprocessor. With a tile each, filters arrive with their channels, half of
        // them a stage: all are on their way at once.
        let blocks = (2 * THREADS / threads).clamp(1, BLOCKS);
        let all_filters = s.channels * filters;
        let fit = all_filters + STAGES * CHANNELS.min(s.channels) * image <= SHARED_SHARE;
        let resident = fit && kind.tiles(s) * kind.groups(s) > blocks * multiprocessors();
        let (always, of_channel, most) = if resident {
            (all_filters, image, CHANNELS)
        } else {
            (0, image + filters, s.channels.div_ceil(STAGES).next_multiple_of(CHANNELS))
        };
        let fitting = (SHARED_SHARE - always) / (STAGES * of_channel);
        let whole = if fitting > CHANNELS { fitting - fitting % CHANNELS } else { fitting };
        let chunk = whole.clamp(1, most.min(s.channels));
        let shared = always + STAGES * chunk * of_channel;
        let blocks = if resident { blocks.min(SHARED_BYTES / shared) } else { BLOCKS };
        kind.launch(s, [threads, blocks], [chunk, resident.into()], shared)
    }
}

/// As even parts of `extent` as there are with at most `most` each.
fn even(extent: usize, most: usize) -> usize {
    extent.div_ceil(extent.div_ceil(most).max(1)).max(1)
}

impl Kind {
    /// Rows and columns of a tile of the output.
    fn tile(&self, s: &PooledConvolution) -> (usize, usize) {
        let (down, across) = s.places();
        let columns = even(across, self.columns.min(self.places)).next_multiple_of(self.side_by_side);
        (even(down, self.places / columns), columns)
    }

    fn tiles(&self, s: &PooledConvolution) -> usize {
        let ((down, across), (rows, columns)) = (s.places(), self.tile(s));
        s.batch * down.div_ceil(rows) * across.div_ceil(columns)
    }

    fn groups(&self, s: &PooledConvolution) -> usize {
        s.filters.div_ceil(self.filters)
    }

    /// Whether every multiprocessor has a block.
    fn fills(&self, s: &PooledConvolution) -> bool {
        self.tiles(s) * self.groups(s) >= multiprocessors()
    }

    /// The launch of blocks of so many threads, with `chunk` channels in shared memory at a time.
    fn launch(
        &self,
        s: &PooledConvolution,
        [threads, blocks]: [usize; 2],
        [chunk, resident]: [usize; 2],
        shared: usize,
    ) -> Launch {
        let (tiles, (rows, columns)) = (self.tiles(s), self.tile(s));
        let grid = [tiles.min(blocks * multiprocessors()), self.groups(s), 1];
        let launch = Launch::grid(grid, [threads, 1, 1]).entry(self.entry).shared(shared).scalar(tiles as i64);
        let of_tile = [rows, columns, self.filters, chunk, resident];
        with_shape(s, launch, of_tile)
    }

    /// Rows and columns of an image under a tile.
    fn under(&self, s: &PooledConvolution) -> (usize, usize) {
        let (rows, columns) = self.tile(s);
        (WINDOW * rows + s.taps - 1, WINDOW * columns + s.taps - 1)
    }
}

fn with_shape(s: &PooledConvolution, launch: Launch, of_tile: [usize; 5]) -> Launch {
    let extents = [s.channels, s.height, s.width, s.filters, s.taps, s.activation as usize];
    extents.into_iter().chain(of_tile).fold(launch, |launch, extent| launch.scalar(extent as i32))
}

fn by_multiplications(s: &PooledConvolution) -> Launch {
    let way = [WIDE, MANY].into_iter().find(|way| way.kind(s).fills(s)).unwrap_or(FEW);
    way.launch(s)
}

fn on_tensor_cores(s: &PooledConvolution) -> Launch {
    let kind = if MMA.fills(s) { MMA } else { MMA_FEW };
    let (tall, wide) = kind.under(s);
    let shared = SLICE * ELEMENT_BYTES * (s.taps * s.taps * kind.filters + tall * wide);
    kind.launch(s, [THREADS, BLOCKS], [SLICE, 0], shared)
}

fn kernel(plan: fn(&PooledConvolution) -> Launch) -> Cuda<PooledConvolution> {
    kernel!("conv2d_pool/conv2d_pool.cu", "conv2d_pool_naive", plan)
}

/// Lesson 1: a thread an output.
pub fn naive() -> Cuda<PooledConvolution> {
    kernel(|s| {
        let launch = Launch::blocks(s.outputs().div_ceil(THREADS), THREADS).entry("conv2d_pool_naive");
        with_shape(s, launch.scalar(s.outputs() as i64), [1, 1, s.filters, s.channels, 0])
    })
    .untimed()
    .lesson()
}

fn half_plan(s: &PooledConvolution) -> Launch {
    let is_whole = s.channels.is_multiple_of(CHUNK) && s.filters.is_multiple_of(CHUNK);
    if is_whole { on_tensor_cores(s) } else { by_multiplications(s) }
}

/// Tensor cores where chunks of 16 bytes are whole.
pub fn half() -> Cuda<PooledConvolution> {
    tiled(half_plan).dtypes([DType::F16, DType::BF16])
}

/// In f32.
pub fn full() -> Cuda<PooledConvolution> {
    tiled(by_multiplications).dtypes([DType::F32])
}

fn tiled(plan: fn(&PooledConvolution) -> Launch) -> Cuda<PooledConvolution> {
    let columns = WINDOW * MMA.columns;
    kernel(plan).tiles([("filters", MMA.filters), ("channels", SLICE), ("height", columns), ("width", columns)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::max_pool2d::Activation;
    use rstest::rstest;

    #[rstest]
    #[case::first_layer_of_a_digit([1, 1, 28, 32], "direct_few", (1, 14))]
    #[case::of_a_thousand([1024, 1, 28, 32], "direct", (7, 14))]
    #[case::second_layer_of_a_digit([1, 32, 14, 64], "mma_few", (4, 7))]
    #[case::of_a_thousand_images([1024, 32, 14, 64], "mma", (7, 7))]
    #[case::photographs([64, 64, 96, 64], "mma", (8, 8))]
    #[case::filters_that_are_no_chunks([1024, 32, 14, 63], "direct", (7, 8))]
    fn kernels_and_tiles_follow_the_shape(
        #[case] extents: [usize; 4],
        #[case] entry: &str,
        #[case] tile: (usize, usize),
    ) {
        let [batch, channels, side, filters] = extents;
        let activation = Activation::Relu;
        let s = PooledConvolution { batch, channels, height: side, width: side, filters, taps: 3, activation };
        let kind = [FEW.kind(&s), MANY.kind(&s), MMA_FEW, MMA]
            .into_iter()
            .find(|kind| kind.entry.strip_prefix("conv2d_pool_") == Some(entry))
            .unwrap();
        let plan = half_plan(&s);
        assert_eq!((plan.entry.as_deref(), kind.tile(&s)), (Some(kind.entry), tile));
    }
}
