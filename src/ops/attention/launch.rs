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
/// The longest dim that an entry serves.
const MOST_DIM: usize = 128;

/// The tile of a block, as its entry has it.
struct Tile {
    entry: &'static str,
    dim: usize,
    /// Keys of a KV block.
    keys: usize,
    /// Consumer warpgroups.
    groups: usize,
    /// Stages of keys, and of values.
    stages: usize,
}

const TILE_64X128: Tile = Tile { entry: "attention_wgmma_64x128", dim: 64, keys: 128, groups: 2, stages: 4 };
const TILE_64X192: Tile = Tile { entry: "attention_wgmma_64x192", dim: 64, keys: 128, groups: 3, stages: 2 };
const TILE_128X128: Tile = Tile { entry: "attention_wgmma_128x128", dim: 128, keys: 128, groups: 2, stages: 2 };

impl Tile {
    fn of(s: &Heads) -> &'static Tile {
        match (s.dim <= TILE_64X192.dim, s.causal) {
            (true, true) => &TILE_64X128,
            (true, false) => &TILE_64X192,
            (false, _) => &TILE_128X128,
        }
    }

    fn queries(&self) -> usize {
        self.groups * GROUP_QUERIES
    }

    /// Queries, outputs, the pipeline of keys and values, and mbarriers.
    fn shared_bytes(&self) -> usize {
        let rows = 2 * self.queries() + 2 * self.stages * self.keys;
        rows * self.dim * ELEMENT_BYTES + 16 + self.stages * 32
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

    fn launch(&self, s: &Heads) -> Launch {
        let of_head = s.queries.div_ceil(self.queries());
        // A long tile and a short one make a unit where there are enough of them.
        let of_unit = if s.causal && s.query_heads() * of_head > multiprocessors() { 2 } else { 1 };
        let units = s.query_heads() * of_head.div_ceil(of_unit);
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
    if s.dim > MOST_DIM { 0 } else { operands(s).iter().map(Aligned::copied_elements).sum::<usize>() * ELEMENT_BYTES }
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
    if dim > MOST_DIM {
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
    if s.dim > MOST_DIM {
        let launch = naive_launch(s).without_pointers();
        let launch = ["q", "k", "v", "y"].into_iter().fold(launch, Launch::pointer);
        return with_scalars(s, launch).into();
    }
    let copies = operands(s).map(|operand| operand.copy("attention_align"));
    Plan(copies.into_iter().flatten().chain([Tile::of(s).launch(s)]).collect())
}
