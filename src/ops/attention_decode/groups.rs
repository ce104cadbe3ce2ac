//! The launch rule of the kernel whose warp groups walk: version 8.

use super::ahead::{self, FEWEST_KEYS};
use super::cluster::{LARGEST_CLUSTER, scalars};
use super::hopper::CHUNK;
use super::{MOST_DIM, Share, entry, is_served, key_heads};
use crate::core::launch::{Launch, Plan};
use crate::core::tensor_map::{Swizzle, TensorMap};
use crate::ops::attention::Heads;
use crate::ops::family::aligned::ELEMENT_BYTES;

/// Blocks of a launch: two clusters for each of the seven groups of multiprocessors that hold two, or one for each of eight.
/// With other numbers, some groups have more to read than others.
const BLOCKS: [usize; 2] = [112, 64];
/// Warp groups of a block that walk, and warps that copy and merge.
const GROUPS: usize = 2;
const MERGERS: usize = 4;
/// Keys that a group multiplies at a time: a round.
const KEYS: usize = 64;
/// Rounds that a group has under way, and rounds of a chapter, at most.
const MOST_STAGES: usize = 5;
const MOST_ROUNDS: usize = 8;
/// Warps of a group.
const WARPS: usize = 4;
/// Rows of the products' right factors: queries, and weights of a round's keys.
const COLUMNS: usize = 8;

/// How many blocks share a head. None where version 7 serves: for other dims and numbers of heads, and for few keys.
pub(super) fn share_of(s: &Heads) -> Option<Share> {
    if !is_served(s) || s.dim != MOST_DIM {
        return None;
    }
    let share = BLOCKS.into_iter().find_map(|blocks| ahead::share_among(s, blocks))?;
    (share.keys >= FEWEST_KEYS[1]).then_some(share)
}

/// How a group walks its share of the keys.
#[derive(Debug, PartialEq)]
struct Pace {
    /// Rounds under way.
    stages: usize,
    /// Rounds of a chapter: all its keys come before their values.
    rounds: usize,
}

impl Pace {
    /// Chapters as long as each other. Values that were under way with the first keys of their chapter would delay these.
    fn of(share: &Share) -> Pace {
        let rounds = share.keys.div_ceil(GROUPS * KEYS);
        let chapters = rounds.div_ceil(MOST_ROUNDS);
        let rounds = rounds.div_ceil(chapters);
        Pace { stages: rounds.min(MOST_STAGES), rounds }
    }
}

/// Room for the rounds under way, queries and weights, for what the groups of all parts have seen, and barrier objects.
pub(super) fn shared_bytes(s: &Heads) -> usize {
    let (dim, rows) = entry(s);
    let halves = dim / CHUNK;
    let of_warps = WARPS * COLUMNS * 2 * size_of::<f32>();
    let of_stages = MOST_STAGES * (KEYS * dim * ELEMENT_BYTES + 2 * size_of::<u64>());
    let of_group = of_stages + (halves * CHUNK + MOST_ROUNDS * KEYS) * COLUMNS * ELEMENT_BYTES + of_warps;
    let seen = (rows * halves).max(LARGEST_CLUSTER) * GROUPS;
    let inbox = seen * (CHUNK + 2) * size_of::<f32>() + 2 * size_of::<u64>();
    (GROUPS * of_group + inbox).next_multiple_of(1024)
}

fn launch(s: &Heads, share: &Share) -> Launch {
    let map = |name| {
        let extents = [key_heads(s), s.dim / CHUNK, s.keys, CHUNK];
        let map = TensorMap::of(name, extents).strides([s.keys * s.dim, CHUNK, s.dim]);
        map.tile([1, s.dim / CHUNK, KEYS, CHUNK]).swizzle(Swizzle::Bytes128)
    };
    let pace = Pace::of(share);
    let launch = Launch::blocks(key_heads(s) * share.parts, (GROUPS * WARPS + MERGERS) * 32).cluster(LARGEST_CLUSTER);
    let launch =
        launch.shared(shared_bytes(s)).entry(format!("attention_decode_v8_128_{}", entry(s).1)).without_pointers();
    let launch = launch.pointer("q").pointer("y").map(map("k")).map(map("v"));
    let launch = scalars(s, share, launch).scalar(share.parts.ilog2() as i32);
    launch.scalar(pace.stages as i32).scalar(pace.rounds as i32)
}

/// The launch of version 8, or that of version 7.
pub fn plan(s: &Heads) -> Plan {
    share_of(s).map_or_else(|| ahead::plan(s), |share| launch(s, &share).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention_decode::TIMED;
    use crate::ops::attention_decode::tests::{has_parts, is_right_in_the_simulator, of};
    use rstest::rstest;

    #[rstest]
    #[case::as_many_rows_as_an_entry_takes(&Heads { group: 8, ..of(2, 4, 8192) }, 8)]
    #[case::two_clusters_a_group_of_multiprocessors(&of(7, 8, 2048), 2)]
    fn clusters_stand_evenly(#[case] s: &Heads, #[case] parts: usize) {
        has_parts(s, share_of, shared_bytes, parts);
    }

    #[rstest]
    #[case::a_chapter_of_few_keys(512, 4, 4)]
    #[case::a_chapter(1024, 5, 8)]
    #[case::two_as_long_as_each_other(1280, 5, 5)]
    #[case::three(2112, 5, 6)]
    fn chapters_are_as_long_as_each_other(#[case] keys: usize, #[case] stages: usize, #[case] rounds: usize) {
        assert_eq!(Pace::of(&Share { parts: 1, keys }), Pace { stages, rounds });
    }

    #[rstest]
    #[case::many_heads(&TIMED[0])]
    #[case::heads_that_fill_other_numbers_of_clusters(&of(5, 8, 4096))]
    #[case::few_keys(&of(4, 8, 896))]
    #[case::short_rows(&Heads { dim: 120, ..TIMED[1].clone() })]
    #[case::many_rows(&Heads { group: 9, ..TIMED[1].clone() })]
    #[case::nothing(&of(0, 8, 2048))]
    fn the_rest_is_for_version_7(#[case] s: &Heads) {
        assert!(share_of(s).is_none());
    }

    /// The gate gives the simulator fewer elements than clusters of long rows take: groups with a round more than others,
    /// masks, several chapters, rings that come round, and groups without keys.
    #[rstest]
    #[case::two_parts_of_two_queries(&[4, 8, 2, 2, 1100, 128, 1])]
    #[case::four_parts_of_eight_rows(&[2, 8, 4, 2, 2100, 128, 1])]
    #[case::chapters_of_one_row(&[4, 8, 1, 1, 2600, 128, 0])]
    #[case::a_last_part_of_few_keys(&[1, 8, 3, 1, 4090, 128, 0])]
    fn long_rows_are_right_in_the_simulator(#[case] point: &[usize]) {
        is_right_in_the_simulator("cuda_v8", point);
    }
}
