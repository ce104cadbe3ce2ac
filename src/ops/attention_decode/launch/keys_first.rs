//! Clusters of 64 blocks in all that take the keys of a batch of KV blocks before their values.

use super::cluster_tma::{LARGEST_CLUSTER, with_arguments};
use super::split_kv_tma::CHUNK;
use super::{Share, entry, is_served, key_heads, rows};
use crate::core::launch::{Launch, Plan};
use crate::ops::attention::Heads;
use crate::ops::family::aligned::ELEMENT_BYTES;

/// Splits of a head, most first.
const CLUSTERS: [usize; 3] = [8, 4, 2];
/// Warps of a block that consume KV blocks, and that reduce partials.
const CONSUMERS: usize = 8;
const REDUCERS: usize = 4;
/// Elements of a KV block; a consumer has two stages.
const UNIT: usize = 4096;
const STAGES: usize = 2;
/// KV blocks of a batch, whose scores are kept.
const BATCH_BLOCKS: usize = 4;
/// Blocks of a launch: they read as fast as one on every multiprocessor, and eight clusters put the same load on each group
/// of these. With fewer blocks, or more, `cluster_tma` was faster.
const BLOCKS: usize = 64;
/// Rows of a head of keys that the entries take.
const MOST_ROWS: usize = 4;
/// Keys of a split from which on its start and end pay, of short rows and of long ones.
const FEWEST_KEYS: [usize; 2] = [256, 512];

/// How many blocks share a head, as many keys each but for the last. None where `cluster_tma` serves: for what the entries do not
/// take, for other numbers of heads, and for few keys.
fn share_of(s: &Heads) -> Option<Share> {
    let parts = CLUSTERS.into_iter().find(|&parts| key_heads(s) * parts == BLOCKS)?;
    let share = Share::of(s, BLOCKS, parts);
    let fewest = FEWEST_KEYS[usize::from(entry(s).0 > CHUNK)];
    let serves = share.parts == parts && is_served(s) && rows(s) <= MOST_ROWS && share.keys >= fewest;
    serves.then_some(share)
}

/// The KV blocks in flight, scores and queries, the partials of all splits, and mbarriers.
fn shared_bytes(s: &Heads) -> usize {
    let (dim, rows) = entry(s);
    let of_scores = BATCH_BLOCKS * UNIT / dim * 8 * size_of::<f32>();
    let of_consumer = (STAGES * UNIT + rows * dim) * ELEMENT_BYTES + of_scores + (STAGES + 1) * size_of::<u64>();
    let partials = (rows * dim / CHUNK).max(LARGEST_CLUSTER) * CONSUMERS;
    let reduce_buffer = partials * (CHUNK + 2) * size_of::<f32>() + 3 * size_of::<u64>();
    (CONSUMERS * of_consumer + reduce_buffer).next_multiple_of(1024)
}

fn launch(s: &Heads, share: &Share) -> Launch {
    let (dim, rows) = entry(s);
    let launch = Launch::blocks(BLOCKS, (CONSUMERS + REDUCERS) * 32).cluster(LARGEST_CLUSTER).shared(shared_bytes(s));
    let launch = launch.entry(format!("attention_decode_keys_first_{dim}_{rows}"));
    with_arguments(s, share, launch, UNIT / dim).scalar(share.parts.ilog2() as i32)
}

/// The launch, where it pays.
pub fn plan(s: &Heads) -> Option<Plan> {
    share_of(s).map(|share| launch(s, &share).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention_decode::TIMED;
    use crate::ops::attention_decode::launch::tests::of;
    use rstest::rstest;

    #[rstest]
    #[case::pairs(&TIMED[1], 2)]
    #[case::fours(&of(2, 8, 4096), 4)]
    #[case::as_many_as_a_cluster_takes(&TIMED[2], 8)]
    #[case::short_rows(&Heads { dim: 64, ..of(4, 8, 4096) }, 2)]
    #[case::a_last_part_of_fewer_keys(&of(4, 8, 2000), 2)]
    fn parts_make_64_blocks(#[case] s: &Heads, #[case] parts: usize) {
        assert_eq!(share_of(s).unwrap().parts, parts);
        assert!(shared_bytes(s) <= 227 << 10);
    }

    #[rstest]
    #[case::many_heads(&TIMED[0])]
    #[case::few_heads(&of(1, 4, 32768))]
    #[case::heads_that_do_not_fill_clusters(&of(3, 8, 4096))]
    #[case::few_keys(&of(4, 8, 896))]
    #[case::few_keys_of_short_rows(&Heads { dim: 64, ..of(4, 8, 384) })]
    #[case::many_rows(&Heads { group: 8, ..TIMED[1].clone() })]
    #[case::wide_rows(&Heads { dim: 136, ..TIMED[1].clone() })]
    #[case::nothing(&of(0, 8, 2048))]
    fn the_rest_is_for_cluster_tma(#[case] s: &Heads) {
        assert!(share_of(s).is_none());
    }
}
