//! The launch rule of the kernels whose warp groups walk: version 8, and in f32 version 9.

use super::cluster::{LARGEST_CLUSTER, scalars};
use super::{MOST_DIM, ahead, entry, in_cluster, is_served, key_heads};
use crate::core::launch::{Launch, Plan};
use crate::core::tensor_map::{Swizzle, TensorMap};
use crate::ops::attention::Heads;
use std::ops::RangeInclusive;

/// How so many heads of keys are shared out among blocks. A team of blocks walks a head. Where teams are fewer than heads, up to
/// two, and what it has seen of another one's beginning it lends to the next team; where they are more, a part of one.
///
/// An H100 or H200 has seven groups of sixteen multiprocessors or more that clusters may span, and one of fewer: with most
/// numbers of clusters, one of them has more to read than the others.
#[derive(Debug, Clone, PartialEq)]
struct Way {
    heads: RangeInclusive<usize>,
    /// Blocks of a team: a power of two.
    parts: usize,
    teams: Teams,
    cluster: usize,
    /// Rounds that a group has under way: more of them wait for each other where there are many blocks.
    stages: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Teams {
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

/// The best that was measured at 40, 48 and 80 MiB of keys and values, of few heads at 16 to 64 (docs/lab-notes-attention.md).
/// Others stay with the version before.
const WAYS: [Way; 21] = [
    way(1..=1, 8, Teams::OfEachHead(8), 8, 5),
    way(2..=2, 8, Teams::OfEachHead(4), 8, 5),
    way(4..=4, 8, Teams::OfEachHead(2), 8, 5),
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

/// Warp groups of a block that walk, and warps that copy and merge.
const GROUPS: usize = 2;
const MERGERS: usize = 4;
/// Rounds that a group has under way, and rounds of a chapter, at most.
const MOST_STAGES: usize = 5;
const MOST_ROUNDS: usize = 8;
/// Bytes of a row of a box.
const ROW_BYTES: usize = 128;
/// Warps of a group.
const WARPS: usize = 4;
/// Rows that numbers are kept of: of the products' right factors, queries and weights of a round's keys.
const COLUMNS: usize = 8;
/// Elements of a row that a warp merges.
const SHARE: usize = 64;
/// The end of a head, a whole one, and the beginning of another.
const PIECES: usize = 3;

/// What a warp group walks by.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Walk {
    /// Warp-group products of half-width types: version 8.
    Products,
    /// Multiply-adds in f32: version 9.
    Lanes,
}

impl Walk {
    fn version(self) -> &'static str {
        match self {
            Walk::Products => "v8",
            Walk::Lanes => "v9",
        }
    }

    fn element_bytes(self) -> usize {
        match self {
            Walk::Products => 2,
            Walk::Lanes => 4,
        }
    }

    /// Keys that a group multiplies at a time, a round, and elements of a row of a box: a round has the same bytes in all dtypes.
    fn keys(self) -> usize {
        ROW_BYTES / self.element_bytes()
    }

    /// Rows of queries and weights that there is room for.
    fn columns(self, s: &Heads) -> usize {
        match self {
            Walk::Products => COLUMNS,
            Walk::Lanes => entry(s).1,
        }
    }
}

impl Way {
    /// None where the version before serves: for other dims and numbers of heads, and for few keys.
    fn of(s: &Heads, walk: Walk) -> Option<Way> {
        if !is_served(s) || s.dim != MOST_DIM {
            return None;
        }
        let way = WAYS.into_iter().find(|way| way.heads.contains(&key_heads(s)))?;
        let bytes = key_heads(s) * s.keys * 2 * s.dim * walk.element_bytes();
        (bytes >= way.blocks(s) * way.fewest_bytes()).then_some(way)
    }

    /// Keys and values of a block from which on it pays.
    fn fewest_bytes(&self) -> usize {
        match (&self.teams, self.parts) {
            (Teams::Number(_), _) => 384 << 10,
            (Teams::OfHeads, 1) => 448 << 10,
            _ => 256 << 10,
        }
    }

    fn lends(&self) -> bool {
        matches!(self.teams, Teams::Number(_))
    }

    fn teams(&self, s: &Heads) -> usize {
        match self.teams {
            Teams::OfHeads => key_heads(s),
            Teams::Number(teams) => teams,
            Teams::OfEachHead(teams) => key_heads(s) * teams,
        }
    }

    fn blocks(&self, s: &Heads) -> usize {
        self.teams(s) * self.parts
    }

    /// Values that were under way with the first keys of the only chapter would delay these.
    fn stages(&self, s: &Heads, walk: Walk) -> usize {
        let rounds = (key_heads(s) * s.keys.div_ceil(walk.keys())).div_ceil(self.blocks(s) * GROUPS);
        self.stages.min(rounds)
    }

    /// Room for the rounds under way, queries and weights, for what the groups of all parts have seen, and barrier objects.
    fn shared_bytes(&self, s: &Heads, walk: Walk) -> usize {
        let (dim, rows) = entry(s);
        let of_queries = dim * walk.columns(s) * walk.element_bytes();
        let of_weights = MOST_ROUNDS * walk.keys() * walk.columns(s) * walk.element_bytes();
        let of_warps = WARPS * COLUMNS * 2 * size_of::<f32>();
        let of_stages = MOST_STAGES * (dim * ROW_BYTES + 2 * size_of::<u64>());
        let seen = (rows * dim / SHARE).max(LARGEST_CLUSTER) * GROUPS;
        let inbox = seen * (SHARE + 2) * size_of::<f32>() + 2 * size_of::<u64>();
        let of_piece = inbox + GROUPS * (of_queries + of_warps);
        let pieces = if self.lends() { PIECES } else { 1 };
        (GROUPS * (of_stages + of_weights) + pieces * of_piece).next_multiple_of(1024)
    }

    fn launch(&self, s: &Heads, walk: Walk) -> Launch {
        let keys = walk.keys();
        let map = |name| {
            let map = TensorMap::of(name, [key_heads(s), s.dim / keys, s.keys, keys]).strides([s.keys * s.dim, keys, s.dim]);
            map.tile([1, s.dim / keys, keys, keys]).swizzle(Swizzle::Bytes128)
        };
        let rounds = s.keys.div_ceil(keys);
        // What all teams have that lend, heads, or each of several teams of a head, rounds; such heads are along y.
        let (kind, share, lending, along_y) = match self.teams {
            Teams::OfHeads => ("whole", 1, 1, 1),
            Teams::Number(teams) => ("lent", key_heads(s), teams, 1),
            Teams::OfEachHead(teams) => ("gathered", rounds.div_ceil(teams), 1, key_heads(s)),
        };
        let grid = [self.blocks(s) / along_y, along_y, 1];
        let launch = Launch::grid(grid, [(GROUPS * WARPS + MERGERS) * 32, 1, 1]).cluster(self.cluster);
        let launch = launch.shared(self.shared_bytes(s, walk));
        let launch = launch.entry(format!("attention_decode_{}_{kind}_128_{}", walk.version(), entry(s).1));
        let launch = launch.without_pointers().pointer("q").pointer("y").map(map("k")).map(map("v"));
        let launch = scalars(s, launch).scalar(rounds as i32);
        let launch = launch.scalar(share as i32).scalar(lending.ilog2() as i32);
        launch.scalar(self.parts.ilog2() as i32).scalar(self.stages(s, walk) as i32)
    }
}

/// The launch of version 8, or that of version 7.
pub fn plan(s: &Heads) -> Plan {
    Way::of(s, Walk::Products).map_or_else(|| ahead::plan(s), |way| way.launch(s, Walk::Products).into())
}

/// The launch of version 9, in f32, or that of version 3.
pub fn plan_in_f32(s: &Heads) -> Plan {
    Way::of(s, Walk::Lanes).map_or_else(|| in_cluster(s), |way| way.launch(s, Walk::Lanes).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention_decode::TIMED;
    use crate::ops::attention_decode::tests::{is_right_in_the_simulator, of};
    use rstest::rstest;

    #[rstest]
    #[case::as_many_rows_as_an_entry_takes(&Heads { group: 8, ..of(2, 4, 8192) }, 64, 8, 5)]
    #[case::a_chapter_of_few_keys(&of(4, 8, 1024), 64, 8, 4)]
    #[case::two_clusters_a_group_of_multiprocessors(&of(7, 8, 2048), 112, 8, 4)]
    #[case::lent(&of(1, 10, 8192), 64, 8, 5)]
    #[case::lent_by_halves_of_clusters(&Heads { group: 8, ..of(3, 8, 4096) }, 64, 8, 5)]
    #[case::pairs(&of(5, 8, 2048), 80, 2, 4)]
    #[case::alone(&of(9, 8, 4096), 72, 3, 4)]
    #[case::teams_of_the_same_head(&of(1, 2, 32768), 64, 8, 5)]
    fn blocks_read_evenly(#[case] s: &Heads, #[case] blocks: usize, #[case] cluster: usize, #[case] stages: usize) {
        let way = Way::of(s, Walk::Products).unwrap();
        assert_eq!((way.blocks(s), way.cluster, way.stages(s, Walk::Products)), (blocks, cluster, stages));
        assert!([Walk::Products, Walk::Lanes].iter().all(|&walk| way.shared_bytes(s, walk) <= 227 << 10));
    }

    /// No cluster has a part of a team, and no head is of three teams.
    #[test]
    fn ways_fit() {
        for way in WAYS {
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
                    Teams::OfEachHead(each) => assert!(each <= 8 && heads <= 8, "{way:?}"),
                }
            }
        }
    }

    #[rstest]
    #[case::many_heads(&of(16, 8, 1024))]
    #[case::heads_that_read_unevenly(&of(17, 4, 4096))]
    #[case::few_heads(&of(1, 7, 16384))]
    #[case::few_keys_of_few_heads(&of(1, 4, 8128))]
    #[case::few_keys(&of(4, 8, 896))]
    #[case::few_keys_to_lend(&of(1, 12, 4032))]
    #[case::few_keys_of_heads_alone(&of(9, 8, 832))]
    #[case::short_rows(&Heads { dim: 120, ..TIMED[1].clone() })]
    #[case::many_rows(&Heads { group: 9, ..TIMED[1].clone() })]
    #[case::nothing(&of(0, 8, 2048))]
    fn the_rest_is_for_version_7(#[case] s: &Heads) {
        assert_eq!(Way::of(s, Walk::Products), None);
    }

    /// The gate gives the simulator fewer elements than clusters of long rows take: groups with a round more than others,
    /// masks, several chapters, rings that come round, groups without keys, and what is lent of them.
    #[rstest]
    #[case::two_parts_of_two_queries(&[4, 8, 2, 2, 1100, 128, 1])]
    #[case::four_parts_of_eight_rows(&[2, 8, 4, 2, 2100, 128, 1])]
    #[case::chapters_of_one_row(&[4, 8, 1, 1, 2600, 128, 0])]
    #[case::a_last_part_of_few_keys(&[1, 8, 3, 1, 4090, 128, 0])]
    #[case::lent(&[1, 9, 2, 2, 5500, 128, 1])]
    #[case::lent_by_halves_of_clusters(&[3, 8, 1, 1, 2090, 128, 0])]
    #[case::alone(&[9, 8, 2, 1, 900, 128, 1])]
    #[case::eight_teams_of_a_head(&[1, 1, 3, 1, 65_600, 128, 0])]
    #[case::two_teams_of_each_head(&[2, 2, 1, 2, 16_400, 128, 1])]
    fn long_rows_are_right_in_the_simulator(#[case] point: &[usize]) {
        is_right_in_the_simulator("cuda_v8", point);
    }

    /// The same in f32, where a round has half as many keys.
    #[rstest]
    #[case::two_parts_of_two_queries(&[4, 8, 2, 2, 550, 128, 1])]
    #[case::four_parts_of_eight_rows(&[2, 8, 4, 2, 1050, 128, 1])]
    #[case::chapters_of_one_row(&[4, 8, 1, 1, 1300, 128, 0])]
    #[case::a_last_part_of_few_keys(&[1, 8, 3, 1, 2045, 128, 0])]
    #[case::lent(&[1, 9, 2, 2, 2750, 128, 1])]
    #[case::lent_by_halves_of_clusters_of_eight_rows(&[3, 8, 4, 2, 1045, 128, 0])]
    #[case::alone(&[9, 8, 2, 1, 450, 128, 1])]
    #[case::eight_teams_of_a_head(&[1, 1, 3, 1, 32_800, 128, 0])]
    #[case::two_teams_of_each_head(&[2, 2, 1, 2, 8200, 128, 1])]
    fn long_rows_are_right_in_f32(#[case] point: &[usize]) {
        is_right_in_the_simulator("cuda_v9", point);
    }
}
