//! Control flow, warp operations, barriers, atomics, text: what lanes do together.

use crate::sim::error::Error;
use crate::sim::machine::memory::Memory;
use crate::sim::options::{Checks, Options, WarpOrder};
use crate::sim::run::launch;
use crate::sim::tests::{kernel, read_words, run, words};
use crate::sim::{Launch, Module};
use rstest::rstest;

/// Runs one warp (or more) with one output word a thread.
fn each_thread(threads: u32, body: &str) -> Vec<u32> {
    let text = format!(
        "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, %laneid;\n{body}\nmul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r30;"
    );
    let module = kernel(1, &text);
    let mut memory = Memory::new();
    let out = memory.alloc(u64::from(threads) * 4, None).unwrap();
    let report = run(&module, &Launch::new("k", 1, threads).dynamic_shared(16).arg(out), &mut memory);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    read_words(&memory, out, threads as usize)
}

fn lanes(value: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(value).collect()
}

#[test]
fn lanes_part_at_a_branch_and_meet_again() {
    let found = each_thread(
        32,
        "and.b32 %r2, %r0, 1; setp.eq.u32 %p0, %r2, 0; @%p0 bra A; mov.u32 %r30, 7; bra B; A: mov.u32 %r30, 9; B: activemask.b32 %r3; setp.ne.u32 %p1, %r3, -1; @%p1 mov.u32 %r30, 0;",
    );
    assert_eq!(found, lanes(|lane| if lane % 2 == 0 { 9 } else { 7 }));
}

#[test]
fn a_loop_runs_its_own_count_in_each_lane() {
    let found = each_thread(
        32,
        "mov.u32 %r30, 0; L: add.u32 %r30, %r30, 3; add.u32 %r4, %r4, 1; setp.le.u32 %p0, %r4, %r0; @%p0 bra L;",
    );
    assert_eq!(found, lanes(|lane| 3 * (lane + 1)));
}

#[test]
fn additions_in_a_row_are_each_lanes_own_from_where_it_comes_in() {
    let found = each_thread(
        32,
        "setp.lt.u32 %p0, %r0, 20; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f41200000; mov.f32 %f0, 0f00000000; @%p0 bra M; add.f32 %f0, %f0, %f1; add.f32 %f0, %f0, %f1; M: add.f32 %f0, %f0, %f2; add.f32 %f0, %f0, %f2; add.f32 %f0, %f0, %f1; @%p0 add.f32 %f0, %f0, %f2; add.f32 %f0, %f0, %f1; cvt.rzi.u32.f32 %r30, %f0;",
    );
    assert_eq!(found, lanes(|lane| if lane < 20 { 32 } else { 24 }));
}

#[test]
fn a_nan_in_a_row_of_operations_is_the_one_of_the_hardware_and_of_active_lanes_alone() {
    // Every fourth lane has a NaN with a payload; inactive lanes keep theirs as it is.
    let found = each_thread(
        32,
        "mov.f32 %f0, 0f3F800000; mov.f32 %f1, %f0; and.b32 %r2, %r0, 3; setp.eq.u32 %p0, %r2, 0; setp.lt.u32 %p1, %r0, 16; @%p0 mov.b32 %f1, 0xFFC00123; @!%p1 bra E; add.f32 %f1, %f1, %f0; mul.f32 %f1, %f1, %f0; fma.rn.f32 %f1, %f1, %f0, %f0; fma.rn.f32 %f1, %f1, %f0, %f0; E: mov.b32 %r30, %f1;",
    );
    let expected = |lane: u32| match (lane.is_multiple_of(4), lane < 16) {
        (true, true) => 0x7FFF_FFFF,
        (true, false) => 0xFFC0_0123,
        (false, true) => 4f32.to_bits(),
        (false, false) => 1f32.to_bits(),
    };
    assert_eq!(found, lanes(expected));
}

#[test]
fn an_indexed_branch_sends_lanes_to_several_places() {
    let found = each_thread(
        32,
        "rem.u32 %r2, %r0, 3; ts: .branchtargets A, B, C; brx.idx %r2, ts; A: mov.u32 %r30, 10; bra D; B: mov.u32 %r30, 11; bra D; C: mov.u32 %r30, 12; D:",
    );
    assert_eq!(found, lanes(|lane| 10 + lane % 3));
}

#[test]
fn a_lane_that_spins_lets_the_one_it_waits_for_run() {
    // Lane 0 spins at a lower instruction than the store that frees it.
    let found = each_thread(
        32,
        "mov.u64 %rd3, dyn; mov.u32 %r30, 1; setp.ne.u32 %p0, %r0, 0; @!%p0 st.volatile.shared.u32 [%rd3], 0; bar.warp.sync -1; @%p0 bra S; W: ld.volatile.shared.u32 %r5, [%rd3]; setp.eq.u32 %p1, %r5, 0; @%p1 bra W; bra E; S: setp.ne.u32 %p2, %r0, 1; @%p2 bra E; st.volatile.shared.u32 [%rd3], 5; E:",
    );
    assert_eq!(found, lanes(|_| 1));
}

#[rstest]
#[case("shfl.sync.bfly.b32 %r30, %r0, 5, 31, -1;", |lane| lane ^ 5)]
#[case("shfl.sync.down.b32 %r30, %r0, 4, 31, -1;", |lane| if lane + 4 < 32 { lane + 4 } else { lane })]
#[case("shfl.sync.up.b32 %r30, %r0, 3, 0, -1;", |lane| if lane >= 3 { lane - 3 } else { lane })]
#[case("shfl.sync.idx.b32 %r30, %r0, 9, 31, -1;", |_| 9)]
#[case("shfl.sync.idx.b32 %r30, %r0, 1, 0x181f, -1;", |lane| (lane & 24) + 1)]
#[case("shfl.sync.down.b32 %r2|%p1, %r0, 8, 31, -1; selp.u32 %r30, 1, 0, %p1;", |lane| u32::from(lane < 24))]
#[case("setp.lt.u32 %p1, %r0, 5; vote.sync.ballot.b32 %r30, %p1, -1;", |_| 31)]
#[case("setp.lt.u32 %p1, %r0, 5; vote.sync.any.pred %p2, !%p1, -1; selp.u32 %r30, 1, 0, %p2;", |_| 1)]
#[case("setp.lt.u32 %p1, %r0, 5; vote.sync.all.pred %p2, %p1, -1; selp.u32 %r30, 1, 0, %p2;", |_| 0)]
#[case("shr.u32 %r2, %r0, 3; match.any.sync.b32 %r30, %r2, -1;", |lane| 0xFFu32 << (lane & 24))]
#[case("match.all.sync.b32 %r30|%p1, 4, -1;", |_| u32::MAX)]
#[case("redux.sync.add.u32 %r30, %r0, -1;", |_| 496)]
#[case("sub.u32 %r2, %r0, 4; redux.sync.min.s32 %r30, %r2, -1;", |_| -4i32 as u32)]
#[case("elect.sync %r30|%p1, -1;", |_| 0)]
#[case("mov.u32 %r30, %lanemask_le;", |lane| ((2u64 << lane) - 1) as u32)]
fn warp_operations(#[case] body: &str, #[case] expected: fn(u32) -> u32) {
    assert_eq!(each_thread(32, body), lanes(expected));
}

#[test]
fn halves_of_a_warp_can_shuffle_apart() {
    let found = each_thread(
        32,
        "setp.lt.u32 %p1, %r0, 16; selp.b32 %r2, 0x0000ffff, 0xffff0000, %p1; @%p1 bra A; shfl.sync.bfly.b32 %r30, %r0, 1, 31, %r2; bra B; A: shfl.sync.bfly.b32 %r30, %r0, 2, 31, %r2; B:",
    );
    assert_eq!(found, lanes(|lane| if lane < 16 { lane ^ 2 } else { lane ^ 1 }));
}

#[rstest]
#[case(WarpOrder::Ascending, 0)]
#[case(WarpOrder::Descending, 0)]
#[case(WarpOrder::Seeded, 1)]
#[case(WarpOrder::Seeded, 2)]
fn a_barrier_makes_shared_memory_visible(#[case] warp_order: WarpOrder, #[case] seed: u64) {
    let module = kernel(
        1,
        "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, dyn; add.u32 %r3, %r2, %r1; st.shared.u32 [%r3], %r0; bar.sync 0;\n\
         xor.b32 %r4, %r1, 508; add.u32 %r5, %r2, %r4; ld.shared.u32 %r6, [%r5]; cvt.u64.u32 %rd1, %r1; add.s64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r6;",
    );
    let mut memory = Memory::new();
    let out = memory.alloc(512, None).unwrap();
    let options = Options { warp_order, seed, ..Options::default() };
    let report =
        launch(&module, &Launch::new("k", 1, 128).dynamic_shared(512).arg(out), &mut memory, &options).unwrap();
    assert_eq!(report.findings, []);
    assert_eq!(read_words(&memory, out, 128), (0..128).map(|t| t ^ 127).collect::<Vec<_>>());
    assert_eq!(report.metrics.barriers, 4);
}

#[test]
fn a_barrier_counts_predicates() {
    let found = each_thread(64, "setp.lt.u32 %p0, %r0, 40; bar.red.popc.u32 %r30, 0, %p0;");
    assert_eq!(found, vec![40; 64]);
    let found = each_thread(64, "setp.lt.u32 %p0, %r0, 40; bar.red.and.pred %p1, 0, %p0; selp.u32 %r30, 1, 0, %p1;");
    assert_eq!(found, vec![0; 64]);
}

#[test]
fn named_barriers_join_producers_and_consumers() {
    let body = "setp.lt.u32 %p0, %r0, 32; @%p0 bra P; bar.sync 1, 64; ld.shared.u32 %r30, [16]; bra E; P: st.shared.u32 [16], 77; bar.arrive 1, 64; mov.u32 %r30, 1; E:";
    let module = kernel(
        1,
        &format!(
            "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; {body} mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r30;"
        ),
    );
    let mut memory = Memory::new();
    let out = memory.alloc(256, None).unwrap();
    for warp_order in [WarpOrder::Ascending, WarpOrder::Descending] {
        let options = Options { warp_order, ..Options::default() };
        let report =
            launch(&module, &Launch::new("k", 1, 64).dynamic_shared(64).arg(out), &mut memory, &options).unwrap();
        // All lanes of the producer store one value: not a race.
        assert_eq!(report.findings, []);
        assert_eq!(read_words(&memory, out, 64), [vec![1; 32], vec![77; 32]].concat());
    }
}

#[rstest]
#[case("red.global.add.u32 [%rd0], 2;", 5, 5 + 2 * 96)]
#[case("red.global.max.s32 [%rd0], %r0;", 5, 95)]
#[case("atom.global.inc.u32 %r2, [%rd0], 9;", 0, 96 % 10)]
#[case("atom.global.cas.b32 %r2, [%rd0], 7, 8;", 7, 8)]
#[case("atom.global.add.f32 %f1, [%rd0], 0f3F800000;", 0, 0x42C0_0000)]
#[case("red.global.xor.b32 [%rd0], 1;", 6, 6)]
#[case("atom.global.exch.b32 %r2, [%rd0], 3;", 6, 3)]
#[case("red.global.add.noftz.f16x2 [%rd0], 0x3C003C00;", 0, 0x5600_5600)]
fn atomics_of_all_threads(#[case] body: &str, #[case] start: u32, #[case] expected: u32) {
    let module = kernel(1, &format!("ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; {body}"));
    let mut memory = Memory::new();
    let out = words(&mut memory, &[start]);
    let report = run(&module, &Launch::new("k", 1, 96).arg(out), &mut memory);
    assert_eq!(report.findings, []);
    assert_eq!(read_words(&memory, out, 1), [expected]);
}

#[test]
fn special_registers_know_their_place() {
    let module = kernel(
        1,
        "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %ctaid.y; mov.u32 %r1, %nctaid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r0, %r1, %r2; mov.u32 %r4, %tid.y; mov.u32 %r5, %ntid.x; mov.u32 %r6, %tid.x; mad.lo.u32 %r7, %r4, %r5, %r6;\n\
         mad.lo.u32 %r8, %r3, 6, %r7; mul.wide.u32 %rd1, %r8, 4; add.s64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r8;",
    );
    let mut memory = Memory::new();
    let out = memory.alloc(6 * 6 * 4, None).unwrap();
    let call = Launch::new("k", crate::sim::Dim::new(3, 2, 1), crate::sim::Dim::new(2, 3, 1)).arg(out);
    assert_eq!(run(&module, &call, &mut memory).findings, []);
    assert_eq!(read_words(&memory, out, 36), (0..36).collect::<Vec<_>>());
}

#[test]
fn the_metrics_do_not_depend_on_threads_or_checks() {
    let module = kernel(
        1,
        "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 64, %r0; mul.wide.u32 %rd1, %r2, 4; add.s64 %rd2, %rd0, %rd1; setp.gt.u32 %p0, %r0, 40; @%p0 bra E; st.global.u32 [%rd2], %r2; E:",
    );
    let mut found = Vec::new();
    for (threads, checks) in [(1, Checks::ALL), (2, Checks::NONE), (8, Checks::ALL)] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut memory = Memory::new();
        let out = memory.alloc(64 * 64 * 4, None).unwrap();
        let options = Options { checks, ..Options::default() };
        found
            .push(pool.install(|| launch(&module, &Launch::new("k", 64, 64).arg(out), &mut memory, &options).unwrap()));
    }
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
    let metrics = &found[0].metrics;
    assert_eq!(metrics.divergent_branches, 64);
    assert_eq!(metrics.global_writes.bytes, 64 * 41 * 4);
    assert_eq!(metrics.global_writes.units, 64 * 6);
}

#[rstest]
#[case("foo.bar.u32 %r1, %r2;", "foo.bar.u32")]
#[case("add.weird.u32 %r1, %r1, %r1;", "add.weird.u32")]
#[case("ld.global.v3.u32 %r1, [%rd1];", "ld.global.v3.u32")]
fn an_unknown_opcode_is_unsupported_with_its_line(#[case] body: &str, #[case] name: &str) {
    let module = kernel(0, body);
    match module.check("k") {
        Err(Error::Unsupported { opcode, line }) => assert_eq!((opcode.as_str(), line), (name, 7)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_launch_that_does_not_fit_is_refused() {
    let module = kernel(1, "");
    let mut memory = Memory::new();
    for (call, part) in [
        (Launch::new("other", 1, 1), "no entry"),
        (Launch::new("k", 1, 1), "takes 1 arguments"),
        (Launch::new("k", 1, 1).arg(1u32), "has 4 bytes"),
        (Launch::new("k", 0, 1).arg(1u64), "grid"),
        (Launch::new("k", 1, 1025).arg(1u64), "block"),
        (Launch::new("k", 3, 1).cluster(2).arg(1u64), "clusters"),
        (Launch::new("k", 1, 1).dynamic_shared(1 << 20).arg(1u64), "shared"),
    ] {
        let error = launch(&module, &call, &mut memory, &Options::default()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn text_is_printed_in_the_order_of_blocks() {
    let text = ".version 9.0\n.target sm_80\n.address_size 64\n.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n.global .align 1 .b8 fmt[6] = {37, 100, 59};\n\
        .visible .entry k() { .local .align 8 .b8 depot[8]; .reg .b64 %rd<5>; .reg .b32 %r<5>;\n\
        mov.u32 %r1, %ctaid.x; st.local.u32 [depot], %r1; mov.u64 %rd1, depot; cvta.local.u64 %rd2, %rd1; mov.u64 %rd3, fmt; cvta.global.u64 %rd4, %rd3;\n\
        { .param .b64 p0; .param .b64 p1; .param .b32 rv; st.param.b64 [p0], %rd4; st.param.b64 [p1], %rd2; call.uni (rv), vprintf, (p0, p1); ld.param.b32 %r2, [rv]; }\nret; }";
    let module = Module::parse(text).unwrap();
    let report = run(&module, &Launch::new("k", 5, 1), &mut Memory::new());
    assert_eq!(report.printf, "0;1;2;3;4;");
}

#[test]
fn an_adversary_moves_approximations_within_their_bound() {
    let body = "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd0, %rd1; cvt.rn.f32.u32 %f0, %r0; ex2.approx.f32 %f1, %f0; st.global.f32 [%rd2], %f1;";
    let module = kernel(1, body);
    let mut results = Vec::new();
    for seed in 0..2 {
        let mut memory = Memory::new();
        let out = memory.alloc(256, None).unwrap();
        let options = Options { adversarial_approximations: true, seed, ..Options::default() };
        launch(&module, &Launch::new("k", 1, 64).arg(out), &mut memory, &options).unwrap();
        let found = read_words(&memory, out, 64);
        for (thread, bits) in found.iter().enumerate() {
            let exact = (thread as f32).exp2().to_bits();
            assert!(bits.abs_diff(exact) <= 3, "{thread}");
        }
        results.push(found);
    }
    assert_ne!(results[0], results[1]);
}
