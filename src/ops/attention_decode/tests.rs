//! Long rows in the simulator: the gate gives it fewer elements than these kernels take.

use super::suite;
use crate::core::dtype::DType;
use crate::ops::agreement::judged_in_simulator;
use rstest::rstest;

fn is_right(dtype: DType, point: &[usize]) {
    let suite = suite();
    let best = |of: &&crate::core::candidate::Candidate| of.name == "cuda" && of.traits.computes(dtype);
    let candidate = suite.candidates.iter().find(best).unwrap();
    let judged = judged_in_simulator(&*suite.operator, candidate, point.to_vec());
    assert!(judged.is_ok(), "{judged:#?}");
}

/// The gate gives the simulator fewer elements than clusters of long rows take: warpgroups with a KV block more than
/// others, masks, several batches, stages that are used again, warpgroups without keys, stream-K and split-KV partials.
#[rstest]
#[case::two_parts_of_two_queries(&[4, 8, 2, 2, 1100, 128, 1])]
#[case::four_parts_of_eight_rows(&[2, 8, 4, 2, 2100, 128, 1])]
#[case::batches_of_one_row(&[4, 8, 1, 1, 2600, 128, 0])]
#[case::a_last_part_of_few_keys(&[1, 8, 3, 1, 4090, 128, 0])]
#[case::stream_k(&[1, 9, 2, 2, 5500, 128, 1])]
#[case::stream_k_by_halves_of_clusters(&[3, 8, 1, 1, 2090, 128, 0])]
#[case::stream_k_of_eight_rows(&[1, 9, 4, 2, 5500, 128, 0])]
#[case::alone(&[9, 8, 2, 1, 900, 128, 1])]
#[case::eight_cta_groups_of_a_head(&[1, 1, 3, 1, 65_600, 128, 0])]
#[case::two_cta_groups_of_each_head(&[2, 2, 1, 2, 16_400, 128, 1])]
fn long_rows_are_right_in_the_simulator(#[case] point: &[usize]) {
    is_right(DType::BF16, point);
}

/// The same in f32, where a KV block has half as many keys.
#[rstest]
#[case::two_parts_of_two_queries(&[4, 8, 2, 2, 550, 128, 1])]
#[case::four_parts_of_eight_rows(&[2, 8, 4, 2, 1050, 128, 1])]
#[case::batches_of_one_row(&[4, 8, 1, 1, 1300, 128, 0])]
#[case::a_last_part_of_few_keys(&[1, 8, 3, 1, 2045, 128, 0])]
#[case::stream_k(&[1, 9, 2, 2, 2750, 128, 1])]
#[case::stream_k_by_halves_of_clusters_of_eight_rows(&[3, 8, 4, 2, 1045, 128, 0])]
#[case::alone(&[9, 8, 2, 1, 450, 128, 1])]
#[case::eight_cta_groups_of_a_head(&[1, 1, 3, 1, 32_800, 128, 0])]
#[case::two_cta_groups_of_each_head(&[2, 2, 1, 2, 8200, 128, 1])]
#[case::four_of_five_cta_groups_of_pairs(&[3, 4, 8, 1, 230, 128, 1])]
#[case::seven_cta_groups(&[1, 2, 4, 2, 7300, 128, 0])]
fn long_rows_are_right_in_f32(#[case] point: &[usize]) {
    is_right(DType::F32, point);
}

/// Keys before values: consumers with a KV block more than others, masks, several batches.
#[rstest]
#[case::four_parts_of_two_queries(&[2, 8, 2, 2, 2100, 72, 1])]
#[case::batches(&[4, 8, 1, 1, 2600, 72, 0])]
#[case::batches_of_short_rows(&[4, 8, 1, 1, 5157, 40, 0])]
fn keys_first_is_right_in_the_simulator(#[case] point: &[usize]) {
    is_right(DType::BF16, point);
}
