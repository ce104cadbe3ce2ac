//! How heads of keys are split among the blocks of the warpgroup kernels.

use super::{MOST_DIM, entry, is_served, key_heads};
use crate::ops::attention::Heads;
use std::ops::RangeInclusive;

/// How so many heads of keys are split among blocks. A CTA group, blocks of one cluster, takes a head. Where there are fewer
/// CTA groups than heads it takes up to two (stream-K): the partial of the second one's start is reduced with that of the
/// group which takes its end. Where there are more, a head is split among several (split-KV).
///
/// An H100 or H200 has seven groups of sixteen multiprocessors or more that clusters may span, and one of fewer: with most
/// numbers of clusters, one of them has more to read than the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    pub heads: RangeInclusive<usize>,
    /// Blocks of a CTA group: a power of two.
    pub parts: usize,
    pub cta_groups: CtaGroups,
    pub cluster: usize,
    /// KV blocks that a group has in flight, a pipeline stage each: with many thread blocks more of them delay each other.
    pub stages: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub enum CtaGroups {
    /// One for each head.
    OfHeads,
    /// So many, a power of two, under stream-K.
    StreamK(usize),
    /// So many for each head.
    OfEachHead(usize),
}

const fn split(
    heads: RangeInclusive<usize>,
    parts: usize,
    cta_groups: CtaGroups,
    cluster: usize,
    stages: usize,
) -> Split {
    Split { heads, parts, cta_groups, cluster, stages }
}

/// The best that was measured at 40, 48 and 80 MiB of keys and values, of few heads at 4 to 64.
/// Others are for clusters without warpgroups.
const SPLITS: [Split; 24] = [
    split(1..=1, 8, CtaGroups::OfEachHead(8), 8, 5),
    split(2..=2, 8, CtaGroups::OfEachHead(4), 8, 5),
    split(3..=3, 4, CtaGroups::OfEachHead(5), 4, 5),
    split(4..=4, 8, CtaGroups::OfEachHead(2), 8, 5),
    split(5..=5, 4, CtaGroups::OfEachHead(3), 4, 5),
    split(6..=7, 8, CtaGroups::OfEachHead(2), 8, 4),
    split(8..=8, 8, CtaGroups::OfHeads, 8, 5),
    split(9..=13, 8, CtaGroups::StreamK(8), 8, 5),
    split(14..=14, 8, CtaGroups::OfHeads, 8, 4),
    split(15..=15, 4, CtaGroups::OfHeads, 4, 5),
    split(16..=16, 4, CtaGroups::OfHeads, 8, 5),
    split(17..=17, 4, CtaGroups::OfHeads, 4, 5),
    split(18..=23, 4, CtaGroups::OfHeads, 4, 4),
    split(24..=27, 4, CtaGroups::StreamK(16), 8, 5),
    split(28..=28, 4, CtaGroups::OfHeads, 8, 4),
    split(29..=31, 4, CtaGroups::StreamK(16), 8, 5),
    split(32..=32, 2, CtaGroups::OfHeads, 8, 5),
    split(33..=55, 2, CtaGroups::OfHeads, 2, 4),
    split(56..=56, 2, CtaGroups::OfHeads, 8, 4),
    split(57..=66, 2, CtaGroups::OfHeads, 2, 4),
    split(72..=72, 1, CtaGroups::OfHeads, 3, 4),
    split(80..=80, 1, CtaGroups::OfHeads, 2, 4),
    split(88..=88, 1, CtaGroups::OfHeads, 4, 4),
    split(112..=112, 1, CtaGroups::OfHeads, 8, 4),
];

/// Where it takes longer to multiply than to read, as many blocks as there can be.
fn of_many_blocks(heads: usize) -> Option<Split> {
    match heads {
        2 => Some(split(2..=2, 8, CtaGroups::OfEachHead(7), 8, 4)),
        4 => Some(split(4..=4, 4, CtaGroups::OfEachHead(7), 4, 4)),
        8..=32 => Some(split(heads..=heads, 2, CtaGroups::OfEachHead(64 / heads), 2, 4)),
        _ => None,
    }
}

impl Split {
    /// The split of a shape in half width; none for other dims and numbers of heads, and for few keys.
    pub fn in_half_width(s: &Heads) -> Option<Split> {
        let split = Split::of_heads(s)?;
        let fewest_kib = match (&split.cta_groups, split.parts) {
            (CtaGroups::OfEachHead(_), _) if key_heads(s) == 7 => 288,
            (CtaGroups::OfEachHead(_), _) => 64,
            (CtaGroups::StreamK(_), _) => 384,
            (CtaGroups::OfHeads, 1) => 448,
            _ => 256,
        };
        split.pays(s, size_of::<half::f16>(), fewest_kib)
    }

    /// The same in f32.
    pub fn in_f32(s: &Heads) -> Option<Split> {
        /// Rows that take longer to multiply than to read.
        const MANY_ROWS: usize = 8;
        let of_many = if entry(s).1 < MANY_ROWS { None } else { of_many_blocks(key_heads(s)) };
        let split = Split::of_heads(s).map(|split| of_many.unwrap_or(split))?;
        let fewest_kib = if split.is_stream_k() { 128 } else { 16 };
        split.pays(s, size_of::<f32>(), fewest_kib)
    }

    fn of_heads(s: &Heads) -> Option<Split> {
        let is_served = is_served(s) && s.dim == MOST_DIM;
        SPLITS.into_iter().find(|split| is_served && split.heads.contains(&key_heads(s)))
    }

    /// Itself, if blocks have so many keys and values.
    fn pays(self, s: &Heads, element_bytes: usize, fewest_kib: usize) -> Option<Split> {
        let bytes = key_heads(s) * s.keys * 2 * s.dim * element_bytes;
        (bytes >= self.blocks(s) * (fewest_kib << 10)).then_some(self)
    }

    /// Whether it is stream-K.
    pub fn is_stream_k(&self) -> bool {
        matches!(self.cta_groups, CtaGroups::StreamK(_))
    }

    fn cta_groups(&self, s: &Heads) -> usize {
        match self.cta_groups {
            CtaGroups::OfHeads => key_heads(s),
            CtaGroups::StreamK(groups) => groups,
            CtaGroups::OfEachHead(groups) => key_heads(s) * groups,
        }
    }

    /// Blocks of the launch; a few less where a head has fewer KV blocks than would give each CTA group as many.
    pub fn blocks(&self, s: &Heads) -> usize {
        self.cta_groups(s) * self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention_decode::TIMED;
    use crate::ops::attention_decode::launch::tests::of;
    use rstest::rstest;

    /// No cluster has a part of a CTA group, and no head is of three of them.
    #[test]
    fn splits_fit() {
        let of_many = (1..=66).filter_map(of_many_blocks);
        for split in SPLITS.into_iter().chain(of_many) {
            for heads in split.heads.clone() {
                let s = of(1, heads, 8192);
                let groups = split.cta_groups(&s);
                assert!(split.parts.is_power_of_two() && split.cluster.is_multiple_of(split.parts), "{split:?}");
                assert!(
                    split.blocks(&s).is_multiple_of(split.cluster) && split.blocks(&s) <= 132,
                    "{split:?} of {heads}"
                );
                match split.cta_groups {
                    CtaGroups::OfHeads => assert_eq!(groups, heads),
                    CtaGroups::StreamK(_) => {
                        assert!(groups.is_power_of_two() && groups < heads && heads < 2 * groups, "{split:?}")
                    }
                    // As many as warpgroup_global_partials.cuh has slots for, each a cluster.
                    CtaGroups::OfEachHead(each) => {
                        assert!(each <= 8 && heads <= 32 && split.parts == split.cluster, "{split:?}")
                    }
                }
            }
        }
    }

    #[rstest]
    #[case::many_heads(&of(16, 8, 1024))]
    #[case::heads_that_read_unevenly(&of(17, 4, 4096))]
    #[case::seven_heads_of_few_keys(&of(1, 7, 8192))]
    #[case::few_keys_of_few_heads(&of(1, 4, 2032))]
    #[case::few_keys(&of(4, 8, 896))]
    #[case::few_keys_for_stream_k(&of(1, 12, 4032))]
    #[case::few_keys_of_heads_alone(&of(9, 8, 832))]
    #[case::short_rows(&Heads { dim: 120, ..TIMED[1].clone() })]
    #[case::many_rows(&Heads { group: 9, ..TIMED[1].clone() })]
    #[case::nothing(&of(0, 8, 2048))]
    fn the_rest_is_for_clusters(#[case] s: &Heads) {
        assert_eq!(Split::in_half_width(s), None);
    }

    #[rstest]
    #[case::many_heads(&of(16, 8, 1024))]
    #[case::few_keys(&of(1, 8, 127))]
    #[case::few_keys_for_stream_k(&of(1, 12, 682))]
    #[case::short_rows(&Heads { dim: 64, ..TIMED[1].clone() })]
    fn the_rest_is_for_clusters_in_f32(#[case] s: &Heads) {
        assert_eq!(Split::in_f32(s), None);
    }

    #[rstest]
    #[case::fewer_heads_than_cta_groups(&of(1, 3, 4096), 60)]
    #[case::heads_that_fill_a_cluster(&of(1, 8, 4096), 64)]
    #[case::eight_rows(&Heads { group: 8, ..of(1, 8, 4096) }, 128)]
    #[case::eight_rows_of_many_heads(&Heads { group: 8, ..of(5, 8, 4096) }, 80)]
    fn many_products_have_many_blocks(#[case] s: &Heads, #[case] blocks: usize) {
        assert_eq!(Split::in_f32(s).unwrap().blocks(s), blocks);
    }
}
