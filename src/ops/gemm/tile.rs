//! The tiles of the products for compute capability 9.0a (`kernels/lib/gemm_wgmma_entries.cuh`): what a block computes, and how
//! many there are.

use super::Product;
use crate::core::gpu::{H200_MULTIPROCESSORS, multiprocessors, scaled};
use crate::core::launch::Launch;
use crate::ops::family::aligned::ELEMENT_BYTES;

/// What the kernels take of k at a time, and columns that a swizzled row holds.
pub(super) const SLICE: usize = 64;
pub(super) const COLUMNS: usize = 64;

/// How a block works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    /// Persistent; clusters of so many blocks beside each other multicast a, of so many below each other b.
    Persistent([usize; 2]),
    /// A and B swapped, a tile a cluster; its k is split among so many blocks.
    SwapAbSplitK(usize),
    /// The same with A and B swapped.
    SwapAb([usize; 2]),
    /// Split-K over as many blocks as there are; a second launch reduces the partial sums.
    SplitK,
}

/// A tile of the product, as its entry has it.
#[derive(Debug, PartialEq)]
pub struct Tile {
    /// Its name: that of its entry, and where blocks of a cluster split k, of how many.
    pub name: &'static str,
    /// What its entry is called behind the operator's name: one for every number of blocks that split k.
    pub(super) entry: &'static str,
    /// Rows and columns of c a block.
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Stages of the pipeline.
    stages: usize,
    pub(super) work: Work,
    /// Whether tensor maps bring a, and b: operands whose rows these do not take are copied first. Lanes load others, whose rows may
    /// start anywhere.
    pub(super) by_maps: [bool; 2],
    /// Clusters that run at the same time on an H200.
    pub(super) at_once: usize,
}

pub(super) const fn tile(
    name: &'static str,
    [rows, cols]: [usize; 2],
    stages: usize,
    work: Work,
    at_once: usize,
) -> Tile {
    Tile { name, entry: name, rows, cols, stages, work, by_maps: [true, true], at_once }
}

/// Clusters of four that run at once where a multiprocessor has one block. A cluster stays within neighbours, so that fewer fit than
/// there are multiprocessors for: with 31 an H200 took as long as for two waves.
const FOURS: usize = 30;

/// The tiles of an entry whose clusters split k among one to eight blocks, of which a multiprocessor has two. Of three 79 fit on an
/// H200, of four 62, of eight 30; a few are left as a margin for other cards.
macro_rules! split_k {
    ($entry:literal, $extents:expr, $stages:expr, $by_maps:expr) => {{
        const fn split(name: &'static str, split: usize, at_once: usize) -> Tile {
            let tile = tile(name, $extents, $stages, Work::SwapAbSplitK(split), at_once);
            Tile { entry: $entry, by_maps: $by_maps, ..tile }
        }
        [
            split($entry, 1, 2 * H200_MULTIPROCESSORS),
            split(concat!($entry, "_split2"), 2, H200_MULTIPROCESSORS),
            split(concat!($entry, "_split3"), 3, 76),
            split(concat!($entry, "_split4"), 4, 60),
            split(concat!($entry, "_split8"), 8, 30),
        ]
    }};
}

/// The tiles without swapping A and B.
pub const TILES: [Tile; 9] = {
    use Work::{Persistent, SplitK};
    const ALL: usize = H200_MULTIPROCESSORS;
    [
        tile("128x256", [128, 256], 4, Persistent([1, 1]), ALL),
        tile("128x256_cluster2", [128, 256], 4, Persistent([1, 2]), ALL / 2),
        tile("128x192", [128, 192], 4, Persistent([1, 1]), ALL),
        tile("128x192_cluster2", [128, 192], 4, Persistent([1, 2]), ALL / 2),
        tile("64x128", [64, 128], 8, Persistent([1, 1]), ALL),
        tile("64x128_cluster2", [64, 128], 8, Persistent([1, 2]), ALL / 2),
        tile("64x64", [64, 64], 12, Persistent([1, 1]), ALL),
        tile("128x128_split_k", [128, 128], 6, SplitK, ALL),
        tile("64x128_split_k", [64, 128], 8, SplitK, ALL),
    ]
};

/// Those for few rows, and those for rows that start anywhere.
pub(super) const SPLIT_K: [[Tile; 5]; 7] = [
    split_k!("swap_ab_16x64", [16, 64], 10, [true, true]),
    split_k!("swap_ab_32x64", [32, 64], 9, [true, true]),
    split_k!("swap_ab_64x64", [64, 64], 7, [true, true]),
    split_k!("unaligned_16x64", [16, 64], 10, [false, false]),
    split_k!("unaligned_64x64", [64, 64], 6, [false, false]),
    split_k!("unaligned_b_64x64", [64, 64], 6, [true, false]),
    split_k!("unaligned_b_128x64", [128, 64], 4, [true, false]),
];

/// Those with A and B swapped for all shapes.
pub(super) const SWAP_AB: [Tile; 29] = {
    use Work::SwapAb;
    const ALL: usize = H200_MULTIPROCESSORS;
    [
        tile("swap_ab_32x64_cluster2", [32, 64], 16, SwapAb([2, 1]), ALL / 2),
        tile("swap_ab_32x64_cluster4", [32, 64], 16, SwapAb([4, 1]), FOURS),
        tile("swap_ab_64x64_cluster4", [64, 64], 12, SwapAb([4, 1]), FOURS),
        tile("swap_ab_64x128_cluster4", [64, 128], 8, SwapAb([4, 1]), FOURS),
        tile("swap_ab_80x64_cluster4", [80, 64], 11, SwapAb([4, 1]), FOURS),
        tile("swap_ab_96x64_cluster4", [96, 64], 10, SwapAb([4, 1]), FOURS),
        tile("swap_ab_96x128_cluster2x2", [96, 128], 7, SwapAb([2, 2]), FOURS),
        tile("swap_ab_112x128", [112, 128], 6, SwapAb([1, 1]), ALL),
        tile("swap_ab_112x128_cluster2x2", [112, 128], 6, SwapAb([2, 2]), FOURS),
        tile("swap_ab_112x128_cluster4", [112, 128], 6, SwapAb([4, 1]), FOURS),
        tile("swap_ab_128x64", [128, 64], 8, SwapAb([1, 1]), ALL),
        tile("swap_ab_128x64_cluster4", [128, 64], 8, SwapAb([4, 1]), FOURS),
        tile("swap_ab_128x128", [128, 128], 6, SwapAb([1, 1]), ALL),
        tile("swap_ab_128x128_cluster2", [128, 128], 6, SwapAb([2, 1]), ALL / 2),
        tile("swap_ab_128x128_cluster2x2", [128, 128], 6, SwapAb([2, 2]), FOURS),
        tile("swap_ab_144x128", [144, 128], 5, SwapAb([1, 1]), ALL),
        tile("swap_ab_144x128_cluster4", [144, 128], 5, SwapAb([4, 1]), FOURS),
        tile("swap_ab_144x192_cluster2", [144, 192], 4, SwapAb([2, 1]), ALL / 2),
        tile("swap_ab_160x128_cluster2x2", [160, 128], 5, SwapAb([2, 2]), FOURS),
        tile("swap_ab_160x128_cluster4", [160, 128], 5, SwapAb([4, 1]), FOURS),
        tile("swap_ab_176x64_cluster2", [176, 64], 6, SwapAb([2, 1]), ALL / 2),
        tile("swap_ab_176x128", [176, 128], 4, SwapAb([1, 1]), ALL),
        tile("swap_ab_176x128_cluster2", [176, 128], 4, SwapAb([2, 1]), ALL / 2),
        tile("swap_ab_192x64_cluster4", [192, 64], 6, SwapAb([4, 1]), FOURS),
        tile("swap_ab_192x128", [192, 128], 4, SwapAb([1, 1]), ALL),
        tile("swap_ab_192x192_cluster2", [192, 192], 3, SwapAb([2, 1]), ALL / 2),
        tile("swap_ab_208x128", [208, 128], 4, SwapAb([1, 1]), ALL),
        tile("swap_ab_208x128_cluster2", [208, 128], 4, SwapAb([2, 1]), ALL / 2),
        tile("swap_ab_208x128_cluster2x2", [208, 128], 4, SwapAb([2, 2]), FOURS),
    ]
};

/// Every tile that gemm and linear have an entry for.
pub fn tiles() -> impl Iterator<Item = &'static Tile> + Clone {
    TILES.iter().chain(&SWAP_AB).chain(SPLIT_K.iter().flatten())
}

/// Rows up to which blocks of a cluster split k whatever the columns: beyond, their tiles read b too often, but for those that are
/// so few that all run at once.
const MOST_ROWS_SPLIT: usize = 256;

/// Parts of k a tile, at the most, and slices that a part has, at the least.
const MOST_PARTS: usize = 64;
const LEAST_SLICES: usize = 4;

impl Tile {
    /// Whether every one of so many blocks that split k has slices of it.
    fn is_long_for(split: usize, s: &Product) -> bool {
        split == 1 || s.k.div_ceil(SLICE) >= 2 * split
    }

    /// Whether it could be the fastest for one of many products.
    pub(super) fn suits_batches(&self, s: &Product) -> bool {
        if let Work::SwapAbSplitK(split) = self.work { Self::is_long_for(split, s) } else { true }
    }

    /// Whether it could be the fastest for a product.
    pub fn suits(&self, s: &Product) -> bool {
        match self.work {
            Work::Persistent(_) => s.m > 32,
            Work::SwapAb(_) => (s.m > 32) == (self.rows > 32),
            Work::SwapAbSplitK(split) => {
                let in_one_wave = split > 1 && self.clusters(s) <= self.at_once();
                let suits = match self.by_maps {
                    [true, true] => s.m <= self.rows || (self.rows == 64 && (s.m <= MOST_ROWS_SPLIT || in_one_wave)),
                    [false, _] => s.m <= self.rows || self.rows == 64,
                    // Up to 16 rows are not worth a copy.
                    [true, false] => s.m > 16,
                };
                suits && self.rows <= 16.max(4 * s.m) && Self::is_long_for(split, s)
            }
            Work::SplitK => self.parts(s) > 1,
        }
    }

    /// Whether its blocks take tile after tile.
    pub(super) fn is_persistent(&self) -> bool {
        matches!(self.work, Work::Persistent(_) | Work::SwapAb(_))
    }

    /// Operations of a slice.
    pub(super) fn flops_of_slice(&self) -> f64 {
        (2 * self.rows * self.cols * SLICE) as f64
    }

    /// Whether lanes load an operand.
    pub(super) fn is_unaligned(&self) -> bool {
        self.by_maps != [true, true]
    }

    /// Clusters that run at the same time on the current GPU.
    pub(super) fn at_once(&self) -> usize {
        scaled(self.at_once)
    }

    /// Blocks that a multiprocessor has at a time, at the most.
    pub(super) fn resident(&self) -> usize {
        (self.at_once * self.cluster()).div_ceil(H200_MULTIPROCESSORS)
    }

    /// The same where there are so many clusters: those of a tile each spread over all multiprocessors.
    pub(super) fn on_a_multiprocessor(&self, clusters: usize) -> usize {
        if self.is_persistent() {
            return self.resident();
        }
        (clusters * self.cluster()).div_ceil(multiprocessors()).clamp(1, self.resident())
    }

    /// Blocks that multicast a to each other, and b.
    pub(super) fn sharing(&self) -> [usize; 2] {
        match self.work {
            Work::Persistent(sharing) | Work::SwapAb(sharing) => sharing,
            Work::SwapAbSplitK(_) | Work::SplitK => [1, 1],
        }
    }

    /// Elements of a and b that a block reads for an output and one of k.
    pub(super) fn read_of_output(&self) -> f64 {
        let [a_sharing, b_sharing] = self.sharing();
        (self.rows / a_sharing + self.cols / b_sharing) as f64 / (self.rows * self.cols) as f64
    }

    /// Blocks of a cluster.
    pub(super) fn cluster(&self) -> usize {
        match self.work {
            Work::Persistent([a_sharing, b_sharing]) | Work::SwapAb([a_sharing, b_sharing]) => a_sharing * b_sharing,
            Work::SwapAbSplitK(split) => split,
            Work::SplitK => 1,
        }
    }

    /// Clusters that the whole product takes, or its tiles where they have parts.
    pub(super) fn clusters(&self, s: &Product) -> usize {
        let [a_sharing, b_sharing] = self.sharing();
        s.m.div_ceil(self.rows).div_ceil(b_sharing) * s.n.div_ceil(self.cols).div_ceil(a_sharing)
    }

    /// Blocks that run at the same time where there are so many clusters, or tiles.
    pub(super) fn blocks_at_once(&self, s: &Product, clusters: usize) -> usize {
        let parts = if self.work == Work::SplitK { self.parts(s) } else { 1 };
        (clusters * parts).min(self.at_once()) * self.cluster()
    }

    /// Parts of k a tile: one wave of blocks.
    pub(super) fn parts(&self, s: &Product) -> usize {
        let most = s.k.div_ceil(SLICE).div_ceil(LEAST_SLICES).min(MOST_PARTS);
        (self.at_once() / self.clusters(s).max(1)).clamp(1, most)
    }

    /// Sums of parts that stand in the workspace.
    pub(super) fn sums(&self, s: &Product) -> usize {
        if self.work == Work::SplitK { self.clusters(s) * self.parts(s) * self.rows * self.cols } else { 0 }
    }

    /// Blocks, cluster and shared memory for so many clusters, each with these parts of k.
    pub(super) fn launch(&self, clusters: usize, parts: usize) -> Launch {
        let stage_bytes = (self.rows + self.cols) * SLICE * ELEMENT_BYTES;
        // Where rows start anywhere, each has 16 bytes more.
        let [of_a, of_b] = self.by_maps;
        let beside_bytes = (usize::from(!of_a) * self.rows + usize::from(!of_b) * self.cols) * 16;
        let ring_bytes = self.stages * (stage_bytes + beside_bytes + 16);
        // A warpgroup has 64 rows of the product, which are columns of c where A and B are swapped.
        let groups = match self.work {
            Work::SwapAbSplitK(_) | Work::SwapAb(_) => self.cols / 64,
            Work::Persistent(_) | Work::SplitK => self.rows / 64,
        };
        let stored_rows = if let Work::SwapAb(_) = self.work { self.rows } else { 2 * 64 };
        let store_bytes = groups * stored_rows * COLUMNS * ELEMENT_BYTES;
        let (clusters, store_bytes) = match self.work {
            Work::Persistent(_) | Work::SwapAb(_) => (clusters.min(self.at_once()), store_bytes),
            Work::SwapAbSplitK(_) => (clusters, 0),
            Work::SplitK => (clusters * parts, 0),
        };
        let cluster = self.cluster();
        Launch::blocks(clusters * cluster, 128 * (groups + 1)).cluster(cluster).shared(ring_bytes + store_bytes)
    }
}
