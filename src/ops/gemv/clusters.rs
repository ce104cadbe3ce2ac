//! The launch rule of the kernel whose clusters share out columns: version 6.

use super::{MOST_BATCH, Vectors, WIDE_N, with_scalars};
use crate::core::launch::Launch;
use crate::core::tensor_map::{Swizzle, TensorMap};
use std::ops::RangeInclusive;

/// Clusters that run at the same time on an H100 or H200, and blocks of one, which share out columns.
const CLUSTERS: usize = 14;
const BLOCKS: usize = 8;
/// Columns that lie together, and how many such lines a warp takes at most.
const LINE: usize = 32;
const LINES: usize = 2;
/// Rows that come together: a group.
const ROWS: usize = 8;
/// A group for each cluster.
pub const FEWEST_ROWS: usize = CLUSTERS * ROWS;
/// Warps that multiply and that merge; one more copies.
const WALKERS: usize = 16;
const MERGERS: usize = 3;
/// Groups under way, about and at most.
const STAGES: usize = 6;
const MOST_STAGES: usize = 16;

/// How a matrix is shared out.
#[derive(Debug, Clone, PartialEq)]
struct Shares {
    /// Lines of a row that a block has.
    lines: usize,
    /// Warps that share them out.
    team: usize,
    /// Groups under way: those that come to the same place are always of the same warps.
    stages: usize,
}

impl Shares {
    /// None where version 5 serves: where its blocks fill the device about once, with one a multiprocessor or two, and for
    /// shorter and longer rows, which it walks as fast or faster.
    fn of(s: &Vectors) -> Option<Shares> {
        const COLUMNS: RangeInclusive<usize> = 2048..=4096;
        const ONE_EACH: RangeInclusive<usize> = WIDE_N / 2..=WIDE_N;
        const TWO_EACH: RangeInclusive<usize> = WIDE_N * 9 / 5..=WIDE_N * 2;
        let is_served = s.batch > 1 && s.k.is_multiple_of(LINE * BLOCKS) && COLUMNS.contains(&s.k);
        if !is_served || s.n < FEWEST_ROWS || ONE_EACH.contains(&s.n) || TWO_EACH.contains(&s.n) {
            return None;
        }
        let lines = s.k / LINE / BLOCKS;
        let team = lines.div_ceil(LINES);
        Some(Shares { lines, team, stages: STAGES.next_multiple_of(WALKERS / team) })
    }

    fn shared_bytes(&self) -> usize {
        let group = self.lines * ROWS * LINE * size_of::<f32>();
        let slot = self.team * BLOCKS * 32 * 2 * size_of::<f32>();
        self.stages * group + MERGERS * slot + 2 * (MOST_STAGES + MERGERS) * size_of::<u64>()
    }
}

/// The launch of version 6; none where version 5 serves.
pub fn launch(s: &Vectors) -> Option<Launch> {
    let shares = Shares::of(s)?;
    let grid = [CLUSTERS * BLOCKS, s.batch.div_ceil(MOST_BATCH), 1];
    let launch = Launch::grid(grid, [(WALKERS + MERGERS + 1) * 32, 1, 1]).cluster(BLOCKS);
    let launch = with_scalars(s, launch.shared(shares.shared_bytes()).entry("gemv_v6"));
    let map = TensorMap::of("w", [s.k / LINE, s.n, LINE]).strides([LINE, s.k]);
    let map = map.tile([shares.lines, ROWS, LINE]).swizzle(Swizzle::Bytes128);
    Some(launch.scalar(shares.team as i32).scalar(shares.stages as i32).map(map))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;
    use crate::core::tensor::Tensor;
    use crate::ops::agreement::is_right_in_the_simulator;
    use crate::ops::gemv::suite;
    use rstest::rstest;

    #[rstest]
    #[case::four_sets(2048, 4, 8)]
    #[case::three_sets(2560, 5, 6)]
    #[case::two_sets_and_two_warps_that_rest(3584, 7, 6)]
    #[case::two_sets(4096, 8, 6)]
    fn a_stage_is_always_of_the_same_warps(#[case] k: usize, #[case] team: usize, #[case] stages: usize) {
        let shares = Shares::of(&Vectors { batch: 8, n: 5632, k }).unwrap();
        assert_eq!((shares.team, shares.stages), (team, stages));
        assert!(stages.is_multiple_of(WALKERS / team) && stages <= MOST_STAGES);
        assert!(shares.shared_bytes() <= 227 << 10);
    }

    #[rstest]
    #[case::a_vector(1, 5632, 2048)]
    #[case::columns_that_do_not_come_out_even(8, 5632, 2176)]
    #[case::long_rows(8, 5632, 4352)]
    #[case::short_rows(8, 5632, 1792)]
    #[case::a_block_a_multiprocessor(8, 2112, 2048)]
    #[case::fewer_rows_than_clusters_take(8, 111, 2048)]
    #[case::two_blocks_a_multiprocessor(8, 4096, 2048)]
    fn the_rest_is_for_version_5(#[case] batch: usize, #[case] n: usize, #[case] k: usize) {
        assert_eq!(Shares::of(&Vectors { batch, n, k }), None);
    }

    /// The gate gives the simulator fewer elements: rings that come round, last groups of few rows and of one, warps that
    /// rest, several rounds of groups for each block, and two times eight vectors.
    #[rstest]
    #[case(&[8, 2113, 2048])]
    #[case(&[3, 3799, 2560])]
    #[case(&[11, 2142, 3584])]
    fn many_rows_are_right_in_the_simulator(#[case] point: &[usize]) {
        is_right_in_the_simulator(&suite(), "cuda_v6", point, |_| {});
    }

    /// What is missing of such numbers is not a number.
    #[rstest]
    #[case::an_infinity(f64::INFINITY)]
    #[case::the_largest_number(f64::from(f32::MAX))]
    #[case::no_number(f64::NAN)]
    fn a_row_with_a_number_that_has_no_parts_is_summed_up_again(#[case] number: f64) {
        const K: usize = 2048;
        is_right_in_the_simulator(&suite(), "cuda_v6", &[3, 130, K], |inputs| {
            let mut w = inputs[1].to_f64();
            (0..130).step_by(7).for_each(|row| w[row * K + row] = number);
            inputs[1] = Tensor::from_f64(DType::F32, &[130, K], &w);
        });
    }
}
