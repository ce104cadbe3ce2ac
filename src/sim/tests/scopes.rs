//! Flags in global memory: fences and atomics order what their scopes reach, and blocks that wait for each other run.

use crate::sim::Launch;
use crate::sim::machine::memory::Memory;
use crate::sim::options::{Checks, Options, WarpOrder};
use crate::sim::report::{Check, Report};
use crate::sim::run::launch;
use crate::sim::tests::{kernel, read_words, words};
use rstest::rstest;

/// Thread 0 of the first half writes `[%rd0]`, thread 0 of the second half reads it; the halves are blocks, or two
/// warps of one block. `WRITE` and `READ` stand for the two sides; the flag is `[%rd1]`, the result `[%rd2]`.
fn halves(are_blocks: bool, write: &str, read: &str, checks: Checks) -> (Vec<Report>, Vec<u32>) {
    let half = if are_blocks { "%ctaid.x" } else { "%warpid" };
    let text = format!(
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2]; mov.u32 %r0, {half}; mov.u32 %r1, %laneid; setp.ne.u32 %p0, %r1, 0; @%p0 exit; setp.eq.u32 %p1, %r0, 1; @%p1 bra READ;\n{write} bra DONE;\nREAD: {read}\nDONE:"
    );
    let module = kernel(3, &text);
    let (grid, threads) = if are_blocks { (2, 32) } else { (1, 64) };
    let mut results = Vec::new();
    let mut run = |seed, warp_order| {
        let mut memory = Memory::new();
        let [data, flag, out] = [0; 3].map(|_| words(&mut memory, &[0]));
        let call = Launch::new("k", grid, threads).arg(data).arg(flag).arg(out);
        let options = Options { seed, warp_order, checks, ..Options::default() };
        let report = launch(&module, &call, &mut memory, &options).unwrap();
        results.push(read_words(&memory, out, 1)[0]);
        report
    };
    let orders =
        [(0, WarpOrder::Ascending), (0, WarpOrder::Descending), (1, WarpOrder::Seeded), (2, WarpOrder::Seeded)];
    (orders.map(|(seed, order)| run(seed, order)).into(), results)
}

const DATA: &str = "st.global.u32 [%rd0], 42;";
const TAKE: &str = "ld.global.u32 %r3, [%rd0]; st.global.u32 [%rd2], %r3;";

fn polls(load: &str) -> String {
    format!("L: {load} setp.eq.u32 %p2, %r2, 0; @%p2 bra L;")
}

#[rstest]
#[case::release_and_acquire("st.release.gpu.global.u32 [%rd1], 1;", "ld.acquire.gpu.global.u32 %r2, [%rd1];", "")]
#[case::for_the_system("st.release.sys.global.u32 [%rd1], 1;", "ld.acquire.sys.global.u32 %r2, [%rd1];", "")]
#[case::fences("membar.gl; atom.global.exch.b32 %r5, [%rd1], 1;", "atom.global.add.u32 %r2, [%rd1], 0;", "membar.gl;")]
#[case::volatile("membar.gl; st.volatile.global.u32 [%rd1], 1;", "ld.volatile.global.u32 %r2, [%rd1];", "membar.gl;")]
fn who_polls_sees_what_was_released(
    #[case] set: &str,
    #[case] load: &str,
    #[case] fence: &str,
    #[values(false, true)] are_blocks: bool,
    #[values(false, true)] acquire: bool,
) {
    let read = format!("{} {fence} {TAKE}", polls(load));
    let (reports, results) = halves(are_blocks, &format!("{DATA} {set}"), &read, Checks { acquire, ..Checks::ALL });
    for report in reports {
        assert!(report.findings.is_empty(), "{}", report.findings[0]);
    }
    assert_eq!(results, [42; 4]);
}

const ONCE: &str = "atom.global.add.u32 %r2, [%rd1], 0; setp.eq.u32 %p2, %r2, 0; @%p2 bra DONE;";

#[rstest]
#[case::fence_of_the_block("membar.cta; atom.global.exch.b32 %r5, [%rd1], 1;", "")]
#[case::no_fence("atom.global.exch.b32 %r5, [%rd1], 1;", "")]
#[case::release_of_the_block("st.release.cta.global.u32 [%rd1], 1;", "")]
#[case::reader_of_the_block(
    "membar.gl; atom.global.exch.b32 %r5, [%rd1], 1;",
    "atom.cta.global.add.u32 %r2, [%rd1], 0; setp.eq.u32 %p2, %r2, 0; @%p2 bra DONE;"
)]
#[case::who_sees_releases_nothing(
    "membar.gl; ld.volatile.global.u32 %r5, [%rd1];",
    "atom.global.add.u32 %r2, [%rd1], 0;"
)]
fn scopes_that_do_not_reach_another_block(#[case] set: &str, #[case] load: &str) {
    let load = if load.is_empty() { ONCE } else { load };
    let (reports, _) = halves(true, &format!("{DATA} {set}"), &format!("{load} membar.gl; {TAKE}"), Checks::ALL);
    let found = |report: &Report| report.findings.iter().any(|finding| finding.check == Check::RaceGlobal);
    assert!(reports.iter().any(found), "{reports:?}");
}

#[rstest]
fn scopes_of_a_block_do_inside_of_it(
    #[values("membar.cta; atom.cta.global.exch.b32 %r5, [%rd1], 1;", "st.release.cta.global.u32 [%rd1], 1;")] set: &str,
) {
    let read = format!("{} {TAKE}", polls("ld.acquire.cta.global.u32 %r2, [%rd1];"));
    let (reports, _) = halves(false, &format!("{DATA} {set}"), &read, Checks::ALL);
    assert!(reports.iter().all(|report| report.findings.is_empty()), "{reports:?}");
}

#[rstest]
#[case::of_the_block("red.cta.global.add.u32 [%rd1], 1;", true)]
#[case::of_the_device("red.gpu.global.add.u32 [%rd1], 1;", false)]
#[case::without_a_word_of_it("red.global.add.u32 [%rd1], 1;", false)]
fn atomics_of_two_blocks_on_one_counter(#[case] add: &str, #[case] is_race: bool) {
    let (reports, _) = halves(true, add, add, Checks::ALL);
    assert!(reports.iter().all(|report| report.findings.iter().any(|f| f.check == Check::RaceGlobal) == is_race));
}

#[test]
fn a_counter_that_one_block_sets_plainly_races_with_the_atomics_of_another() {
    let set = "st.global.u32 [%rd1], 0; red.global.add.u32 [%rd1], 1;";
    let (reports, _) = halves(true, set, "red.global.add.u32 [%rd1], 1;", Checks::ALL);
    for report in reports {
        assert!(report.findings.iter().any(|finding| finding.check == Check::RaceGlobal));
    }
}

#[test]
fn a_missing_acquire_is_found_where_it_is_asked_for() {
    let (write, read) = (format!("{DATA} membar.gl; atom.global.exch.b32 %r5, [%rd1], 1;"), format!("{ONCE} {TAKE}"));
    let (reports, _) = halves(true, &write, &read, Checks::ALL);
    assert!(reports.iter().all(|report| report.findings.is_empty()), "{reports:?}");
    let (reports, _) = halves(true, &write, &read, Checks { acquire: true, ..Checks::ALL });
    let checks: Vec<Check> = reports.iter().flat_map(|report| &report.findings).map(|finding| finding.check).collect();
    assert!(!checks.is_empty() && checks.iter().all(|check| *check == Check::MissingAcquire), "{checks:?}");
}

/// The reader's other warp reads without a barrier; the writer's other warp writes without one.
#[rstest]
#[case::reader("setp.eq.u32 %p3, %r0, 0;", "setp.eq.u32 %p3, %r0, 1;", "setp.eq.u32 %p4, %r0, 0;")]
fn what_one_warp_has_seen_the_others_have_not(#[case] sets: &str, #[case] takes: &str, #[case] sees: &str) {
    let text = format!(
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2]; mov.u32 %r0, %warpid; mov.u32 %r1, %laneid; mov.u32 %r6, %ctaid.x; setp.ne.u32 %p0, %r1, 0; @%p0 exit; setp.eq.u32 %p1, %r6, 1; @%p1 bra READ;\n{sets} @%p3 st.global.u32 [%rd0], 42; @%p3 membar.gl; @%p3 red.global.or.b32 [%rd1], 1; bra DONE;\nREAD: {takes} {sees} @%p4 atom.global.or.b32 %r5, [%rd1], 0; @%p4 membar.gl; @%p3 ld.global.u32 %r3, [%rd0];\nDONE:"
    );
    let module = kernel(3, &text);
    let mut memory = Memory::new();
    let [data, flag, out] = [0; 3].map(|_| words(&mut memory, &[0]));
    let call = Launch::new("k", 2, 64).arg(data).arg(flag).arg(out);
    let report = launch(&module, &call, &mut memory, &Options::default()).unwrap();
    assert!(report.findings.iter().any(|finding| finding.check == Check::RaceGlobal), "{report:?}");
}

#[test]
fn a_barrier_passes_on_what_the_fences_before_it_have_shown() {
    // Every warp fences, then meets; one thread sets the flag without a fence of its own behind the barrier.
    let text = "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r0, %tid.x; mov.u32 %r6, %ctaid.x; setp.eq.u32 %p1, %r6, 1; @%p1 bra READ;\nsetp.eq.u32 %p3, %r0, 63; @%p3 st.global.u32 [%rd0], 42; membar.gl; bar.sync 0; setp.eq.u32 %p4, %r0, 0; @%p4 red.global.or.b32 [%rd1], 1; bra DONE;\nREAD: setp.ne.u32 %p5, %r0, 0; @%p5 bra DONE; L: ld.volatile.global.u32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra L; ld.global.u32 %r3, [%rd0];\nDONE:";
    let module = kernel(2, text);
    let mut memory = Memory::new();
    let [data, flag] = [0; 2].map(|_| words(&mut memory, &[0]));
    let report =
        launch(&module, &Launch::new("k", 2, 64).arg(data).arg(flag), &mut memory, &Options::default()).unwrap();
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
}

#[test]
fn blocks_that_wait_for_what_nobody_writes_end_as_an_endless_loop() {
    let read = polls("ld.acquire.gpu.global.u32 %r2, [%rd1];");
    let (reports, _) = halves(true, &read.replace('L', "M"), &read, Checks::ALL);
    for report in reports {
        assert_eq!(report.findings[0].check, Check::EndlessLoop);
        assert!(report.findings[0].message.contains("no other block"), "{}", report.findings[0]);
    }
}

/// A barrier of the whole grid by a counter, three times.
#[test]
fn a_barrier_of_the_whole_grid_opens() {
    let text = "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r0, %tid.x; mov.u32 %r6, %ctaid.x; mov.u32 %r7, 0; mul.wide.u32 %rd3, %r6, 4; add.s64 %rd4, %rd0, %rd3; xor.b32 %r8, %r6, 1; mul.wide.u32 %rd5, %r8, 4; add.s64 %rd6, %rd0, %rd5; setp.ne.u32 %p0, %r0, 0;\nROUND: add.u32 %r7, %r7, 1; @%p0 bra MEET; ld.global.u32 %r2, [%rd4]; add.u32 %r2, %r2, 1; st.global.u32 [%rd4], %r2;\nMEET: bar.sync 0; @%p0 bra OPEN; mul.lo.u32 %r9, %r7, 8; membar.gl; red.global.add.u32 [%rd1], 1; WAIT: ld.volatile.global.u32 %r3, [%rd1]; setp.lt.u32 %p1, %r3, %r9; @%p1 bra WAIT; membar.gl;\nOPEN: bar.sync 0; ld.global.u32 %r4, [%rd6]; setp.ne.u32 %p2, %r4, %r7; @%p2 trap; bar.sync 0; @%p0 bra OPEN2; mul.lo.u32 %r9, %r7, 8; membar.gl; red.global.add.u32 [%rd1+4], 1; WAIT2: ld.volatile.global.u32 %r3, [%rd1+4]; setp.lt.u32 %p1, %r3, %r9; @%p1 bra WAIT2; membar.gl;\nOPEN2: bar.sync 0; setp.lt.u32 %p3, %r7, 3; @%p3 bra ROUND;";
    let module = kernel(2, text);
    for seed in 0..3 {
        let mut memory = Memory::new();
        let (data, counters) = (words(&mut memory, &[0; 8]), words(&mut memory, &[0; 2]));
        let options = Options { seed, ..Options::default() };
        let call = Launch::new("k", 8, 64).arg(data).arg(counters);
        let report = launch(&module, &call, &mut memory, &options).unwrap();
        assert!(report.findings.is_empty(), "{}", report.findings[0]);
        assert_eq!(read_words(&memory, data, 8), [3; 8]);
    }
}

/// Blocks that run at the same time and store one value, many times: the verdict is always the same.
#[test]
fn one_value_by_all_blocks_is_no_race_whatever_the_timing() {
    let module = kernel(1, "ld.param.u64 %rd0, [p0]; st.global.u32 [%rd0], 1;");
    for _ in 0..200 {
        let mut memory = Memory::new();
        let flag = words(&mut memory, &[0]);
        let report = launch(&module, &Launch::new("k", 64, 64).arg(flag), &mut memory, &Options::default()).unwrap();
        assert!(report.findings.is_empty(), "{}", report.findings[0]);
    }
}
