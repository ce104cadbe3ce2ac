//! Kernels that never end: each is reported, and soon.

use kernelgate::sim::{Check, Launch, Memory, Module, Options, launch};
use rstest::rstest;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The processor time of this thread, so that a busy machine is no reason to fail; the time of the day elsewhere.
pub fn processor_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = spent.and_then(|text| text.split_whitespace().next()?.parse().ok());
    nanoseconds.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// Runs 4 blocks of `threads` threads, each of which may work so much; gives the checks that found something and the
/// least time of three runs on one thread.
fn hang(body: &str, threads: u32, work_budget: u64) -> (Vec<(Check, String)>, Duration) {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 flag) {{\n\
         .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 8 .b64 object;\n\
         ld.param.u64 %rd1, [flag]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;\n{body}\nret;\n}}"
    );
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let mut least = Duration::MAX;
    let mut found = Vec::new();
    for _ in 0..3 {
        let mut memory = Memory::new();
        let flag = memory.alloc(4, Some(&[0; 4])).unwrap();
        let (report, time) = pool.install(|| {
            let start = processor_time();
            let options = Options { work_budget, ..Options::default() };
            let report = launch(&module, &Launch::new("k", 4, threads).arg(flag), &mut memory, &options);
            (report.unwrap(), processor_time() - start)
        });
        least = least.min(time);
        found = report.findings.into_iter().map(|finding| (finding.check, finding.message)).collect();
    }
    (found, least)
}

/// The usual budget of a block.
fn usual() -> u64 {
    Options::default().work_budget
}

/// What decides the branches comes back: no budget has to run out.
#[rstest]
#[case::nothing_changes("L: bra L;")]
#[case::counts("L: add.s32 %r1, %r1, 2; setp.ne.s32 %p1, %r2, -1; @%p1 bra L;")]
#[case::with_a_barrier("L: bar.sync 0; bra L;")]
#[case::strides_by_nothing("L: add.s32 %r2, %r2, %r3; setp.lt.s32 %p1, %r2, 4; @%p1 bra L;")]
#[case::spins_on_a_lock("L: atom.global.cas.b32 %r3, [%rd1], 1, 2; setp.eq.u32 %p1, %r3, 0; @%p1 bra L;")]
#[case::waits_for_a_flag("L: ld.volatile.global.u32 %r3, [%rd1]; setp.eq.u32 %p1, %r3, 0; @%p1 bra L;")]
#[case::long(
    "L: .reg .b32 %x<3>; add.s32 %x1, %x2, 1; add.s32 %x2, %x1, 1; st.shared.u32 [object], %x1; bar.warp.sync -1; bra L;"
)]
#[case::lanes_apart("L: and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra L; N: bra N;")]
fn an_endless_loop_is_reported_within_a_second(#[case] body: &str, #[values(1, 32, 1024)] threads: u32) {
    let (found, time) = hang(body, threads, u64::MAX);
    assert!(found.iter().any(|(check, _)| *check == Check::EndlessLoop), "{found:?}");
    assert!(time < Duration::from_secs(1), "{time:?}");
}

/// Each round differs from all before: the budget ends it.
#[rstest]
#[case::misses_its_end("mov.u32 %r4, 1; L: add.u32 %r4, %r4, 2; setp.ne.u32 %p1, %r4, 0; @%p1 bra L;")]
#[case::counts_in_memory("L: atom.global.add.u32 %r3, [%rd1], 2; setp.ne.u32 %p1, %r3, 1; @%p1 bra L;")]
fn an_endless_loop_that_moves_on_is_reported_within_a_second(#[case] body: &str, #[values(1, 32, 1024)] threads: u32) {
    let (found, time) = hang(body, threads, usual());
    assert!(found.iter().any(|(check, _)| *check == Check::EndlessLoop), "{found:?}");
    assert!(time < Duration::from_secs(1), "{time:?}");
}

/// Long loops that end are let run: rounds that look alike but for memory or a counter.
#[rstest]
#[case::counts("mov.u32 %r4, 0; L: add.u32 %r4, %r4, 1; setp.ne.u32 %p1, %r4, 3000000; @%p1 bra L;")]
#[case::counts_in_shared_memory(
    "st.shared.u32 [object], 0; L: ld.shared.u32 %r4, [object]; add.u32 %r4, %r4, 1; st.shared.u32 [object], %r4; setp.ne.u32 %p1, %r4, 200000; @%p1 bra L;"
)]
#[case::counts_by_atomics("L: atom.global.add.u32 %r3, [%rd1], 1; setp.lt.u32 %p1, %r3, 300000; @%p1 bra L;")]
#[case::counts_in_a_nest(
    "mov.u32 %r4, 0; L: mov.u32 %r5, 0; M: add.u32 %r5, %r5, 1; setp.ne.u32 %p1, %r5, 16383; @%p1 bra M; add.u32 %r4, %r4, 1; setp.ne.u32 %p1, %r4, 200; @%p1 bra L;"
)]
fn a_long_loop_that_ends_is_no_endless_one(#[case] body: &str) {
    let (found, _) = hang(body, 1, u64::MAX);
    assert!(found.is_empty(), "{found:?}");
}

#[rstest]
#[case::barrier_of_others(
    "setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 1, 96; @!%p1 bar.sync 2, 96;",
    Check::BarrierDivergence
)]
#[case::too_few("bar.sync 1, 96;", Check::Deadlock)]
#[case::phase_never_ends(
    "setp.ne.u32 %p1, %r1, 0; @%p1 bra W; mbarrier.init.shared.b64 [object], 2; mbarrier.arrive.shared.b64 _, [object]; W: bar.sync 0;\n\
     L: mbarrier.try_wait.parity.shared.b64 %p2, [object], 0; @!%p2 bra L;",
    Check::Deadlock
)]
fn a_deadlock_is_reported_within_a_tenth_of_a_second(#[case] body: &str, #[case] check: Check) {
    let (found, time) = hang(body, 64, usual());
    assert!(found.iter().any(|(found, _)| *found == check), "{found:?}");
    assert!(time < Duration::from_millis(100), "{time:?}");
}

/// The first lane of each block arrives at the flag and waits until so many have.
fn barrier_of_the_grid(blocks: u32) -> Vec<(Check, String)> {
    let body = format!(
        "setp.ne.u32 %p1, %r1, 0; @%p1 bra E; atom.global.add.u32 %r3, [%rd1], 1;\n\
         L: ld.acquire.gpu.global.u32 %r3, [%rd1]; setp.ne.u32 %p2, %r3, {blocks}; @%p2 bra L; E:"
    );
    hang(&body, 32, usual()).0
}

#[test]
fn a_barrier_of_the_whole_grid_opens_when_all_blocks_have_arrived() {
    assert_eq!(barrier_of_the_grid(4), []);
    let found = barrier_of_the_grid(5);
    let message = &found.iter().find(|(check, _)| *check == Check::EndlessLoop).expect("an endless loop").1;
    assert!(message.contains("it polls global memory, and no other block that is left writes there"), "{message}");
}
