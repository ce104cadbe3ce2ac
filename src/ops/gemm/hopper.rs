//! Launch rules of the gemm kernels for compute capability 9.0a: tensor maps, operands that need a copy first, the tile.

use super::Product;
use crate::core::launch::{Launch, Plan};
use crate::core::tensor_map::{Swizzle, TensorMap};
use crate::ops::family::aligned::{Aligned, ELEMENT_BYTES, MULTIPROCESSORS, is_aligned};

/// Columns of k that the kernels take at a time, and columns of b and c that a swizzled row holds.
const SLICE: usize = 64;
/// One way to cut the product, as its entry does it.
#[derive(Debug, PartialEq)]
struct Tile {
    entry: &'static str,
    /// Rows and columns of c a block.
    rows: usize,
    cols: usize,
    /// Slices under way.
    stages: usize,
    /// Blocks, one below the other, that fetch b for each other.
    sharing: usize,
    /// Blocks that share the k of a tile.
    split: usize,
    /// Clusters that run at the same time.
    at_once: usize,
    /// Time of a slice, and of everything else that a first tile takes, in µs: measured on an H200 with few tiles and
    /// many slices, and with one wave of tiles.
    slice_us: f64,
    base_us: f64,
}

const fn tile(
    entry: &'static str,
    [rows, cols]: [usize; 2],
    stages: usize,
    [sharing, split]: [usize; 2],
    at_once: usize,
    [slice_us, base_us]: [f64; 2],
) -> Tile {
    Tile { entry, rows, cols, stages, sharing, split, at_once, slice_us, base_us }
}

const TILES: [Tile; 9] = [
    tile("gemm_v7", [128, 256], 4, [1, 1], MULTIPROCESSORS, [0.585, 4.1]),
    tile("gemm_v8", [128, 256], 4, [2, 1], MULTIPROCESSORS / 2, [0.590, 4.6]),
    tile("gemm_v9_128x192", [128, 192], 4, [1, 1], MULTIPROCESSORS, [0.443, 3.8]),
    tile("gemm_v9_128x128", [128, 128], 6, [1, 1], MULTIPROCESSORS, [0.299, 3.6]),
    tile("gemm_v9_64x128", [64, 128], 8, [1, 1], MULTIPROCESSORS, [0.214, 3.0]),
    tile("gemm_v9_64x64", [64, 64], 8, [1, 1], MULTIPROCESSORS, [0.163, 2.8]),
    tile("gemm_v9_64x128_split2", [64, 128], 8, [1, 2], 66, [0.214, 6.5]),
    // Clusters must fit into groups of 16 or 18 multiprocessors.
    tile("gemm_v9_64x128_split4", [64, 128], 8, [1, 4], 30, [0.214, 5.0]),
    tile("gemm_v9_64x128_split8", [64, 128], 8, [1, 8], 14, [0.214, 4.8]),
];

/// What a tile after the first adds for its stores, in µs.
const FURTHER_TILE_US: f64 = 2.0;
/// Rows that do not start at 128 bytes touch two cache lines a box row: what that costs where nobody shares the fetch.
const STRADDLING: f64 = 1.17;

impl Tile {
    fn clusters(&self, s: &Product) -> usize {
        s.m.div_ceil(self.rows).div_ceil(self.sharing) * s.n.div_ceil(self.cols)
    }

    fn is_persistent(&self) -> bool {
        self.split == 1
    }

    /// About how long the product takes, in µs.
    fn estimate_us(&self, s: &Product) -> f64 {
        let waves = self.clusters(s).div_ceil(self.at_once) as f64;
        let slices = s.k.div_ceil(SLICE).div_ceil(self.split) as f64;
        let straddles = !(s.k.is_multiple_of(SLICE) && s.n.is_multiple_of(SLICE)) && self.sharing == 1;
        let wave_us = slices * self.slice_us * if straddles { STRADDLING } else { 1.0 };
        if self.is_persistent() {
            self.base_us + waves * wave_us + (waves - 1.0) * FURTHER_TILE_US
        } else {
            waves * (wave_us + self.base_us)
        }
    }

    fn launch(&self, s: &Product) -> Launch {
        let groups = self.rows / 64;
        let clusters = self.clusters(s);
        let stage_bytes = (self.rows + self.cols) * SLICE * ELEMENT_BYTES;
        let store_bytes = groups * 2 * 64 * SLICE * ELEMENT_BYTES;
        let barrier_bytes = self.stages * 16;
        let blocks = if self.is_persistent() { clusters.min(self.at_once) } else { clusters };
        let cluster = self.sharing * self.split;
        let a = factor_a(s).map().tile([self.rows, SLICE]);
        let b = factor_b(s).map().tile([SLICE / self.sharing, SLICE]);
        // Rows of c that no map takes are stored from registers; the kernel then leaves its map alone.
        let c = TensorMap::of("c", [s.m, s.n]).tile([64, SLICE]);
        let c = if is_aligned(s.n) { c } else { a.clone() };
        let maps = [a, b, c].map(|map| map.swizzle(Swizzle::Bytes128));
        let launch = Launch::blocks(blocks * cluster, 128 * (groups + 1))
            .entry(self.entry)
            .cluster(cluster)
            .shared(self.stages * stage_bytes + store_bytes + barrier_bytes)
            .without_pointers()
            .pointer("c");
        let launch = maps.into_iter().fold(launch, Launch::map);
        launch.scalar(s.m as i32).scalar(s.n as i32).scalar(s.k as i32)
    }
}

fn factor_a(s: &Product) -> Aligned {
    Aligned { name: "a", rows: s.m, cols: s.k, offset: 0 }
}

fn factor_b(s: &Product) -> Aligned {
    Aligned { name: "b", rows: s.k, cols: s.n, offset: factor_a(s).copied_elements() }
}

/// Bytes of the copies of a and b.
pub fn workspace_bytes(s: &Product) -> usize {
    (factor_a(s).copied_elements() + factor_b(s).copied_elements()) * ELEMENT_BYTES
}

/// The launches of version `version`: the first two have one tile, the third takes what it estimates to be fastest.
pub fn plan(version: usize, s: &Product) -> Plan {
    match version {
        7 => plan_with(&TILES[0], s),
        8 => plan_with(&TILES[1], s),
        _ => plan_with(choose(s), s),
    }
}

fn choose(s: &Product) -> &'static Tile {
    TILES.iter().min_by(|a, b| a.estimate_us(s).total_cmp(&b.estimate_us(s))).unwrap_or(&TILES[0])
}

fn plan_with(tile: &Tile, s: &Product) -> Plan {
    if s.m == 0 {
        return Plan(Vec::new());
    }
    let copies = [factor_a(s).copy("gemm_align"), factor_b(s).copy("gemm_align")];
    Plan(copies.into_iter().flatten().chain([tile.launch(s)]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::case::Case;
    use crate::check::judge::judge_case;
    use crate::check::{Context, Subject};
    use crate::core::candidate::IntoCandidate;
    use crate::core::distribution::Distribution;
    use crate::core::dtype::DType;
    use crate::device::sim::{FOLDER, SimDevice};
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case(8192, 8192, 8192, "gemm_v7")]
    #[case(8000, 8008, 8024, "gemm_v8")]
    #[case(512, 5632, 2048, "gemm_v9_128x192")]
    #[case(1024, 1024, 1024, "gemm_v9_64x128")]
    #[case(128, 4096, 4096, "gemm_v9_64x64")]
    #[case(64, 8192, 8192, "gemm_v9_64x128_split2")]
    #[case(256, 256, 16384, "gemm_v9_64x128_split8")]
    fn the_tile_follows_the_shape(#[case] m: usize, #[case] n: usize, #[case] k: usize, #[case] entry: &str) {
        assert_eq!(choose(&Product { m, n, k }).entry, entry);
    }

    /// The gate's shapes are small: most tiles are chosen for none of them.
    #[rstest]
    fn every_tile_is_right_in_the_simulator(
        #[values(0, 1, 2, 3, 4, 5, 6, 7, 8)] which: usize,
        // Rows for maps in both; copies of a; copies of b, c from registers; copies of both; a box with one whole unit.
        #[values([200, 264, 136], [150, 72, 333], [65, 71, 200], [129, 259, 65], [1, 8, 9])] point: [usize; 3],
    ) {
        let device = SimDevice::new(Some(format!("{}/{FOLDER}", env!("CARGO_MANIFEST_DIR")).into()));
        let candidate = super::super::hopper(move |s| plan_with(&TILES[which], s)).named("tile");
        let operator = super::super::operator();
        let context = Context::new(&device, 1, Duration::from_secs(60));
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::BF16 };
        let judged = judge_case(&context, &subject, &Case::new(point.to_vec(), Distribution::Normal, 1));
        assert!(judged.is_ok(), "{} {point:?}: {judged:#?}", TILES[which].entry);
    }
}
