//! What a kernel asks its device for: memory of its heap, and accesses to all replicas of a multicast object.

use crate::sim::machine::memory::{Memory, Pointer};
use crate::sim::report::{Check, Report};
use crate::sim::tests::{kernel, read_words, run, words};
use crate::sim::{Launch, Module};
use rstest::rstest;

/// A kernel whose threads take `%rd1` bytes to `%rd2`, do something, and give `%rd3` back.
fn heap_kernel(body: &str) -> Module {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n\
         .visible .entry k(.param .u64 out) {{\n.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<2>;\nld.param.u64 %rd0, [out];\nmov.u32 %r0, %tid.x;\ncvt.u64.u32 %rd8, %r0;\n{body}\nret;\n}}"
    );
    Module::parse(&text).unwrap()
}

const TAKE: &str =
    "{ .param .b64 a; st.param.b64 [a], %rd1; .param .b64 b; call.uni (b), malloc, (a); ld.param.b64 %rd2, [b]; }";
const GIVE: &str = "{ .param .b64 a; st.param.b64 [a], %rd3; call.uni free, (a); }";

#[test]
fn every_thread_has_a_piece_of_its_own() {
    let body = format!(
        "add.u64 %rd1, %rd8, 4; {TAKE} st.global.u32 [%rd2], %r0; bar.sync 0; ld.global.u32 %r1, [%rd2]; mad.wide.u32 %rd4, %r0, 4, %rd0; st.global.u32 [%rd4], %r1; mov.u64 %rd3, %rd2; {GIVE} mov.u64 %rd3, 0; {GIVE}"
    );
    let mut memory = Memory::new();
    let out = memory.alloc(4 * 64, None).unwrap();
    let module = heap_kernel(&body);
    // Twice: the heap stays.
    for _ in 0..2 {
        let report = run(&module, &Launch::new("k", 1, 64).arg(out), &mut memory);
        assert!(report.findings.is_empty(), "{}", report.findings[0]);
        assert_eq!(read_words(&memory, out, 64), (0..64).collect::<Vec<u32>>());
    }
}

#[test]
fn what_the_heap_has_not_is_null() {
    let body = format!("mov.u64 %rd1, 9000000; {TAKE} st.global.u64 [%rd0], %rd2;");
    let mut memory = Memory::new();
    let out = words(&mut memory, &[7, 7]);
    run(&heap_kernel(&body), &Launch::new("k", 1, 1).arg(out), &mut memory);
    assert_eq!(read_words(&memory, out, 2), [0, 0]);
}

#[rstest]
#[case::given_back_twice("mov.u64 %rd1, 8; TAKE mov.u64 %rd3, %rd2; GIVE GIVE", Check::UseAfterFree, "`free` of")]
#[case::not_of_the_heap("mov.u64 %rd3, %rd0; GIVE", Check::UseAfterFree, "`free` of")]
#[case::never_written(
    "mov.u64 %rd1, 8; TAKE ld.global.u32 %r1, [%rd2];",
    Check::UninitialisedGlobal,
    "nothing has written"
)]
fn defects_of_the_heap(#[case] body: &str, #[case] check: Check, #[case] part: &str) {
    let mut memory = Memory::new();
    let out = words(&mut memory, &[0]);
    let module = heap_kernel(&body.replace("TAKE", TAKE).replace("GIVE", GIVE));
    let report = run(&module, &Launch::new("k", 1, 1).arg(out), &mut memory);
    let first = report.findings.first().expect("nothing was found");
    assert!(first.check == check && first.message.contains(part), "{first}");
}

/// Three replicas and a kernel of 32 threads with the object's address in `%rd1`, 16 bytes a thread further in `%rd2`; the
/// output is at `%rd3`, likewise.
fn replicated(body: &str, contents: [&[u32]; 3]) -> (Vec<Vec<u32>>, Vec<u32>, Report) {
    let mut memory = Memory::new();
    let replicas: Vec<Pointer> = contents
        .iter()
        .map(|content| words(&mut memory, &content.iter().copied().cycle().take(128).collect::<Vec<u32>>()))
        .collect();
    let object = memory.multicast(&replicas).unwrap();
    let out = words(&mut memory, &[0; 128]);
    let module = kernel(
        2,
        &format!(
            "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd2, %r0, 16, %rd1; mad.wide.u32 %rd3, %r0, 16, %rd0;\n{body}"
        ),
    );
    let report = run(&module, &Launch::new("k", 1, 32).arg(out).arg(object), &mut memory);
    let after = replicas.iter().map(|replica| read_words(&memory, *replica, 128)).collect();
    (after, read_words(&memory, out, 128), report)
}

#[rstest]
#[case("ld_reduce.relaxed.sys.global.add.u32 %r1", [5, 6, 7], 18)]
#[case("ld_reduce.acquire.gpu.global.max.s32 %r1", [5, 0xFFFF_FFFF, 3], 5)]
#[case("ld_reduce.weak.global.and.b32 %r1", [0xF0, 0x3C, 0xFF], 0x30)]
#[case("ld_reduce.relaxed.sys.global.add.f16x2 %r1", [0x3C00_4000, 0x3C00_3C00, 0x4000_3C00], 0x4400_4400)]
#[case("ld_reduce.relaxed.sys.global.min.bf16x2 %r1", [0x3F80_4000, 0xBF80_3F80, 0x0000_4040], 0xBF80_3F80)]
// 2048 + 1 is 2048 in f16, and again; in single precision it is 2050 in the end.
#[case("ld_reduce.relaxed.sys.global.add.f16x2 %r1", [0x6800, 0x3C00, 0x3C00], 0x6800)]
#[case("ld_reduce.relaxed.sys.global.add.acc::f32.f16x2 %r1", [0x6800, 0x3C00, 0x3C00], 0x6801)]
fn replicas_are_joined(#[case] opcode: &str, #[case] contents: [u32; 3], #[case] expected: u32) {
    let [a, b, c] = &contents.map(|word| [word]);
    let (_, out, report) = replicated(&format!("multimem.{opcode}, [%rd2]; st.global.u32 [%rd3], %r1;"), [a, b, c]);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    assert_eq!(out.iter().copied().step_by(4).collect::<Vec<u32>>(), [expected; 32]);
}

#[test]
fn vectors_of_numbers_are_joined() {
    let one = |value: f32| [value.to_bits(), (2.0 * value).to_bits(), (3.0 * value).to_bits(), (4.0 * value).to_bits()];
    let [a, b, c] = [one(1.0), one(10.0), one(100.0)];
    let body = "multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%f1, %f2, %f3, %f4}, [%rd2]; st.global.v4.f32 [%rd3], {%f1, %f2, %f3, %f4};";
    let (_, out, report) = replicated(body, [&a, &b, &c]);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    assert_eq!(out[..8], [one(111.0), one(111.0)].concat());
}

#[test]
fn stores_and_reductions_reach_all_replicas() {
    let body = "multimem.st.relaxed.sys.global.u32 [%rd2], %r0; multimem.red.release.sys.global.add.u32 [%rd1+4], 1; multimem.red.relaxed.sys.add.u64 [%rd1+8], 3;";
    let (after, _, report) = replicated(body, [&[1, 10, 0, 0], &[2, 20, 0, 0], &[3, 30, 0, 0]]);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    for (number, replica) in after.iter().enumerate() {
        assert_eq!(replica[..4], [0, 10 * (number as u32 + 1) + 32, 96, 0]);
        assert_eq!(replica.iter().copied().step_by(4).collect::<Vec<u32>>(), (0..32).collect::<Vec<u32>>());
    }
}

#[rstest]
#[case("multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%rd3];", "of no multicast object")]
#[case("ld.global.u32 %r1, [%rd2];", "an allocation of 0 bytes")]
#[case("multimem.st.relaxed.sys.global.u32 [%rd1+512], %r0;", "an allocation of 512 bytes")]
fn the_address_of_an_object_is_for_multimem_alone(#[case] body: &str, #[case] part: &str) {
    let (_, _, report) = replicated(body, [&[0], &[0], &[0]]);
    let first = report.findings.first().expect("nothing was found");
    assert!(first.check == Check::OutOfBounds && first.message.contains(part), "{first}");
}
