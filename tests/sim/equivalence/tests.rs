use super::rows::{LANE_31, LANES, LEAST, MORE_LEFT, PACKS, PARTS};
use super::*;

fn why(text: &str, line: usize, slip: &'static str) -> Option<&'static str> {
    argument(text, &Mutation { slip, line, after: String::new() })
}

#[test]
fn a_butterfly_is_told_from_other_shuffles() {
    let text = "mov.u32 %r1, 8;\nshfl.sync.bfly.b32 %r2|%p1, %r3, %r1, 31, -1;\nmov.u32 %r4, 8;\nshfl.sync.down.b32 %r2|%p1, %r3, %r4, 31, -1;";
    assert_eq!(why(text, 0, "constant off by one"), Some(SPANS));
    assert_eq!(why(text, 2, "constant off by one"), None);
    assert_eq!(why(&text.replace("8;", "1;"), 0, "constant off by one"), None);
}

#[test]
fn only_a_single_store_may_stand_behind_the_branch() {
    let text = "bar.sync 0;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 bra $L;\nst.shared.f32 [%rd1], %f1;\n$L:";
    assert_eq!(why(text, 2, "branch dropped"), Some(SAME_STORE));
    assert_eq!(why(text, 1, "comparison off by one"), Some(SAME_STORE));
    assert_eq!(why(text, 1, "constant off by one"), Some(SAME_STORE));
    assert_eq!(why(&text.replace("st.shared", "atom.add"), 2, "branch dropped"), None);
    assert_eq!(why(&text.replace("bar.sync 0;", "ret;"), 2, "branch dropped"), None);
}

#[test]
fn bounds_between_packs_are_those_of_128_elements() {
    let of = |test: &str| {
        format!(
            ".visible .entry softmax_block(\nld.param.u32 %r1, [c];\nshl.b32 %r2, %r9, 2;\nsub.s32 %r3, %r1, %r2;\n{test}"
        )
    };
    assert_eq!(why(&of("setp.lt.s32 %p1, %r3, 641;"), 4, "comparison off by one"), Some(PACKS));
    assert_eq!(why(&of("setp.lt.s32 %p1, %r3, 1;"), 4, "comparison off by one"), Some(PACKS));
    assert_eq!(why(&of("setp.lt.s32 %p1, %r3, 640;"), 4, "comparison off by one"), None);
    assert_eq!(why(&of("setp.gt.s32 %p1, %r3, 640;"), 4, "constant off by one"), Some(PACKS));
    // 640 columns are left where 160 packs are.
    assert_eq!(why(&of("setp.gt.s32 %p1, %r3, 640;"), 4, "comparison off by one"), None);
    let text = of("setp.lt.s32 %p1, %r3, 641;");
    for (from, to) in [("shl.b32", "add.s32"), ("softmax_block", "softmax_block_unaligned"), ("softmax", "gemm")] {
        assert_eq!(why(&text.replace(from, to), 4, "comparison off by one"), None, "{to}");
    }
}

#[test]
fn lanes_that_fill_in_are_the_first_eight() {
    let text = ".entry a(\nand.b32 %r1, %r9, -32;\nsub.s32 %r2, %r9, %r1;\nadd.s32 %r3, %r9, 31;\nsetp.gt.u32 %p1, %r3, 62;\nsetp.lt.s32 %p2, %r2, %r8;\nor.pred %p3, %p1, %p2;\nsetp.gt.s32 %p4, %r2, 7;\nor.pred %p5, %p4, %p3;\n@%p5 bra $L;";
    assert_eq!(why(text, 4, "comparison off by one"), Some(LANE_31));
    assert_eq!(why(text, 3, "constant off by one"), Some(LANE_31));
    assert_eq!(why(text, 3, "other operation"), None);
    assert_eq!(why(&text.replace("%r2, 7", "%r2, 31"), 4, "comparison off by one"), None);
    assert_eq!(why(&text.replace("-32", "-16"), 4, "comparison off by one"), None);
    assert_eq!(why(&format!("{text}\n@%p1 bra $L;"), 4, "comparison off by one"), None);
}

#[test]
fn the_least_number_is_told_from_others() {
    let text = ".entry rmsnorm_block(\nmov.u64 %rd1, combine_warpsI3SumLi0EEffE8partials;\nadd.s64 %rd2, %rd1, %rd9;\nmov.u32 %r1, 0;\nst.shared.u32 [%rd2], %r1;";
    assert_eq!(why(text, 3, "constant off by one"), Some(LEAST));
    assert_eq!(why(&text.replace("3Sum", "7Maximum"), 3, "constant off by one"), None);
    assert_eq!(why(&text.replace("rmsnorm", "row_sum"), 3, "constant off by one"), None);
    assert_eq!(why(&format!("{text}\nadd.s32 %r2, %r1, 1;"), 3, "constant off by one"), None);
}

#[test]
fn lanes_of_a_row_are_a_power_of_two() {
    let text = ".entry rmsnorm_lanes_per_row(\nmov.u32 %r1, %ntid.x;\nsetp.lt.s32 %p1, %r1, 17;";
    assert_eq!(why(text, 2, "comparison off by one"), Some(LANES));
    assert_eq!(why(&text.replace("17", "16"), 2, "comparison off by one"), None);
    assert_eq!(why(&text.replace("lanes_per_row", "block"), 2, "comparison off by one"), None);
}

#[test]
fn rows_by_elements_have_more_than_the_bound() {
    let text = ".entry rmsnorm_elements_two_warps(\nld.param.u32 %r1, [c];\nand.b32 %r2, %r9, 63;\nsub.s32 %r3, %r1, %r2;\nsetp.lt.s32 %p1, %r3, 321;";
    assert_eq!(why(text, 4, "comparison off by one"), Some(MORE_LEFT));
    assert_eq!(why(&text.replace("321", "385"), 4, "comparison off by one"), None);
    assert_eq!(why(&text.replace("two_warps", "four_warps"), 4, "comparison off by one"), None);
}

#[test]
fn what_is_left_of_a_difference_is_looked_at() {
    let text = ".entry a(\nsub.f32 %f3, %f1, %f2;\ncopysign.f32 %f4, %f1, %f3;";
    assert_eq!(why(text, 1, "operands swapped"), Some(ONLY_ITS_SIZE));
    assert_eq!(why(&text.replace("%f1, %f3", "%f3, %f1"), 1, "operands swapped"), None);
    let text = ".entry a(\nadd.s32 %r2, %r1, 1;\nand.b32 %r3, %r2, 1;";
    assert_eq!(why(text, 1, "other operation"), Some(PARITY));
    assert_eq!(why(&text.replace("%r2, 1;", "%r2, 3;"), 1, "other operation"), None);
}

#[test]
fn the_comparison_of_a_branch_may_stand_far_above() {
    let text =
        "setp.ne.s32 %p1, %r1, 0;\nadd.s32 %r2, %r1, 1;\nbar.sync 0;\n@%p1 bra $L;\nst.shared.f32 [%rd1], %f1;\n$L:";
    assert_eq!(why(text, 3, "guard negated"), Some(SAME_STORE));
    let text = text.replace("ne.s32 %p1, %r1, 0", "lt.s32 %p1, %r1, 288").replace("st.shared", "ld.shared");
    assert_eq!(why(&text, 3, "guard negated"), Some(PARTS));
    assert_eq!(why(&text.replace("288", "256"), 3, "guard negated"), None);
}

#[test]
fn a_wait_may_go_where_nothing_shared_follows() {
    let text = "cp.async.ca.shared.global [%r1], [%rd1], 16;\ncp.async.wait_group 0;\nbra $L;\n$L:\nst.global.f32 [%rd1], %f1;\n}\nld.shared.f32 %f1, [%r1];";
    assert_eq!(why(text, 1, "wait dropped"), Some(NOBODY_LOOKS));
    assert_eq!(why(&text.replace("st.global", "st.shared"), 1, "wait dropped"), None);
    assert_eq!(why(&text.replace("bra $L", "bra $K"), 1, "wait dropped"), None);
}

#[test]
fn a_wait_may_go_where_the_entry_copies_nothing() {
    let text = ".visible .entry a()\ncp.async.commit_group;\nld.shared.f32 %f1, [%r1];\n.visible .entry b()\ncp.async.ca.shared.global [%r1], [%rd1], 16;\ncp.async.commit_group;\nld.shared.f32 %f1, [%r1];";
    assert_eq!(why(text, 1, "commit dropped"), Some(NO_COPIES));
    assert_eq!(why(text, 5, "commit dropped"), None);
    assert_eq!(why(&text.replace("cp.async.commit", "cp.async.bulk.commit"), 1, "commit dropped"), None);
}

#[test]
fn an_exponent_is_told_from_other_products() {
    let text = "mov.f32 %f1, 0f3F000000;\nmov.f32 %f2, 0f3BBB989D;\nfma.rn.f32 %f3, %f0, %f2, %f1;\ncvt.sat.f32.f32 %f4, %f3;\nmov.f32 %f5, 0f4B400001;\nmov.f32 %f6, 0f437C0000;\nfma.rm.f32 %f7, %f4, %f6, %f5;";
    assert_eq!(why(text, 0, "constant wrong"), Some(SPLIT));
    assert_eq!(why(text, 5, "constant wrong"), Some(SPLIT));
    assert_eq!(why(text, 1, "constant wrong"), None);
    assert_eq!(why(&text.replace("%f2, %f1;", "%f1, %f2;"), 0, "constant wrong"), None);
}

#[test]
fn an_exponent_of_long_rows_may_be_split_anyhow() {
    let text = ".entry softmax_small_block(\nmov.f32 %f1, 0f3F000000;\nmov.f32 %f2, 0f3BBB989D;\nfma.rn.f32 %f3, %f0, %f2, %f1;\ncvt.sat.f32.f32 %f4, %f3;\nmov.f32 %f5, 0f4B400001;\nmov.f32 %f6, 0f437C0000;\nfma.rm.f32 %f7, %f4, %f6, %f5;";
    assert_eq!(why(text, 3, "addend forgotten"), Some(super::rows::SPLIT));
    assert_eq!(why(text, 3, "operands swapped"), Some(super::rows::SPLIT));
    assert_eq!(why(text, 7, "addend forgotten"), None);
    assert_eq!(why(&text.replace("small_block", "lanes_per_row"), 3, "addend forgotten"), None);
    assert_eq!(why(&format!("{text}\nst.global.f32 [%rd1], %f3;"), 3, "addend forgotten"), None);
}

#[test]
fn what_decides_only_a_prefetch_is_told_from_other_decisions() {
    let text = ".entry a()\nshl.b32 %r0, %r9, 2;\nsetp.lt.s32 %p1, %r0, 1;\n@%p1 bra $L;\nand.b64 %rd1, %rd2, -16;\ncp.async.bulk.prefetch.L2.global [%rd1], %r0;\n$L:\nst.global.u32 [%rd3], %r9;";
    for line in [1, 2, 3, 4] {
        assert_eq!(why(text, line, "guard dropped"), Some(ASKS_OTHERWISE), "line {line}");
    }
    assert_eq!(why(text, 7, "store dropped"), None);
    // A value comes of it.
    assert_eq!(why(&text.replace("%r9;", "%r0;"), 1, "constant off by one"), None);
    assert_eq!(why(&text.replace("[%rd3]", "[%rd1]"), 3, "guard dropped"), None);
    assert_eq!(why(&format!("{text}\n@%p1 bra $M;\nst.global.u32 [%rd4], %r9;\n$M:"), 2, "constant off by one"), None);
    // It loads, or is no prefetch.
    let loads = text.replace("and.b64 %rd1, %rd2, -16", "ld.global.u64 %rd1, [%rd2]");
    assert_eq!(why(&loads, 3, "guard dropped"), None);
    assert_eq!(why(&text.replace(".prefetch.L2", ""), 3, "guard dropped"), None);
}

#[test]
fn a_first_barrier_orders_nothing() {
    let text =
        ".entry a()\n.shared .b8 s[4];\n$K:\nadd.s32 %r1, %r1, 1;\n@%p1 bra $K;\nbar.sync 0;\nst.shared.u32 [%r1], 0;";
    assert_eq!(why(text, 5, "barrier dropped"), Some(NOTHING_BEFORE));
    assert_eq!(why(&format!("{text}\n@%p1 bra $K;"), 5, "barrier dropped"), None);
    assert_eq!(why(&text.replace("add.s32 %r1, %r1, 1", "st.shared.u32 [%r1], 0"), 5, "barrier dropped"), None);
}

#[test]
fn the_long_way_to_divide_is_right_for_all() {
    let text = "@%p1 bra $S;\ndiv.s64 %rd1, %rd2, %rd3;\nbra.uni $E;\n$S:\ncvt.u32.u64 %r1, %rd2;\ndiv.u32 %r3, %r1, %r2;\n$E:";
    assert_eq!(why(text, 0, "branch dropped"), Some(LONG_DIVISION));
    assert_eq!(why(text, 0, "guard dropped"), None);
    assert_eq!(why(&text.replace("div.s64", "add.s64"), 0, "branch dropped"), None);
    let text = format!("and.b64 %rd5, %rd2, -4294967296;\nsetp.eq.s64 %p1, %rd5, 0;\n{text}");
    assert_eq!(why(&text, 0, "other operation"), Some(LONG_BY_MASK));
    assert_eq!(why(&text, 0, "constant off by one"), None);
    assert_eq!(why(&text.replace("setp.eq", "setp.ne"), 0, "other operation"), None);
}

#[test]
fn a_mask_must_follow_a_shift() {
    let text = "shl.b32 %r1, %r0, 2;\nand.b32 %r2, %r1, -16;";
    assert_eq!(why(text, 1, "constant off by one"), Some(BELOW_A_SHIFT));
    assert_eq!(why(&text.replace("shl", "shr"), 1, "constant off by one"), None);
    assert_eq!(why(&text.replace("-16", "15"), 1, "constant off by one"), None);
    let text = "shl.b32 %r1, %r0, 2;\ncvt.u64.u32 %rd1, %r1;\nand.b64 %rd2, %rd1, 252;";
    assert_eq!(why(text, 2, "constant off by one"), Some(BELOW_A_SHIFT));
    assert_eq!(why(&format!("{text}\nmov.u32 %r1, 1;"), 2, "constant off by one"), None);
}

#[test]
fn a_difference_must_be_squared_everywhere() {
    let text = "sub.f32 %f3, %f1, %f2;\nfma.rn.f32 %f4, %f3, %f3, %f5;";
    assert_eq!(why(text, 0, "operands swapped"), Some(SQUARED));
    assert_eq!(why(&format!("{text}\nst.global.f32 [%rd1], %f3;"), 0, "operands swapped"), None);
}
