//! The launch rule of the kernel whose clusters share out columns: version 6.

use super::{MOST_BATCH, Vectors, WIDE_N, with_scalars};
use crate::core::launch::Launch;
use crate::core::tensor_map::{Swizzle, TensorMap};
use std::ops::RangeInclusive;

/// Blocks of a cluster, which share out columns.
const BLOCKS: usize = 8;
/// Columns that lie together, and how many such lines a warp takes at most.
const LINE: usize = 32;
const LINES: usize = 2;
/// Rows that come together, a group, and groups of a cluster: each meets in a block of its own.
const ROWS: usize = 8;
const GROUPS: usize = 3;
/// Of fewer rows version 5 was not compared.
pub const FEWEST_ROWS: usize = 112;

/// What a block has.
#[derive(Debug, Clone, PartialEq)]
struct Share {
    /// Lines of a row.
    lines: usize,
    /// Warps that share them out.
    walkers: usize,
}

impl Share {
    /// None where version 5 serves: where its blocks fill the device about once, with one a multiprocessor or two, and for
    /// shorter and longer rows, which it walks as fast or faster.
    fn of(s: &Vectors) -> Option<Share> {
        const COLUMNS: RangeInclusive<usize> = 2048..=4096;
        const ONE_EACH: RangeInclusive<usize> = WIDE_N / 2..=WIDE_N;
        const TWO_EACH: RangeInclusive<usize> = WIDE_N * 9 / 5..=WIDE_N * 2;
        let is_served = s.batch > 1 && s.k.is_multiple_of(LINE * BLOCKS) && COLUMNS.contains(&s.k);
        if !is_served || s.n < FEWEST_ROWS || ONE_EACH.contains(&s.n) || TWO_EACH.contains(&s.n) {
            return None;
        }
        let lines = s.k / LINE / BLOCKS;
        Some(Share { lines, walkers: lines.div_ceil(LINES) })
    }

    fn shared_bytes(&self) -> usize {
        let group = self.lines * ROWS * LINE * size_of::<f32>();
        let meeting = self.walkers * BLOCKS * 32 * 2 * size_of::<f32>();
        GROUPS * group + meeting + (BLOCKS + 1) * size_of::<u64>()
    }
}

/// The launch of version 6; none where version 5 serves.
pub fn launch(s: &Vectors) -> Option<Launch> {
    let share = Share::of(s)?;
    let grid = [s.n.div_ceil(ROWS * GROUPS) * BLOCKS, s.batch.div_ceil(MOST_BATCH), 1];
    let launch = Launch::grid(grid, [(share.walkers + 1) * 32, 1, 1]).cluster(BLOCKS);
    let launch = with_scalars(s, launch.shared(share.shared_bytes()).entry("gemv_v6"));
    let map = TensorMap::of("w", [s.k / LINE, s.n, LINE]).strides([LINE, s.k]);
    let map = map.tile([share.lines, ROWS, LINE]).swizzle(Swizzle::Bytes128);
    Some(launch.scalar(GROUPS as i32).map(map))
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
    #[case::whole_pairs_of_lines(2048, 8, 4)]
    #[case::a_last_line_alone(2304, 9, 5)]
    #[case::most(4096, 16, 8)]
    fn three_blocks_share_a_multiprocessor(#[case] k: usize, #[case] lines: usize, #[case] walkers: usize) {
        let share = Share::of(&Vectors { batch: 8, n: 5632, k }).unwrap();
        assert_eq!(share, Share { lines, walkers });
        assert!(3 * (share.shared_bytes() + 1024) <= 228 << 10, "1 KiB of each is the system's");
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
        assert_eq!(Share::of(&Vectors { batch, n, k }), None);
    }

    /// Clusters with one group, two and three, last groups of few rows and of one, a line alone, and two times eight vectors.
    #[rstest]
    #[case(&[8, 145, 2048])]
    #[case(&[3, 159, 2560])]
    #[case(&[11, 131, 3584])]
    #[case(&[2, 112, 2304])]
    fn many_rows_are_right_in_the_simulator(#[case] point: &[usize]) {
        is_right_in_the_simulator(&suite(), "cuda_v6", point, |_| {});
    }

    /// What is missing of such numbers is not a number, but for the largest one in the matrix.
    #[rstest]
    fn a_sum_with_a_number_that_has_no_parts_is_summed_up_again(
        #[values(f64::INFINITY, f64::from(f32::MAX), f64::NAN)] number: f64,
        #[values(0, 1)] input: usize,
    ) {
        const K: usize = 2048;
        is_right_in_the_simulator(&suite(), "cuda_v6", &[3, 130, K], |inputs| {
            let rows = [3, 130][input];
            let mut values = inputs[input].to_f64();
            (0..rows).step_by(7).for_each(|row| values[row * K + row] = number);
            inputs[input] = Tensor::from_f64(DType::F32, &[rows, K], &values);
        });
    }
}
