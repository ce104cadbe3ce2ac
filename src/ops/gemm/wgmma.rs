//! Launch rules of the products for compute capability 9.0a (`kernels/lib/gemm_wgmma.cuh`): tensor maps, operands that need a
//! copy first, the tile.

use super::Product;
use super::batched;
use super::times::{self, Times};
use crate::core::launch::{Launch, Plan};
use crate::core::tensor_map::{Swizzle, TensorMap};
use crate::core::work::{MatrixTile, Work as Share};
use crate::ops::family::aligned::{Aligned, ELEMENT_BYTES, MULTIPROCESSORS, is_aligned};

/// What the kernels take of k at a time, and columns that a swizzled row holds.
const SLICE: usize = 64;
const COLUMNS: usize = 64;

/// How a block works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    /// Persistent; clusters of so many blocks, one below the other, multicast b.
    Persistent(usize),
    /// A and B swapped, a tile a cluster; its k is split among so many blocks.
    SwapAbSplitK(usize),
    /// A and B swapped, persistent; clusters of so many blocks, beside each other, multicast a.
    SwapAb(usize),
    /// Split-K over as many blocks as there are; a second launch reduces the partial sums.
    SplitK,
}

/// A tile of the product, as its entry has it.
#[derive(Debug, PartialEq)]
pub struct Tile {
    /// What its entries are called behind the operator's name.
    pub name: &'static str,
    /// Rows and columns of c a block.
    rows: usize,
    cols: usize,
    /// Stages of the pipeline.
    stages: usize,
    work: Work,
    /// Clusters that run at the same time.
    at_once: usize,
}

pub(super) const fn tile(
    name: &'static str,
    [rows, cols]: [usize; 2],
    stages: usize,
    work: Work,
    at_once: usize,
) -> Tile {
    Tile { name, rows, cols, stages, work, at_once }
}

/// The tiles without swapping A and B, and those for few rows.
pub const TILES: [Tile; 14] = {
    use Work::{Persistent, SplitK, SwapAbSplitK};
    const ALL: usize = MULTIPROCESSORS;
    [
        tile("128x256", [128, 256], 4, Persistent(1), ALL),
        tile("128x192", [128, 192], 4, Persistent(1), ALL),
        tile("128x192_cluster2", [128, 192], 4, Persistent(2), ALL / 2),
        tile("64x128", [64, 128], 8, Persistent(1), ALL),
        tile("64x128_cluster2", [64, 128], 8, Persistent(2), ALL / 2),
        tile("64x64", [64, 64], 8, Persistent(1), ALL),
        tile("swap_ab_16x64", [16, 64], 10, SwapAbSplitK(1), 2 * ALL),
        tile("swap_ab_16x64_split2", [16, 64], 10, SwapAbSplitK(2), ALL),
        tile("swap_ab_32x64", [32, 64], 9, SwapAbSplitK(1), 2 * ALL),
        tile("swap_ab_32x64_split2", [32, 64], 9, SwapAbSplitK(2), ALL),
        tile("swap_ab_64x64", [64, 64], 7, SwapAbSplitK(1), 2 * ALL),
        tile("swap_ab_64x64_split2", [64, 64], 7, SwapAbSplitK(2), ALL),
        tile("128x128_split_k", [128, 128], 6, SplitK, ALL),
        tile("64x128_split_k", [64, 128], 8, SplitK, ALL),
    ]
};

/// Those with A and B swapped for all shapes.
pub(super) const SWAP_AB: [Tile; 8] = {
    use Work::SwapAb;
    const ALL: usize = MULTIPROCESSORS;
    [
        tile("swap_ab_112x128", [112, 128], 6, SwapAb(1), ALL),
        tile("swap_ab_128x64", [128, 64], 8, SwapAb(1), ALL),
        tile("swap_ab_128x128", [128, 128], 6, SwapAb(1), ALL),
        tile("swap_ab_144x128", [144, 128], 5, SwapAb(1), ALL),
        tile("swap_ab_144x192_cluster2", [144, 192], 4, SwapAb(2), ALL / 2),
        tile("swap_ab_176x128", [176, 128], 4, SwapAb(1), ALL),
        tile("swap_ab_192x128", [192, 128], 4, SwapAb(1), ALL),
        tile("swap_ab_208x128", [208, 128], 4, SwapAb(1), ALL),
    ]
};

/// Every tile that gemm and linear have an entry for.
pub fn tiles() -> impl Iterator<Item = &'static Tile> + Clone {
    TILES.iter().chain(&SWAP_AB)
}

/// Parts of k a tile, at the most, and slices that a part has, at the least.
const MOST_PARTS: usize = 64;
const LEAST_SLICES: usize = 4;

/// Rows up to which a product is bound by its reads of b.
const FEW_ROWS: usize = 512;

/// A line of the caches, and what L2 delivers to one multiprocessor of an H200, measured with rows that straddle lines.
const LINE_BYTES: usize = 128;
const L2_BYTES_PER_US: f64 = 132e3;

/// An operator that is such a product.
pub struct Operation {
    /// Its name: the first part of its entries.
    pub name: &'static str,
    /// The entry that copies rows for tensor maps.
    pub align: &'static str,
    /// Its tensors a and b.
    pub factors: [&'static str; 2],
    /// c, `[m, n]`.
    pub output: &'static str,
    /// Whether a is `[m, k]` and not `[k, m]`.
    pub a_along_k: bool,
    /// Whether b is `[n, k]` and not `[k, n]`.
    pub b_along_k: bool,
    /// So many products, if it is a batch of them: every tensor holds its items one behind the other.
    pub batch: Option<usize>,
    /// Further tensors that the kernels take, behind c.
    pub others: &'static [&'static str],
    /// Whether its kernels wait for the launch ahead themselves.
    pub dependent: bool,
}

/// gemm itself.
pub const GEMM: Operation = Operation {
    name: "gemm",
    align: "gemm_align",
    factors: ["a", "b"],
    output: "c",
    a_along_k: true,
    b_along_k: false,
    batch: None,
    others: &[],
    dependent: false,
};

impl Operation {
    /// Products.
    fn items(&self) -> usize {
        self.batch.unwrap_or(1)
    }

    /// Rows of a in an item, all its rows.
    fn a(&self, s: &Product) -> (usize, Aligned) {
        let [rows, cols] = if self.a_along_k { [s.m, s.k] } else { [s.k, s.m] };
        (rows, Aligned { name: self.factors[0], rows: rows * self.items(), cols, offset: 0 })
    }

    /// The same of b.
    fn b(&self, s: &Product) -> (usize, Aligned) {
        let [rows, cols] = if self.b_along_k { [s.n, s.k] } else { [s.k, s.n] };
        let offset = self.a(s).1.copied_elements();
        (rows, Aligned { name: self.factors[1], rows: rows * self.items(), cols, offset })
    }

    /// The map of a factor whose copies bring boxes of `rows` rows.
    fn map(&self, (of_item, factor): (usize, Aligned), rows: usize) -> TensorMap {
        let map = if self.batch.is_some() { factor.map_of_matrices(of_item) } else { factor.map() };
        map.tile(self.tile([rows, SLICE]))
    }

    /// A box of an item.
    fn tile(&self, tile: [usize; 2]) -> Vec<usize> {
        self.batch.map(|_| 1).into_iter().chain(tile).collect()
    }

    /// Bytes of the copies of a and b, behind which the sums of parts stand.
    fn copied_bytes(&self, s: &Product) -> usize {
        (self.a(s).1.copied_elements() + self.b(s).1.copied_elements()) * ELEMENT_BYTES
    }

    /// Bytes of the copies of a and b, and of the sums of parts.
    pub fn workspace_bytes(&self, tile: &Tile, s: &Product) -> usize {
        self.copied_bytes(s) + tile.sums(s) * 4
    }

    /// The one that is estimated to be the fastest of all. `reads_c`: whether every output needs an element of a matrix like
    /// c, which tiles without swapping A and B wait for.
    pub fn choose(&self, s: &Product, reads_c: bool) -> &'static Tile {
        if self.batch.is_some() {
            return self.choose_among(batched::tiles().filter(|tile| tile.competes_in_batches()), s);
        }
        self.choose_among(tiles().filter(|tile| self.competes(tile, s, reads_c)), s)
    }

    /// Whether a tile can be the fastest beside those with A and B swapped. Of the others with 128 rows these can: the
    /// widest beyond 10¹¹ operations, where the clock follows the power and it moves the fewest bytes; pairs up to there,
    /// where rows straddle lines; wide ones for few rows, since they cut many columns. A swapped one that is to a quarter
    /// outside of c runs out of step with those it shares b with.
    fn competes(&self, tile: &Tile, s: &Product, reads_c: bool) -> bool {
        let few_rows = s.m <= FEW_ROWS && 4 * s.m <= s.n;
        let long = 2 * s.m * s.n * s.k > 100_000_000_000;
        let straddles = [self.a(s), self.b(s)].iter().any(|(_, factor)| !factor.cols.is_multiple_of(SLICE));
        match tile.work {
            Work::Persistent(_) if tile.rows < 128 => true,
            Work::Persistent(1) if tile.cols == 256 && long => !reads_c,
            Work::Persistent(1) => tile.cols >= 192 && few_rows,
            Work::Persistent(_) => straddles && !long,
            Work::SwapAb(_) => 4 * s.m.next_multiple_of(tile.rows) <= 5 * s.m,
            Work::SwapAbSplitK(_) | Work::SplitK => true,
        }
    }

    /// The one of these that is.
    fn choose_among(&self, tiles: impl Iterator<Item = &'static Tile>, s: &Product) -> &'static Tile {
        let times = |tile: &Tile| times::of(tile.name).or_else(|| batched::times_of(tile.name));
        let us = |tile: &Tile| times(tile).map_or(f64::INFINITY, |times| self.estimate_us(tile, times, s));
        let suits = |tile: &Tile| if self.batch.is_some() { tile.stored_us(s).is_some() } else { tile.suits(s) };
        tiles.filter(|tile| suits(tile) && self.has(tile)).min_by(|a, b| us(a).total_cmp(&us(b))).unwrap_or(&TILES[0])
    }

    /// Whether its maps can bring the rows of this tile: boxes of a factor that lies across k have 64 columns.
    pub fn has(&self, tile: &Tile) -> bool {
        self.a_along_k || tile.rows.is_multiple_of(COLUMNS) || !matches!(tile.work, Work::SwapAb(_))
    }

    /// About how long the product takes, in µs: what starts and ends it, and the longest of its products, its copies from
    /// L2 and its reads of memory.
    pub fn estimate_us(&self, tile: &Tile, times: &Times, s: &Product) -> f64 {
        // A row that does not start at a line of 128 bytes touches one more.
        let lines = |(_, factor): (usize, Aligned)| if factor.cols.is_multiple_of(SLICE) { 1 } else { 2 };
        let [a_sharing, b_sharing] = tile.sharing();
        let (of_a, of_b) = (tile.rows / a_sharing * lines(self.a(s)), tile.cols / b_sharing * lines(self.b(s)));
        let bytes_of_slice = (of_a + of_b) * LINE_BYTES * tile.on_a_multiprocessor();
        let slice_us = times.slice_us.max(bytes_of_slice as f64 / L2_BYTES_PER_US);
        let bytes = self.items() * (s.m * s.k + s.k * s.n + s.m * s.n) * ELEMENT_BYTES;
        let memory_us = bytes as f64 / (times.terabytes_per_s * 1e6);
        let clusters = tile.clusters(s) * self.items();
        let waves = clusters.div_ceil(tile.at_once) as f64;
        let slices = s.k.div_ceil(SLICE);
        let busy_us = |waves: f64, slices: usize| (waves * slices as f64 * slice_us).max(memory_us);
        if let Some(stored_us) = self.batch.and_then(|_| tile.stored_us(s)) {
            return times.base_us + (waves * (slices as f64 * slice_us + stored_us)).max(memory_us);
        }
        match tile.work {
            Work::Persistent(_) | Work::SwapAb(_) => {
                times.base_us + busy_us(waves, slices) + (waves - 1.0) * times.further_us
            }
            Work::SwapAbSplitK(split) => waves * times.base_us + busy_us(waves, slices.div_ceil(split)),
            Work::SplitK => {
                let parts = tile.parts(s);
                let waves = (clusters * parts).div_ceil(tile.at_once) as f64;
                let megabytes = (tile.sums(s) * 4) as f64 * 1e-6;
                times.base_us + busy_us(waves, slices.div_ceil(parts)) + megabytes * times.further_us
            }
        }
    }

    /// The launches with this tile; `scalars` come last in those that store outputs.
    pub fn plan(&self, tile: &Tile, s: &Product, scalars: &[i32]) -> Plan {
        if s.m * self.items() == 0 {
            return Plan(Vec::new());
        }
        let copies = [self.a(s).1.copy(self.align), self.b(s).1.copy(self.align)].into_iter().flatten();
        let multiply = self.multiply(tile, s, scalars);
        let add = (tile.work == Work::SplitK).then(|| self.add(tile, s, scalars));
        let launches = copies.chain([multiply]).chain(add);
        Plan(launches.map(|launch| if self.dependent { launch.dependent() } else { launch }).collect())
    }

    /// The product: c and the other tensors or the workspace, maps of a, b and perhaps c, extents.
    fn multiply(&self, tile: &Tile, s: &Product, scalars: &[i32]) -> Launch {
        let [a_sharing, b_sharing] = tile.sharing();
        // Rows of a box: those of the tile where a factor lies along k, a slice of k where it lies across.
        let a = self.map(self.a(s), if self.a_along_k { tile.rows } else { SLICE } / a_sharing);
        let b = self.map(self.b(s), if self.b_along_k { tile.cols } else { SLICE } / b_sharing);
        // Rows of c that no map takes are stored by elements; the kernel then leaves its map alone.
        let extents: Vec<usize> = self.batch.into_iter().chain([s.m, s.n]).collect();
        let c_rows = if let Work::SwapAb(_) = tile.work { tile.rows } else { 64 };
        let c = TensorMap::of(self.output, extents).tile(self.tile([c_rows, COLUMNS]));
        let c = if is_aligned(s.n) { c } else { a.clone() };
        let [a, b, c] = [a, b, c].map(|map| map.swizzle(Swizzle::Bytes128));
        let launch = tile
            .launch(tile.clusters(s) * self.items(), tile.parts(s))
            .entry(format!("{}_{}", self.name, tile.name))
            .without_pointers()
            .shares(self.share(tile, s));
        if tile.work == Work::SplitK {
            let launch = launch.pointer("workspace").map(a).map(b).scalar(self.sums_from(s));
            return with_scalars(launch, s, &[tile.parts(s) as i32]);
        }
        let launch = self.others.iter().copied().fold(launch.pointer(self.output), Launch::pointer);
        with_scalars(launch.map(a).map(b).map(c), s, scalars)
    }

    /// The tiles that the blocks work off.
    fn share(&self, tile: &Tile, s: &Product) -> Share {
        let depth = |parts: usize| s.k.div_ceil(SLICE).div_ceil(parts) * SLICE;
        let of = |tiles: usize, resident: usize, parts: usize| {
            let [a_sharing, b_sharing] = tile.sharing();
            let extents = [tile.rows, tile.cols];
            let matrix = MatrixTile {
                extents,
                shared_by: [a_sharing, b_sharing],
                depth: depth(parts),
                element_bytes: ELEMENT_BYTES,
            };
            Share::product(tiles, resident, &matrix)
        };
        let clusters = tile.clusters(s) * self.items();
        match tile.work {
            Work::Persistent(sharing) | Work::SwapAb(sharing) => {
                of(clusters * sharing, tile.at_once * sharing / MULTIPROCESSORS, 1)
            }
            Work::SwapAbSplitK(split) => of(clusters * split, tile.at_once * split / MULTIPROCESSORS, split),
            Work::SplitK => {
                let parts = tile.parts(s);
                of(clusters * parts, 1, parts).with_partial_sums([tile.rows, tile.cols])
            }
        }
    }

    /// The outputs from the sums of parts, 128 of them a block.
    fn add(&self, tile: &Tile, s: &Product, scalars: &[i32]) -> Launch {
        let entry = format!("{}_{}", self.name, tile.name.replace("_split_k", "_split_k_reduce"));
        let launch = Launch::blocks(tile.sums(s) / tile.parts(s) / 128, 256).entry(entry).without_pointers();
        let launch = self.others.iter().copied().fold(launch.pointer(self.output), Launch::pointer);
        let launch = launch.pointer("workspace").scalar(self.sums_from(s));
        let scalars: Vec<i32> = [tile.parts(s) as i32].into_iter().chain(scalars.iter().copied()).collect();
        with_scalars(launch, s, &scalars)
    }

    /// Where the sums of parts begin in the workspace, in units of 16 bytes.
    fn sums_from(&self, s: &Product) -> i64 {
        (self.copied_bytes(s) / 16) as i64
    }
}

/// Appends the extents and these.
fn with_scalars(launch: Launch, s: &Product, scalars: &[i32]) -> Launch {
    [s.m as i32, s.n as i32, s.k as i32].into_iter().chain(scalars.iter().copied()).fold(launch, Launch::scalar)
}

impl Tile {
    /// Whether it could be the fastest for a shape.
    pub fn suits(&self, s: &Product) -> bool {
        match self.work {
            Work::Persistent(_) | Work::SwapAb(_) => s.m > 32,
            Work::SwapAbSplitK(_) => s.m <= self.rows && self.rows <= 16.max(4 * s.m),
            Work::SplitK => self.parts(s) > 1,
        }
    }

    /// Whether it can be the fastest beside those with A and B swapped in batches of products, where tiles of 128x256
    /// are good for smaller items too.
    fn competes_in_batches(&self) -> bool {
        !matches!(self.work, Work::Persistent(_)) || self.cols == 256 || self.cols == 64
    }

    /// What it takes to store the tile where products come in batches, µs.
    fn stored_us(&self, s: &Product) -> Option<f64> {
        let [by_copies, by_elements] = batched::stored_us(self.name)?;
        Some(if is_aligned(s.n) { by_copies } else { by_elements })
    }

    /// Blocks that stay on one multiprocessor.
    fn on_a_multiprocessor(&self) -> usize {
        if let Work::SwapAb(sharing) = self.work { self.at_once * sharing / MULTIPROCESSORS } else { 1 }
    }

    /// Blocks that multicast a to each other, and b.
    fn sharing(&self) -> [usize; 2] {
        match self.work {
            Work::Persistent(sharing) => [1, sharing],
            Work::SwapAb(sharing) => [sharing, 1],
            Work::SwapAbSplitK(_) | Work::SplitK => [1, 1],
        }
    }

    /// Clusters that the whole product takes, or its tiles where they have parts.
    fn clusters(&self, s: &Product) -> usize {
        let [a_sharing, b_sharing] = self.sharing();
        s.m.div_ceil(self.rows).div_ceil(b_sharing) * s.n.div_ceil(self.cols).div_ceil(a_sharing)
    }

    /// Parts of k a tile: one wave of blocks.
    fn parts(&self, s: &Product) -> usize {
        let most = s.k.div_ceil(SLICE).div_ceil(LEAST_SLICES).min(MOST_PARTS);
        (self.at_once / self.clusters(s).max(1)).clamp(1, most)
    }

    /// Sums of parts that stand in the workspace.
    fn sums(&self, s: &Product) -> usize {
        if self.work == Work::SplitK { self.clusters(s) * self.parts(s) * self.rows * self.cols } else { 0 }
    }

    /// Blocks, cluster and shared memory for so many clusters, each with these parts of k.
    fn launch(&self, clusters: usize, parts: usize) -> Launch {
        let stage_bytes = (self.rows + self.cols) * SLICE * ELEMENT_BYTES;
        let ring_bytes = self.stages * (stage_bytes + 16);
        // A warpgroup has 64 rows of the product, which are columns of c where A and B are swapped.
        let groups = match self.work {
            Work::SwapAbSplitK(_) => 1,
            Work::SwapAb(_) => self.cols / 64,
            Work::Persistent(_) | Work::SplitK => self.rows / 64,
        };
        let stored_rows = if let Work::SwapAb(_) = self.work { self.rows } else { 2 * 64 };
        let store_bytes = groups * stored_rows * COLUMNS * ELEMENT_BYTES;
        let (cluster, clusters, store_bytes) = match self.work {
            Work::Persistent(sharing) | Work::SwapAb(sharing) => (sharing, clusters.min(self.at_once), store_bytes),
            Work::SwapAbSplitK(split) => (split, clusters, 0),
            Work::SplitK => (1, clusters * parts, 0),
        };
        Launch::blocks(clusters * cluster, 128 * (groups + 1)).cluster(cluster).shared(ring_bytes + store_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::IntoCandidate;
    use crate::ops::agreement::judged_in_simulator;
    use rstest::rstest;

    #[rstest]
    #[case(1536, 1536, 1536, "swap_ab_144x128")]
    #[case(1280, 1280, 1280, "swap_ab_112x128")]
    #[case(1792, 1792, 1792, "swap_ab_208x128")]
    #[case(3072, 1024, 4096, "swap_ab_192x128")]
    #[case(512, 5632, 2048, "swap_ab_176x128")]
    #[case(2048, 2048, 2048, "swap_ab_128x128")]
    #[case(4104, 4112, 4120, "swap_ab_144x192_cluster2")]
    #[case(1024, 1024, 1024, "swap_ab_128x64")]
    #[case(1000, 1000, 1000, "64x128_cluster2")]
    #[case(8192, 8192, 8192, "128x256")]
    #[case(16, 14336, 4096, "swap_ab_16x64")]
    #[case(256, 256, 16384, "64x128_split_k")]
    fn rows_make_whole_waves(#[case] m: usize, #[case] n: usize, #[case] k: usize, #[case] name: &str) {
        assert_eq!(GEMM.choose(&Product { m, n, k }, false).name, name);
    }

    #[test]
    fn every_tile_was_measured() {
        assert!(tiles().all(|tile| times::of(tile.name).is_some()));
    }

    /// The gate's shapes are small: most tiles are chosen for none of them.
    #[rstest]
    fn every_tile_is_right_in_the_simulator(
        // Rows for maps in both; copies of a; copies of b, c by elements; copies of both; a box with one whole unit.
        #[values([200, 264, 136], [150, 72, 333], [65, 71, 200], [129, 259, 65], [1, 8, 9])] point: [usize; 3],
    ) {
        let operator = super::super::operator();
        for tile in tiles() {
            let candidate = super::super::wgmma_kernel(move |_| tile).named("tile");
            let judged = judged_in_simulator(&operator, &candidate, point.to_vec());
            assert!(judged.is_ok(), "{} {point:?}: {judged:#?}", tile.name);
        }
    }

    /// Three chunks of columns go out through two buffers: the next tile's first must not take the last one's. With A
    /// and B swapped there is one buffer.
    #[rstest]
    fn a_second_tile_leaves_the_stores_of_the_first_alone(
        #[values("128x192", "128x192_cluster2", "swap_ab_208x128")] name: &str,
    ) {
        let tile = tiles().find(|tile| tile.name == name).unwrap();
        let candidate = super::super::wgmma_kernel(move |_| tile).named("tile");
        // Twelve tiles by twelve, more than there are multiprocessors.
        let judged = judged_in_simulator(&super::super::operator(), &candidate, vec![12 * 128, 12 * 192, 8]);
        assert!(judged.is_ok(), "{judged:#?}");
    }
}
