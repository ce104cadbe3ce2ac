//! Matrix operations and asynchronous copies: values against sums written from the tables of the PTX manual.

use crate::sim::machine::memory::Memory;
use crate::sim::options::{Accumulation, Completion, Options};
use crate::sim::report::Check;
use crate::sim::run::launch;
use crate::sim::tests::{kernel, read_words, run, words};
use crate::sim::{Dim, Launch};
use half::{bf16, f16};
use rstest::rstest;

/// Small integers, exact in every format, so that any order of summation gives the same bits.
fn small(row: usize, column: usize, seed: usize) -> f32 {
    ((row * 7 + column * 5 + seed * 3) % 9) as f32 - 4.0
}

fn encode(kind: &str, values: &[f32]) -> u32 {
    match kind {
        "f16" => values.iter().rev().fold(0, |word, v| word << 16 | u32::from(f16::from_f32(*v).to_bits())),
        "bf16" => values.iter().rev().fold(0, |word, v| word << 16 | u32::from(bf16::from_f32(*v).to_bits())),
        "s8" => values.iter().rev().fold(0, |word, v| word << 8 | u32::from(*v as i8 as u8)),
        _ => values[0].to_bits(),
    }
}

#[rstest]
#[case("m16n8k16", "f16", 16, 2)]
#[case("m16n8k16", "bf16", 16, 2)]
#[case("m16n8k8", "bf16", 8, 2)]
#[case("m16n8k8", "tf32", 8, 1)]
#[case("m16n8k4", "tf32", 4, 1)]
#[case("m16n8k32", "s8", 32, 4)]
fn products(#[case] shape: &str, #[case] kind: &str, #[case] k: usize, #[case] per_register: usize) {
    let (a_count, b_count) = (2 * k / (4 * per_register), k / (4 * per_register));
    let sum = if kind == "s8" { "s32" } else { "f32" };
    let mut input = Vec::new();
    for lane in 0..32 {
        let (group, quad) = (lane / 4, lane % 4);
        for register in 0..a_count {
            let row = if register % 2 == 0 { group } else { group + 8 };
            let first = quad * per_register + if register >= 2 { 4 * per_register } else { 0 };
            input.push(encode(kind, &(0..per_register).map(|at| small(row, first + at, 1)).collect::<Vec<_>>()));
        }
        for register in 0..b_count {
            let first = quad * per_register + register * 4 * per_register;
            input.push(encode(kind, &(0..per_register).map(|at| small(first + at, group, 2)).collect::<Vec<_>>()));
        }
    }
    let count = a_count + b_count;
    let mut body = "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r0, %tid.x;".to_owned();
    body += &format!("mul.wide.u32 %rd2, %r0, {}; add.s64 %rd3, %rd0, %rd2;", 4 * count);
    for at in 0..count {
        body += &format!("ld.global.u32 %r{}, [%rd3+{}];", at + 1, 4 * at);
    }
    let list = |range: std::ops::Range<usize>| range.map(|at| format!("%r{at}")).collect::<Vec<_>>().join(",");
    let zero = if sum == "s32" { "0,0,0,0" } else { "%f9,%f9,%f9,%f9" };
    let d = if sum == "s32" { "%r20,%r21,%r22,%r23" } else { "%f20,%f21,%f22,%f23" };
    body += &format!(
        "mov.f32 %f9, 0f00000000; mma.sync.aligned.{shape}.row.col.{sum}.{kind}.{kind}.{sum} {{{d}}}, {{{}}}, {{{}}}, {{{zero}}};",
        list(1..a_count + 1),
        list(a_count + 1..count + 1)
    );
    body += &format!("mul.wide.u32 %rd4, %r0, 16; add.s64 %rd5, %rd1, %rd4; st.global.v4.{sum} [%rd5], {{{d}}};");
    let module = kernel(2, &body);
    let mut memory = Memory::new();
    let from = words(&mut memory, &input);
    let out = memory.alloc(512, None).unwrap();
    for accumulation in [Accumulation::Ascending, Accumulation::Shuffled] {
        let options = Options { accumulation, seed: 5, ..Options::default() };
        let report = launch(&module, &Launch::new("k", 1, 32).arg(from).arg(out), &mut memory, &options).unwrap();
        assert_eq!(report.findings, []);
        for (at, bits) in read_words(&memory, out, 128).into_iter().enumerate() {
            let (lane, part) = (at / 4, at % 4);
            let (row, column) = (lane / 4 + part / 2 * 8, lane % 4 * 2 + part % 2);
            let expected: f32 = (0..k).map(|k| small(row, k, 1) * small(k, column, 2)).sum();
            let found = if sum == "s32" { bits as i32 as f32 } else { f32::from_bits(bits) };
            assert_eq!(found, expected, "lane {lane} part {part}");
        }
    }
}

#[rstest]
#[case("", |lane: u32, part: u32| lane / 4 * 8 + lane % 4 * 2 + part)]
#[case(".trans", |lane: u32, part: u32| (lane % 4 * 2 + part) * 8 + lane / 4)]
fn tiles_come_from_shared_memory_and_go_back(#[case] transposed: &str, #[case] element: fn(u32, u32) -> u32) {
    // 32 rows of 8 half words: element number = row * 8 + column, tile t is rows 8t to 8t + 7.
    let body = format!(
        "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, dyn; add.u32 %r3, %r2, %r1; mul.lo.u32 %r4, %r0, 0x00080008; add.u32 %r5, %r4, 0x00010000;\n\
         add.u32 %r6, %r5, 0x00020002; add.u32 %r7, %r6, 0x00020002; add.u32 %r8, %r7, 0x00020002; st.shared.v4.u32 [%r3], {{%r5,%r6,%r7,%r8}}; bar.warp.sync -1;\n\
         ldmatrix.sync.aligned.m8n8.x4{transposed}.shared.b16 {{%r10,%r11,%r12,%r13}}, [%r3];\n\
         mul.wide.u32 %rd1, %r0, 16; add.s64 %rd2, %rd0, %rd1; st.global.v4.u32 [%rd2], {{%r10,%r11,%r12,%r13}};\n\
         stmatrix.sync.aligned.m8n8.x4{transposed}.shared.b16 [%r3+512], {{%r10,%r11,%r12,%r13}}; bar.warp.sync -1; ld.shared.v4.u32 {{%r14,%r15,%r16,%r17}}, [%r3+512]; st.global.v4.u32 [%rd2+512], {{%r14,%r15,%r16,%r17}};"
    );
    let module = kernel(1, &body);
    let mut memory = Memory::new();
    let out = memory.alloc(1024, None).unwrap();
    let report = run(&module, &Launch::new("k", 1, 32).dynamic_shared(1024).arg(out), &mut memory);
    assert_eq!(report.findings, []);
    let found = read_words(&memory, out, 256);
    for lane in 0..32 {
        for tile in 0..4 {
            let expected = (tile * 64 + element(lane, 0)) | ((tile * 64 + element(lane, 1)) << 16);
            assert_eq!(found[(lane * 4 + tile) as usize], expected, "lane {lane} tile {tile}");
        }
    }
    let original: Vec<u32> = (0..128).map(|word| (word * 2) | ((word * 2 + 1) << 16)).collect();
    assert_eq!(found[128..], original);
}

/// Copies 16 bytes a lane, waits as told, and reads what the neighbour copied.
fn copy(between: &str, completion: Completion) -> (Vec<u32>, Vec<Check>) {
    let body = format!(
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, dyn; add.u32 %r3, %r2, %r1; cvt.u64.u32 %rd2, %r1; add.s64 %rd3, %rd0, %rd2;\n\
         cp.async.cg.shared.global [%r3], [%rd3], 16; cp.async.commit_group; cp.async.ca.shared.global [%r3+1024], [%rd3], 4, 2; cp.async.commit_group;\n{between}\n\
         xor.b32 %r4, %r3, 16; ld.shared.u32 %r5, [%r4]; add.s64 %rd4, %rd1, %rd2; st.global.u32 [%rd4], %r5; cp.async.wait_all; ld.shared.u32 %r6, [%r3+1024]; st.global.u32 [%rd4+4], %r6;"
    );
    let module = kernel(2, &body);
    let mut memory = Memory::new();
    let from = words(&mut memory, &(0..256).map(|at| 0x10000 + at).collect::<Vec<_>>());
    let out = words(&mut memory, &[0; 256]);
    let options = Options { completion, ..Options::default() };
    let report =
        launch(&module, &Launch::new("k", 1, 64).dynamic_shared(2048).arg(from).arg(out), &mut memory, &options)
            .unwrap();
    (read_words(&memory, out, 256), report.findings.iter().map(|finding| finding.check).collect())
}

#[rstest]
fn a_copy_is_there_after_its_wait(#[values(Completion::Early, Completion::Late)] completion: Completion) {
    let (found, checks) = copy("cp.async.wait_group 1; bar.sync 0;", completion);
    assert_eq!(checks, []);
    for thread in 0..64 {
        assert_eq!(found[thread * 4], 0x10000 + (thread as u32 ^ 1) * 4);
        assert_eq!(found[thread * 4 + 1], thread as u32 * 4, "bytes that were not read are zero");
    }
}

#[rstest]
#[case("bar.sync 0;", Check::AsyncCopy)]
#[case("cp.async.wait_group 2; bar.sync 0;", Check::AsyncCopy)]
#[case("cp.async.wait_group 1; bar.sync 0; st.shared.u32 [%r3+1024], 1;", Check::AsyncCopy)]
#[case("cp.async.wait_group 1;", Check::MissingSyncwarp)]
fn a_copy_without_its_wait_is_found(
    #[case] between: &str,
    #[case] check: Check,
    #[values(Completion::Early, Completion::Late)] completion: Completion,
) {
    let (_, mut checks) = copy(between, completion);
    checks.retain(|found| *found != Check::UninitialisedShared);
    assert_eq!(checks, [check]);
}

/// Lanes go to the blocks of a cluster in turn: to the same place there, or each to its own.
#[rstest]
#[case::one_place("mov.u32 %r4, 0;", std::array::from_fn(|lane| 100 * (lane as u32 & 3)))]
#[case::own_places("shl.b32 %r4, %r0, 2;", std::array::from_fn(|lane| 100 * (lane as u32 & 3) + lane as u32))]
fn lanes_of_one_load_reach_several_blocks(#[case] place: &str, #[case] expected: [u32; 32]) {
    let body = format!(
        "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, dyn; mad.lo.u32 %r3, %r1, 100, %r0;\n\
         shl.b32 %r5, %r0, 2; add.u32 %r5, %r5, %r2; st.shared.u32 [%r5], %r3; barrier.cluster.arrive.release; barrier.cluster.wait.acquire;\n\
         {place} add.u32 %r4, %r4, %r2; and.b32 %r6, %r0, 3; mapa.shared::cluster.u32 %r7, %r4, %r6; ld.shared::cluster.u32 %r8, [%r7];\n\
         mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd0, %rd1; setp.eq.u32 %p1, %r1, 2; @%p1 st.global.u32 [%rd2], %r8; barrier.cluster.arrive; barrier.cluster.wait;"
    );
    let module = kernel(1, &body);
    let mut memory = Memory::new();
    let out = memory.alloc(128, None).unwrap();
    let report = run(&module, &Launch::new("k", 4, 32).cluster(4).dynamic_shared(128).arg(out), &mut memory);
    assert_eq!(report.findings, []);
    assert_eq!(read_words(&memory, out, 32), expected);
}

#[test]
fn blocks_of_a_cluster_reach_each_other() {
    let body = "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %cluster_ctarank; mov.u32 %r1, dyn; add.u32 %r2, %r0, 100; st.shared.u32 [%r1], %r2; barrier.cluster.arrive.release; barrier.cluster.wait.acquire;\n\
        xor.b32 %r3, %r0, 1; mapa.shared::cluster.u32 %r4, %r1, %r3; ld.shared::cluster.u32 %r5, [%r4]; getctarank.shared::cluster.u32 %r6, %r4; mad.lo.u32 %r7, %r6, 1000, %r5;\n\
        mov.u32 %r8, %ctaid.x; mul.wide.u32 %rd1, %r8, 4; add.s64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r7; barrier.cluster.arrive; barrier.cluster.wait;";
    let module = kernel(1, body);
    let mut memory = Memory::new();
    let out = memory.alloc(16, None).unwrap();
    let report = run(&module, &Launch::new("k", 4, 1).cluster(2).dynamic_shared(16).arg(out), &mut memory);
    assert_eq!(report.findings, []);
    assert_eq!(read_words(&memory, out, 4), [1101, 100, 1101, 100]);
    let unsynchronised = kernel(1, &body.replace("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;", ""));
    let report =
        run(&unsynchronised, &Launch::new("k", Dim::from(4), 1).cluster(2).dynamic_shared(16).arg(out), &mut memory);
    assert!(report.findings.iter().any(|finding| finding.check == Check::RaceShared), "{:?}", report.findings);
}
