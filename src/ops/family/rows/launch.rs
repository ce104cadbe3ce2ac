//! Launch rules of softmax and the norms: which thread group owns a row, by its length and by where it starts.
//!
//! The more threads own a row, the more shuffles and barriers a reduction takes; the fewer, the more registers a thread needs,
//! and the fewer warps hide the latency of memory. So a row goes to the smallest group whose threads hold it in 8 to 32
//! registers' worth of elements: lanes of a warp, a warp, a block, a cluster. Rows whose length is no multiple of a pack of 16-bit
//! elements start anywhere; they take entries of their own.

use super::Extents;
use crate::core::candidate::{Cuda, Declare};
use crate::core::gpu::{Gpu, multiprocessors};
use crate::core::launch::Launch;
use crate::core::shape::Shape;

/// Threads of a warp, and of a block that several groups share.
pub const WARP: usize = 32;
const SHARED_BLOCK: usize = 128;
/// Elements of a 16-byte pack of half-width elements: rows of a multiple of it start on 16 bytes in every dtype.
pub const PACK: usize = 8;
/// The most elements that a thread holds, and half of it.
const MOST: usize = 32;
const HALF: usize = MOST / 2;

/// Columns up to which several rows share a warp, one warp holds a row, and one block can.
const LANES_UP_TO: usize = 256;
const WARP_UP_TO: usize = WARP * HALF;
const BLOCK_UP_TO: usize = 1024 * MOST;
/// Columns up to which one block does: of a longer row a cluster of smaller blocks, several on a multiprocessor, loads part while
/// another stores.
const FULL_BLOCK_UP_TO: usize = BLOCK_UP_TO / 2;
/// Columns of such a block, while a cluster has blocks enough; beyond that its blocks grow.
const CLUSTER_SLICE: usize = 10_240;
/// Blocks of a cluster that every device with clusters takes.
const PORTABLE_CLUSTER: usize = 8;
/// Columns from which on a cluster has more blocks, where the device allows it.
pub const PORTABLE_UP_TO: usize = PORTABLE_CLUSTER * CLUSTER_SLICE;
/// Threads of a multiprocessor up to which a matrix is few rows: a quarter of what is resident at once, where nothing but the latency
/// of a row counts.
const FEW_THREADS: usize = 512;

/// Threads of whole warps that hold so many columns, `elements` each.
const fn threads(columns: usize, elements: usize) -> usize {
    WARP * columns.div_ceil(WARP * elements)
}

/// Whether rows start anywhere.
pub const fn is_unaligned(cols: usize) -> bool {
    !cols.is_multiple_of(PACK)
}

/// An entry of an operator for rows of so many columns.
fn entry_of(op: &str, path: &str, cols: usize) -> String {
    format!("{op}_{path}{}", if is_unaligned(cols) { "_unaligned" } else { "" })
}

/// Lesson 1: one block a row.
pub fn naive(op: &str, (rows, _): Extents) -> Launch {
    Launch::blocks(rows, 256).entry(format!("{op}_naive"))
}

/// Lesson 2: one block a row, as many warps as have work.
pub fn vectorised(op: &str, (rows, cols): Extents) -> Launch {
    Launch::blocks(rows, threads(cols, MOST).min(1024)).entry(format!("{op}_vectorised"))
}

/// Lesson 3: the row in registers. Rows that outgrow a block are left to lesson 2.
pub fn registers(op: &str, (rows, cols): Extents) -> Launch {
    /// Columns of the widest row that a warp holds here.
    const ONE_WARP: usize = WARP * MOST;
    if cols <= LANES_UP_TO {
        lanes(op, (rows, cols))
    } else if cols <= ONE_WARP {
        by_warps(rows).entry(format!("{op}_registers_warp"))
    } else if cols <= BLOCK_UP_TO {
        Launch::blocks(rows, threads(cols, MOST)).entry(format!("{op}_registers_block"))
    } else {
        vectorised(op, (rows, cols))
    }
}

/// Short rows: as many lanes of a warp a row as hold it, a pack each.
fn lanes(op: &str, (rows, cols): Extents) -> Launch {
    let lanes = cols.div_ceil(PACK).next_power_of_two();
    let groups = SHARED_BLOCK / lanes;
    Launch::grid([rows.div_ceil(groups), 1, 1], [lanes, groups, 1]).entry(format!("{op}_lanes_per_row"))
}

fn by_warps(rows: usize) -> Launch {
    let groups = SHARED_BLOCK / WARP;
    Launch::grid([rows.div_ceil(groups), 1, 1], [WARP, groups, 1])
}

/// The blocks that an operator has besides one for rows of any length.
#[derive(Clone, Copy)]
pub struct Blocks {
    /// Up to how many columns a thread holds half of the most elements.
    pub small_up_to: usize,
    /// Up to how many columns it has an entry for blocks of few warps.
    pub block_up_to: usize,
}

/// Rows that stay packed in registers.
pub fn packed(op: &str, blocks: Blocks, (rows, cols): Extents) -> Launch {
    /// Columns that a block of 256 threads holds.
    const LARGE_UP_TO: usize = 8192;
    let entry = |path: &str| entry_of(op, path, cols);
    let block = |path: &str| Launch::blocks(rows, threads(cols, MOST)).entry(entry(path));
    if cols <= LANES_UP_TO {
        lanes(op, (rows, cols))
    } else if cols <= WARP_UP_TO {
        by_warps(rows).entry(entry("warp_per_row"))
    } else if cols <= blocks.small_up_to {
        Launch::blocks(rows, threads(cols, HALF)).entry(entry("small_block"))
    } else if cols <= blocks.block_up_to {
        block("block")
    } else if blocks.block_up_to < LARGE_UP_TO && cols <= LARGE_UP_TO {
        block("large_block")
    } else if cols <= FULL_BLOCK_UP_TO {
        block("full_block")
    } else if !Gpu::current().has_clusters() {
        naive(op, (rows, cols))
    } else {
        cluster((rows, cols), MOST, Gpu::current().largest_cluster()).entry(entry("cluster"))
    }
}

/// A cluster a row, so many elements a thread: as few blocks as keep them small, up to `most`.
pub fn cluster((rows, cols): Extents, elements: usize, most: usize) -> Launch {
    let cluster = cols.div_ceil(CLUSTER_SLICE).next_power_of_two().clamp(2, most);
    let slice = PACK * cols.div_ceil(PACK * cluster);
    Launch::blocks(rows * cluster, threads(slice, elements)).cluster(cluster)
}

/// Few rows of more than [`WARP_UP_TO`] and at most `up_to` columns in half width: a thread a pack, all its loads on their way
/// at once.
pub fn few_rows(op: &str, up_to: usize, (rows, cols): Extents) -> Option<Launch> {
    let is_few = WARP_UP_TO < cols && cols <= up_to && rows * threads(cols, PACK) <= FEW_THREADS * multiprocessors();
    is_few.then(|| Launch::blocks(rows, threads(cols, PACK)).entry(entry_of(op, "few_rows", cols)))
}

/// How rows of half width are served.
#[derive(Clone, Copy)]
pub struct HalfWidth {
    pub blocks: Blocks,
    /// Up to how many columns [`few_rows`] have an entry of their own.
    pub few_up_to: usize,
    /// A warp a row of more than [`WARP_UP_TO`] columns.
    pub wide: WideWarp,
    /// Whether tensor cores take sums and squares: [`with_mma`].
    pub mma: bool,
}

/// A warp a row of up to so many columns, so many rows a block.
#[derive(Clone, Copy)]
pub struct WideWarp {
    pub up_to: usize,
    pub rows: usize,
}

impl HalfWidth {
    pub fn launch(self, op: &str, extents: Extents) -> Launch {
        few_rows(op, self.few_up_to, extents).unwrap_or_else(|| self.of_many(op, extents))
    }

    /// The same without an entry of few rows.
    pub fn of_many(self, op: &str, (rows, cols): Extents) -> Launch {
        if WARP_UP_TO < cols && cols <= self.wide.up_to {
            let launch = Launch::grid([rows.div_ceil(self.wide.rows), 1, 1], [WARP, self.wide.rows, 1]);
            return launch.entry(entry_of(op, "wide_warp", cols));
        }
        let mma = if self.mma { with_mma(op, (rows, cols)) } else { None };
        mma.unwrap_or_else(|| packed(op, self.blocks, (rows, cols)))
    }

    /// Declares the extents at which another entry serves.
    pub fn tiles<S: Shape>(self, kernel: Cuda<S>) -> Cuda<S> {
        packed_tiles(kernel).tile("cols", self.wide.up_to)
    }
}

/// Half-width rows of a layer norm, which are short of issue slots: tensor cores take sums and squares wherever they are ahead.
fn with_mma(op: &str, (rows, cols): Extents) -> Option<Launch> {
    /// Four warps, every thread of which holds the most elements.
    const FULL: usize = 4 * WARP * MOST;
    /// The longest row of a cluster whose blocks have 512 threads.
    const CLUSTER_UP_TO: usize = PORTABLE_CLUSTER * 512 * MOST;
    let block = |path| Launch::blocks(rows, threads(cols, MOST)).entry(entry_of(op, path, cols));
    match cols {
        FULL => Some(block("mma_block")),
        1025..FULL if is_unaligned(cols) => Some(block("mma_block")),
        8193..=FULL_BLOCK_UP_TO => Some(block("mma_full_block")),
        ..=CLUSTER_UP_TO if cols > FULL_BLOCK_UP_TO && !is_unaligned(cols) && Gpu::current().has_clusters() => {
            Some(cluster((rows, cols), MOST, PORTABLE_CLUSTER).entry(entry_of(op, "mma_cluster", cols)))
        }
        _ => None,
    }
}

/// How f32 rows that start anywhere are served: short ones by neighbouring elements, which need no packs; longer ones in packs
/// from the first whole cache line on.
#[derive(Clone, Copy)]
pub struct Unaligned {
    /// The longest row that goes by elements.
    pub elements_up_to: usize,
    /// The entries of longer rows, shortest first.
    pub lines: &'static [Line],
}

/// Rows of up to so many columns from whole lines on, so many elements a thread.
pub struct Line {
    pub up_to: usize,
    pub name: &'static str,
    pub elements: usize,
}

impl Unaligned {
    /// The launch of rows that start anywhere; none where [`packed`] serves them.
    pub fn launch(self, op: &str, (rows, cols): Extents) -> Option<Launch> {
        if !is_unaligned(cols) || cols <= LANES_UP_TO {
            return None;
        }
        if cols > self.elements_up_to {
            let line = self.lines.iter().find(|line| cols <= line.up_to)?;
            return Some(Launch::blocks(rows, threads(cols, line.elements)).entry(format!("{op}_{}", line.name)));
        }
        let (path, groups) = match cols {
            ..=384 => ("elements_warp", 4),
            385..=512 => ("elements_two_warps", 2),
            _ => ("elements_four_warps", 1),
        };
        Some(Launch::blocks(rows.div_ceil(groups), SHARED_BLOCK).entry(format!("{op}_{path}")))
    }

    /// Declares the extents at which another entry serves.
    pub fn tiles<S: Shape>(self, kernel: Cuda<S>) -> Cuda<S> {
        let kernel = kernel.tiles([("rows", 2), ("cols", 384)]);
        self.lines.iter().fold(kernel, |kernel, line| kernel.tile("cols", line.up_to))
    }
}

/// Declares the extents at which lesson 2 takes another path.
pub fn vectorised_tiles<S: Shape>(kernel: Cuda<S>) -> Cuda<S> {
    kernel.tiles([("cols", PACK), ("cols", WARP * MOST), ("cols", BLOCK_UP_TO)])
}

/// Declares the extents at which [`registers`] takes another path.
pub fn registers_tiles<S: Shape>(kernel: Cuda<S>) -> Cuda<S> {
    let groups = kernel.tiles([("rows", 4), ("rows", 128), ("cols", PACK), ("cols", LANES_UP_TO)]);
    groups.tiles([("cols", WARP * MOST), ("cols", BLOCK_UP_TO / 2)])
}

/// Declares the extents at which [`packed`] takes another path.
pub fn packed_tiles<S: Shape>(kernel: Cuda<S>) -> Cuda<S> {
    let ends = [WARP_UP_TO, 4096, 8192, FULL_BLOCK_UP_TO, PORTABLE_UP_TO];
    ends.into_iter().fold(registers_tiles(kernel), |kernel, cols| kernel.tile("cols", cols))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const BLOCKS: Blocks = Blocks { small_up_to: 1024, block_up_to: 4096 };

    fn of(launch: Launch) -> (String, usize, [usize; 2], usize) {
        let [x, y, _] = launch.block;
        (launch.entry.unwrap(), launch.grid[0], [x, y], launch.cluster)
    }

    #[rstest]
    #[case((129, 8), "op_lanes_per_row", 2, [1, 128], 1)]
    #[case((129, 9), "op_lanes_per_row", 3, [2, 64], 1)]
    #[case((9, 256), "op_lanes_per_row", 3, [32, 4], 1)]
    #[case((9, 257), "op_warp_per_row_unaligned", 3, [32, 4], 1)]
    #[case((9, 512), "op_warp_per_row", 3, [32, 4], 1)]
    #[case((9, 513), "op_small_block_unaligned", 9, [64, 1], 1)]
    #[case((9, 1024), "op_small_block", 9, [64, 1], 1)]
    #[case((9, 1025), "op_block_unaligned", 9, [64, 1], 1)]
    #[case((9, 4096), "op_block", 9, [128, 1], 1)]
    #[case((9, 4104), "op_large_block", 9, [160, 1], 1)]
    #[case((9, 8192), "op_large_block", 9, [256, 1], 1)]
    #[case((9, 8193), "op_full_block_unaligned", 9, [288, 1], 1)]
    #[case((9, 16_384), "op_full_block", 9, [512, 1], 1)]
    #[case((9, 16_385), "op_cluster_unaligned", 18, [288, 1], 2)]
    #[case((9, 20_488), "op_cluster", 36, [192, 1], 4)]
    #[case((9, 65_536), "op_cluster", 72, [256, 1], 8)]
    #[case((9, 81_928), "op_cluster", 144, [192, 1], 16)]
    #[case((9, 262_144), "op_cluster", 144, [512, 1], 16)]
    fn a_row_goes_to_the_smallest_group_that_holds_it(
        #[case] extents: Extents,
        #[case] entry: &str,
        #[case] blocks: usize,
        #[case] block: [usize; 2],
        #[case] cluster: usize,
    ) {
        assert_eq!(of(packed("op", BLOCKS, extents)), (entry.into(), blocks, block, cluster));
    }

    #[test]
    fn without_clusters_long_rows_have_a_block_each() {
        let before_hopper = Gpu::SIMULATED.of_capability(8, 6);
        let of = |cols| before_hopper.during(|| (with_mma("op", (9, cols)), packed("op", BLOCKS, (9, cols))));
        for cols in [16_385, 65_536] {
            let (mma, packed) = of(cols);
            assert!(mma.is_none());
            assert_eq!((packed.entry.as_deref(), packed.grid[0], packed.cluster), (Some("op_naive"), 9, 1));
        }
    }

    #[rstest]
    #[case((9, 1024), None)]
    #[case((9, 1025), Some(("op_mma_block_unaligned", 64, 1)))]
    #[case((9, 1032), None)]
    #[case((9, 4095), Some(("op_mma_block_unaligned", 128, 1)))]
    #[case((9, 4096), Some(("op_mma_block", 128, 1)))]
    #[case((9, 8192), None)]
    #[case((9, 8193), Some(("op_mma_full_block_unaligned", 288, 1)))]
    #[case((9, 16_384), Some(("op_mma_full_block", 512, 1)))]
    #[case((9, 16_385), None)]
    #[case((9, 65_536), Some(("op_mma_cluster", 256, 8)))]
    #[case((9, 131_072), Some(("op_mma_cluster", 512, 8)))]
    #[case((9, 131_080), None)]
    fn tensor_cores_take_rows_of_a_layer_norm(
        #[case] extents: Extents,
        #[case] expected: Option<(&str, usize, usize)>,
    ) {
        let expected = expected.map(|(entry, threads, cluster)| (entry.into(), 9 * cluster, [threads, 1], cluster));
        assert_eq!(with_mma("op", extents).map(of), expected);
    }

    #[rstest]
    #[case((9, 512), "op_warp_per_row", 3, [32, 4])]
    #[case((9, 513), "op_few_rows_unaligned", 9, [96, 1])]
    #[case((9, 8192), "op_few_rows", 9, [1024, 1])]
    #[case((9, 8200), "op_mma_full_block", 9, [288, 1])]
    #[case((704, 640), "op_few_rows", 704, [96, 1])]
    #[case((705, 640), "op_wide_warp", 177, [32, 4])]
    #[case((705, 1023), "op_wide_warp_unaligned", 177, [32, 4])]
    #[case((705, 1025), "op_mma_block_unaligned", 705, [64, 1])]
    #[case((705, 1032), "op_block", 705, [64, 1])]
    fn few_rows_have_a_thread_a_pack_and_many_short_ones_a_warp(
        #[case] extents: Extents,
        #[case] entry: &str,
        #[case] blocks: usize,
        #[case] block: [usize; 2],
    ) {
        let wide = WideWarp { up_to: 1024, rows: 4 };
        let launch = HalfWidth { blocks: BLOCKS, few_up_to: 8192, wide, mma: true }.launch("op", extents);
        assert_eq!(of(launch), (entry.into(), blocks, block, 1));
    }

    #[rstest]
    #[case((9, 255), None)]
    #[case((9, 257), Some(("op_elements_warp", 3, 128)))]
    #[case((9, 385), Some(("op_elements_two_warps", 5, 128)))]
    #[case((9, 512), None)]
    #[case((9, 1023), Some(("op_elements_four_warps", 9, 128)))]
    #[case((9, 1025), Some(("op_line_small_block", 9, 96)))]
    #[case((9, 1032), None)]
    #[case((9, 2047), Some(("op_line_small_block", 9, 128)))]
    #[case((9, 2049), Some(("op_line_block", 9, 96)))]
    #[case((9, 8191), Some(("op_line_block", 9, 256)))]
    #[case((9, 8193), None)]
    fn f32_rows_that_start_anywhere(#[case] extents: Extents, #[case] expected: Option<(&str, usize, usize)>) {
        const SMALL: Line = Line { up_to: 2048, name: "line_small_block", elements: 16 };
        const BLOCK: Line = Line { up_to: 8192, name: "line_block", elements: 32 };
        let launch = Unaligned { elements_up_to: 1024, lines: &[SMALL, BLOCK] }.launch("op", extents);
        let found = launch.map(of).map(|(entry, grid, block, _)| (entry, grid, block[0]));
        assert_eq!(found, expected.map(|(entry, grid, threads)| (entry.into(), grid, threads)));
    }

    #[rstest]
    #[case(naive("op", (7, 5)), "op_naive", 7, [256, 1])]
    #[case(vectorised("op", (7, 5)), "op_vectorised", 7, [32, 1])]
    #[case(vectorised("op", (7, 1025)), "op_vectorised", 7, [64, 1])]
    #[case(vectorised("op", (7, 262_144)), "op_vectorised", 7, [1024, 1])]
    #[case(registers("op", (129, 8)), "op_lanes_per_row", 2, [1, 128])]
    #[case(registers("op", (9, 257)), "op_registers_warp", 3, [32, 4])]
    #[case(registers("op", (9, 1025)), "op_registers_block", 9, [64, 1])]
    #[case(registers("op", (9, 32_768)), "op_registers_block", 9, [1024, 1])]
    #[case(registers("op", (9, 32_769)), "op_vectorised", 9, [1024, 1])]
    fn the_lessons(#[case] launch: Launch, #[case] entry: &str, #[case] blocks: usize, #[case] block: [usize; 2]) {
        assert_eq!(of(launch), (entry.into(), blocks, block, 1));
    }
}
