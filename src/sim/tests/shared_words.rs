//! Words that several lanes of a warp, or several warps, touch at one time.

use crate::sim::Launch;
use crate::sim::machine::memory::Memory;
use crate::sim::options::{Options, WarpOrder};
use crate::sim::report::Check;
use crate::sim::run::launch;
use crate::sim::tests::{kernel, read_words, run, words};
use rstest::rstest;

/// What one warp finds: `%rd0` a word, `%rd2` and `%rd3` the own and the next word of a buffer, `%r0` the lane. The
/// same again in shared memory at 0 and `%r1`.
fn warp(body: &str) -> Vec<Check> {
    let text = format!(
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; cvt.u64.u32 %rd4, %r1; add.s64 %rd2, %rd1, %rd4; add.s64 %rd3, %rd2, 4; st.shared.u32 [%r1], %r0; st.shared.u32 [%r1+128], %r0; bar.warp.sync -1;\n{body}"
    );
    let module = kernel(2, &text);
    let mut found: Vec<Check> = Vec::new();
    for (seed, warp_order) in [(0, WarpOrder::Ascending), (0, WarpOrder::Descending), (7, WarpOrder::Seeded)] {
        let mut memory = Memory::new();
        let (word, buffer) = (words(&mut memory, &[0; 4]), words(&mut memory, &[0; 64]));
        let call = Launch::new("k", 1, 32).dynamic_shared(512).arg(word).arg(buffer);
        let options = Options { seed, warp_order, ..Options::default() };
        let report = launch(&module, &call, &mut memory, &options).unwrap();
        found.extend(report.findings.iter().map(|finding| finding.check));
    }
    found
}

const SHARED: &str = "ld.shared.u32 %r2, [256];";

#[rstest]
#[case::increment("ld.global.u32 %r2, [%rd0]; add.u32 %r2, %r2, 1; st.global.u32 [%rd0], %r2;")]
#[case::increment_by_some(
    "setp.lt.u32 %p0, %r0, 9; @%p0 ld.global.u32 %r2, [%rd0]; add.u32 %r2, %r2, 1; @%p0 st.global.u32 [%rd0], %r2;"
)]
#[case::write_after_all_have_read("ld.global.u32 %r2, [%rd0]; setp.eq.u32 %p0, %r0, 5; @%p0 st.global.u32 [%rd0], 7;")]
#[case::atomic_after_all_have_read(
    "ld.global.u32 %r2, [%rd0]; setp.lt.u32 %p0, %r2, %r0; @%p0 red.global.max.u32 [%rd0], %r0;"
)]
#[case::a_fence_is_no_meeting(
    "ld.global.u32 %r2, [%rd0]; membar.gl; setp.eq.u32 %p0, %r0, 5; @%p0 st.global.u32 [%rd0], 7;"
)]
#[case::read_of_what_some_wrote("setp.lt.u32 %p0, %r0, 4; @%p0 st.global.u32 [%rd0], 7; ld.global.u32 %r2, [%rd0];")]
#[case::write_over_what_some_wrote(
    "setp.lt.u32 %p0, %r0, 4; @%p0 st.global.u32 [%rd0], 7; setp.eq.u32 %p1, %r0, 9; @%p1 st.global.u32 [%rd0], 8;"
)]
#[case::shift("setp.lt.u32 %p0, %r0, 31; @%p0 ld.global.u32 %r2, [%rd3]; @%p0 st.global.u32 [%rd2], %r2;")]
#[case::three_readers_of_a_word(
    "ld.global.u32 %r2, [%rd3]; ld.global.u32 %r3, [%rd3+4]; ld.global.u32 %r4, [%rd2]; st.global.u32 [%rd2], %r2;"
)]
#[case::halves_that_two_read(
    "and.b32 %r3, %r0, 1; shl.b32 %r3, %r3, 1; cvt.u64.u32 %rd5, %r3; add.s64 %rd6, %rd0, %rd5; ld.global.u16 %rs2, [%rd0]; st.global.u16 [%rd6], %rs2;"
)]
#[case::shared_increment("ld.shared.u32 %r2, [256]; add.u32 %r2, %r2, 1; st.shared.u32 [256], %r2;")]
#[case::shared_write_after_all_have_read("ld.shared.u32 %r2, [0]; setp.eq.u32 %p0, %r0, 5; @%p0 st.shared.u32 [0], 7;")]
#[case::shared_read_of_what_some_wrote("setp.lt.u32 %p0, %r0, 4; @%p0 st.shared.u32 [0], 7; ld.shared.u32 %r2, [0];")]
#[case::shared_shift("setp.lt.u32 %p0, %r0, 31; @%p0 ld.shared.u32 %r2, [%r1+4]; @%p0 st.shared.u32 [%r1], %r2;")]
fn needs_a_syncwarp(#[case] body: &str) {
    let body = body.replace(SHARED, &format!("st.shared.u32 [256], 0; bar.warp.sync -1; {SHARED}"));
    let found = warp(&body);
    assert!(found.contains(&Check::MissingSyncwarp), "{found:?}");
}

#[rstest]
#[case::every_lane_reads_what_every_lane_wrote("st.global.u32 [%rd0], 7; ld.global.u32 %r2, [%rd0];")]
#[case::the_same_in_shared_memory("st.shared.u32 [0], 7; ld.shared.u32 %r2, [0];")]
#[case::with_a_meeting_between(
    "ld.global.u32 %r2, [%rd0]; bar.warp.sync -1; setp.eq.u32 %p0, %r0, 5; @%p0 st.global.u32 [%rd0], 7;"
)]
#[case::halves_of_a_word_in_a_loop(
    "shr.u32 %r3, %r1, 1; cvt.u64.u32 %rd5, %r3; add.s64 %rd6, %rd1, %rd5; mov.u32 %r4, 0; L: ld.global.u16 %rs2, [%rd6]; add.u16 %rs2, %rs2, 1; st.global.u16 [%rd6], %rs2; add.u32 %r4, %r4, 1; setp.lt.u32 %p0, %r4, 3; @%p0 bra L;"
)]
#[case::halves_of_a_shared_word_in_a_loop(
    "shr.u32 %r3, %r1, 1; mov.u32 %r4, 0; L: ld.shared.u16 %rs2, [%r3]; add.u16 %rs2, %rs2, 1; st.shared.u16 [%r3], %rs2; add.u32 %r4, %r4, 1; setp.lt.u32 %p0, %r4, 3; @%p0 bra L;"
)]
#[case::own_words("ld.global.u32 %r2, [%rd2]; st.global.u32 [%rd2], %r2;")]
#[case::one_reader("setp.eq.u32 %p0, %r0, 5; @%p0 ld.global.u32 %r2, [%rd0]; @%p0 st.global.u32 [%rd0], 7;")]
#[case::a_lock_that_lanes_take_in_turn(
    "mov.u32 %r9, 0; L: atom.acquire.gpu.global.cas.b32 %r2, [%rd1], 0, 1; setp.ne.u32 %p0, %r2, 0; @%p0 bra N; ld.global.u32 %r3, [%rd0]; add.u32 %r3, %r3, 1; st.global.u32 [%rd0], %r3; mov.u32 %r9, 1; atom.release.gpu.global.exch.b32 %r4, [%rd1], 0; N: setp.eq.u32 %p1, %r9, 0; @%p1 bra L;"
)]
fn needs_none(#[case] body: &str) {
    let found = warp(body);
    assert!(found.is_empty(), "{found:?}");
}

/// Loads that go together, whose lanes come to lie otherwise in the middle of a loop, and elsewhere as well.
#[test]
fn lanes_that_come_to_lie_otherwise_load_what_is_there_now() {
    let module = kernel(
        1,
        "ld.param.u64 %rd1, [p0]; mov.u32 %r1, %tid.x; mov.u64 %rd2, dyn; cvt.u32.u64 %r2, %rd2; shl.b32 %r3, %r1, 2; \
         add.u32 %r4, %r2, %r3; mov.u32 %r5, 0; \
         W: st.shared.u32 [%r4], %r1; add.u32 %r1, %r1, 32; add.u32 %r4, %r4, 128; add.u32 %r5, %r5, 1; \
         setp.lt.u32 %p1, %r5, 8; @%p1 bra W; bar.warp.sync -1; mov.u32 %r5, 0; \
         L: setp.lt.u32 %p2, %r5, 3; selp.u32 %r6, 1, 2, %p2; mul.lo.u32 %r7, %r3, %r6; shl.b32 %r8, %r5, 6; \
         add.u32 %r7, %r7, %r8; add.u32 %r7, %r7, %r2; ld.shared.u32 %r9, [%r7]; ld.shared.u32 %r10, [%r7+4]; \
         add.u32 %r9, %r9, %r10; shl.b32 %r11, %r5, 7; add.u32 %r11, %r11, %r3; cvt.u64.u32 %rd3, %r11; \
         add.u64 %rd3, %rd3, %rd1; st.global.u32 [%rd3], %r9; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 6; @%p1 bra L;",
    );
    let mut memory = Memory::new();
    let out = words(&mut memory, &[0; 192]);
    let report = run(&module, &Launch::new("k", 1, 32).dynamic_shared(1024).arg(out), &mut memory);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let expected = (0..192).map(|at| {
        let (round, lane) = (at / 32, at % 32);
        2 * (round * 16 + lane * if round < 3 { 1 } else { 2 }) + 1
    });
    assert_eq!(read_words(&memory, out, 192), expected.collect::<Vec<u32>>());
}
