//! The launch rule of the f32 kernel whose clusters split the columns (split-K).

use super::Vectors;
use super::launch::{MOST_BATCH, with_scalars};
use crate::core::launch::Launch;
use crate::core::tensor_map::{Swizzle, TensorMap};
use std::ops::RangeInclusive;

/// Columns of a line of 128 bytes.
const LINE: usize = 32;
/// Rows that one block of the cluster reduces, a group.
const ROWS: usize = 8;
/// Blocks of a cluster: no fewer than groups, each of which has a block that reduces it.
const BLOCKS: RangeInclusive<usize> = 4..=8;
/// Lines of a block where a few of its like fill a multiprocessor evenly, and with four groups of rows and with two at
/// most: more, and fewer blocks share a multiprocessor than hide each other's beginnings and ends.
const GOOD_LINES: usize = 8;
const LINES_OF_FOUR: usize = 9;
const MOST_LINES: usize = 20;
/// Clusters, and times eight vectors, that a grid takes.
const MOST_OF_GRID: usize = 65_535;
/// Blocks with four groups that are worth it: three for each of 132 multiprocessors.
const FEW_BLOCKS: usize = 3 * 132;

/// How a cluster splits some rows.
#[derive(Debug, Clone, PartialEq)]
struct Share {
    blocks: usize,
    /// Lines of a block.
    lines: usize,
    /// Groups of rows of a cluster.
    groups: usize,
}

impl Share {
    /// None where `gemv_lines` serves: for rows that do not come out even, and for so long ones that few blocks fit.
    fn of(s: &Vectors) -> Option<Share> {
        let is_in_grid = s.n <= MOST_OF_GRID * 2 * ROWS && s.batch <= MOST_OF_GRID * MOST_BATCH;
        if s.batch < 2 || !s.k.is_multiple_of(LINE) || !is_in_grid {
            return None;
        }
        let all = s.k / LINE;
        let blocks = BLOCKS.rev().filter(|blocks| all.is_multiple_of(*blocks) && all / blocks <= MOST_LINES);
        let blocks = blocks.min_by_key(|blocks| (all / blocks).abs_diff(GOOD_LINES))?;
        let lines = all / blocks;
        let is_small = s.n.div_ceil(4 * ROWS) * blocks <= FEW_BLOCKS;
        Some(Share { blocks, lines, groups: if is_small || lines > LINES_OF_FOUR { 2 } else { 4 } })
    }

    /// A warp for each line, or for two where there are many and few products of a line.
    fn threads(&self) -> usize {
        if self.groups == 4 { self.lines * 32 } else { self.lines.div_ceil(2) * 32 }
    }

    fn shared_bytes(&self) -> usize {
        let matrix = self.groups * ROWS * self.lines * LINE * size_of::<f32>();
        let partials = self.blocks * 32 * 2 * size_of::<f32>();
        matrix + partials + 2 * size_of::<u64>()
    }
}

/// The launch; none where `gemv_lines` serves.
pub fn launch(s: &Vectors) -> Option<Launch> {
    let share = Share::of(s)?;
    let rows = share.groups * ROWS;
    let grid = [share.blocks, s.n.div_ceil(rows), s.batch.div_ceil(MOST_BATCH)];
    let launch = Launch::grid(grid, [share.threads(), 1, 1]).cluster(share.blocks).shared(share.shared_bytes());
    let map = TensorMap::of("w", [s.k / LINE, s.n, LINE]).strides([LINE, s.k]);
    let map = map.tile([share.lines, rows, LINE]).swizzle(Swizzle::Bytes128);
    let launch = launch.entry(if share.groups == 4 { "gemv_cluster_32" } else { "gemv_cluster_16" });
    Some(with_scalars(s, launch).scalar(share.lines as i32).map(map))
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
    #[case::two_thousand(5632, 2048, 8, 8, 4)]
    #[case::a_thousand(8192, 1024, 4, 8, 4)]
    #[case::six_blocks(6144, 1536, 6, 8, 4)]
    #[case::five_blocks(6400, 1600, 5, 10, 2)]
    #[case::short_rows(16384, 512, 4, 4, 4)]
    #[case::a_last_line_alone(4096, 2304, 8, 9, 4)]
    #[case::long_rows(4096, 4096, 8, 16, 2)]
    #[case::the_longest(4096, 5120, 8, 20, 2)]
    #[case::few_rows(1056, 2048, 8, 8, 2)]
    #[case::a_row(1, 2048, 8, 8, 2)]
    fn blocks_take_about_eight_lines(
        #[case] n: usize,
        #[case] k: usize,
        #[case] blocks: usize,
        #[case] lines: usize,
        #[case] groups: usize,
    ) {
        let share = Share::of(&Vectors { batch: 8, n, k }).unwrap();
        assert_eq!(share, Share { blocks, lines, groups });
        assert!(3 * (share.shared_bytes() + 1024) <= 228 << 10, "1 KiB of each is the system's");
    }

    #[rstest]
    #[case::a_vector(1, 2048)]
    #[case::columns_that_do_not_come_out_even(8, 2144)]
    #[case::columns_of_no_whole_line(8, 2064)]
    #[case::the_longest_rows(8, 5376)]
    fn the_rest_is_for_lines(#[case] batch: usize, #[case] k: usize) {
        assert_eq!(Share::of(&Vectors { batch, n: 5632, k }), None);
    }

    /// Four groups of rows and two, last ones of few rows and of one, a line alone, clusters of four to eight blocks, and two
    /// times eight vectors.
    #[rstest]
    #[case(&[8, 3201, 512])]
    #[case(&[7, 3202, 1152])]
    #[case(&[3, 33, 2304])]
    #[case(&[11, 47, 1600])]
    #[case(&[2, 16, 1536])]
    #[case(&[5, 1, 1792])]
    #[case(&[4, 18, 3328])]
    fn many_rows_are_right_in_the_simulator(#[case] point: &[usize]) {
        is_right_in_the_simulator(&suite(), "cuda", point, |_| {});
    }

    /// What is missing of such numbers is not a number, but for the largest one in the matrix.
    #[rstest]
    fn a_sum_with_a_number_that_has_no_parts_is_summed_up_again(
        #[values(f64::INFINITY, f64::from(f32::MAX), f64::NAN)] number: f64,
        #[values(0, 1)] input: usize,
        #[values(1024, 1152)] k: usize,
    ) {
        is_right_in_the_simulator(&suite(), "cuda", &[3, 37, k], |inputs| {
            let rows = [3, 37][input];
            let mut values = inputs[input].to_f64();
            (0..rows).step_by(7).for_each(|row| values[row * k + row] = number);
            inputs[input] = Tensor::from_f64(DType::F32, &[rows, k], &values);
        });
    }
}
