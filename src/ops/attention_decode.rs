//! Attention of few queries over many keys, as a model needs it that writes a word at a time: the definition of
//! attention, and candidates that share the keys out among blocks.

mod ahead;
mod cluster;
mod groups;
mod hopper;
mod ring;
mod ways;

use super::attention::{HALF, Heads, declare, naive, naive_launch, rounded_weights, tiled, with_scalars};
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::{Launch, Plan};
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::ops::family::aligned::MULTIPROCESSORS;

/// The operator with its candidates.
pub fn suite() -> Suite {
    let own = Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("cuda_v1", cuda("attention_v1", |s| with_scalars(s, naive_launch(s)).into()).untimed())
        .candidate("cuda_v2", tiles(cuda("attention_decode_v2", split).workspace(workspace_bytes)))
        .candidate(
            "cuda_v3",
            tiles(cuda("attention_decode_v3", in_cluster)).needs("sm_90").tolerance(rounded_weights()),
        )
        .candidate("cuda_v4", by_maps("attention_decode_v4", hopper::plan))
        .candidate("cuda_v5", by_maps("attention_decode_v5", cluster::plan))
        .candidate("cuda_v6", by_maps("attention_decode_v6", ring::plan))
        .candidate("cuda_v7", by_maps("attention_decode_v7", ahead::plan))
        .candidate("cuda_v8", by_maps("attention_decode_v8", groups::plan).needs("sm_90a"))
        .candidate(
            "cuda_v9",
            tiles(cuda("attention_decode_v9", groups::plan_in_f32)).dtypes([DType::F32]).needs("sm_90a"),
        );
    with_vendor!(own, "cudnn", super::attention::vendor::cudnn)
}

fn operator() -> Op<Heads> {
    declare("attention_decode").shapes(cases()).perf(TIMED)
}

/// Keys and values of 128, 32, 32, 128 and 64 MiB in half-width types: a group that shares its keys, few sequences, one, heads
/// that share nothing, and fewer heads than clusters fill the device.
const TIMED: [Heads; 5] = [
    Heads { batch: 8, heads: 8, group: 4, queries: 1, keys: 4096, dim: 128, causal: true },
    Heads { batch: 4, heads: 8, group: 4, queries: 1, keys: 2048, dim: 128, causal: true },
    Heads { batch: 1, heads: 8, group: 4, queries: 1, keys: 8192, dim: 128, causal: true },
    Heads { batch: 16, heads: 32, group: 1, queries: 1, keys: 1024, dim: 64, causal: true },
    Heads { batch: 1, heads: 2, group: 4, queries: 1, keys: 65_536, dim: 128, causal: true },
];

/// As (batch, heads, group, queries, keys, dim), always different where they can be: every number of rows that share keys
/// and one too many, narrow and wide dims, both sides of steps and of parts, more heads than run at the same time, heads
/// whose parts fill the device, and such numbers of heads as versions 7 to 9 take.
fn cases() -> impl Iterator<Item = Heads> {
    let rows = (1..=9).map(|group| (1, 2, group, 1, 31, 16));
    let queries =
        [(0, 2, 1, 1, 4, 8), (1, 3, 1, 2, 17, 24), (2, 1, 2, 4, 130, 64), (1, 2, 1, 5, 3, 32), (1, 1, 3, 3, 65, 40)];
    let dims =
        [(1, 2, 4, 1, 15, 1), (1, 1, 1, 1, 1, 8), (2, 1, 8, 1, 63, 72), (1, 2, 3, 1, 64, 136), (1, 1, 2, 1, 20, 100)];
    let long = [(1, 2, 4, 1, 1000, 128), (2, 1, 1, 1, 1025, 64), (1, 1, 5, 1, 4099, 120), (3, 1, 2, 1, 513, 56)];
    let many = [(17, 16, 1, 1, 9, 16), (9, 16, 2, 1, 17, 72)];
    let clusters = [(1, 8, 2, 1, 1060, 128), (2, 4, 1, 2, 1041, 40), (4, 8, 3, 1, 401, 96)];
    let ahead = [(1, 8, 3, 1, 1801, 8), (4, 8, 1, 1, 449, 8), (2, 8, 2, 2, 1800, 72)];
    let groups = [(2, 8, 2, 4, 1801, 128), (1, 8, 3, 1, 3601, 128), (5, 8, 2, 1, 1031, 128)];
    let lent = [(3, 4, 2, 1, 4111, 128), (4, 6, 1, 2, 2081, 128)];
    let gathered = [(1, 2, 3, 1, 8222, 128), (3, 1, 2, 2, 3001, 128), (2, 4, 8, 1, 733, 128)];
    let fixed = rows.chain(queries).chain(dims).chain(long).chain(many).chain(clusters);
    fixed.chain(ahead).chain(groups).chain(lent).chain(gathered).flat_map(
        |(batch, heads, group, queries, keys, dim)| {
            [true, false].map(|causal| Heads { batch, heads, group, queries, keys, dim, causal })
        },
    )
}

/// Rows that an entry serves at most, and elements of their dims.
const MOST_ROWS: usize = 8;
const MOST_DIM: usize = 128;

fn cuda(entry: &str, plan: fn(&Heads) -> Plan) -> Cuda<Heads> {
    kernel!(
        "attention_decode.cu",
        [
            "attention.cuh",
            "attention_split.cuh",
            "attention_split_groups.cuh",
            "attention_split_groups_lanes.cuh",
            "attention_split_groups_meet.cuh",
            "attention_split_groups_merge.cuh",
            "attention_split_groups_products.cuh",
            "attention_split_groups_room.cuh",
            "attention_split_groups_teams.cuh",
            "attention_split_mma.cuh",
            "attention_split_shares.cuh",
            "blocks.cuh",
            "common.cuh",
            "async.cuh",
            "gemm.cuh",
            "gemm_mma.cuh",
            "hopper.cuh"
        ],
        entry,
        plan
    )
}

/// Every warp copies what it walks, by tensor maps, and multiplies in half width.
fn by_maps(entry: &str, plan: fn(&Heads) -> Plan) -> Cuda<Heads> {
    let kernel = kernel!(
        "attention_decode_hopper.cu",
        [
            "attention.cuh",
            "attention_split.cuh",
            "attention_split_ahead.cuh",
            "attention_split_cluster.cuh",
            "attention_split_groups.cuh",
            "attention_split_groups_lanes.cuh",
            "attention_split_groups_meet.cuh",
            "attention_split_groups_merge.cuh",
            "attention_split_groups_products.cuh",
            "attention_split_groups_room.cuh",
            "attention_split_groups_teams.cuh",
            "attention_split_matrices.cuh",
            "attention_split_mma.cuh",
            "attention_split_ring.cuh",
            "attention_split_shares.cuh",
            "attention_split_turned.cuh",
            "blocks.cuh",
            "common.cuh",
            "async.cuh",
            "gemm.cuh",
            "gemm_mma.cuh",
            "hopper.cuh"
        ],
        entry,
        plan
    );
    let kernel = tiles(kernel.tiles([("keys", 128)]).needs("sm_90").workspace(hopper::workspace_bytes));
    kernel.dtypes(HALF).tolerance(rounded_weights())
}

fn tiles(kernel: Cuda<Heads>) -> Cuda<Heads> {
    let kernel = kernel.tiles([("group", 4), ("group", MOST_ROWS), ("queries", MOST_ROWS), ("keys", 16)]);
    kernel.tiles([("keys", 64), ("dim", 8), ("dim", 64), ("dim", MOST_DIM)])
}

/// Rows of a head of keys: the queries of all its query heads.
fn rows(s: &Heads) -> usize {
    s.group * s.queries
}

fn key_heads(s: &Heads) -> usize {
    s.batch * s.heads
}

/// Dim and rows of the entry that serves the shape.
fn entry(s: &Heads) -> (usize, usize) {
    let most_rows = [1, 4, MOST_ROWS].into_iter().find(|&most| rows(s) <= most).unwrap_or(MOST_ROWS);
    (if s.dim <= 64 { 64 } else { MOST_DIM }, most_rows)
}

fn is_served(s: &Heads) -> bool {
    rows(s) <= MOST_ROWS && s.dim <= MOST_DIM && s.dim.is_multiple_of(8)
}

/// How the keys of a head are shared out.
struct Share {
    parts: usize,
    /// Keys of a part; the last may have fewer.
    keys: usize,
}

impl Share {
    /// As many parts as fill `blocks` blocks, none of them shorter than a few steps.
    fn of(s: &Heads, blocks: usize, most_parts: usize) -> Share {
        const FEWEST_KEYS: usize = 64;
        let wanted = (blocks / key_heads(s).max(1)).clamp(1, most_parts);
        let keys = s.keys.div_ceil(wanted).next_multiple_of(FEWEST_KEYS);
        Share { parts: s.keys.div_ceil(keys), keys }
    }

    fn launch(&self, s: &Heads, version: &str, threads: usize) -> Launch {
        let (dim, rows) = entry(s);
        let entry = format!("attention_decode_{version}_{dim}_{rows}");
        Launch::blocks(key_heads(s) * self.parts, threads).entry(entry).without_pointers()
    }

    fn with_scalars(&self, s: &Heads, launch: Launch) -> Launch {
        let launch = launch.scalar(rows(s) as i32).scalar(s.queries as i32).scalar(s.keys as i32).scalar(s.dim as i32);
        let launch = launch.scalar(i32::from(s.causal)).scalar(s.scale() as f32);
        launch.scalar(self.parts as i32).scalar(self.keys as i32)
    }
}

fn with_tensors(launch: Launch) -> Launch {
    ["q", "k", "v", "y"].into_iter().fold(launch, Launch::pointer)
}

/// Blocks of version 2 that run at the same time on an H100 or H200.
const AT_ONCE: usize = 3 * MULTIPROCESSORS;
/// Most parts of a head without a cluster.
const MOST_PARTS: usize = 64;

fn split_share(s: &Heads) -> Share {
    Share::of(s, AT_ONCE, MOST_PARTS)
}

/// Version 2: parts, and a launch that merges what they saw.
fn split(s: &Heads) -> Plan {
    if !is_served(s) {
        return with_scalars(s, with_tensors(naive_launch(s).without_pointers())).into();
    }
    let share = split_share(s);
    let walk = share.with_scalars(s, with_tensors(share.launch(s, "v2", 128)).pointer("workspace"));
    let merge = Launch::blocks(key_heads(s) * rows(s), 128).entry("attention_decode_merge").without_pointers();
    let merge = merge.pointer("y").pointer("workspace").scalar(s.dim as i32).scalar(share.parts as i32);
    Plan(if share.parts > 1 { vec![walk, merge] } else { vec![walk] })
}

/// A largest score, a sum of weights and a weighted sum for each row of each part.
fn workspace_bytes(s: &Heads) -> usize {
    let parts = if is_served(s) { split_share(s).parts } else { 1 };
    // One part writes to y, but the entry takes the address.
    parts * key_heads(s).max(1) * rows(s) * (2 + s.dim) * 4
}

/// Version 3: the parts of a head are a cluster.
fn in_cluster(s: &Heads) -> Plan {
    /// Blocks of a cluster that every device takes.
    const LARGEST_CLUSTER: usize = 8;
    /// Four warps that walk, and one that copies.
    const THREADS: usize = 160;
    /// More of them would not read faster, and have more to merge.
    const BLOCKS: usize = 160;
    /// Of two blocks a multiprocessor.
    const RING_BYTES: usize = 96 << 10;
    /// Of a stage, an element of dim, whatever the dtype.
    const STAGE_BYTES: usize = 256;
    if !is_served(s) {
        return with_scalars(s, naive_launch(s)).into();
    }
    let share = Share::of(s, BLOCKS, LARGEST_CLUSTER);
    let stages = RING_BYTES / (STAGE_BYTES * entry(s).0);
    let launch = with_tensors(share.launch(s, "v3", THREADS)).cluster(share.parts);
    share.with_scalars(s, launch.shared(RING_BYTES + stages * 16)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::agreement;
    use rstest::rstest;

    /// One query for each of four heads of q to one of k, of 128 elements.
    pub fn of(batch: usize, heads: usize, keys: usize) -> Heads {
        Heads { batch, heads, keys, ..TIMED[0].clone() }
    }

    pub fn is_right_in_the_simulator(candidate: &str, point: &[usize]) {
        agreement::is_right_in_the_simulator(&suite(), candidate, point, |_| {});
    }

    #[rstest]
    #[case(&TIMED[0], 6, 704)]
    #[case(&TIMED[3], 1, 1024)]
    #[case(&Heads { batch: 1, heads: 1, keys: 100, ..TIMED[0].clone() }, 2, 64)]
    fn parts_fill_the_device_and_cover_the_keys(#[case] s: &Heads, #[case] parts: usize, #[case] keys: usize) {
        let share = split_share(s);
        assert_eq!((share.parts, share.keys), (parts, keys));
        assert!(share.parts * share.keys >= s.keys && (share.parts - 1) * share.keys < s.keys);
    }
}
