//! Forms that few kernels use: rare integer and conversion modifiers, registers of 128 bits, vectors of atomics.

use crate::sim::Launch;
use crate::sim::machine::memory::Memory;
use crate::sim::tests::{evaluate, kernel, operation, read_words, run, words};
use rstest::rstest;

const INF: u64 = 0x7F80_0000;
const NAN: u64 = 0x7FFF_FFFF;

#[rstest]
#[case("mul24.hi.u32", &[0xFF80_0000, 0x0080_0000], 0x4000_0000)]
#[case("mul24.hi.s32", &[0x0080_0000, 2], 0xFFFF_FF00)]
#[case("mad24.hi.u32", &[0x00FF_FFFF, 0x00FF_FFFF, 3], 0xFFFF_FE03)]
#[case("mad24.hi.s32", &[0x00FF_FFFF, 0x0001_0000, 7], 6)]
#[case("mad24.hi.sat.s32", &[0x007F_FFFF, 0x007F_FFFF, 0x7FFF_FFFF], 0x7FFF_FFFF)]
#[case("min.relu.s32", &[5, 0xFFFF_FFF0], 0)]
#[case("max.relu.s32", &[0xFFFF_FFFF, 0xFFFF_FFF0], 0)]
#[case("max.relu.s32", &[5, 0xFFFF_FFF0], 5)]
#[case("add.u16x2", &[0xFFFF_0001, 0x0001_FFFF], 0)]
#[case("add.s16x2", &[0x7FFF_0001, 0x0001_0002], 0x8000_0003)]
#[case("min.u16x2", &[0xFFFF_0003, 0x0001_0002], 0x0001_0002)]
#[case("max.u16x2", &[0xFFFF_0003, 0x0001_0002], 0xFFFF_0003)]
#[case("min.s16x2", &[0xFFFF_0003, 0x0001_0002], 0xFFFF_0002)]
#[case("max.s16x2", &[0xFFFF_0003, 0x0001_0002], 0x0001_0003)]
#[case("max.relu.s16x2", &[0xFFFF_0003, 0xFFFE_0002], 0x0000_0003)]
#[case("min.relu.s16x2", &[0xFFFF_0003, 0x0001_0002], 0x0000_0002)]
#[case("cvt.pack.sat.s16.s32", &[40_000, 0xFFFF_0000], 0x7FFF_8000)]
#[case("cvt.pack.sat.u16.s32", &[70_000, 0xFFFF_FFFF], 0xFFFF_0000)]
#[case("cvt.pack.sat.u8.s32.b32", &[300, 0xFFFF_FFFF, 0x1234_5678], 0x5678_FF00)]
#[case("cvt.pack.sat.s8.s32.b32", &[127, 0xFFFF_FF00, 0xABCD], 0xABCD_7F80)]
#[case("cvt.pack.sat.u4.s32.b32", &[3, 99, 0x12_3456], 0x1234_563F)]
#[case("cvt.pack.sat.s2.s32.b32", &[1, 0xFFFF_FFF0, 0x5], 0x56)]
#[case("cvt.rn.satfinite.f16x2.f32", &[INF, 0xC97F_F000], 0x7BFF_FBFF)]
#[case("cvt.rn.satfinite.relu.bf16x2.f32", &[INF, 0xBF80_0000], 0x7F7F_0000)]
#[case("cvt.rn.satfinite.bf16x2.f32", &[NAN, 0xFF80_0000], 0x7FFF_FF7F)]
#[case("cvt.rz.relu.f16x2.f32", &[0x3F80_1FFF, 0xBF80_0000], 0x3C00_0000)]
#[case("cvt.rz.relu.tf32.f32", &[0xBF80_0000], 0)]
#[case("cvt.rn.relu.tf32.f32", &[0x3F80_1000], 0x3F80_0000)]
#[case("cvt.rna.satfinite.tf32.f32", &[INF], 0x7F7F_E000)]
#[case("lop3.b32", &[0xF0, 0xCC, 0xAA], 0)]
#[case("max.xorsign.abs.f32", &[0xC000_0000, 0x3F80_0000], 0xC000_0000)]
#[case("min.xorsign.abs.f32", &[0xC000_0000, 0xBF80_0000], 0x3F80_0000)]
#[case("min.NaN.xorsign.abs.f32", &[NAN, 0x3F80_0000], NAN)]
#[case("min.xorsign.abs.f32", &[NAN, 0xBF80_0000], 0xBF80_0000)]
#[case("add.ftz.sat.f16x2", &[0x4000_0001, 0x0000_0001], 0x3C00_0000)]
fn words_of_rare_forms(#[case] opcode: &str, #[case] inputs: &[u64], #[case] expected: u64) {
    if opcode == "lop3.b32" {
        // With a predicate: p = (d != 0) or q.
        for (table, q, d, p) in [(0x80, 0, 0x80, 1), (0, 1, 0, 1), (0, 0, 0, 0)] {
            let body = format!(
                "setp.ne.u32 %p1, {q}, 0; lop3.or.b32 %r9|%p2, %r0, %r1, %r2, {table}, %p1; selp.u32 %r8, 1, 0, %p2; mov.b64 %rd30, {{%r9, %r8}};"
            );
            assert_eq!(evaluate(&body, inputs), d | p << 32);
        }
        assert_eq!(
            evaluate(
                "setp.ne.u32 %p1, 1, 0; lop3.and.b32 _|%p2, %r0, %r1, %r2, 0x80, %p1; selp.u64 %rd30, 1, 0, %p2;",
                inputs
            ),
            1 + expected
        );
        return;
    }
    assert_eq!(operation(opcode, "r", "r", inputs), expected, "{opcode}");
}

#[rstest]
#[case("max.xorsign.abs.f16", &[0xC000, 0x3C00], 0xC000)]
#[case("min.NaN.xorsign.abs.bf16", &[0x7FC0, 0x3F80], 0x7FFF)]
#[case("cvt.rn.satfinite.f16.f32", &[], 0x7BFF)]
fn halves_of_rare_forms(#[case] opcode: &str, #[case] inputs: &[u64], #[case] expected: u64) {
    if inputs.is_empty() {
        let body = format!("{opcode} %rs30, %f0; cvt.u64.u16 %rd30, %rs30;");
        assert_eq!(evaluate(&body, &[INF]), expected);
        return;
    }
    assert_eq!(operation(opcode, "rs", "rs", inputs), expected, "{opcode}");
}

#[rstest]
#[case("cvt.f64.bf16 %d9, %rs0;", 0xBF80, 0xBFF0_0000_0000_0000)]
#[case("cvt.rz.f16.f64 %rs9, %d0; mov.b64 %d9, {%rs9, 0, 0, 0};", 0x40F0_0000_0000_0000, 0x7BFF)]
#[case("cvt.rn.f16x2.e4m3x2 %r9, %rs0; cvt.u64.u32 %rd29, %r9; mov.b64 %d9, %rd29;", 0xB838, 0xBC00_3C00)]
#[case("cvt.rn.relu.f16x2.e4m3x2 %r9, %rs0; cvt.u64.u32 %rd29, %r9; mov.b64 %d9, %rd29;", 0xB838, 0x3C00)]
#[case("cvt.rn.satfinite.relu.e4m3x2.f32 %rs9, %f0, 0f3F800000; mov.b64 %d9, {%rs9, 0, 0, 0};", 0xBF80_0000, 0x38)]
#[case("mov.pred %p9, %is_explicit_cluster; selp.f64 %d9, 0d3FF0000000000000, 0d0000000000000000, %p9;", 0, 0)]
fn conversions_of_rare_forms(#[case] body: &str, #[case] input: u64, #[case] expected: u64) {
    assert_eq!(evaluate(&format!("{body} mov.b64 %rd30, %d9;"), &[input]), expected);
}

/// One thread with a buffer of words in `%rd0`, 16-byte aligned, and shared memory at 0.
fn on_words(start: &[u32], body: &str) -> Vec<u32> {
    let module = kernel(1, &format!(".reg .b128 %q<4>; .reg .b128 %single; ld.param.u64 %rd0, [p0];\n{body}"));
    let mut memory = Memory::new();
    let buffer = words(&mut memory, start);
    let report = run(&module, &Launch::new("k", 1, 1).dynamic_shared(64).arg(buffer), &mut memory);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    read_words(&memory, buffer, start.len())
}

#[test]
fn registers_of_128_bits_move_whole() {
    let body = "ld.global.b128 %q1, [%rd0]; mov.b128 {%rd1, %rd2}, %q1; mov.b128 %single, {%rd2, %rd1}; st.shared.b128 [0], %single; ld.shared.b128 %q2, [0]; mov.b128 %q3, %q2; st.global.b128 [%rd0+16], %q3;";
    assert_eq!(on_words(&[1, 2, 3, 4, 0, 0, 0, 0], body), [1, 2, 3, 4, 3, 4, 1, 2]);
}

#[test]
fn a_swap_of_halves_reads_both_before_it_writes() {
    let body = "ld.global.b128 %q1, [%rd0]; mov.b128 {%rd1, %rd2}, %q1; mov.b128 %q1, {%rd2, %rd1}; st.global.b128 [%rd0], %q1;";
    assert_eq!(on_words(&[1, 2, 3, 4], body), [3, 4, 1, 2]);
    let body =
        "mov.u64 %rd1, 5; mov.u64 %rd2, 6; mov.b128 {%rd1, %rd2}, {%rd2, %rd1}; st.global.v2.u64 [%rd0], {%rd1, %rd2};";
    assert_eq!(on_words(&[1, 2, 3, 4], body), [6, 0, 5, 0]);
}

#[rstest]
#[case::exchanged("atom.global.exch.b128 %q2, [%rd0], %q1;", [9, 10, 11, 12])]
#[case::equal("mov.b64 %rd3, 0x200000001; mov.b64 %rd4, 0x400000003; mov.b128 %q3, {%rd3, %rd4}; atom.global.cas.b128 %q2, [%rd0], %q3, %q1;", [9, 10, 11, 12])]
#[case::half_equal("mov.b64 %rd3, 0x200000001; mov.b64 %rd4, 0x400000004; mov.b128 %q3, {%rd3, %rd4}; atom.global.cas.b128 %q2, [%rd0], %q3, %q1;", [1, 2, 3, 4])]
fn all_128_bits_are_exchanged_or_none(#[case] body: &str, #[case] left: [u32; 4]) {
    let body = format!(
        "mov.b64 %rd1, 0xA00000009; mov.b64 %rd2, 0xC0000000B; mov.b128 %q1, {{%rd1, %rd2}};\n{body}\nst.global.b128 [%rd0+16], %q2;"
    );
    let found = on_words(&[1, 2, 3, 4, 0, 0, 0, 0], &body);
    assert_eq!((&found[..4], &found[4..]), (&left[..], &[1, 2, 3, 4][..]));
}

#[rstest]
#[case::singles(
    "mov.f32 %f1, 0f3F800000; red.global.add.v4.f32 [%rd0], {%f1, %f1, %f1, %f1};",
    [0x4000_0000, 0x3F80_0000, 0x3F80_0000, 0x3F80_0000]
)]
#[case::two_singles(
    "mov.f32 %f1, 0f3F800000; red.relaxed.gpu.global.v2.f32.add [%rd0+8], {%f1, %f1};",
    [0x3F80_0000, 0, 0x3F80_0000, 0x3F80_0000]
)]
#[case::pairs_of_halves(
    "mov.u32 %r1, 0x3C003C00; red.global.add.noftz.v2.f16x2 [%rd0+8], {%r1, %r1};",
    [0x3F80_0000, 0, 0x3C00_3C00, 0x3C00_3C00]
)]
#[case::halves(
    "mov.u16 %rs1, 0x3C00; mov.u16 %rs2, 0x4000; red.global.v4.f16.max.noftz [%rd0+8], {%rs1, %rs2, %rs1, %rs2};",
    [0x3F80_0000, 0, 0x4000_3C00, 0x4000_3C00]
)]
#[case::the_lesser(
    "mov.u32 %r1, 0xBF803F80; red.global.min.noftz.v2.bf16x2 [%rd0], {%r1, %r1};",
    [0xBF80_0000, 0xBF80_0000, 0, 0]
)]
#[case::old_values(
    "mov.f32 %f1, 0f3F800000; atom.global.v2.f32.add {%f2, _}, [%rd0], {%f1, %f1}; st.global.f32 [%rd0+12], %f2;",
    [0x4000_0000, 0x3F80_0000, 0, 0x3F80_0000]
)]
#[case::with_a_policy(
    "mov.f32 %f1, 0f3F800000; red.global.add.L2::cache_hint.f32 [%rd0], %f1, %rd9;",
    [0x4000_0000, 0, 0, 0]
)]
fn vectors_of_atomics(#[case] body: &str, #[case] expected: [u32; 4]) {
    assert_eq!(on_words(&[0x3F80_0000, 0, 0, 0], body), expected);
}

#[rstest]
#[case("red.global.v2.f32.min [%rd0], {%f1, %f1};")]
#[case("red.global.add.v2.u32 [%rd0], {%r1, %r1};")]
#[case("atom.global.add.b128 %q1, [%rd0], %q2;")]
fn vectors_that_no_device_knows_are_unsupported(#[case] body: &str) {
    let module = kernel(1, &format!(".reg .b128 %q<4>;\n{body}"));
    assert!(matches!(module.check("k"), Err(crate::sim::error::Error::Unsupported { .. })), "{body}");
}

#[test]
fn the_policy_of_a_copy_is_no_size() {
    let body = "mov.u64 %rd9, 3; cp.async.cg.shared.global.L2::cache_hint [0], [%rd0], 16, %rd9; cp.async.wait_all; ld.shared.u32 %r1, [12]; st.global.u32 [%rd0], %r1;";
    assert_eq!(on_words(&[1, 2, 3, 4], body)[0], 4);
}

#[test]
fn a_copy_whose_source_is_ignored_leaves_zeros() {
    let body = "setp.eq.u32 %p1, 1, 1; cp.async.ca.shared.global [0], [%rd0], 8, %p1; cp.async.ca.shared.global [8], [%rd0+8], 8, !%p1; cp.async.wait_all; ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [0]; st.global.v4.u32 [%rd0], {%r1, %r2, %r3, %r4};";
    assert_eq!(on_words(&[1, 2, 3, 4], body), [0, 0, 3, 4]);
}

#[test]
fn a_token_tells_how_many_arrivals_were_missing() {
    let body = "mbarrier.init.shared::cta.b64 [8], 5; mbarrier.arrive.shared::cta.b64 %rd1, [8], 2; mbarrier.arrive.shared::cta.b64 %rd2, [8]; mbarrier.pending_count.b64 %r1, %rd1; mbarrier.pending_count.b64 %r2, %rd2; st.global.v2.u32 [%rd0], {%r1, %r2};\n\
                mbarrier.arrive.shared::cta.b64 _, [8], 2; mbarrier.test_wait.shared::cta.b64 %p1, [8], %rd1; selp.u32 %r3, 1, 0, %p1; st.global.u32 [%rd0+8], %r3;";
    assert_eq!(on_words(&[0; 4], body), [5, 3, 1, 0]);
}

#[rstest]
#[case("vadd4.u32.u32.u32.sat", &[0xFF01_8010, 0x0102_8001, 7], 0xFF03_FF11)]
#[case("vadd4.u32.u32.u32", &[0xFF01_8010, 0x0102_8001, 7], 0x0003_0011)]
#[case("vsub4.u32.u32.u32.sat", &[0x0105_8010, 0x0201_8001, 0], 0x0004_000F)]
#[case("vadd2.s32.s32.s32.sat", &[0x7FFF_8000, 0x0001_FFFF, 0], 0x7FFF_8000)]
#[case("vsub2.s32.s32.s32.sat", &[0x8000_0005, 0x0001_0007, 0], 0x8000_FFFE)]
#[case("vmin2.u32.u32.u32", &[0xFFFF_0003, 0x0001_0002, 0], 0x0001_0002)]
#[case("vmax2.s32.s32.s32", &[0xFFFF_0003, 0x0001_0002, 0], 0x0001_0003)]
#[case("vabsdiff4.u32.u32.u32", &[0x01FF_1005, 0x02FE_0507, 0], 0x0101_0B02)]
#[case("vabsdiff4.u32.u32.u32.add", &[0x01FF_1005, 0x02FE_0507, 100], 115)]
#[case("vavrg4.u32.u32.u32", &[0x0102_FFFF, 0x0203_FFFE, 0], 0x0203_FFFF)]
#[case("vset4.u32.u32.eq", &[0x0102_0304, 0x0100_0300, 0], 0x0100_0100)]
#[case("vset4.u32.u32.ne.add", &[0x0102_0304, 0x0100_0300, 10], 12)]
#[case("vset2.u32.u32.ne", &[0x0001_0002, 0x0001_0003, 0], 1)]
#[case("vset2.s32.s32.lt", &[0xFFFF_0002, 0x0001_0001, 0], 0x0001_0000)]
#[case("vshr.u32.u32.u32.clamp.add", &[0x8000_0000, 31, 5], 6)]
#[case("vshr.s32.s32.u32.clamp.add", &[0x8000_0000, 40, 5], 4)]
#[case("vshl.u32.u32.u32.wrap.add", &[3, 33, 1], 7)]
#[case("vadd.s32.u32.s32.sat.min", &[0xFFFF_FFFF, 1, 9], 9)]
#[case("vadd.s32.u32.s32.sat.max", &[0xFFFF_FFFF, 1, 9], 0x7FFF_FFFF)]
fn video_instructions(#[case] opcode: &str, #[case] inputs: &[u64], #[case] expected: u64) {
    assert_eq!(operation(opcode, "r", "r", inputs), expected, "{opcode}");
}

#[rstest]
#[case("add.rn.f32x2", &[0x3F80_0000_4000_0000, 0x3F80_0000_BF80_0000], 0x4000_0000_3F80_0000)]
#[case("sub.f32x2", &[0x3F80_0000_4000_0000, 0x3F80_0000_BF80_0000], 0x0000_0000_4040_0000)]
#[case("mul.rn.f32x2", &[0x3F80_0000_4000_0000, 0xC000_0000_BF80_0000], 0xC000_0000_C000_0000)]
#[case("fma.rn.f32x2", &[0x3F80_0000_4000_0000, 0x3F80_0000_4000_0000, 0x3F80_0000_7F80_0000], 0x4000_0000_7F80_0000)]
#[case("mul.rn.f32x2", &[0x0000_0000_4000_0000, 0x7F80_0000_3F80_0000], 0x7FFF_FFFF_4000_0000)]
fn pairs_of_numbers(#[case] opcode: &str, #[case] inputs: &[u64], #[case] expected: u64) {
    assert_eq!(operation(opcode, "rd", "rd", inputs), expected, "{opcode}");
}

/// 1 + 2^-9 lies between two numbers of bf16, and so does its negative.
#[rstest]
#[case("rm", 0x3F80_4000, 0x3F80)]
#[case("rp", 0x3F80_4000, 0x3F81)]
#[case("rm", 0xBF80_4000, 0xBF81)]
#[case("rp", 0xBF80_4000, 0xBF80)]
fn bf16_is_rounded_down_or_up(#[case] mode: &str, #[case] from: u64, #[case] expected: u64) {
    let body = format!("cvt.{mode}.bf16.f32 %rs30, %f0; cvt.u64.u16 %rd30, %rs30;");
    assert_eq!(evaluate(&body, &[from]), expected);
}
