//! How heads of keys are shared out among the blocks of versions 8 and 9.

use super::{MOST_DIM, entry, is_served, key_heads};
use crate::ops::attention::Heads;
use std::ops::RangeInclusive;

/// How so many heads of keys are shared out among blocks. A team of blocks walks a head. Where teams are fewer than heads, up to
/// two, and what it has seen of another one's beginning it lends to the next team; where they are more, a part of one.
///
/// An H100 or H200 has seven groups of sixteen multiprocessors or more that clusters may span, and one of fewer: with most
/// numbers of clusters, one of them has more to read than the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Way {
    pub heads: RangeInclusive<usize>,
    /// Blocks of a team: a power of two.
    pub parts: usize,
    pub teams: Teams,
    pub cluster: usize,
    /// Rounds that a group has under way: more of them wait for each other where there are many blocks.
    pub stages: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Teams {
    /// One for each head.
    OfHeads,
    /// So many, a power of two: they lend.
    Number(usize),
    /// So many for each head.
    OfEachHead(usize),
}

const fn way(heads: RangeInclusive<usize>, parts: usize, teams: Teams, cluster: usize, stages: usize) -> Way {
    Way { heads, parts, teams, cluster, stages }
}

/// The best that was measured at 40, 48 and 80 MiB of keys and values, of few heads at 4 to 64 (docs/lab-notes-attention.md).
/// Others stay with the version before.
const WAYS: [Way; 24] = [
    way(1..=1, 8, Teams::OfEachHead(8), 8, 5),
    way(2..=2, 8, Teams::OfEachHead(4), 8, 5),
    way(3..=3, 4, Teams::OfEachHead(5), 4, 5),
    way(4..=4, 8, Teams::OfEachHead(2), 8, 5),
    way(5..=5, 4, Teams::OfEachHead(3), 4, 5),
    way(6..=7, 8, Teams::OfEachHead(2), 8, 4),
    way(8..=8, 8, Teams::OfHeads, 8, 5),
    way(9..=13, 8, Teams::Number(8), 8, 5),
    way(14..=14, 8, Teams::OfHeads, 8, 4),
    way(15..=15, 4, Teams::OfHeads, 4, 5),
    way(16..=16, 4, Teams::OfHeads, 8, 5),
    way(17..=17, 4, Teams::OfHeads, 4, 5),
    way(18..=23, 4, Teams::OfHeads, 4, 4),
    way(24..=27, 4, Teams::Number(16), 8, 5),
    way(28..=28, 4, Teams::OfHeads, 8, 4),
    way(29..=31, 4, Teams::Number(16), 8, 5),
    way(32..=32, 2, Teams::OfHeads, 8, 5),
    way(33..=55, 2, Teams::OfHeads, 2, 4),
    way(56..=56, 2, Teams::OfHeads, 8, 4),
    way(57..=66, 2, Teams::OfHeads, 2, 4),
    way(72..=72, 1, Teams::OfHeads, 3, 4),
    way(80..=80, 1, Teams::OfHeads, 2, 4),
    way(88..=88, 1, Teams::OfHeads, 4, 4),
    way(112..=112, 1, Teams::OfHeads, 8, 4),
];

/// Where it takes longer to multiply than to read, as many blocks as there can be.
fn of_many_blocks(heads: usize) -> Option<Way> {
    match heads {
        2 => Some(way(2..=2, 8, Teams::OfEachHead(7), 8, 4)),
        4 => Some(way(4..=4, 4, Teams::OfEachHead(7), 4, 4)),
        8..=32 => Some(way(heads..=heads, 2, Teams::OfEachHead(64 / heads), 2, 4)),
        _ => None,
    }
}

impl Way {
    /// The way of a shape in half width; none where version 7 serves: for other dims and numbers of heads, and for few keys.
    pub fn in_half_width(s: &Heads) -> Option<Way> {
        let way = Way::of_heads(s)?;
        let fewest_kib = match (&way.teams, way.parts) {
            (Teams::OfEachHead(_), _) if key_heads(s) == 7 => 288,
            (Teams::OfEachHead(_), _) => 64,
            (Teams::Number(_), _) => 384,
            (Teams::OfHeads, 1) => 448,
            _ => 256,
        };
        way.pays(s, size_of::<half::f16>(), fewest_kib)
    }

    /// The same in f32, where version 3 is the other one.
    pub fn in_f32(s: &Heads) -> Option<Way> {
        /// Rows that take longer to multiply than to read.
        const MANY_ROWS: usize = 8;
        let of_many = if entry(s).1 < MANY_ROWS { None } else { of_many_blocks(key_heads(s)) };
        let way = Way::of_heads(s).map(|way| of_many.unwrap_or(way))?;
        let fewest_kib = if way.lends() { 128 } else { 16 };
        way.pays(s, size_of::<f32>(), fewest_kib)
    }

    fn of_heads(s: &Heads) -> Option<Way> {
        let is_served = is_served(s) && s.dim == MOST_DIM;
        WAYS.into_iter().find(|way| is_served && way.heads.contains(&key_heads(s)))
    }

    /// Itself, if blocks have so many keys and values.
    fn pays(self, s: &Heads, element_bytes: usize, fewest_kib: usize) -> Option<Way> {
        let bytes = key_heads(s) * s.keys * 2 * s.dim * element_bytes;
        (bytes >= self.blocks(s) * (fewest_kib << 10)).then_some(self)
    }

    /// Whether teams lend each other what they have seen.
    pub fn lends(&self) -> bool {
        matches!(self.teams, Teams::Number(_))
    }

    fn teams(&self, s: &Heads) -> usize {
        match self.teams {
            Teams::OfHeads => key_heads(s),
            Teams::Number(teams) => teams,
            Teams::OfEachHead(teams) => key_heads(s) * teams,
        }
    }

    /// Blocks of the launch; a few less where a head has fewer rounds than would give each team as many.
    pub fn blocks(&self, s: &Heads) -> usize {
        self.teams(s) * self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention_decode::TIMED;
    use crate::ops::attention_decode::tests::of;
    use rstest::rstest;

    /// No cluster has a part of a team, and no head is of three teams.
    #[test]
    fn ways_fit() {
        let of_many = (1..=66).filter_map(of_many_blocks);
        for way in WAYS.into_iter().chain(of_many) {
            for heads in way.heads.clone() {
                let s = of(1, heads, 8192);
                let teams = way.teams(&s);
                assert!(way.parts.is_power_of_two() && way.cluster.is_multiple_of(way.parts), "{way:?}");
                assert!(way.blocks(&s).is_multiple_of(way.cluster) && way.blocks(&s) <= 132, "{way:?} of {heads}");
                match way.teams {
                    Teams::OfHeads => assert_eq!(teams, heads),
                    Teams::Number(_) => {
                        assert!(teams.is_power_of_two() && teams < heads && heads < 2 * teams, "{way:?}")
                    }
                    // As many as there is room for in attention_split_groups_meet.cuh, each a cluster.
                    Teams::OfEachHead(each) => assert!(each <= 8 && heads <= 32 && way.parts == way.cluster, "{way:?}"),
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
    #[case::few_keys_to_lend(&of(1, 12, 4032))]
    #[case::few_keys_of_heads_alone(&of(9, 8, 832))]
    #[case::short_rows(&Heads { dim: 120, ..TIMED[1].clone() })]
    #[case::many_rows(&Heads { group: 9, ..TIMED[1].clone() })]
    #[case::nothing(&of(0, 8, 2048))]
    fn the_rest_is_for_version_7(#[case] s: &Heads) {
        assert_eq!(Way::in_half_width(s), None);
    }

    #[rstest]
    #[case::many_heads(&of(16, 8, 1024))]
    #[case::few_keys(&of(1, 8, 127))]
    #[case::few_keys_to_lend(&of(1, 12, 682))]
    #[case::short_rows(&Heads { dim: 64, ..TIMED[1].clone() })]
    fn the_rest_is_for_version_3_in_f32(#[case] s: &Heads) {
        assert_eq!(Way::in_f32(s), None);
    }

    #[rstest]
    #[case::fewer_heads_than_teams(&of(1, 3, 4096), 60)]
    #[case::heads_that_fill_a_cluster(&of(1, 8, 4096), 64)]
    #[case::eight_rows(&Heads { group: 8, ..of(1, 8, 4096) }, 128)]
    #[case::eight_rows_of_many_heads(&Heads { group: 8, ..of(5, 8, 4096) }, 80)]
    fn many_products_have_many_blocks(#[case] s: &Heads, #[case] blocks: usize) {
        assert_eq!(Way::in_f32(s).unwrap().blocks(s), blocks);
    }
}
