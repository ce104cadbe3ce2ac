//! The launch rule of the kernel whose clusters have eight warps a block, with a ring of stages each: version 6.

use super::cluster::{self, KEYS, LARGEST_CLUSTER, MANY_BLOCKS, PACKETS};
use super::hopper::{self, CHUNK};
use super::{Share, entry, key_heads};
use crate::core::launch::{Launch, Plan};
use crate::ops::attention::Heads;
use crate::ops::family::aligned::ELEMENT_BYTES;

/// Parts of a head, most first. Pairs of two stages a warp were faster than threes of one.
const CLUSTERS: [usize; 4] = [8, 4, 2, 1];
/// Warps of a block.
const WARPS: usize = 8;

/// How many blocks share a head, and how many steps a warp has under way.
struct Split {
    share: Share,
    stages: usize,
}

impl Split {
    fn of(s: &Heads) -> Option<Split> {
        let share = cluster::share_of(s, &CLUSTERS)?;
        // Short rows have half as many bytes a step; where there are few blocks each has to ask for more at a time.
        let of_length = if entry(s).0 > CHUNK { 1 } else { 2 };
        let stages = of_length + usize::from(key_heads(s) * share.parts < MANY_BLOCKS);
        Some(Split { share, stages })
    }

    /// Room for the stages, for what the parts of a head leave for each other, queries and barrier objects.
    fn shared_bytes(&self, s: &Heads) -> usize {
        let (dim, rows) = entry(s);
        let shares = rows * dim / CHUNK;
        let of_stage = 2 * KEYS * dim * ELEMENT_BYTES + 2 * size_of::<u64>();
        let of_warp = self.stages * of_stage + rows * (dim * ELEMENT_BYTES + 2 * size_of::<f32>());
        let met = shares * (LARGEST_CLUSTER * PACKETS + size_of::<u64>());
        (WARPS * of_warp + met).next_multiple_of(1024)
    }

    fn launch(&self, s: &Heads) -> Launch {
        cluster::launch(s, &self.share, WARPS, ("v6", self.stages), self.shared_bytes(s))
    }
}

/// The launch of version 6, or that of version 4.
pub fn plan(s: &Heads) -> Plan {
    Split::of(s).map_or_else(|| hopper::plan(s), |split| split.launch(s).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention_decode::TIMED;
    use crate::ops::attention_decode::tests::of;
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
}
