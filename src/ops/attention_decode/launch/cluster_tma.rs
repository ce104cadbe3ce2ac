//! Clusters whose blocks share the keys of a head; every warp has a pipeline of its own.

use super::split_kv_tma::{self, CHUNK, clusters_at_once, with_maps};
use super::{MOST_PARTS, Share, entry, is_served, key_heads, rows};
use crate::core::gpu::{multiprocessors, scaled};
use crate::core::launch::{Launch, Plan};
use crate::ops::attention::Heads;
use crate::ops::family::aligned::ELEMENT_BYTES;

/// Splits of a head, most first. Pairs of two stages a warp were faster than threes of one.
const CLUSTERS: [usize; 4] = [8, 4, 2, 1];
pub(super) const LARGEST_CLUSTER: usize = CLUSTERS[0];
/// Warps of a block.
const WARPS: usize = 8;
/// Keys that a warp multiplies at a time.
const KEYS: usize = 16;
/// Blocks from which on fewer stages are enough on an H200.
const MANY_BLOCKS: usize = 96;
/// Blocks that read nearly as fast on an H200 as one on every multiprocessor.
const FEWEST_BLOCKS: usize = 56;
/// Bytes of a partial: what a block has of `CHUNK` elements of a row.
const PACKET: usize = 16 + CHUNK * size_of::<f32>();

/// How a head is split. None where persistent blocks serve: for what the entries do not take, and where they are faster: few
/// heads that see many keys, and short rows of more heads than multiprocessors.
fn share_of(s: &Heads) -> Option<Share> {
    let heads = key_heads(s).max(1);
    if !is_served(s) || s.batch == 0 || heads > multiprocessors() && entry(s).0 <= CHUNK {
        return None;
    }
    let fits = |&parts: &usize| parts == 1 || heads * parts <= multiprocessors() && heads <= clusters_at_once(parts);
    let share = Share::of(s, multiprocessors(), CLUSTERS.into_iter().find(fits)?);
    let is_few = heads * share.parts < scaled(FEWEST_BLOCKS);
    let takes_more = || share.parts < Share::of(s, multiprocessors(), MOST_PARTS).parts;
    if is_few && takes_more() { None } else { Some(share) }
}

/// What an entry takes whose blocks split the keys of a head, and copy `keys` of them at a time.
pub(super) fn with_arguments(s: &Heads, share: &Share, launch: Launch, keys: usize) -> Launch {
    scalars(s, with_maps(s, launch.without_pointers().pointer("q").pointer("y"), keys)).scalar(share.keys as i32)
}

/// What follows the tensors.
pub(super) fn scalars(s: &Heads, launch: Launch) -> Launch {
    let launch = launch.scalar(rows(s) as i32).scalar(s.queries as i32).scalar(s.keys as i32).scalar(s.dim as i32);
    launch.scalar(i32::from(s.causal)).scalar(s.scale() as f32)
}

/// How a head is split, and the stages of a warp's pipeline.
struct Split {
    share: Share,
    stages: usize,
}

impl Split {
    fn of(s: &Heads) -> Option<Split> {
        let share = share_of(s)?;
        // Short rows have half as many bytes a stage; where there are few blocks each needs more bytes in flight.
        let of_length = if entry(s).0 > CHUNK { 1 } else { 2 };
        let stages = of_length + usize::from(key_heads(s) * share.parts < scaled(MANY_BLOCKS));
        Some(Split { share, stages })
    }

    /// The pipelines, the partials that the splits of a head send each other, queries and mbarriers.
    fn shared_bytes(&self, s: &Heads) -> usize {
        let (dim, rows) = entry(s);
        let shares = rows * dim / CHUNK;
        let of_stage = 2 * KEYS * dim * ELEMENT_BYTES + 2 * size_of::<u64>();
        let of_warp = self.stages * of_stage + rows * (dim * ELEMENT_BYTES + 2 * size_of::<f32>());
        let partials = shares * (LARGEST_CLUSTER * PACKET + size_of::<u64>());
        (WARPS * of_warp + partials).next_multiple_of(1024)
    }

    fn launch(&self, s: &Heads) -> Launch {
        let (dim, rows) = entry(s);
        let entry = format!("attention_decode_cluster_tma_{dim}_{rows}_{}", self.stages);
        let launch = Launch::grid([self.share.parts, key_heads(s), 1], [WARPS * 32, 1, 1]).cluster(self.share.parts);
        with_arguments(s, &self.share, launch.entry(entry).shared(self.shared_bytes(s)), KEYS)
    }
}

/// The cluster, or persistent blocks.
pub fn plan(s: &Heads) -> Plan {
    Split::of(s).map_or_else(|| split_kv_tma::plan(s), |split| split.launch(s).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention_decode::TIMED;
    use crate::ops::attention_decode::launch::tests::of;
    use rstest::rstest;

    #[rstest]
    #[case::pairs(&TIMED[0], 2, 1)]
    #[case::few_pairs(&TIMED[1], 2, 2)]
    #[case::as_many_as_a_cluster_takes(&TIMED[2], 8, 2)]
    #[case::short_rows(&Heads { dim: 64, ..of(4, 8, 4096) }, 2, 3)]
    #[case::short_rows_of_many_blocks(&Heads { dim: 64, ..of(8, 8, 4096) }, 2, 2)]
    #[case::as_many_rows_as_an_entry_takes(&Heads { group: 8, ..of(4, 4, 8192) }, 4, 2)]
    #[case::no_clusters(&of(10, 10, 4096), 1, 1)]
    #[case::more_heads_than_multiprocessors(&of(8, 32, 1024), 1, 1)]
    fn few_blocks_have_more_under_way(#[case] s: &Heads, #[case] parts: usize, #[case] stages: usize) {
        let split = Split::of(s).unwrap();
        assert_eq!((split.share.parts, split.stages), (parts, stages));
        assert!(split.shared_bytes(s) <= 227 << 10);
    }

    #[rstest]
    #[case::short_rows_of_many_heads(&TIMED[3])]
    #[case::one_head_of_many_keys(&of(1, 1, 65536))]
    fn the_rest_is_for_persistent_blocks(#[case] s: &Heads) {
        assert!(Split::of(s).is_none());
    }
}
