//! Launch rules: a query a block, or the keys of a head split among the blocks of a cluster.

use super::Step;
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;

const THREADS: usize = 256;
/// Blocks that split the keys of a head: the largest cluster that every device of its kind takes.
const CLUSTER: usize = 8;
/// Query heads of a head of keys that a thread keeps in registers.
pub const MOST_GROUP: usize = 8;
/// The longest rows that the cluster kernel serves, and the shortest; those between are powers of two.
pub const MOST_DIM: usize = 128;
pub const LEAST_DIM: usize = 32;

fn kernel(rule: fn(&Step) -> Launch) -> Cuda<Step> {
    let plan = move |s: &Step| {
        let extents = [s.batch, s.heads, s.group, s.dim, s.capacity()].map(|extent| extent as i32);
        let launch = extents.into_iter().fold(rule(s).dependent(), Launch::scalar);
        launch.scalar((1.0 / (s.dim as f64).sqrt()) as f32)
    };
    kernel!(
        "attention_kvcache/attention_kvcache.cu",
        [
            "common.cuh",
            "lib/async.cuh",
            "lib/cached_attention.cuh",
            "lib/cluster.cuh",
            "lib/dependent.cuh",
            "lib/hopper.cuh",
            "lib/online_softmax.cuh"
        ],
        "attention_kvcache_naive",
        plan
    )
}

fn a_query_a_block(s: &Step) -> Launch {
    Launch::blocks(s.batch * s.heads * s.group, THREADS)
}

fn split_kv(s: &Step) -> Launch {
    if s.group > MOST_GROUP || s.dim > MOST_DIM || s.dim < LEAST_DIM || !s.dim.is_power_of_two() {
        return a_query_a_block(s);
    }
    let launch = Launch::blocks(s.batch * s.heads * CLUSTER, THREADS).cluster(CLUSTER);
    launch.entry(format!("attention_kvcache_cluster_{}", s.group.next_power_of_two()))
}

pub fn naive() -> Cuda<Step> {
    kernel(a_query_a_block).tiles([("past", THREADS), ("dim", 32)])
}

pub fn best() -> Cuda<Step> {
    kernel(split_kv).tiles([("past", CLUSTER), ("past", THREADS), ("group", MOST_GROUP), ("dim", MOST_DIM)])
}
