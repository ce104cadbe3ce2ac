//! Launch rules: the naive kernel, the tiles on mma.sync, and the warp-specialised kernel with its tensor maps and the tensors
//! that need a copy first.

use super::{Heads, scalars};
use crate::core::gpu::multiprocessors;
use crate::core::launch::{Launch, Plan};
use crate::core::tensor_map::{Swizzle, TensorMap};
use crate::core::work::Work;
use crate::ops::family::aligned::{Aligned, ELEMENT_BYTES, is_aligned};

/// Elements of dim that a swizzled row holds.
const CHUNK: usize = 64;
/// Queries of a warpgroup.
const GROUP_QUERIES: usize = 64;
/// The time of a row of queries among three warpgroups over that among two, at dim 64 and without a mask (H200).
const ROW_OF_THREE_GROUPS: f64 = 0.865;
/// The longest dim that the kernel on mma.sync serves.
const MOST_MMA_DIM: usize = 128;
/// Dims whose outputs have shared memory of their own; longer ones are stored from that of the values.
const MOST_STAGED_DIM: usize = 128;

/// The tile of a block, as its entry has it.
#[derive(Debug, PartialEq)]
struct Tile {
    entry: &'static str,
    /// Elements of a row that are multiplied; shared memory holds whole chunks of them.
    dim: usize,
    /// Keys of a KV block.
    keys: usize,
    /// Consumer warpgroups.
    groups: usize,
    /// Stages of keys, and of values.
    stages: usize,
}

const fn tile(entry: &'static str, dim: usize, keys: usize, groups: usize, stages: usize) -> Tile {
    Tile { entry, dim, keys, groups, stages }
}

const TILE_64X128: Tile = tile("attention_wgmma_64x128", 64, 128, 2, 4);
/// Without a mask: a third warpgroup hides more of the others' softmax.
const TILE_64X192: Tile = tile("attention_wgmma_64x192", 64, 128, 3, 2);
/// Of ascending dims.
const TILES: [Tile; 6] = [
    TILE_64X128,
    tile("attention_wgmma_80x128", 80, 128, 2, 2),
    tile("attention_wgmma_96x128", 96, 128, 2, 2),
    tile("attention_wgmma_128x128", 128, 128, 2, 2),
    tile("attention_wgmma_192x128", 192, 112, 2, 2),
    WIDEST_TILE,
];
/// For all dims that the operator has.
const WIDEST_TILE: Tile = tile("attention_wgmma_256x128", 256, 80, 2, 2);

impl Tile {
    fn of(s: &Heads) -> &'static Tile {
        let narrowest = TILES.iter().find(|tile| s.dim <= tile.dim).unwrap_or(&WIDEST_TILE);
        let is_faster = TILE_64X192.rows_in_turn(s) as f64 * ROW_OF_THREE_GROUPS < TILE_64X128.rows_in_turn(s) as f64;
        if *narrowest == TILE_64X128 && !s.causal && is_faster { &TILE_64X192 } else { narrowest }
    }

    /// Rows of queries that a multiprocessor takes one after the other.
    fn rows_in_turn(&self, s: &Heads) -> usize {
        let tiles = s.query_heads() * s.queries.div_ceil(self.queries());
        tiles.div_ceil(multiprocessors()) * self.queries()
    }

    fn queries(&self) -> usize {
        self.groups * GROUP_QUERIES
    }

    /// Queries, outputs unless they take the place of values, the pipeline of keys and values, and mbarriers.
    fn shared_bytes(&self) -> usize {
        let is_staged = self.dim <= MOST_STAGED_DIM;
        let rows = self.queries() * if is_staged { 2 } else { 1 } + 2 * self.stages * self.keys;
        let barriers = 16 + self.stages * 32 + if is_staged { 0 } else { 8 };
        rows * self.dim.next_multiple_of(CHUNK) * ELEMENT_BYTES + barriers
    }

    /// Units of queries, and the keys that one meets: a causal one half of them and a diagonal on average.
    fn work(&self, s: &Heads, units: usize, of_unit: usize) -> Work {
        let keys = if s.causal { (s.keys + self.queries()).div_ceil(2) } else { s.keys };
        let keys = keys.next_multiple_of(self.keys) * of_unit;
        Work {
            tiles: units,
            resident: 1,
            flops: 4 * self.queries() * keys * self.dim,
            cache_bytes: 2 * keys * self.dim * ELEMENT_BYTES,
            extents: [0; 2],
            copied_bytes: 0,
        }
    }

    /// Tiles that a block takes together: a long one and a short one where that leaves the busiest block less to do.
    fn tiles_of_a_unit(&self, s: &Heads) -> usize {
        if s.causal && self.busiest_block(s, 2) <= self.busiest_block(s, 1) { 2 } else { 1 }
    }

    /// KV blocks of the block that has most of them, and as much again for each tile as its start and its end take, where blocks
    /// take units in turn: as the kernel's scheduler deals them out.
    fn busiest_block(&self, s: &Heads, of_unit: usize) -> usize {
        /// What a tile takes beside its KV blocks, in the time of one.
        const BESIDE: usize = 1;
        /// Units of a block after which all that repeats has been seen.
        const MOST_ROUNDS: usize = 64;
        let of_head = s.queries.div_ceil(self.queries());
        let units = of_head.div_ceil(of_unit);
        let of_tile = |tile: usize| {
            let last = ((tile + 1) * self.queries()).min(s.queries) - 1;
            BESIDE + s.seen(last).div_ceil(self.keys).max(1)
        };
        let of_unit = |from_end: usize| {
            let from_start = of_head - 1 - from_end;
            of_tile(from_start) + if of_unit == 2 && from_start != from_end { of_tile(from_end) } else { 0 }
        };
        let mut blocks = vec![0; multiprocessors()];
        for unit in (0..s.query_heads() * units).take(MOST_ROUNDS * blocks.len()) {
            let block = unit % blocks.len();
            blocks[block] += of_unit(unit % units);
        }
        blocks.into_iter().max().unwrap_or(0)
    }

    fn launch(&self, s: &Heads) -> Launch {
        let of_unit = self.tiles_of_a_unit(s);
        let units = s.query_heads() * s.queries.div_ceil(self.queries()).div_ceil(of_unit);
        let [q, k, v] = operands(s);
        let (q, y) = (q.map_of_matrices(s.queries), TensorMap::of("y", [s.query_heads(), s.queries, s.dim]));
        // Rows of y that no map takes are stored from registers; the kernel then leaves its map alone.
        let y = if is_aligned(s.dim) { y } else { q.clone() };
        let maps = [
            q.tile([1, self.queries(), CHUNK]),
            k.map_of_matrices(s.keys).tile([1, self.keys, CHUNK]),
            v.map_of_matrices(s.keys).tile([1, self.keys, CHUNK]),
            y.tile([1, GROUP_QUERIES, CHUNK]),
        ];
        let launch = Launch::blocks(units.min(multiprocessors()), 128 * (self.groups + 1))
            .entry(self.entry)
            .shared(self.shared_bytes())
            .shares(self.work(s, units, of_unit))
            .without_pointers()
            .pointer("y");
        let launch = maps.into_iter().map(|map| map.swizzle(Swizzle::Bytes128)).fold(launch, Launch::map);
        let launch = launch.scalar(s.group as i32).scalar(s.queries as i32).scalar(s.keys as i32).scalar(s.dim as i32);
        let launch = launch.scalar(s.query_heads() as i32).scalar(of_unit as i32);
        launch.scalar(i32::from(s.causal)).scalar(s.scale() as f32)
    }
}

fn operands(s: &Heads) -> [Aligned; 3] {
    let key_rows = s.batch * s.heads * s.keys;
    let q = Aligned { name: "q", rows: s.query_heads() * s.queries, cols: s.dim, offset: 0 };
    let k = Aligned { name: "k", rows: key_rows, cols: s.dim, offset: q.copied_elements() };
    let v = Aligned { name: "v", rows: key_rows, cols: s.dim, offset: k.offset + k.copied_elements() };
    [q, k, v]
}

/// Bytes of the copies of q, k and v.
pub fn workspace_bytes(s: &Heads) -> usize {
    operands(s).iter().map(Aligned::copied_elements).sum::<usize>() * ELEMENT_BYTES
}

pub fn with_scalars(s: &Heads, launch: Launch) -> Launch {
    scalars(s).into_iter().fold(launch, Launch::scalar)
}

/// A query a block, for every shape; without its scalars.
pub fn naive_launch(s: &Heads) -> Launch {
    Launch::blocks(s.query_heads() * s.queries, 256).entry("attention_naive")
}

/// The naive kernel.
pub fn naive(s: &Heads) -> Plan {
    with_scalars(s, naive_launch(s)).into()
}

/// Queries of a block of the kernel on mma.sync.
pub const MMA_QUERIES: usize = 64;

/// 64 queries a block on mma.sync; wide dims are for the naive kernel.
pub fn mma(s: &Heads) -> Plan {
    /// Rows of queries, keys and values in shared memory, of two bytes an element.
    const SHARED_ROWS: usize = 3 * 64;
    let dim = s.dim.next_power_of_two().max(64);
    if dim > MOST_MMA_DIM {
        return naive(s);
    }
    let blocks = s.query_heads() * s.queries.div_ceil(MMA_QUERIES);
    let launch = Launch::blocks(blocks, 128).shared(SHARED_ROWS * dim * 2).entry(format!("attention_mma_{dim}"));
    with_scalars(s, launch).into()
}

/// The launches of the warp-specialised kernel.
pub fn wgmma(s: &Heads) -> Plan {
    if s.batch == 0 {
        return Plan(Vec::new());
    }
    let copies = operands(s).map(|operand| operand.copy("attention_align"));
    Plan(copies.into_iter().flatten().chain([Tile::of(s).launch(s)]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn of(query_heads: usize, queries: usize, dim: usize, causal: bool) -> Heads {
        Heads { batch: 1, heads: query_heads, group: 1, queries, keys: queries, dim, causal }
    }

    #[rstest]
    #[case::short_rows(of(64, 2048, 8, true), "64x128")]
    #[case::a_wave_of_short_tiles(of(16, 1000, 64, false), "64x128")]
    #[case::two_waves_of_either(of(96, 197, 64, false), "64x128")]
    #[case::many_waves(of(32, 4000, 64, false), "64x192")]
    #[case::a_mask(of(32, 4000, 64, true), "64x128")]
    #[case::rows_of_72(of(16, 1000, 72, false), "80x128")]
    #[case::rows_of_96(of(16, 1000, 96, true), "96x128")]
    #[case::rows_of_100(of(16, 1000, 100, true), "128x128")]
    #[case::rows_of_136(of(16, 1000, 136, true), "192x128")]
    #[case::rows_of_256(of(16, 1000, 256, true), "256x128")]
    fn the_tile_follows_the_shape(#[case] s: Heads, #[case] expected: &str) {
        let tile = Tile::of(&s);
        assert_eq!(tile.entry, format!("attention_wgmma_{expected}"));
        assert!(tile.shared_bytes() <= 227 << 10);
    }

    #[rstest]
    #[case::later_tiles_are_longer(of(128, 2048, 128, true), 2)]
    #[case::a_tile_a_block(of(32, 512, 64, true), 1)]
    #[case::no_mask(of(128, 2048, 128, false), 1)]
    #[case::tiles_that_are_hardly_longer(Heads { keys: 3456, ..of(128, 544, 128, true) }, 1)]
    fn tiles_go_in_pairs_where_that_evens_blocks_out(#[case] s: Heads, #[case] expected: usize) {
        assert_eq!(Tile::of(&s).tiles_of_a_unit(&s), expected);
    }
}
