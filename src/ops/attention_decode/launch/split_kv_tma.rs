//! Persistent blocks over the splits of all heads, by TMA; partials are reduced in a cluster or in the workspace.

use super::{MOST_PARTS, Share, entry, is_served, key_heads, rows};
use crate::core::gpu::{multiprocessors, scaled};
use crate::core::launch::{Launch, Plan};
use crate::core::tensor_map::Swizzle;
use crate::ops::attention::{Heads, naive_launch, with_scalars};
use crate::ops::family::aligned::{Aligned, ELEMENT_BYTES};

/// Warps of a block.
const WARPS: usize = 8;
/// Keys, and values, that a warp has in flight: two stages of sixteen.
const KEYS_OF_WARP: usize = 32;
/// Elements of dim that a swizzled row holds.
pub(super) const CHUNK: usize = 64;
/// Blocks of a cluster that every device takes.
const LARGEST_CLUSTER: usize = 8;
/// Clusters of so many blocks that run at the same time, a block a multiprocessor: these stand in pairs, and a cluster stays within
/// sixteen neighbours, of which an H100 or H200 has seven times so many at least.
pub(super) fn clusters_at_once(parts: usize) -> usize {
    if parts == 2 { multiprocessors() / 2 } else { scaled(16 / parts * 7) }
}

/// Blocks that read about as fast on an H200 as one on every multiprocessor.
const FEWEST_BLOCKS: usize = 99;

/// How many blocks there are, and where the partials of a head are reduced.
struct Split {
    share: Share,
    items: usize,
    blocks: usize,
    /// In the shared memory of a cluster's first block, else in the workspace.
    in_cluster: bool,
}

impl Split {
    fn of(s: &Heads) -> Split {
        let heads = key_heads(s).max(1);
        let free = Share::of(s, multiprocessors(), MOST_PARTS);
        // Clusters leave multiprocessors empty, and one that does not fit beside the others costs a wave.
        let fits = |&parts: &usize| heads <= clusters_at_once(parts);
        let largest = (2..=LARGEST_CLUSTER.min(multiprocessors() / heads)).rev().find(fits).unwrap_or(1);
        let clustered = Share::of(s, multiprocessors(), largest);
        let enough = clustered.parts == free.parts || heads * clustered.parts >= scaled(FEWEST_BLOCKS);
        let in_cluster = clustered.parts > 1 && enough;
        let share = if in_cluster { clustered } else { free };
        let items = heads * share.parts;
        // Two blocks of short rows share a multiprocessor, so that one reads while the other one reduces.
        let at_once =
            if items > multiprocessors() && s.dim <= CHUNK { 2 * multiprocessors() } else { multiprocessors() };
        let waves = items.div_ceil(at_once).max(1);
        Split { blocks: items.div_ceil(waves), share, items, in_cluster }
    }

    /// The partials of a head.
    fn partials_bytes(&self, s: &Heads) -> usize {
        self.share.parts * rows(s) * (2 + entry(s).0) * size_of::<f32>()
    }

    /// The pipeline, the partials of the warps, and mbarriers.
    fn shared_bytes(&self, s: &Heads) -> usize {
        let (dim, rows) = entry(s);
        let pipeline = WARPS * (2 * KEYS_OF_WARP + 2 * rows) * dim * ELEMENT_BYTES;
        let warps = WARPS * rows * (2 + dim + 4) * size_of::<f32>();
        pipeline + warps + WARPS * 16 + if self.in_cluster { self.partials_bytes(s) } else { 0 }
    }
}

/// The partials of all heads.
pub fn workspace_bytes(s: &Heads) -> usize {
    const NOT_USED: usize = 4; // but the entry takes the address
    if !is_served(s) {
        return NOT_USED;
    }
    let split = Split::of(s);
    if split.share.parts == 1 || split.in_cluster { NOT_USED } else { key_heads(s) * split.partials_bytes(s) }
}

/// With maps of keys and values, of which a copy takes `keys` of a head.
pub(super) fn with_maps(s: &Heads, launch: Launch, keys: usize) -> Launch {
    let map = |name| {
        let operand = Aligned { name, rows: key_heads(s) * s.keys, cols: s.dim, offset: 0 };
        operand.map_of_matrices(s.keys).tile([1, keys, CHUNK]).swizzle(Swizzle::Bytes128)
    };
    launch.map(map("k")).map(map("v"))
}

/// The launch; naive where no entry serves.
pub fn plan(s: &Heads) -> Plan {
    if s.batch == 0 {
        return Plan(Vec::new());
    }
    if !is_served(s) {
        let launch = naive_launch(s).without_pointers();
        return with_scalars(s, ["q", "k", "v", "y"].into_iter().fold(launch, Launch::pointer)).into();
    }
    let split = Split::of(s);
    let (dim, rows) = entry(s);
    let launch = Launch::blocks(split.blocks, WARPS * 32).entry(format!("attention_decode_split_kv_tma_{dim}_{rows}"));
    let launch = launch.shared(split.shared_bytes(s)).cluster(if split.in_cluster { split.share.parts } else { 1 });
    let launch = launch.without_pointers().pointer("q").pointer("y").pointer("workspace");
    let launch = with_maps(s, launch, KEYS_OF_WARP / 2);
    split.share.with_scalars(s, launch).scalar(split.items as i32).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention_decode::TIMED;
    use rstest::rstest;

    #[rstest]
    #[case::pairs(&TIMED[0], 2, 128, true)]
    #[case::too_many_clusters_of_four(&TIMED[1], 4, 128, false)]
    #[case::more_than_a_cluster_takes(&TIMED[2], 16, 128, false)]
    #[case::heads_behind_each_other(&TIMED[3], 1, 256, false)]
    #[case::few_blocks(&Heads { batch: 1, heads: 2, keys: 300, ..TIMED[0].clone() }, 5, 10, true)]
    fn partials_meet_in_clusters_where_they_fit(
        #[case] s: &Heads,
        #[case] parts: usize,
        #[case] blocks: usize,
        #[case] in_cluster: bool,
    ) {
        let split = Split::of(s);
        assert_eq!((split.share.parts, split.blocks, split.in_cluster), (parts, blocks, in_cluster));
        assert!(!split.in_cluster || split.blocks == split.items, "a block of a cluster has one item");
        assert!(split.shared_bytes(s) <= 227 << 10);
    }
}
