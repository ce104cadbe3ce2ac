//! The launch rule of the kernel whose clusters share the keys of a head: version 5.

use super::hopper::{self, CHUNK, by_maps, clusters_at_once};
use super::{MOST_PARTS, Share, entry, is_served, key_heads, rows};
use crate::core::launch::{Launch, Plan};
use crate::ops::attention::Heads;
use crate::ops::family::aligned::{ELEMENT_BYTES, MULTIPROCESSORS};

/// Keys of a step of a warp.
pub(super) const KEYS: usize = 16;
/// Parts of a head, most first. Clusters of five and six were slower than of four.
const CLUSTERS: [usize; 5] = [8, 4, 3, 2, 1];
pub(super) const LARGEST_CLUSTER: usize = CLUSTERS[0];
/// Warps of a block, each with a step under way: the fewer are enough where there are many blocks and steps are long.
const WARPS: [usize; 2] = [8, 16];
pub(super) const MANY_BLOCKS: usize = 96;
/// Blocks of the more warps that read nearly as fast as one on every multiprocessor.
const FEWEST_BLOCKS: usize = 56;

/// The share of a block of a head in one of `clusters`, which are parts of a head, most first. None where version 4 serves:
/// for what the entries do not take, and where it is faster: few heads that see many keys, and short rows of more heads than
/// multiprocessors.
pub(super) fn share_of(s: &Heads, clusters: &[usize]) -> Option<Share> {
    let heads = key_heads(s).max(1);
    let is_long = entry(s).0 > CHUNK;
    if !is_served(s) || s.batch == 0 || heads > MULTIPROCESSORS && !is_long {
        return None;
    }
    // A third of a head of short rows was slower than half of it.
    let fits = |&parts: &usize| {
        let at_once = heads * parts <= MULTIPROCESSORS && heads <= clusters_at_once(parts);
        parts == 1 || at_once && (is_long || parts != 3)
    };
    let share = Share::of(s, MULTIPROCESSORS, clusters.iter().copied().find(fits)?);
    let is_few = heads * share.parts < FEWEST_BLOCKS;
    let takes_more = || share.parts < Share::of(s, MULTIPROCESSORS, MOST_PARTS).parts;
    if is_few && takes_more() { None } else { Some(share) }
}

/// A launch of `share.parts` blocks a head of keys, all being a cluster: the entry of a version and what it comes in several
/// numbers of.
pub(super) fn launch(
    s: &Heads,
    share: &Share,
    warps: usize,
    (version, of): (&str, usize),
    shared_bytes: usize,
) -> Launch {
    let (dim, entry_rows) = entry(s);
    let entry = format!("attention_decode_{version}_{dim}_{entry_rows}_{of}");
    let launch = Launch::grid([share.parts, key_heads(s), 1], [warps * 32, 1, 1]).cluster(share.parts);
    with_arguments(s, share, launch.entry(entry).shared(shared_bytes), KEYS)
}

/// What an entry takes whose blocks share the keys of a head, and copy `keys` of them at a time.
pub(super) fn with_arguments(s: &Heads, share: &Share, launch: Launch, keys: usize) -> Launch {
    scalars(s, by_maps(s, launch.without_pointers().pointer("q").pointer("y"), keys)).scalar(share.keys as i32)
}

/// What follows the tensors.
pub(super) fn scalars(s: &Heads, launch: Launch) -> Launch {
    let launch = launch.scalar(rows(s) as i32).scalar(s.queries as i32).scalar(s.keys as i32).scalar(s.dim as i32);
    launch.scalar(i32::from(s.causal)).scalar(s.scale() as f32)
}

/// Bytes of what a block has seen of `CHUNK` elements of a row.
pub(super) const PACKETS: usize = 16 + CHUNK * size_of::<f32>();

/// How many blocks share a head, and how many warps a block has.
struct Split {
    share: Share,
    warps: usize,
}

impl Split {
    fn of(s: &Heads) -> Option<Split> {
        let share = share_of(s, &CLUSTERS)?;
        let is_long = entry(s).0 > CHUNK;
        let few = is_long && key_heads(s) * share.parts >= MANY_BLOCKS || share.keys <= WARPS[0] * KEYS;
        Some(Split { share, warps: WARPS[usize::from(!few)] })
    }

    /// Room for a step a warp, for what the parts of a head leave for each other, queries and barrier objects.
    fn shared_bytes(&self, s: &Heads) -> usize {
        let (dim, rows) = entry(s);
        let shares = rows * dim / CHUNK;
        let of_warp = (2 * KEYS + rows) * dim * ELEMENT_BYTES + rows * 2 * size_of::<f32>() + 2 * size_of::<u64>();
        let met = (shares + LARGEST_CLUSTER - 1) * PACKETS + shares * size_of::<u64>();
        (self.warps * of_warp + met).next_multiple_of(1024)
    }

    fn launch(&self, s: &Heads) -> Launch {
        launch(s, &self.share, self.warps, ("v5", self.warps), self.shared_bytes(s))
    }
}

/// The launch of version 5, or that of version 4.
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
    #[case::pairs(&TIMED[0], 2, 8)]
    #[case::clusters_of_four_do_not_fit(&TIMED[1], 3, 8)]
    #[case::halves_of_short_rows(&Heads { dim: 64, ..of(4, 8, 4096) }, 2, 16)]
    #[case::as_many_as_a_cluster_takes(&TIMED[2], 8, 16)]
    #[case::rather_four_than_five(&of(4, 4, 8192), 4, 16)]
    #[case::no_clusters(&of(10, 10, 4096), 1, 8)]
    #[case::more_heads_than_multiprocessors(&of(8, 32, 1024), 1, 8)]
    #[case::few_keys(&of(1, 2, 300), 5, 8)]
    fn clusters_fit(#[case] s: &Heads, #[case] parts: usize, #[case] warps: usize) {
        let split = Split::of(s).unwrap();
        assert_eq!((split.share.parts, split.warps), (parts, warps));
        assert!(split.shared_bytes(s) <= 227 << 10);
    }

    #[rstest]
    #[case::short_rows_of_many_heads(&TIMED[3])]
    #[case::one_head_of_many_keys(&of(1, 1, 65536))]
    fn the_rest_is_for_version_4(#[case] s: &Heads) {
        assert!(Split::of(s).is_none());
    }
}
