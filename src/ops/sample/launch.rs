//! The launch: a row by the blocks of a cluster, each with a part of its logits in shared memory.

use super::Draw;
use crate::core::candidate::{Cuda, Declare};
use crate::core::gpu::multiprocessors;
use crate::core::launch::Launch;

const THREADS: usize = 512;

/// Blocks of a row, at the most: the largest cluster that every device of its kind takes.
const MOST_BLOCKS: usize = 8;

/// Logits of a block: fewer are not worth another one, and more it has no room for.
const FEWEST_LOGITS: usize = 4096;
const MOST_LOGITS: usize = 48 << 10;

/// Logits of a block are so many, so that packs belong to one.
const WHOLE: usize = 8;

/// Blocks of a row: as many as one wave has room for.
fn blocks(s: &Draw) -> usize {
    let room = (multiprocessors() / s.rows.max(1)).clamp(1, MOST_BLOCKS);
    let worth = s.cols.div_ceil(FEWEST_LOGITS).next_power_of_two();
    let needed = s.cols.div_ceil(MOST_LOGITS).next_power_of_two();
    (1usize << room.ilog2()).min(worth).max(needed)
}

fn plan(s: &Draw) -> Launch {
    let (blocks, rule) = (blocks(s), s.rule());
    let part = s.cols.div_ceil(blocks).next_multiple_of(WHOLE);
    let launch = Launch::blocks(s.rows * blocks, THREADS).cluster(blocks).shared(part * size_of::<u32>()).dependent();
    let extents = [s.rows, s.cols, part, rule.top_k, rule.top_p_micro].map(|extent| extent as i32);
    extents.into_iter().fold(launch, Launch::scalar).scalar(rule.scale())
}

pub fn best() -> Cuda<Draw> {
    let kernel = kernel!("sample/sample.cu", "sample", plan);
    kernel.tiles([("cols", WHOLE), ("cols", THREADS), ("cols", FEWEST_LOGITS)]).needs("sm_90")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::sample::case;
    use rstest::rstest;

    #[rstest]
    #[case(0, 8, 1)]
    #[case(1, 4096, 1)]
    #[case(1, 4097, 2)]
    #[case(1, 128_256, 8)]
    #[case(32, 128_256, 4)]
    #[case(64, 32_000, 2)]
    #[case(200, 32_000, 1)]
    #[case(200, 128_256, 4)]
    #[case(200, 1 << 18, 8)]
    fn a_row_has_the_blocks_of_one_wave_and_room_for_its_logits(
        #[case] rows: usize,
        #[case] cols: usize,
        #[case] expected: usize,
    ) {
        assert_eq!(blocks(&case(rows, cols, 1.0, 0, 1.0)), expected);
    }
}
