//! Launch rules: a query a block, or the keys of a head split among the blocks of a cluster.

use super::Step;
use crate::core::candidate::{Cuda, Declare};
use crate::core::launch::Launch;
use crate::ops::family::aligned::MULTIPROCESSORS;

const THREADS: usize = 256;
/// Blocks that split the keys of a head, at the most: the largest cluster that every device of its kind takes.
const MOST_SPLITS: usize = 8;
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

/// Blocks of a cluster: as many as one wave has room for, of powers of two.
fn splits(heads: usize) -> usize {
    let room = (MULTIPROCESSORS / heads.max(1)).clamp(1, MOST_SPLITS);
    1 << room.ilog2()
}

fn split_kv(s: &Step) -> Launch {
    if s.group > MOST_GROUP || s.dim > MOST_DIM || s.dim < LEAST_DIM || !s.dim.is_power_of_two() {
        return a_query_a_block(s);
    }
    let splits = splits(s.batch * s.heads);
    let launch = Launch::blocks(s.batch * s.heads * splits, THREADS).cluster(splits);
    launch.entry(format!("attention_kvcache_cluster_{}", s.group.next_power_of_two()))
}

pub fn naive() -> Cuda<Step> {
    kernel(a_query_a_block).tiles([("past", THREADS), ("dim", 32)])
}

pub fn best() -> Cuda<Step> {
    kernel(split_kv).tiles([("past", MOST_SPLITS), ("past", THREADS), ("group", MOST_GROUP), ("dim", MOST_DIM)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 8)]
    #[case(4, 8)]
    #[case(16, 8)]
    #[case(17, 4)]
    #[case(64, 2)]
    #[case(132, 1)]
    #[case(4096, 1)]
    fn clusters_make_one_wave_while_there_are_few_heads(#[case] heads: usize, #[case] expected: usize) {
        assert_eq!(splits(heads), expected);
    }
}
