//! Decode attention: few queries over many keys, as a language model runs it for every token. The definition is
//! attention's; the candidates split the keys of a head among blocks (split-KV).

mod launch;
#[cfg(test)]
mod tests;

use super::attention::{HALF, Heads, declare, naive, rounded_weights, tiled};
use crate::core::candidate::{Cuda, Declare};
use crate::core::dtype::DType;
use crate::core::launch::Plan;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use launch::MOST_DIM;
pub(super) use launch::{
    MOST_ROWS, best_in_half as half_width_plan, tma_workspace_bytes as half_width_workspace_bytes,
};

/// The operator with its candidates.
pub fn suite() -> Suite {
    let own = Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", kernel("attention_naive", launch::naive).untimed().lesson())
        .candidate("lesson2_split_kv", tiles(split_kv()).lesson())
        .candidate(
            "lesson3_cluster",
            tiles(kernel("attention_naive", launch::cluster_bulk)).dtypes([DType::F32]).needs("sm_90").lesson(),
        )
        .candidate("lesson4_tma", tma_kernel(launch::split_kv_tma).lesson())
        .candidate("lesson5_cluster_tma", tma_kernel(launch::cluster_tma).lesson())
        .candidate("cuda", half_width_kernel())
        .candidate("cuda", tiles(kernel("attention_naive", launch::best_in_f32)).dtypes([DType::F32]).needs("sm_90a"));
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
/// and one too many, narrow and wide dims, both sides of KV blocks and of splits, more heads than run at the same time, heads
/// whose splits fill the device, and the numbers of heads that the warpgroup kernels take.
fn cases() -> impl Iterator<Item = Heads> {
    let rows = (1..=9).map(|group| (1, 2, group, 1, 31, 16));
    let queries =
        [(0, 2, 1, 1, 4, 8), (1, 3, 1, 2, 17, 24), (2, 1, 2, 4, 130, 64), (1, 2, 1, 5, 3, 32), (1, 1, 3, 3, 65, 40)];
    let dims =
        [(1, 2, 4, 1, 15, 1), (1, 1, 1, 1, 1, 8), (2, 1, 8, 1, 63, 72), (1, 2, 3, 1, 64, 136), (1, 1, 2, 1, 20, 100)];
    let long = [(1, 2, 4, 1, 1000, 128), (2, 1, 1, 1, 1025, 64), (1, 1, 5, 1, 4099, 120), (3, 1, 2, 1, 513, 56)];
    let many = [(17, 16, 1, 1, 9, 16), (9, 16, 2, 1, 17, 72)];
    let clusters = [(1, 8, 2, 1, 1060, 128), (2, 4, 1, 2, 1041, 40), (4, 8, 3, 1, 401, 96)];
    let keys_first = [(1, 8, 3, 1, 1801, 8), (4, 8, 1, 1, 449, 8), (2, 8, 2, 2, 1800, 72)];
    let groups = [(2, 8, 2, 4, 1801, 128), (1, 8, 3, 1, 3601, 128), (5, 8, 2, 1, 1031, 128)];
    let stream_k = [(3, 4, 2, 1, 4111, 128), (4, 6, 1, 2, 2081, 128), (1, 11, 1, 1, 803, 128)];
    let split_kv = [(1, 2, 3, 1, 8222, 128), (3, 1, 2, 2, 3001, 128), (2, 4, 8, 1, 733, 128), (2, 1, 1, 1, 1101, 128)];
    let one_row = [(1, 3, 1, 1, 201, 96), (2, 4, 1, 1, 333, 128), (3, 1, 1, 1, 2573, 128), (1, 8, 1, 1, 4097, 72)];
    let eight_rows = [(3, 11, 5, 1, 67, 128), (3, 1, 7, 1, 2579, 128)];
    let full = [
        (9, 16, 1, 1, 17, 72),
        (9, 16, 5, 1, 19, 72),
        (11, 9, 1, 1, 33, 32),
        (11, 9, 3, 1, 21, 32),
        (11, 9, 7, 1, 23, 32),
    ];
    let fixed = rows.chain(queries).chain(dims).chain(long).chain(many).chain(clusters).chain(full);
    fixed.chain(keys_first).chain(groups).chain(stream_k).chain(split_kv).chain(one_row).chain(eight_rows).flat_map(
        |(batch, heads, group, queries, keys, dim)| {
            [true, false].map(|causal| Heads { batch, heads, group, queries, keys, dim, causal })
        },
    )
}

fn kernel(entry: &str, plan: fn(&Heads) -> Plan) -> Cuda<Heads> {
    kernel!("attention_decode/attention_decode.cu", entry, plan)
}

/// Parts of the keys of a head, and a second launch that reduces their partials.
fn split_kv() -> Cuda<Heads> {
    kernel("attention_naive", launch::split_kv).workspace(launch::split_kv_workspace_bytes)
}

/// The best ones in half width.
pub(super) fn half_width_kernel() -> Cuda<Heads> {
    tma_kernel(half_width_plan).needs("sm_90a")
}

/// Kernels in half width whose keys and values come by TMA and are multiplied on tensor cores.
fn tma_kernel(plan: fn(&Heads) -> Plan) -> Cuda<Heads> {
    let kernel = kernel!("attention_decode/attention_decode_tma.cu", "attention_naive", plan);
    let kernel = tiles(kernel.tiles([("keys", 128)]).needs("sm_90").workspace(launch::tma_workspace_bytes));
    kernel.dtypes(HALF).tolerance(rounded_weights())
}

fn tiles(kernel: Cuda<Heads>) -> Cuda<Heads> {
    let kernel = kernel.tiles([("group", 4), ("group", MOST_ROWS), ("queries", MOST_ROWS), ("keys", 16)]);
    kernel.tiles([("keys", 64), ("dim", 8), ("dim", 64), ("dim", MOST_DIM)])
}
