//! Device functions: arguments, results, variables of their own, and the calls that are not carried out.

use crate::sim::error::Error;
use crate::sim::machine::memory::Memory;
use crate::sim::tests::{read_words, run};
use crate::sim::{Launch, Module};
use rstest::rstest;

pub(super) const HEAD: &str = ".version 9.0\n.target sm_90a\n.address_size 64\n";

/// An entry in which each of 32 threads leaves `%r30`; `%r0` is its number.
pub(super) fn with_functions(functions: &str, body: &str) -> Module {
    let text = format!(
        "{HEAD}{functions}\n.visible .entry k(.param .u64 out) {{ .reg .b32 %r<40>; .reg .b64 %rd<9>; .reg .pred %p<9>;\n\
         ld.param.u64 %rd1, [out]; mov.u32 %r0, %tid.x;\n{body}\n\
         mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r30; ret; }}"
    );
    Module::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub(super) fn results(functions: &str, body: &str) -> Vec<u32> {
    let module = with_functions(functions, body);
    let mut memory = Memory::new();
    let out = memory.alloc(128, None).unwrap();
    let report = run(&module, &Launch::new("k", 1, 32).arg(out), &mut memory);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    read_words(&memory, out, 32)
}

pub(super) const TWICE: &str = ".func (.param .b32 result) twice(.param .b32 value) { .reg .b32 %r<3>;\n\
    ld.param.b32 %r1, [value]; add.u32 %r2, %r1, %r1; st.param.b32 [result+0], %r2; ret; }";

/// `%r30 = function(%r0)`.
fn call(function: &str, argument: &str, result: &str) -> String {
    format!(
        "{{ .param .b32 param0; st.param.b32 [param0+0], {argument}; .param .b32 retval0;\n\
         call.uni (retval0), {function}, (param0);\nld.param.b32 {result}, [retval0+0]; }}\n"
    )
}

#[test]
fn a_function_gets_its_argument_and_gives_its_result() {
    let found = results(TWICE, &call("twice", "%r0", "%r30"));
    assert_eq!(found, (0..32).map(|lane| 2 * lane).collect::<Vec<_>>());
}

#[test]
fn calls_of_one_function_have_registers_of_their_own() {
    let body = call("twice", "%r0", "%r1") + &call("twice", "7", "%r2") + "add.u32 %r30, %r1, %r2;";
    assert_eq!(results(TWICE, &body), (0..32).map(|lane| 2 * lane + 14).collect::<Vec<_>>());
}

#[test]
fn functions_call_functions_that_stand_below() {
    let declared = ".func (.param .b32 result) twice(.param .b32 value);";
    let four = format!(
        ".func (.param .b32 four_result) four(.param .b32 four_value) {{ .reg .b32 %r<4>;\nld.param.b32 %r1, [four_value];\n{}{}st.param.b32 [four_result], %r3; ret; }}",
        call("twice", "%r1", "%r2"),
        call("twice", "%r2", "%r3")
    );
    let found = results(&format!("{declared}\n{four}\n{TWICE}"), &call("four", "%r0", "%r30"));
    assert_eq!(found, (0..32).map(|lane| 4 * lane).collect::<Vec<_>>());
}

#[test]
fn lanes_that_return_early_wait_for_the_others() {
    let early = ".func (.param .b32 result) early(.param .b32 value) { .reg .b32 %r<3>; .reg .pred %p<2>;\n\
        ld.param.b32 %r1, [value]; st.param.b32 [result], 5; setp.lt.u32 %p1, %r1, 9; @%p1 ret;\n\
        st.param.b32 [result], %r1; ret; }";
    let body = call("early", "%r0", "%r1") + "activemask.b32 %r2; and.b32 %r30, %r2, %r1;";
    assert_eq!(results(early, &body), (0..32).map(|lane| if lane < 9 { 5 } else { lane }).collect::<Vec<_>>());
}

#[test]
fn a_guarded_call_leaves_the_other_lanes_alone() {
    let body = "mov.u32 %r30, 1; setp.gt.u32 %p1, %r0, 29;\n\
        { .param .b32 param0; st.param.b32 [param0], %r0; .param .b32 retval0; st.param.b32 [retval0], 3;\n\
        @%p1 call (retval0), twice, (param0);\nld.param.b32 %r30, [retval0]; }";
    assert_eq!(results(TWICE, body)[28..], [3, 3, 60, 62]);
}

#[test]
fn structures_and_64_bit_values_pass_through() {
    let function = ".func (.param .b64 result) pick(.param .align 8 .b8 both[16], .param .b32 which) { .reg .b32 %r<3>; .reg .b64 %rd<4>; .reg .pred %p<2>;\n\
        ld.param.b64 %rd1, [both]; ld.param.b64 %rd2, [both+8]; ld.param.u32 %r1, [which]; setp.ne.u32 %p1, %r1, 0;\n\
        selp.b64 %rd3, %rd2, %rd1, %p1; st.param.b64 [result], %rd3; ret; }";
    let body = "mov.b64 %rd4, 0x100000002; mov.b64 %rd5, 0x300000004; and.b32 %r1, %r0, 1;\n\
        { .param .align 8 .b8 param0[16]; st.param.v2.b64 [param0], {%rd4, %rd5}; .param .b32 param1; st.param.b32 [param1], %r1; .param .b64 retval0;\n\
        call.uni (retval0), pick, (param0, param1);\nld.param.b64 %rd6, [retval0]; }\n\
        shr.u64 %rd7, %rd6, 32; add.s64 %rd6, %rd6, %rd7; cvt.u32.u64 %r30, %rd6;";
    assert_eq!(results(function, body)[..4], [3, 7, 3, 7]);
}

/// The shared variable of a function is one, its local array is one a call.
#[test]
fn variables_of_functions_are_theirs() {
    let function = ".func (.param .b32 result) count(.param .b32 value) { .reg .b32 %r<5>; .reg .b64 %rd<2>; .reg .pred %p<2>;\n\
        .shared .align 4 .b32 total; .local .align 4 .b8 own[4]; mov.u64 %rd1, own; ld.param.b32 %r1, [value]; st.local.u32 [%rd1], %r1;\n\
        mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0; setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [total], 0; bar.sync 0;\n\
        atom.shared.add.u32 %r3, [total], 1; bar.sync 0; ld.shared.u32 %r4, [total]; ld.local.u32 %r1, [%rd1]; add.u32 %r4, %r4, %r1; bar.sync 0; st.param.b32 [result], %r4; ret; }";
    let body = "mov.u32 %r3, 0; mov.u32 %r4, 100;".to_owned()
        + &call("count", "%r3", "%r1")
        + &call("count", "%r4", "%r2")
        + "mul.lo.u32 %r2, %r2, 1000; add.u32 %r30, %r1, %r2;";
    assert_eq!(results(function, &body)[31], 32 + 1000 * (64 + 100));
}

#[rstest]
#[case(".func f() { call.uni f; ret; }", "call.uni f;", "recursive")]
#[case(".func f(.param .b32 a);", "{ .param .b32 a; st.param.b32 [a], 1; call.uni f, (a); }", "call f")]
#[case("", "call.uni (%r1), %rd1, (%r2);", "call")]
fn calls_that_cannot_be_followed_are_unsupported(#[case] functions: &str, #[case] body: &str, #[case] part: &str) {
    let error = with_functions(functions, body).check("k").unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains(part), "{error}");
}

#[test]
fn a_call_with_too_few_arguments_is_refused() {
    let error = with_functions(TWICE, "call.uni twice;").check("k").unwrap_err().to_string();
    assert!(error.contains("takes 1 arguments and gives 1 results"), "{error}");
}

/// Sixty functions, each of which calls the next one twice.
#[test]
fn doubling_calls_are_refused_soon() {
    let functions: String =
        (0..60).rev().map(|at| format!(".func f{at}() {{ call.uni f{0}; call.uni f{0}; ret; }}\n", at + 1)).collect();
    let error = with_functions(&(".func f60() { ret; }\n".to_owned() + &functions), "call.uni f0;").check("k");
    assert!(error.unwrap_err().to_string().contains("too many calls"));
}
