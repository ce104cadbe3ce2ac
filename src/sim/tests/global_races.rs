//! Blocks that touch the same global memory: ordered or not.

use crate::sim::Launch;
use crate::sim::machine::memory::Memory;
use crate::sim::report::{Check, Report};
use crate::sim::tests::{kernel, run, words};
use rstest::rstest;

/// Four blocks of 32 threads on a buffer of 128 words and a counter. `%r2` is the global thread number, `%rd4` its own
/// word.
fn blocks(body: &str) -> Report {
    let text = format!(
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 32, %r0; mul.wide.u32 %rd3, %r2, 4; add.s64 %rd4, %rd0, %rd3;\n{body}"
    );
    let module = kernel(2, &text);
    let mut memory = Memory::new();
    let buffer = words(&mut memory, &[0; 128]);
    let counter = words(&mut memory, &[0; 4]);
    run(&module, &Launch::new("k", 4, 32).arg(buffer).arg(counter), &mut memory)
}

/// Each block writes a part, the last one to arrive adds them up.
const LAST_BLOCK: &str = "setp.ne.u32 %p0, %r0, 0; @%p0 exit; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd0, %rd5; st.global.u32 [%rd6], 5; FENCE atom.global.inc.u32 %r5, [%rd1], 3; setp.ne.u32 %p1, %r5, 3; @%p1 exit; membar.gl; ld.global.v4.u32 {%r6,%r7,%r8,%r9}, [%rd0];";

#[rstest]
#[case::all_blocks_write_one_word("st.global.u32 [%rd0], %r2;", Check::MissingSyncwarp)]
#[case::one_thread_a_block("setp.eq.u32 %p0, %r0, 0; @%p0 st.global.u32 [%rd0], %r1;", Check::RaceGlobal)]
#[case::reads_the_next_block(
    "setp.lt.u32 %p0, %r2, 96; @%p0 ld.global.u32 %r3, [%rd4+128]; st.global.u32 [%rd4], 7;",
    Check::RaceGlobal
)]
#[case::plain_and_atomic("red.global.add.u32 [%rd1], 1; ld.global.u32 %r3, [%rd1];", Check::RaceGlobal)]
#[case::last_block_without_a_fence(&LAST_BLOCK.replace("FENCE", ""), Check::RaceGlobal)]
fn unordered(#[case] body: &str, #[case] check: Check) {
    let report = blocks(body);
    assert!(report.findings.iter().any(|finding| finding.check == check), "{:?}", report.findings);
}

#[rstest]
#[case::own_words("ld.global.u32 %r3, [%rd4]; add.u32 %r3, %r3, 1; st.global.u32 [%rd4], %r3;")]
#[case::halves_of_a_word(
    "shl.b32 %r3, %r2, 1; cvt.u64.u32 %rd5, %r3; add.s64 %rd6, %rd0, %rd5; st.global.u16 [%rd6], %rs1; ld.global.u16 %rs2, [%rd6];"
)]
#[case::one_value_everywhere("st.global.u32 [%rd0], 0;")]
#[case::atomics("red.global.add.u32 [%rd1], 1; atom.global.max.u32 %r3, [%rd1], %r2;")]
#[case::last_block_with_a_fence(&LAST_BLOCK.replace("FENCE", "membar.gl;"))]
fn ordered(#[case] body: &str) {
    let report = blocks(body);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
}
