//! Barrier objects in shared memory: phases, tokens, bytes that never come.

use crate::sim::Launch;
use crate::sim::machine::memory::Memory;
use crate::sim::report::{Check, Report};
use crate::sim::tests::{kernel, read_words, run};
use rstest::rstest;

/// 64 threads write a word each, meet at an object at offset 0 and read each other's word. `ARRIVE` and `WAIT` are up
/// to the case.
fn meet(arrive: &str, wait: &str) -> (Report, Vec<u32>) {
    let body = format!(
        "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [0], 64; bar.sync 0;\n\
         st.shared.u32 [%r1+8], %r0; {arrive}\n{wait}\nxor.b32 %r2, %r1, 252; ld.shared.u32 %r3, [%r2+8]; cvt.u64.u32 %rd2, %r1; add.s64 %rd3, %rd0, %rd2; st.global.u32 [%rd3], %r3;"
    );
    let module = kernel(1, &body);
    let mut memory = Memory::new();
    let out = memory.alloc(256, Some(&[0; 256])).unwrap();
    let report = run(&module, &Launch::new("k", 1, 64).dynamic_shared(512).arg(out), &mut memory);
    let found = read_words(&memory, out, 64);
    (report, found)
}

const BY_TOKEN: &str = "W: mbarrier.test_wait.shared.b64 %p1, [0], %rd5; @!%p1 bra W;";
const BY_PARITY: &str = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [0], 0; @!%p1 bra W;";

#[rstest]
#[case("mbarrier.arrive.shared.b64 %rd5, [0];", BY_TOKEN)]
#[case("mbarrier.arrive.shared.b64 _, [0];", BY_PARITY)]
#[case(
    "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [0], 16; @!%p0 mbarrier.arrive.shared.b64 _, [0]; @%p0 mbarrier.complete_tx.shared.b64 [0], 16;",
    BY_PARITY
)]
fn threads_meet_at_an_object(#[case] arrive: &str, #[case] wait: &str) {
    let (report, found) = meet(arrive, wait);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    assert_eq!(found, (0..64).map(|thread| thread ^ 63).collect::<Vec<_>>());
}

#[rstest]
#[case::no_wait("mbarrier.arrive.shared.b64 _, [0];", "", Check::RaceShared)]
#[case::one_too_few("@!%p0 mbarrier.arrive.shared.b64 _, [0];", BY_PARITY, Check::Deadlock)]
#[case::one_too_many(
    "mbarrier.arrive.shared.b64 _, [0]; @%p0 mbarrier.arrive.shared.b64 _, [0], 65;",
    BY_PARITY,
    Check::BarrierObject
)]
#[case::bytes_never_come(
    "mbarrier.arrive.shared.b64 _, [0]; @%p0 mbarrier.expect_tx.shared.b64 [0], 32;",
    "bar.sync 0;",
    Check::BarrierObject
)]
#[case::another_address("mbarrier.arrive.shared.b64 _, [8];", "", Check::BarrierObject)]
fn defects(#[case] arrive: &str, #[case] wait: &str, #[case] check: Check) {
    let (report, _) = meet(arrive, wait);
    assert!(report.findings.iter().any(|finding| finding.check == check), "{:?}", report.findings);
}

/// What the first warp reads, the second one overwrites once `arrive` has completed the phase of an object for `count`.
#[rstest]
#[case::all_have_met("bar.warp.sync -1; @%p1 mbarrier.arrive.shared.b64 _, [0];", 1, vec![])]
#[case::each_for_itself("mbarrier.arrive.shared.b64 _, [0];", 32, vec![])]
#[case::one_for_all("@%p1 mbarrier.arrive.shared.b64 _, [0];", 1, vec![Check::RaceShared])]
#[case::one_that_met_too_late("@%p1 mbarrier.arrive.shared.b64 _, [0]; bar.warp.sync -1;", 1, vec![Check::RaceShared])]
fn a_lane_arrives_for_those_it_has_met(#[case] arrive: &str, #[case] count: u32, #[case] expected: Vec<Check>) {
    let body = format!(
        "mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; shl.b32 %r2, %r1, 2; setp.eq.u32 %p1, %r1, 0; setp.gt.u32 %p2, %r0, 31; setp.eq.u32 %p0, %r0, 0;\n\
         @%p0 mbarrier.init.shared.b64 [0], {count}; @%p2 st.shared.u32 [%r2+8], %r0; bar.sync 0; @%p2 bra SECOND;\n\
         ld.shared.u32 %r3, [%r2+8]; {arrive} bra END;\n\
         SECOND: mbarrier.try_wait.parity.shared::cta.b64 %p3, [0], 0; @!%p3 bra SECOND; st.shared.u32 [%r2+8], 5;\nEND:"
    );
    let launch = Launch::new("k", 1, 64).dynamic_shared(512);
    let report = run(&kernel(0, &body), &launch, &mut Memory::new());
    let mut found: Vec<Check> = report.findings.iter().map(|finding| finding.check).collect();
    found.dedup();
    assert_eq!(found, expected, "{:?}", report.findings.first().map(ToString::to_string));
}

#[test]
fn a_request_for_the_next_cluster_is_refused() {
    let body = "ld.param.u64 %rd0, [p0]; .reg .b128 %answer; mbarrier.init.shared.b64 [0], 1; fence.mbarrier_init.release.cluster;\n\
         mbarrier.arrive.expect_tx.shared.b64 _, [0], 16;\n\
         clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [16], [0];\n\
         W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [0], 0; @!%p1 bra W;\n\
         ld.shared.b128 %answer, [16]; mov.u32 %r1, 5;\n\
         clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %answer;\n\
         @%p2 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r2, %r3, _}, %answer;\n\
         @%p2 clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r1, %answer;\n\
         selp.u32 %r4, 100, 7, %p2; add.u32 %r4, %r4, %r1; st.global.u32 [%rd0], %r4;";
    let module = kernel(1, body);
    let mut memory = Memory::new();
    let out = memory.alloc(4, Some(&[0; 4])).unwrap();
    let report = run(&module, &Launch::new("k", 1, 1).dynamic_shared(64).arg(out), &mut memory);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    assert_eq!(read_words(&memory, out, 1), [12]);
}
