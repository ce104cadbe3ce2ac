//! Launch rules: a query a block, or the keys of a head split among the blocks of a cluster.

use super::Step;
use crate::core::candidate::{Cuda, Declare};
use crate::core::gpu::multiprocessors;
use crate::core::launch::Launch;

const THREADS: usize = 256;
/// Blocks that split the keys of a head, at the most: the largest cluster that every device of its kind takes, and the largest
/// that there is.
const PORTABLE_SPLITS: usize = 8;
const MOST_SPLITS: usize = 16;
/// Heads of keys whose clusters of sixteen run at the same time: a cluster lies within a part of the device (GPC).
const MOST_WIDE_HEADS: usize = 7;
/// Packs of a row that a block has in flight.
const PACKS_AT_ONCE: usize = 4 * THREADS;
/// Elements of a pack in half width.
const PACK_LEN: usize = 8;
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
    kernel!("attention_kvcache/attention_kvcache.cu", "attention_kvcache_naive", plan)
}

fn a_query_a_block(s: &Step) -> Launch {
    Launch::blocks(s.batch * s.heads * s.group, THREADS)
}

/// Blocks of a cluster: as many as one wave has room for, of powers of two; for large groups sixteen where fewer would go to the
/// memory more than once.
fn splits(heads: usize, group: usize, capacity: usize, dim: usize) -> usize {
    let is_long = capacity * dim > PORTABLE_SPLITS * PACKS_AT_ONCE * PACK_LEN;
    if group > MOST_GROUP / 2 && is_long && (1..=MOST_WIDE_HEADS).contains(&heads) {
        return MOST_SPLITS;
    }
    let room = (multiprocessors() / heads.max(1)).clamp(1, PORTABLE_SPLITS);
    1 << room.ilog2()
}

fn split_kv(s: &Step) -> Launch {
    if s.group > MOST_GROUP || s.dim > MOST_DIM || s.dim < LEAST_DIM || !s.dim.is_power_of_two() {
        return a_query_a_block(s);
    }
    let splits = splits(s.batch * s.heads, s.group, s.capacity(), s.dim);
    let launch = Launch::blocks(s.batch * s.heads * splits, THREADS).cluster(splits);
    launch.entry(format!("attention_kvcache_cluster_{}", s.group.next_power_of_two()))
}

pub fn naive() -> Cuda<Step> {
    kernel(a_query_a_block).tiles([("past", THREADS), ("dim", 32)])
}

pub fn best() -> Cuda<Step> {
    let splits = [("past", PORTABLE_SPLITS), ("past", MOST_SPLITS)];
    kernel(split_kv).tiles(splits).tiles([("past", THREADS), ("group", MOST_GROUP), ("dim", MOST_DIM)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::one_stretch_each(4, 8, 1024, 64, 8)]
    #[case::more(4, 8, 1025, 64, 16)]
    #[case::longer_rows(4, 5, 513, 128, 16)]
    #[case::no_room(8, 8, 4096, 64, 8)]
    #[case::small_groups(4, 4, 4096, 64, 8)]
    fn long_caches_of_few_heads_take_wider_clusters(
        #[case] heads: usize,
        #[case] group: usize,
        #[case] capacity: usize,
        #[case] dim: usize,
        #[case] expected: usize,
    ) {
        assert_eq!(splits(heads, group, capacity, dim), expected);
    }

    #[rstest]
    #[case(0, 8)]
    #[case(4, 8)]
    #[case(16, 8)]
    #[case(17, 4)]
    #[case(64, 2)]
    #[case(132, 1)]
    #[case(4096, 1)]
    fn clusters_make_one_wave_while_there_are_few_heads(#[case] heads: usize, #[case] expected: usize) {
        assert_eq!(splits(heads, 8, 512, 64), expected);
    }
}
