//! Kernels with one defect each, and the one finding that they must give.

use crate::sim::Launch;
use crate::sim::machine::memory::Memory;
use crate::sim::options::Options;
use crate::sim::report::{Check, Report};
use crate::sim::run::launch;
use crate::sim::tests::{kernel, words};
use rstest::rstest;

/// Runs 64 threads on a buffer of 64 words with data (`%rd0`), one of 64 words without (`%rd1`), a freed one (`%rd2`)
/// and shared memory.
fn defect(body: &str) -> Report {
    let text = format!(
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; cvt.u64.u32 %rd3, %r1; add.s64 %rd4, %rd0, %rd3; add.s64 %rd5, %rd1, %rd3;\n{body}"
    );
    let module = kernel(3, &text);
    let mut memory = Memory::new();
    let full = words(&mut memory, &[7; 64]);
    let empty = memory.alloc(256, None).unwrap();
    let freed = memory.alloc(256, None).unwrap();
    memory.free(freed).unwrap();
    let options = Options { work_budget: 100_000, ..Options::default() };
    launch(&module, &Launch::new("k", 1, 64).dynamic_shared(256).arg(full).arg(empty).arg(freed), &mut memory, &options)
        .unwrap()
}

#[rstest]
#[case::one_past_the_end("ld.global.u32 %r2, [%rd4+4];", Check::OutOfBounds, 63)]
#[case::before_the_start("st.global.u32 [%rd4-4], 0;", Check::OutOfBounds, 0)]
#[case::null("mov.u64 %rd9, 0; ld.u32 %r2, [%rd9];", Check::OutOfBounds, 0)]
#[case::past_shared("ld.shared.u32 %r2, [256];", Check::OutOfBounds, 0)]
#[case::straddles_the_end(
    "add.s64 %rd9, %rd4, 248; setp.eq.u32 %p0, %r0, 1; @%p0 ld.global.u64 %rd8, [%rd9];",
    Check::OutOfBounds,
    1
)]
#[case::odd_address("ld.global.u32 %r2, [%rd0+2];", Check::Misaligned, 0)]
#[case::odd_vector("ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%rd0+8];", Check::Misaligned, 0)]
#[case::odd_shared("st.shared.u32 [2], 0;", Check::Misaligned, 0)]
#[case::freed("ld.global.u32 %r2, [%rd2];", Check::UseAfterFree, 0)]
#[case::nothing_written("ld.global.u32 %r2, [%rd5];", Check::UninitialisedGlobal, 0)]
#[case::half_written(
    "setp.eq.u32 %p0, %r0, 5; @%p0 st.global.u16 [%rd5], 1; @%p0 ld.global.u32 %r2, [%rd5];",
    Check::UninitialisedGlobal,
    5
)]
#[case::shared_nothing_written("ld.shared.u32 %r2, [%r1];", Check::UninitialisedShared, 0)]
#[case::no_barrier(
    "st.shared.u32 [%r1], %r0; bar.sync 0; st.shared.u32 [%r1], 5; xor.b32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2];",
    Check::RaceShared,
    32
)]
#[case::write_after_read(
    "st.shared.u32 [%r1], %r0; bar.sync 0; xor.b32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2]; st.shared.u32 [%r1], 1;",
    Check::RaceShared,
    32
)]
#[case::no_syncwarp(
    "st.shared.u32 [%r1], %r0; xor.b32 %r2, %r1, 4; ld.shared.u32 %r3, [%r2];",
    Check::MissingSyncwarp,
    0
)]
#[case::two_writers("shr.u32 %r2, %r1, 1; and.b32 %r2, %r2, 124; st.shared.u32 [%r2], %r0;", Check::MissingSyncwarp, 1)]
#[case::two_writers_of_vectors(
    "and.b32 %r2, %r1, 112; setp.lt.u32 %p0, %r0, 32; @%p0 st.shared.v4.u32 [%r2], {5, 5, %r0, 5};",
    Check::MissingSyncwarp,
    1
)]
#[case::the_last_of_three_writers(
    "setp.lt.u32 %p0, %r0, 3; setp.eq.u32 %p1, %r0, 2; selp.u32 %r2, 1, 0, %p1; @%p0 st.shared.v2.u32 [0], {5, %r2};",
    Check::MissingSyncwarp,
    2
)]
#[case::the_last_of_three_writers_of_global_memory(
    "setp.lt.u32 %p0, %r0, 3; setp.eq.u32 %p1, %r0, 2; selp.u32 %r2, 1, 0, %p1; @%p0 st.global.v2.u32 [%rd1], {5, %r2};",
    Check::MissingSyncwarp,
    2
)]
#[case::barrier_in_a_branch(
    "setp.lt.u32 %p0, %r0, 16; @%p0 bra A; bar.sync 0; bra E; A: bar.sync 0; E:",
    Check::BarrierDivergence,
    16
)]
#[case::two_barriers(
    "setp.lt.u32 %p0, %r0, 32; @%p0 bra A; bar.sync 1; bra E; A: bar.sync 0; E:",
    Check::BarrierDivergence,
    0
)]
#[case::nobody_comes("bar.sync 3, 96;", Check::Deadlock, 0)]
#[case::endless("L: bra L;", Check::EndlessLoop, 0)]
#[case::waits_for_nothing(
    "L: ld.volatile.global.u32 %r2, [%rd0]; setp.eq.u32 %p0, %r2, 7; @%p0 bra L;",
    Check::EndlessLoop,
    0
)]
#[case::left_out("shfl.sync.idx.b32 %r2, %r0, 0, 31, 0xfffffffe;", Check::MemberMask, 0)]
#[case::does_not_come(
    "setp.eq.u32 %p0, %r0, 3; @%p0 bra E; shfl.sync.idx.b32 %r2, %r0, 0, 31, -1; E: bar.warp.sync -1;",
    Check::MemberMask,
    0
)]
#[case::trap("setp.eq.u32 %p0, %r0, 40; @%p0 trap;", Check::Trap, 40)]
#[case::halves_of_a_warp_that_meet_apart(
    "and.b32 %r9, %r0, 31; setp.ge.u32 %p1, %r9, 16; st.shared.u32 [%r1], %r0; mov.u32 %r8, 0xffff; @%p1 mov.u32 %r8, 0xffff0000; bar.warp.sync %r8; xor.b32 %r4, %r1, 64; ld.shared.u32 %r5, [%r4];",
    Check::MissingSyncwarp,
    0
)]
fn one_finding(#[case] body: &str, #[case] check: Check, #[case] thread: u32) {
    let report = defect(body);
    let first = report.findings.first().unwrap_or_else(|| panic!("nothing found"));
    assert_eq!((first.check, first.place.thread[0]), (check, thread), "{first}");
    assert!(report.findings.iter().all(|finding| finding.check == check), "{:?}", report.findings);
}

#[test]
fn a_race_names_the_other_access() {
    let report = defect(
        "st.shared.u32 [%r1], %r0; bar.sync 0;\nst.shared.u32 [%r1], 5;\nxor.b32 %r2, %r1, 128;\nld.shared.u32 %r3, [%r2];",
    );
    let finding = &report.findings[0];
    let other = finding.other.as_ref().unwrap();
    assert_eq!((finding.place.thread[0], other.thread[0]), (32, 0));
    assert_eq!((finding.place.ptx_line, other.ptx_line), (9, 11));
    assert_eq!(finding.address, Some(128));
}

#[rstest]
#[case::halves_of_a_word(
    "shl.b32 %r2, %r0, 1; st.shared.u16 [%r2], %rs1; add.u32 %r3, %r2, 128; st.shared.u16 [%r3], %rs1;"
)]
#[case::own_words("st.shared.u32 [%r1], %r0; ld.shared.u32 %r3, [%r1]; st.shared.u32 [%r1], %r3;")]
#[case::same_value_everywhere("st.shared.u32 [0], 5; bar.sync 0; ld.shared.u32 %r2, [0];")]
#[case::same_vector_everywhere("st.shared.v4.u32 [16], {5, 6, 7, 8}; bar.sync 0; ld.shared.u32 %r2, [24];")]
#[case::same_vector_in_each_quad(
    "and.b32 %r2, %r1, 112; setp.lt.u32 %p0, %r0, 32; @%p0 st.shared.v4.u32 [%r2], {%r2, 5, %r2, 6};"
)]
#[case::same_vector_twice("st.shared.v2.u32 [8], {5, 6}; st.shared.v2.u32 [8], {5, 6};")]
#[case::same_vector_in_global_memory("st.global.v4.u32 [%rd1], {5, 6, 7, 8};")]
#[case::atomics("atom.shared.add.u32 %r2, [4], 1;")]
#[case::syncwarp_between(
    "and.b32 %r2, %r1, 124; setp.lt.u32 %p0, %r0, 32; @%p0 st.shared.u32 [%r2], %r0; bar.warp.sync -1; xor.b32 %r3, %r2, 4; @%p0 ld.shared.u32 %r4, [%r3];"
)]
#[case::early_exit("setp.ge.u32 %p0, %r0, 50; @%p0 exit; st.shared.u32 [%r1], %r0; bar.sync 0;")]
#[case::who_has_exited_is_not_waited_for(
    "and.b32 %r9, %r0, 31; setp.ge.u32 %p0, %r9, 16; @%p0 exit; shfl.sync.bfly.b32 %r2, %r0, 8, 31, -1; setp.ne.u32 %p1, %r2, 0; vote.sync.ballot.b32 %r3, %p1, -1; st.shared.u32 [%r1], %r2; bar.warp.sync -1; xor.b32 %r4, %r1, 4; ld.shared.u32 %r5, [%r4]; bar.sync 0;"
)]
#[case::shuffle_before_others_exit(
    "and.b32 %r9, %r0, 31; setp.ge.u32 %p0, %r9, 16; @%p0 bra E; shfl.sync.bfly.b32 %r2, %r0, 8, 31, -1; st.shared.u32 [%r1], %r2; E:"
)]
#[case::vote_before_others_exit(
    "and.b32 %r9, %r0, 31; setp.ge.u32 %p0, %r9, 16; @%p0 bra E; setp.ne.u32 %p1, %r9, 0; vote.sync.ballot.b32 %r3, %p1, -1; st.shared.u32 [%r1], %r3; E:"
)]
#[case::syncwarp_before_others_exit(
    "and.b32 %r9, %r0, 31; setp.ge.u32 %p0, %r9, 16; @%p0 bra E; st.shared.u32 [%r1], %r0; bar.warp.sync -1; xor.b32 %r4, %r1, 4; ld.shared.u32 %r5, [%r4]; E:"
)]
#[case::barrier_before_others_exit(
    "setp.ge.u32 %p0, %r0, 48; @%p0 bra E; st.shared.u32 [%r1], %r0; bar.sync 0; xor.b32 %r4, %r1, 4; ld.shared.u32 %r5, [%r4]; E:"
)]
#[case::halves_of_a_warp_that_meet_and_stay_apart(
    "and.b32 %r9, %r0, 31; setp.ge.u32 %p1, %r9, 16; st.shared.u32 [%r1], %r0; mov.u32 %r8, 0xffff; @%p1 mov.u32 %r8, 0xffff0000; bar.warp.sync %r8; xor.b32 %r4, %r1, 60; ld.shared.u32 %r5, [%r4];"
)]
#[case::halves_of_a_warp_that_meet_apart_and_then_together(
    "and.b32 %r9, %r0, 31; setp.ge.u32 %p1, %r9, 16; st.shared.u32 [%r1], %r0; mov.u32 %r8, 0xffff; @%p1 mov.u32 %r8, 0xffff0000; bar.warp.sync %r8; bar.warp.sync -1; xor.b32 %r4, %r1, 64; ld.shared.u32 %r5, [%r4];"
)]
#[case::partial_shuffle("setp.lt.u32 %p0, %r0, 16; @!%p0 bra E; shfl.sync.idx.b32 %r2, %r0, 0, 31, 0xffff; E:")]
fn nothing_found(#[case] body: &str) {
    let report = defect(body);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
}
