//! The launch rule of the kernels whose warp groups walk: version 8, and in f32 version 9.

use super::cluster::{LARGEST_CLUSTER, scalars};
use super::ways::{Teams, Way};
use super::{ahead, entry, in_cluster, key_heads};
use crate::core::launch::{Launch, Plan};
use crate::core::tensor_map::{Swizzle, TensorMap};
use crate::ops::attention::Heads;

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

/// A launch: how heads are shared out, and what walks.
struct Groups<'a> {
    s: &'a Heads,
    way: Way,
    walk: Walk,
}

impl Groups<'_> {
    /// Rounds of a head.
    fn rounds(&self) -> usize {
        self.s.keys.div_ceil(self.walk.keys())
    }

    /// Values that were under way with the first keys of the only chapter would delay these.
    fn stages(&self) -> usize {
        let rounds = (key_heads(self.s) * self.rounds()).div_ceil(self.way.blocks(self.s) * GROUPS);
        self.way.stages.min(rounds)
    }

    /// Room for the rounds under way, queries and weights, for what the groups of all parts have seen, and barrier objects.
    fn shared_bytes(&self) -> usize {
        let (dim, rows) = entry(self.s);
        let columns = self.walk.columns(self.s);
        let of_queries = dim * columns * self.walk.element_bytes();
        let of_weights = MOST_ROUNDS * self.walk.keys() * columns * self.walk.element_bytes();
        let of_warps = WARPS * COLUMNS * 2 * size_of::<f32>();
        let of_stages = MOST_STAGES * (dim * ROW_BYTES + 2 * size_of::<u64>());
        let seen = (rows * dim / SHARE).max(LARGEST_CLUSTER) * GROUPS;
        let inbox = seen * (SHARE + 2) * size_of::<f32>() + 2 * size_of::<u64>();
        let of_piece = inbox + GROUPS * (of_queries + of_warps);
        let pieces = if self.way.lends() { PIECES } else { 1 };
        (GROUPS * (of_stages + of_weights) + pieces * of_piece).next_multiple_of(1024)
    }

    fn map(&self, name: &str) -> TensorMap {
        let (s, keys) = (self.s, self.walk.keys());
        let map =
            TensorMap::of(name, [key_heads(s), s.dim / keys, s.keys, keys]).strides([s.keys * s.dim, keys, s.dim]);
        map.tile([1, s.dim / keys, keys, keys]).swizzle(Swizzle::Bytes128)
    }

    fn launch(&self) -> Launch {
        let (s, way) = (self.s, &self.way);
        // What all teams have that lend, heads, or each of several teams of a head, rounds; such heads are along y.
        let (kind, share, lending, grid) = match way.teams {
            Teams::OfHeads => ("whole", 1, 1, [way.blocks(s), 1, 1]),
            Teams::Number(teams) => ("lent", key_heads(s), teams, [way.blocks(s), 1, 1]),
            Teams::OfEachHead(teams) => {
                let share = self.rounds().div_ceil(teams);
                // None has no rounds.
                ("gathered", share, 1, [self.rounds().div_ceil(share) * way.parts, key_heads(s), 1])
            }
        };
        let launch = Launch::grid(grid, [(GROUPS * WARPS + MERGERS) * 32, 1, 1]).cluster(way.cluster);
        let entry = format!("attention_decode_{}_{kind}_128_{}", self.walk.version(), entry(s).1);
        let launch = launch.shared(self.shared_bytes()).entry(entry).without_pointers();
        let launch = launch.pointer("q").pointer("y").map(self.map("k")).map(self.map("v"));
        let launch = scalars(s, launch).scalar(self.rounds() as i32).scalar(share as i32);
        let launch = launch.scalar(lending.ilog2() as i32).scalar(way.parts.ilog2() as i32);
        launch.scalar(self.stages() as i32)
    }
}

/// The launch of version 8, or that of version 7.
pub fn plan(s: &Heads) -> Plan {
    launch(s, Way::in_half_width(s), Walk::Products).unwrap_or_else(|| ahead::plan(s))
}

/// The launch of version 9, in f32, or that of version 3.
pub fn plan_in_f32(s: &Heads) -> Plan {
    launch(s, Way::in_f32(s), Walk::Lanes).unwrap_or_else(|| in_cluster(s))
}

fn launch(s: &Heads, way: Option<Way>, walk: Walk) -> Option<Plan> {
    way.map(|way| Groups { s, way, walk }.launch().into())
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let of = |way, walk| Groups { s, way, walk };
        let groups = of(Way::in_half_width(s).unwrap(), Walk::Products);
        assert_eq!((groups.way.blocks(s), groups.way.cluster, groups.stages()), (blocks, cluster, stages));
        let in_f32 = of(Way::in_f32(s).unwrap(), Walk::Lanes);
        assert!(groups.shared_bytes() <= 227 << 10 && in_f32.shared_bytes() <= 227 << 10);
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
    #[case::four_of_five_teams_of_pairs(&[3, 4, 8, 1, 230, 128, 1])]
    #[case::seven_teams(&[1, 2, 4, 2, 7300, 128, 0])]
    fn long_rows_are_right_in_f32(#[case] point: &[usize]) {
        is_right_in_the_simulator("cuda_v9", point);
    }
}
