//! Launch rules of the products for compute capability 9.0a (`kernels/lib/gemm_wgmma.cuh`): tensor maps, operands that need a
//! copy first, the tile.

use super::Product;
use super::batched;
use super::tile::{COLUMNS, SLICE, TILES, Tile, Work, tiles};
use super::times::{self, Times};
use crate::core::launch::{Launch, Plan};
use crate::core::tensor_map::{Swizzle, TensorMap};
use crate::core::work::{MatrixTile, Work as Share};
use crate::ops::family::aligned::{Aligned, ELEMENT_BYTES, copy_us, is_aligned};

/// Rows up to which a product is bound by its reads of b.
const FEW_ROWS: usize = 512;

/// Parts of k up to which a warp adds up all of them: FEW_PARTS of the kernels.
const FEW_PARTS: usize = 16;

/// A line of the caches, and what L2 delivers to one multiprocessor of an H200, measured with rows that straddle lines.
const LINE_BYTES: usize = 128;
const L2_BYTES_PER_US: f64 = 132e3;

/// What it delivers of such rows to all of them together: what 360 shapes say best, by steps of 5 %. Without it linear gets a tile that
/// takes 1.030 of the fastest one's time, with it 1.020.
const L2_ALL_BYTES_PER_US: f64 = 12.6e6;

/// Lines that a row of a box costs, whose matrix has rows of so many elements: one that does not begin at a line touches one more, and
/// where it begins at none of its sectors of 32 bytes, one more of these. What 500 shapes with such rows say best.
fn lines_of_row(cols: usize) -> f64 {
    let pitch = cols.next_multiple_of(8); // where copies, too, have the next row
    if pitch.is_multiple_of(SLICE) {
        1.0
    } else if pitch.is_multiple_of(16) {
        1.6
    } else {
        2.0
    }
}

/// How much longer a slice takes lanes that load it, for another block on the multiprocessor: they share what issues instructions.
/// What 241 times of such blocks at 214 shapes on an H200 say best, from 0 to 1.
const SHARED_ISSUE: f64 = 0.75;

/// Operations of a product beyond which the clock follows the power, and how many an H200 then does a µs.
const LONG: usize = 100_000_000_000;
const SUSTAINED_FLOPS_PER_US: f64 = 8e8;

/// Estimates that are as good as the lowest: of these the tile is taken that reads the fewest bytes.
const ALIKE: f64 = 1.01;

/// An operator that is such a product.
#[derive(Clone, Copy)]
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

    /// The operands that the tile has tensor maps of.
    fn by_maps(&self, tile: &Tile, s: &Product) -> impl Iterator<Item = Aligned> {
        let operands = [self.a(s).1, self.b(s).1].into_iter().zip(tile.by_maps);
        operands.filter_map(|(operand, by_map)| by_map.then_some(operand))
    }

    /// Bytes of the copies of a and b that the tile needs, behind which the sums of parts stand.
    fn copied_bytes(&self, tile: &Tile, s: &Product) -> usize {
        self.by_maps(tile, s).map(|operand| operand.copied_elements() * ELEMENT_BYTES).sum()
    }

    /// Bytes of the copies of a and b, and of the sums of parts.
    pub fn workspace_bytes(&self, tile: &Tile, s: &Product) -> usize {
        self.copied_bytes(tile, s) + tile.sums(s) * 4
    }

    /// The one that is estimated to be the fastest of all. `reads_c`: whether every output needs an element of a matrix like
    /// c, which tiles without swapping A and B wait for.
    pub fn choose(&self, s: &Product, reads_c: bool) -> &'static Tile {
        if self.batch.is_some() {
            // Of 70 shapes without such rows two were faster by blocks that multicast, by 2 % at the most.
            let straddles = self.straddles(s);
            return self.choose_among(batched::tiles().filter(|tile| straddles || tile.sharing() == [1, 1]), s);
        }
        self.choose_among(tiles().filter(|tile| self.competes(tile, s, reads_c)), s)
    }

    /// Whether a tile can be the fastest. One of 128x256 waits too long for a matrix like c; a swapped one that is to a quarter
    /// outside of c runs out of step with those it shares b with, unless they multicast a. Where the clock follows the power, times at full
    /// clocks say nothing: of the tiles with 128 rows the widest is left, which moves the fewest bytes, and wide ones for few rows,
    /// since they cut many columns; of the swapped ones those with more rows; clusters of these are where rows straddle lines. So are
    /// those of few rows, which have a multiprocessor for themselves: the next launch of a model then cannot begin beside one.
    fn competes(&self, tile: &Tile, s: &Product, reads_c: bool) -> bool {
        let few_rows = s.m <= FEW_ROWS && 4 * s.m <= s.n;
        let long = flops(s) > LONG;
        let straddles = self.straddles(s);
        match tile.work {
            Work::Persistent(_) if tile.rows < 128 => true,
            Work::Persistent(_) if tile.cols == 256 => !reads_c,
            Work::Persistent(sharing) => !long || (sharing == [1, 1] && few_rows),
            Work::SwapAb([1, 1]) if long && !few_rows && tile.rows < 144 => false,
            Work::SwapAb([1, 1]) => 4 * s.m.next_multiple_of(tile.rows) <= 5 * s.m,
            Work::SwapAb(_) => straddles || (!long && tile.rows > 32),
            Work::SwapAbSplitK(_) | Work::SplitK => true,
        }
    }

    /// Whether rows begin between lines.
    fn straddles(&self, s: &Product) -> bool {
        [self.a(s), self.b(s)].iter().any(|(_, factor)| !factor.cols.is_multiple_of(SLICE))
    }

    /// The one of these that is.
    fn choose_among(&self, tiles: impl Iterator<Item = &'static Tile>, s: &Product) -> &'static Tile {
        let times = |tile: &Tile| times::of(tile.name, self.batch.is_some());
        let us = |tile: &Tile| times(tile).map_or(f64::INFINITY, |times| self.estimate_us(tile, times, s));
        let suiting = tiles.filter(|tile| self.suits(tile, s) && self.has(tile));
        // No estimate of a long product is better than the power allows: then they are alike.
        let flops = flops(s) * self.items();
        let least_us = if flops > LONG { flops as f64 / SUSTAINED_FLOPS_PER_US } else { 0.0 };
        let estimates: Vec<(f64, &'static Tile)> = suiting.map(|tile| (us(tile).max(least_us), tile)).collect();
        let lowest = estimates.iter().map(|(us, _)| *us).fold(f64::INFINITY, f64::min);
        let alike = estimates.into_iter().filter(|(us, _)| *us <= lowest * ALIKE);
        let read_least = alike.min_by(|(a_us, a), (b_us, b)| {
            a.read_of_output().total_cmp(&b.read_of_output()).then(a_us.total_cmp(b_us))
        });
        read_least.map_or(&TILES[0], |(_, tile)| tile)
    }

    /// Whether a tile could be the fastest for a shape. One without tensor maps gains nothing where these take the operands as they are.
    pub fn suits(&self, tile: &Tile, s: &Product) -> bool {
        let aligned = [self.a(s), self.b(s)].iter().all(|(_, factor)| is_aligned(factor.cols));
        let suits = if self.batch.is_some() { tile.suits_batches(s) } else { tile.suits(s) };
        suits && (!aligned || !tile.is_unaligned())
    }

    /// Whether its maps can bring the rows of this tile: boxes of a factor that lies across k have 64 columns.
    pub fn has(&self, tile: &Tile) -> bool {
        self.a_along_k || tile.rows.is_multiple_of(COLUMNS) || !matches!(tile.work, Work::SwapAb(_))
    }

    /// About how long the product takes, with the copies of operands that the tile needs, in µs.
    pub fn estimate_us(&self, tile: &Tile, times: &Times, s: &Product) -> f64 {
        let copied = self.by_maps(tile, s).map(|operand| operand.copied_elements()).filter(|&elements| elements > 0);
        self.product_us(tile, times, s) + copied.map(|elements| copy_us(2 * elements * ELEMENT_BYTES)).sum::<f64>()
    }

    /// About how long the product alone takes: what starts and ends it, and the longest of its products, its copies from L2 and
    /// its reads of memory.
    fn product_us(&self, tile: &Tile, times: &Times, s: &Product) -> f64 {
        let [a_sharing, b_sharing] = tile.sharing();
        let lines = |rows: usize, (_, factor): (usize, Aligned)| rows as f64 * lines_of_row(factor.cols);
        let (of_a, of_b) = (lines(tile.rows / a_sharing, self.a(s)), lines(tile.cols / b_sharing, self.b(s)));
        let clusters = tile.clusters(s) * self.items();
        let together = tile.on_a_multiprocessor(clusters);
        let bytes_of_slice = (of_a + of_b) * LINE_BYTES as f64;
        let from_l2_us = bytes_of_slice * together as f64 / L2_BYTES_PER_US;
        // The times of batches were fitted without it.
        let bound_by_all = self.batch.is_none() && self.straddles(s);
        let to_all_us = if bound_by_all {
            bytes_of_slice * tile.blocks_at_once(s, clusters) as f64 / L2_ALL_BYTES_PER_US
        } else {
            0.0
        };
        let beside = if tile.is_unaligned() { together - 1 } else { 0 };
        let issued_us = times.slice_us * (1.0 + SHARED_ISSUE * beside as f64);
        let slice_us = issued_us.max(from_l2_us).max(to_all_us);
        let bytes = self.items() * (s.m * s.k + s.k * s.n + s.m * s.n) * ELEMENT_BYTES;
        let memory_us = bytes as f64 / (times.terabytes_per_s * 1e6);
        let waves = clusters.div_ceil(tile.at_once()) as f64;
        let slices = s.k.div_ceil(SLICE);
        let busy_us = |waves: f64, slices: usize| (waves * slices as f64 * slice_us).max(memory_us);
        match tile.work {
            Work::Persistent(_) | Work::SwapAb(_) => {
                let by_elements_us = if is_aligned(s.n) { 0.0 } else { times.by_elements_us };
                times.base_us + busy_us(waves, slices) + (waves - 1.0) * times.further_us + waves * by_elements_us
            }
            Work::SwapAbSplitK(split) => waves * times.base_us + busy_us(waves, slices.div_ceil(split)),
            Work::SplitK => {
                let parts = tile.parts(s);
                let waves = (clusters * parts).div_ceil(tile.at_once()) as f64;
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
        let copies = self.by_maps(tile, s).filter_map(|operand| operand.copy(self.align));
        let multiply = self.multiply(tile, s, scalars);
        let add = (tile.work == Work::SplitK).then(|| self.add(tile, s, scalars));
        let launches = copies.chain([multiply]).chain(add);
        Plan(launches.map(|launch| if self.dependent { launch.dependent() } else { launch }).collect())
    }

    /// The product: c and the other tensors or the workspace, maps of a, b and perhaps c, extents.
    fn multiply(&self, tile: &Tile, s: &Product, scalars: &[i32]) -> Launch {
        let launch = tile
            .launch(tile.clusters(s) * self.items(), tile.parts(s))
            .entry(format!("{}_{}", self.name, tile.entry))
            .without_pointers()
            .shares(self.share(tile, s));
        let [a_sharing, b_sharing] = tile.sharing();
        // Rows of a box: those of the tile where a factor lies along k, a slice of k where it lies across.
        let a = self.map(self.a(s), if self.a_along_k { tile.rows } else { SLICE } / a_sharing);
        let a = a.swizzle(Swizzle::Bytes128);
        let b = self.map(self.b(s), if self.b_along_k { tile.cols } else { SLICE } / b_sharing);
        let b = b.swizzle(Swizzle::Bytes128);
        if tile.is_unaligned() {
            let by_lanes = self.factors.into_iter().zip(tile.by_maps).filter(|(_, by_map)| !by_map);
            let pointers = by_lanes.map(|(name, _)| name).chain(self.others.iter().copied()).chain([self.output]);
            let by_maps = [a, b].into_iter().zip(tile.by_maps).filter_map(|(map, by_map)| by_map.then_some(map));
            return with_scalars(by_maps.fold(pointers.fold(launch, Launch::pointer), Launch::map), s, scalars);
        }
        // Rows of c that no map takes are stored by elements; the kernel then leaves its map alone.
        let extents: Vec<usize> = self.batch.into_iter().chain([s.m, s.n]).collect();
        let c_rows = if let Work::SwapAb(_) = tile.work { tile.rows } else { 64 };
        let c = TensorMap::of(self.output, extents).tile(self.tile([c_rows, COLUMNS]));
        let c = if is_aligned(s.n) { c.swizzle(Swizzle::Bytes128) } else { a.clone() };
        if tile.work == Work::SplitK {
            let launch = launch.pointer("workspace").map(a).map(b).scalar(self.sums_from(tile, s));
            return with_scalars(launch, s, &[tile.parts(s) as i32]);
        }
        let launch = self.others.iter().copied().fold(launch.pointer(self.output), Launch::pointer);
        with_scalars(launch.map(a).map(b).map(c), s, scalars)
    }

    /// The tiles that the blocks work off.
    fn share(&self, tile: &Tile, s: &Product) -> Share {
        let clusters = tile.clusters(s) * self.items();
        let (blocks, parts) = match tile.work {
            Work::Persistent(_) | Work::SwapAb(_) => (clusters * tile.cluster(), 1),
            Work::SwapAbSplitK(split) => (clusters * split, split),
            Work::SplitK => (clusters * tile.parts(s), tile.parts(s)),
        };
        let extents = [tile.rows, tile.cols];
        let depth = s.k.div_ceil(SLICE).div_ceil(parts) * SLICE;
        let matrix = MatrixTile { extents, shared_by: tile.sharing(), depth, element_bytes: ELEMENT_BYTES };
        let share = Share::product(blocks, tile.resident(), &matrix);
        if tile.work == Work::SplitK { share.with_partial_sums(extents) } else { share }
    }

    /// The outputs from the sums of parts: a warp has 128 of them, or all eight of a block where there are many parts.
    fn add(&self, tile: &Tile, s: &Product, scalars: &[i32]) -> Launch {
        let entry = format!("{}_{}", self.name, tile.name.replace("_split_k", "_split_k_reduce"));
        let of_block = if tile.parts(s) <= FEW_PARTS { 8 * 128 } else { 128 };
        let launch = Launch::blocks(tile.sums(s) / tile.parts(s) / of_block, 256).entry(entry).without_pointers();
        let launch = self.others.iter().copied().fold(launch.pointer(self.output), Launch::pointer);
        let launch = launch.pointer("workspace").scalar(self.sums_from(tile, s));
        let scalars: Vec<i32> = [tile.parts(s) as i32].into_iter().chain(scalars.iter().copied()).collect();
        with_scalars(launch, s, &scalars)
    }

    /// Where the sums of parts begin in the workspace, in units of 16 bytes.
    fn sums_from(&self, tile: &Tile, s: &Product) -> i64 {
        (self.copied_bytes(tile, s) / 16) as i64
    }
}

fn flops(s: &Product) -> usize {
    2 * s.m * s.n * s.k
}

/// Appends the extents and these.
fn with_scalars(launch: Launch, s: &Product, scalars: &[i32]) -> Launch {
    [s.m as i32, s.n as i32, s.k as i32].into_iter().chain(scalars.iter().copied()).fold(launch, Launch::scalar)
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
    #[case(2048, 2048, 2048, "128x256_cluster2")]
    #[case(4104, 4112, 4120, "swap_ab_192x192_cluster2")]
    #[case(1024, 1024, 1024, "swap_ab_128x64")]
    #[case(1000, 1000, 1000, "swap_ab_192x64_cluster4")]
    #[case(8192, 8192, 8192, "128x256_cluster2")]
    #[case(16, 14336, 4096, "swap_ab_16x64")]
    #[case(256, 256, 16384, "swap_ab_64x64_split8")]
    #[case(168, 7736, 8168, "swap_ab_176x64_cluster2")]
    fn rows_make_whole_waves(#[case] m: usize, #[case] n: usize, #[case] k: usize, #[case] name: &str) {
        assert_eq!(GEMM.choose(&Product { m, n, k }, false).name, name);
    }

    #[test]
    fn every_tile_was_measured() {
        assert!(tiles().all(|tile| times::of(tile.name, false).is_some()));
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
