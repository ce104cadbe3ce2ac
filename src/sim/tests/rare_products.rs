//! Products of integers and of double precision, and asynchronous stores to other blocks: values against plain sums.

use crate::sim::Launch;
use crate::sim::machine::memory::Memory;
use crate::sim::options::Options;
use crate::sim::report::Check;
use crate::sim::run::launch;
use crate::sim::tests::{kernel, read_words, run, words};
use rstest::rstest;

/// What stands at (row, k) of the left factor, or (column, k) of the right one; within `bits` bits, signed or not.
fn value(at: usize, k: usize, seed: usize, bits: u32, signed: bool) -> i32 {
    let all = (((at * 31 + k * 17 + seed * 7) * 2_654_435_761) >> 7) as i32 & ((1 << bits) - 1);
    if signed && all >> (bits - 1) != 0 { all - (1 << bits) } else { all }
}

#[rstest]
#[case(16, 16, "s8", "s8", 8)]
#[case(16, 32, "u8", "s8", 8)]
#[case(8, 16, "s8", "u8", 8)]
#[case(16, 32, "s4", "u4", 4)]
#[case(16, 64, "u4", "u4", 4)]
#[case(8, 32, "s4", "s4", 4)]
#[case(16, 256, "b1", "b1", 1)]
#[case(8, 128, "b1", "b1", 1)]
fn products_of_integers(#[case] m: usize, #[case] k: usize, #[case] a: &str, #[case] b: &str, #[case] bits: u32) {
    let width = 32 / bits as usize;
    let (halves, per_row) = (m / 8, k / (4 * width));
    let word = |at: usize, first: usize, seed: usize, signed: bool| {
        (0..width).fold(0u32, |word, i| {
            let field = value(at, first + i, seed, bits, signed) as u32 & ((1u64 << bits) - 1) as u32;
            word | field << (bits as usize * i)
        })
    };
    let mut input = Vec::new();
    for lane in 0..32 {
        let (group, quad) = (lane / 4, lane % 4);
        for register in 0..halves * per_row {
            let first = register / halves * 4 * width + quad * width;
            input.push(word(group + register % halves * 8, first, 1, a.starts_with('s')));
        }
        for register in 0..per_row {
            input.push(word(group, register * 4 * width + quad * width, 2, b.starts_with('s')));
        }
    }
    let (a_count, count) = (halves * per_row, (halves + 1) * per_row);
    let list = |range: std::ops::Range<usize>| range.map(|at| format!("%r{at}")).collect::<Vec<_>>().join(",");
    let mut body = format!(
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, {}; add.s64 %rd3, %rd0, %rd2; mul.wide.u32 %rd4, %r0, 16; add.s64 %rd5, %rd1, %rd4;",
        4 * count
    );
    (0..count).for_each(|at| body += &format!("ld.global.u32 %r{}, [%rd3+{}];", at + 1, 4 * at));
    let sums = m / 4;
    let start = vec!["1000"; sums].join(",");
    let tail = if bits == 1 { ".and.popc" } else { "" };
    body += &format!(
        "mma.sync.aligned.m{m}n8k{k}.row.col.s32.{a}.{b}.s32{tail} {{{}}}, {{{}}}, {{{}}}, {{{start}}};",
        list(20..20 + sums),
        list(1..a_count + 1),
        list(a_count + 1..count + 1)
    );
    (0..sums).for_each(|at| body += &format!("st.global.u32 [%rd5+{}], %r{};", 4 * at, 20 + at));
    let module = kernel(2, &body);
    let mut memory = Memory::new();
    let (from, to) = (words(&mut memory, &input), words(&mut memory, &[0; 128]));
    let report = run(&module, &Launch::new("k", 1, 32).arg(from).arg(to), &mut memory);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    let found = read_words(&memory, to, 128);
    for lane in 0..32 {
        for at in 0..sums {
            let (row, column) = (lane / 4 + at / 2 * 8, lane % 4 * 2 + at % 2);
            let product =
                |k| value(row, k, 1, bits, a.starts_with('s')) * value(column, k, 2, bits, b.starts_with('s'));
            let expected = 1000 + (0..k).map(product).sum::<i32>();
            assert_eq!(found[lane * 4 + at] as i32, expected, "row {row}, column {column}");
        }
    }
}

#[test]
fn saturated_sums_stay_at_the_end() {
    let body = "ld.param.u64 %rd0, [p0]; mov.u32 %r1, 0x7F7F7F7F; mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32 {%r2,%r3,%r4,%r5}, {%r1,%r1}, {%r1}, {0x7FFFFF00,0,0,0};\n\
        mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%r6,%r7,%r8,%r9}, {%r1,%r1}, {%r1}, {0x7FFFFF00,0,0,0}; mov.u32 %r10, %tid.x; setp.ne.u32 %p1, %r10, 0; @%p1 ret; st.global.v2.u32 [%rd0], {%r2, %r6};";
    let mut memory = Memory::new();
    let out = words(&mut memory, &[0; 2]);
    let report = run(&kernel(1, body), &Launch::new("k", 1, 32).arg(out), &mut memory);
    assert!(report.findings.is_empty());
    assert_eq!(read_words(&memory, out, 2), [0x7FFF_FFFF, 0x7FFF_FF00 + 16 * 127 * 127]);
}

#[rstest]
#[case("m8n8k4", 8, 4)]
#[case("m16n8k4", 16, 4)]
#[case("m16n8k8", 16, 8)]
#[case("m16n8k16", 16, 16)]
fn products_of_doubles(#[case] shape: &str, #[case] m: usize, #[case] k: usize) {
    let (halves, per_row) = (m / 8, k / 4);
    let number = |at: usize, k: usize, seed: usize| f64::from(value(at, k, seed, 8, true));
    let mut input = Vec::new();
    for lane in 0..32 {
        for register in 0..halves * per_row {
            input.push(number(lane / 4 + register % halves * 8, register / halves * 4 + lane % 4, 1));
        }
        (0..per_row).for_each(|register| input.push(number(lane / 4, register * 4 + lane % 4, 2)));
    }
    let (a_count, count, sums) = (halves * per_row, (halves + 1) * per_row, m / 4);
    let list = |range: std::ops::Range<usize>| range.map(|at| format!("%d{at}")).collect::<Vec<_>>().join(",");
    let mut body = format!(
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, {}; add.s64 %rd3, %rd0, %rd2; mul.wide.u32 %rd4, %r0, 32; add.s64 %rd5, %rd1, %rd4; mov.f64 %d30, 0d3FE0000000000000;",
        8 * count
    );
    (0..count).for_each(|at| body += &format!("ld.global.f64 %d{at}, [%rd3+{}];", 8 * at));
    body += &format!(
        "mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64 {{{}}}, {{{}}}, {{{}}}, {{{}}};",
        list(24..24 + sums),
        list(0..a_count),
        list(a_count..count),
        vec!["%d30"; sums].join(",")
    );
    (0..sums).for_each(|at| body += &format!("st.global.f64 [%rd5+{}], %d{};", 8 * at, 24 + at));
    let mut memory = Memory::new();
    let bytes: Vec<u8> = input.iter().flat_map(|x| x.to_le_bytes()).collect();
    let from = memory.alloc(bytes.len() as u64, Some(&bytes)).unwrap();
    let to = memory.alloc(1024, Some(&[0; 1024])).unwrap();
    let report = run(&kernel(2, &body), &Launch::new("k", 1, 32).arg(from).arg(to), &mut memory);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    let mut out = vec![0; 1024];
    memory.read(to, &mut out).unwrap();
    for lane in 0..32 {
        for at in 0..sums {
            let (row, column) = (lane / 4 + at / 2 * 8, lane % 4 * 2 + at % 2);
            let expected: f64 = 0.5 + (0..k).map(|k| number(row, k, 1) * number(column, k, 2)).sum::<f64>();
            let found = f64::from_le_bytes(out[lane * 32 + at * 8..][..8].try_into().unwrap());
            assert_eq!(found, expected, "row {row}, column {column}");
        }
    }
}

/// A warp group multiplies 8-bit integers: rows in registers, columns in shared memory without a swizzle.
#[rstest]
#[case("s8.s8", true, 0)]
#[case("u8.u8", false, 70)]
fn products_of_integers_by_warp_groups(#[case] types: &str, #[case] signed: bool, #[case] start: i32) {
    let field = |at, k, seed| value(at, k, seed, 8, signed) as u32 & 0xFF;
    let word = |at, first, seed| (0..4).fold(0u32, |word, i| word | field(at, first + i, seed) << (8 * i));
    // Words of the columns as they lie in shared memory, then four a thread.
    let mut input: Vec<u32> = (0..64).map(|at| word(at / 4 % 8, at / 32 * 16 + at % 4 * 4, 2)).collect();
    for thread in 0..128 {
        let (first, lane) = (thread / 32 * 16, thread % 32);
        (0..4).for_each(|at| input.push(word(first + lane / 4 + at % 2 * 8, lane % 4 * 4 + at / 2 * 16, 1)));
    }
    let accumulates = if start == 0 { "setp.ne.u32 %p1, 0, 0;" } else { "setp.eq.u32 %p1, 0, 0;" };
    let body = format!(
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd0, %rd2; setp.ge.u32 %p0, %r0, 64; shl.b32 %r1, %r0, 2;\n\
         @!%p0 ld.global.u32 %r2, [%rd3]; @!%p0 st.shared.u32 [%r1], %r2; fence.proxy.async; bar.sync 0; mul.wide.u32 %rd4, %r0, 16; add.s64 %rd5, %rd0, %rd4; add.s64 %rd6, %rd1, %rd4;\n\
         ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd5+256]; mov.u32 %r10, {start}; mov.u32 %r11, %r10; mov.u32 %r12, %r10; mov.u32 %r13, %r10; {accumulates} mov.u64 %rd7, 0x80000;\n\
         wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k32.s32.{types} {{%r10, %r11, %r12, %r13}}, {{%r4, %r5, %r6, %r7}}, %rd7, %p1; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n\
         st.global.v4.u32 [%rd6], {{%r10, %r11, %r12, %r13}};"
    );
    let mut memory = Memory::new();
    let (from, to) = (words(&mut memory, &input), words(&mut memory, &[0; 512]));
    let call = Launch::new("k", 1, 128).dynamic_shared(256).arg(from).arg(to);
    let report = run(&kernel(2, &body), &call, &mut memory);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    let found = read_words(&memory, to, 512);
    for thread in 0..128 {
        for at in 0..4 {
            let (row, column) = (thread / 32 * 16 + thread % 32 / 4 + at / 2 * 8, thread % 4 * 2 + at % 2);
            let product = |k| value(row, k, 1, 8, signed) * value(column, k, 2, 8, signed);
            let expected = start + (0..32).map(product).sum::<i32>();
            assert_eq!(found[thread * 4 + at] as i32, expected, "row {row}, column {column}");
        }
    }
}

/// Two blocks: thread 0 of each sends to the other one, which waits for its object.
fn exchange(send: &str, bytes: u32, wait: &str) -> (Vec<u32>, Vec<Check>) {
    let body = format!(
        "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; xor.b32 %r2, %r1, 1; setp.ne.u32 %p0, %r0, 0;\n\
         mapa.shared::cluster.u32 %r3, 64, %r2; mapa.shared::cluster.u32 %r4, 0, %r2; add.u32 %r5, %r1, 10; add.u32 %r6, %r1, 20;\n\
         @%p0 bra M; st.shared.v2.u32 [64], {{7, 7}}; mbarrier.init.shared::cta.b64 [0], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [0], {bytes}; fence.mbarrier_init.release.cluster;\n\
         M: barrier.cluster.arrive.release; barrier.cluster.wait.acquire; @%p0 bra W; {send}\n\
         W: {wait}\n\
         @%p0 bra E; ld.shared.v2.u32 {{%r7, %r8}}, [64]; mul.wide.u32 %rd1, %r1, 8; add.s64 %rd2, %rd0, %rd1; st.global.v2.u32 [%rd2], {{%r7, %r8}};\n\
         E: barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"
    );
    let mut memory = Memory::new();
    let out = words(&mut memory, &[0; 4]);
    let call = Launch::new("k", 2, 32).cluster(2).dynamic_shared(128).arg(out);
    let report = launch(&kernel(1, &body), &call, &mut memory, &Options::default()).unwrap();
    (read_words(&memory, out, 4), report.findings.iter().map(|finding| finding.check).collect())
}

const WAIT: &str = "L: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [0], 0; @!%p1 bra L;";

#[rstest]
#[case::one("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r3], %r5, [%r4];", 4, [11, 7, 10, 7])]
#[case::two(
    "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r3], {%r5, %r6}, [%r4];",
    8,
    [11, 21, 10, 20]
)]
#[case::sum(
    "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r3], %r5, [%r4];",
    4,
    [18, 7, 17, 7]
)]
#[case::count(
    "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.inc.u32 [%r3], %r5, [%r4];",
    4,
    [8, 7, 8, 7]
)]
fn values_are_sent_to_other_blocks(#[case] send: &str, #[case] bytes: u32, #[case] expected: [u32; 4]) {
    assert_eq!(exchange(send, bytes, WAIT), (expected.to_vec(), vec![]));
}

#[rstest]
#[case::nobody_waits(
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r3], %r5, [%r4];",
    4,
    "",
    Check::AsyncCopy
)]
#[case::too_few_bytes(
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r3], %r5, [%r4];",
    8,
    WAIT,
    Check::Deadlock
)]
#[case::no_object(
    "add.u32 %r4, %r4, 8; st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r3], %r5, [%r4];",
    4,
    WAIT,
    Check::BarrierObject
)]
#[case::outside(
    "add.u32 %r3, %r3, 64; st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r3], %r5, [%r4];",
    4,
    WAIT,
    Check::OutOfBounds
)]
fn values_sent_wrongly_are_found(#[case] send: &str, #[case] bytes: u32, #[case] wait: &str, #[case] check: Check) {
    let (_, found) = exchange(send, bytes, wait);
    assert!(found.contains(&check), "{found:?}");
}

/// An H200 ends it with an illegal instruction, to whichever block the store goes.
#[test]
fn an_asynchronous_store_takes_a_launch_with_clusters() {
    let body = "mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 0; mapa.shared::cluster.u32 %r3, 64, 0; mapa.shared::cluster.u32 %r4, 0, 0;\n\
         @%p0 bra E; mbarrier.init.shared::cta.b64 [0], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [0], 4;\n\
         st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r3], %r0, [%r4]; E:";
    let call = Launch::new("k", 1, 32).dynamic_shared(128);
    let report = run(&kernel(0, body), &call, &mut Memory::new());
    assert!(report.findings.iter().any(|finding| finding.check == Check::Trap), "{:?}", report.findings);
}

/// Two blocks of two buffers each: thread 0 sends to the other one three times and reads what came, before the next store
/// or behind it. The third store goes where the first went.
#[rstest]
#[case::before_the_next_store(true, vec![])]
#[case::behind_it(false, vec![Check::RaceShared])]
fn a_store_tells_what_its_warp_has_read(#[case] first_read: bool, #[case] expected: Vec<Check>) {
    let wait = |label: &str, object: u32, parity: u32| {
        format!("{label}: mbarrier.try_wait.parity.shared::cta.b64 %p1, [{object}], {parity}; @!%p1 bra {label};")
    };
    let send = |to: &str, object: &str| {
        format!("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [{to}], %r5, [{object}];")
    };
    let (first, second) = (send("%r3", "%r4"), send("%r6", "%r7"));
    let read = "ld.shared.u32 %r8, [64];";
    let (before, behind) = if first_read { (read, "") } else { ("", read) };
    let body = format!(
        "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; xor.b32 %r2, %r1, 1; setp.ne.u32 %p0, %r0, 0; mov.u32 %r5, 5;\n\
         mapa.shared::cluster.u32 %r3, 64, %r2; mapa.shared::cluster.u32 %r4, 0, %r2; mapa.shared::cluster.u32 %r6, 80, %r2; mapa.shared::cluster.u32 %r7, 8, %r2;\n\
         @%p0 bra M; mbarrier.init.shared::cta.b64 [0], 1; mbarrier.init.shared::cta.b64 [8], 1; fence.mbarrier_init.release.cluster;\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [0], 4; mbarrier.arrive.expect_tx.shared::cta.b64 _, [8], 4;\n\
         M: barrier.cluster.arrive.release; barrier.cluster.wait.acquire; @%p0 bra E;\n\
         {first} {wait_first} mbarrier.arrive.expect_tx.shared::cta.b64 _, [0], 4;\n\
         {before} {second} {behind} {wait_second} {first} {wait_third}\n\
         E: barrier.cluster.arrive.release; barrier.cluster.wait.acquire;",
        wait_first = wait("A", 0, 0),
        wait_second = wait("B", 8, 0),
        wait_third = wait("C", 0, 1),
    );
    let mut memory = Memory::new();
    let out = words(&mut memory, &[0; 4]);
    let call = Launch::new("k", 2, 32).cluster(2).dynamic_shared(128).arg(out);
    let report = launch(&kernel(1, &body), &call, &mut memory, &Options::default()).unwrap();
    let mut found: Vec<Check> = report.findings.iter().map(|finding| finding.check).collect();
    found.dedup();
    assert_eq!(found, expected, "{:?}", report.findings.first().map(ToString::to_string));
}

#[rstest]
#[case("add.u32", [11, 22, 33, 44])]
#[case("max.s32", [10, 20, 30, 40])]
#[case("and.b32", [10 & 1, 20 & 2, 30 & 3, 40 & 4])]
#[case("add.u64", [11, 22, 33, 44])]
#[case("inc.u32", [0, 0, 0, 0])]
fn a_bulk_copy_reduces_into_global_memory(#[case] what: &str, #[case] expected: [u32; 4]) {
    let body = format!(
        "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 0; @%p0 bra E; st.shared.v4.u32 [0], {{1, 2, 3, 4}}; fence.proxy.async;\n\
         cp.reduce.async.bulk.global.shared::cta.bulk_group.{what} [%rd0], [0], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:"
    );
    let mut memory = Memory::new();
    let out = words(&mut memory, &[10, 20, 30, 40]);
    let report = run(&kernel(1, &body), &Launch::new("k", 1, 32).dynamic_shared(64).arg(out), &mut memory);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    assert_eq!(read_words(&memory, out, 4), expected);
}
