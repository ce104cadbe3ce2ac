//! Calls through pointers: which function each lane gets to, what comes back, and pointers that lead nowhere.

use crate::sim::error::Error;
use crate::sim::machine::memory::Memory;
use crate::sim::report::{Check, Finding};
use crate::sim::tests::calls::{HEAD, TWICE, results, with_functions};
use crate::sim::tests::run;
use crate::sim::{Launch, Module};
use rstest::rstest;

/// Takes and gives what `twice` does.
const THRICE: &str = ".func (.param .b32 result) thrice(.param .b32 value) { .reg .b32 %r<3>;\n\
    ld.param.b32 %r1, [value]; mad.lo.u32 %r2, %r1, 2, %r1; st.param.b32 [result+0], %r2; ret; }";
const SUM: &str = ".func (.param .b32 result) sum(.param .b32 a, .param .b32 b) { .reg .b32 %r<4>;\n\
    ld.param.b32 %r1, [a]; ld.param.b32 %r2, [b]; add.u32 %r3, %r1, %r2; st.param.b32 [result], %r3; ret; }";
const PROTOTYPE: &str = "callees: .callprototype (.param .b32 _) _ (.param .b32 _);";
const TARGETS: &str = "callees: .calltargets twice, thrice;";
/// `%rd4` is `twice` in even lanes and `thrice` in odd ones.
const CHOOSE: &str = "mov.u64 %rd5, twice; mov.u64 %rd6, thrice; and.b32 %r9, %r0, 1; setp.eq.u32 %p1, %r9, 0; selp.b64 %rd4, %rd5, %rd6, %p1;\n";

fn functions() -> String {
    format!("{TWICE}\n{THRICE}\n{SUM}")
}

/// `%r30 = %rd4(%r0)`.
fn call(callees: &str) -> String {
    format!(
        "{{ .param .b32 param0; st.param.b32 [param0+0], %r0; .param .b32 retval0; st.param.b32 [retval0], 1000;\n\
         {callees}\ncall (retval0), %rd4, (param0), callees;\nld.param.b32 %r30, [retval0+0]; }}\n"
    )
}

fn twice_and_thrice() -> Vec<u32> {
    (0..32).map(|lane| lane * (2 + lane % 2)).collect()
}

#[rstest]
fn lanes_go_to_their_functions_and_come_together(#[values(PROTOTYPE, TARGETS)] callees: &str) {
    let body = CHOOSE.to_owned() + &call(callees);
    assert_eq!(results(&functions(), &body), twice_and_thrice());
    assert_eq!(results(&functions(), &(body + "activemask.b32 %r30;")), [u32::MAX; 32]);
}

#[rstest]
fn pointers_come_from_tables(#[values("const", "global")] space: &str) {
    let functions = format!("{}\n.{space} .align 8 .u64 table[3] = {{7, thrice, twice}};", functions());
    let body = format!(
        "mov.u64 %rd5, table; and.b32 %r9, %r0, 1; sub.u32 %r9, 2, %r9; mul.wide.u32 %rd6, %r9, 8; add.s64 %rd5, %rd5, %rd6; ld.{space}.u64 %rd4, [%rd5];\n{}",
        call(PROTOTYPE)
    );
    assert_eq!(results(&functions, &body), twice_and_thrice());
}

#[test]
fn a_guarded_call_leaves_the_other_lanes_alone() {
    let body = CHOOSE.to_owned()
        + "setp.lt.u32 %p2, %r0, 10; mov.u64 %rd7, 5; selp.b64 %rd4, %rd4, %rd7, %p2;\n"
        + &call(PROTOTYPE).replace("call (", "@%p2 call (");
    let expected =
        twice_and_thrice().iter().zip(0..).map(|(x, lane)| if lane < 10 { *x } else { 1000 }).collect::<Vec<_>>();
    assert_eq!(results(&functions(), &body), expected);
}

/// A function that takes a pointer, calls what it points to twice, and is itself called directly and through a pointer.
#[rstest]
fn pointers_are_passed_on(#[values("again", "%rd8")] callee: &str) {
    let again = format!(
        ".func (.param .b32 again_result) again(.param .b64 function, .param .b32 start) {{ .reg .b32 %r<40>; .reg .b64 %rd<9>; .reg .pred %p<2>;\n\
         ld.param.b64 %rd4, [function]; ld.param.b32 %r0, [start]; mov.u32 %r9, 0;\n\
         L: {} mov.u32 %r0, %r30; add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 2; @%p1 bra L; st.param.b32 [again_result], %r30; ret; }}",
        call(PROTOTYPE)
    );
    let list = if callee == "again" { "" } else { ", list" };
    let body = format!(
        "{CHOOSE} list: .calltargets again; mov.u64 %rd8, again;\n\
         {{ .param .b64 param0; st.param.b64 [param0], %rd4; .param .b32 param1; st.param.b32 [param1], %r0; .param .b32 retval0;\n\
         call (retval0), {callee}, (param0, param1){list};\nld.param.b32 %r30, [retval0]; }}"
    );
    let expected: Vec<u32> = (0..32).map(|lane| lane * (2 + lane % 2) * (2 + lane % 2)).collect();
    assert_eq!(results(&format!("{}\n{again}", functions()), &body), expected);
}

#[test]
fn functions_may_take_and_give_nothing() {
    let functions = ".global .u32 count; .func tick() { .reg .b32 %r<2>; atom.global.add.u32 %r1, [count], 1; }\n.func other() { ret; }";
    let body = "callees: .callprototype _; mov.u64 %rd4, tick; mov.u64 %rd5, other; setp.lt.u32 %p1, %r0, 20; selp.b64 %rd4, %rd4, %rd5, %p1;\n\
                call %rd4, callees; bar.warp.sync -1; ld.volatile.global.u32 %r30, [count];";
    assert_eq!(results(functions, body), [20; 32]);
}

fn finding(functions: &str, body: &str) -> Finding {
    let module = with_functions(functions, body);
    let mut memory = Memory::new();
    let out = memory.alloc(128, None).unwrap();
    let mut report = run(&module, &Launch::new("k", 1, 32).arg(out), &mut memory);
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    report.findings.remove(0)
}

/// Only lane 7 has a bad pointer.
#[rstest]
#[case::null("mov.u64 %rd7, 0;", "holds no address of a device function")]
#[case::memory("mov.u64 %rd7, %rd1;", "holds no address of a device function")]
#[case::inside_a_function("add.s64 %rd7, %rd5, 4;", "holds no address of a device function")]
#[case::past_all_functions("add.s64 %rd7, %rd6, 1600;", "holds no address of a device function")]
#[case::other_parameters(
    "mov.u64 %rd7, sum;",
    "a pointer to `sum`, which is not among the targets of this call or does not fit"
)]
fn a_pointer_to_no_callee_is_found(#[case] bad: &str, #[case] part: &str, #[values(PROTOTYPE, TARGETS)] callees: &str) {
    let body = format!("{CHOOSE}{bad} setp.eq.u32 %p2, %r0, 7; selp.b64 %rd4, %rd7, %rd4, %p2;\n{}", call(callees));
    let found = finding(&functions(), &body);
    assert_eq!((found.check, found.place.thread), (Check::Trap, [7, 0, 0]));
    assert!(found.address.is_some() && found.message.contains(part), "{found}");
}

#[test]
fn functions_are_no_data() {
    let found = finding(TWICE, "mov.u64 %rd4, twice; setp.eq.u32 %p1, %r0, 3; @%p1 ld.global.u32 %r30, [%rd4];");
    assert_eq!((found.check, found.place.thread), (Check::OutOfBounds, [3, 0, 0]));
}

#[rstest]
#[case::recursive(
    ".func f() { .reg .b64 %rd<2>; callees: .callprototype _; mov.u64 %rd1, f; call %rd1, callees; ret; }",
    "mov.u64 %rd4, f; callees: .callprototype _; call %rd4, callees;",
    "recursive"
)]
#[case::no_list(TWICE, "mov.u64 %rd4, twice; call %rd4, (%r1), nowhere;", "call")]
#[case::list_behind_the_call(TWICE, "mov.u64 %rd4, twice; call %rd4, callees; callees: .calltargets twice;", "call")]
#[case::no_such_function(TWICE, "callees: .calltargets nothing; call %rd4, callees;", "nothing")]
#[case::an_entry(TWICE, "callees: .calltargets k; call %rd4, callees;", "to k")]
#[case::declared_only(".func f();", "mov.u64 %rd4, f;", "the address of f, which has no body")]
fn calls_that_cannot_be_followed_are_unsupported(#[case] functions: &str, #[case] body: &str, #[case] part: &str) {
    let error = with_functions(functions, body).check("k").unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains(part), "{error}");
}

#[rstest]
#[case(
    "callees: .callprototype (.param .b32 _) _ (.param .b32 _);",
    "the prototype takes 1 arguments and gives 1 results, the call has 0 and 0"
)]
#[case("callees: .calltargets twice;", "`twice` takes 1 arguments and gives 1 results, the call has 0 and 0")]
fn a_call_with_other_arguments_than_its_callees_is_refused(#[case] callees: &str, #[case] part: &str) {
    let error = with_functions(TWICE, &format!("{callees} mov.u64 %rd4, twice; call %rd4, callees;")).check("k");
    let error = error.unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}

#[rstest]
#[case("callees: .callprototype twice (.param .b32 _);", "`_` in the place of a name")]
#[case("callees: .callprototype (.param .b32 _;", "expected")]
#[case("callees: .calltargets ;", "a name")]
#[case("callees: .calltargets twice; callees: .calltargets twice;", "declared twice")]
#[case("callees: .calltargets twice; brx.idx %r0, callees;", "an index and a list of labels")]
#[case("callees: .calltargets twice; bra callees;", "one label")]
#[case("callees: .calltargets twice; mov.u64 %rd4, callees;", "64 bits")]
#[case("mov.u32 %r1, twice;", "32 bits")]
#[case("mov.u64 %rd4, k;", "not declared here")]
#[case("callees: .calltargets twice; call (%rd3), %r1, (%rd3), callees;", "")]
fn texts_that_say_no_callees_are_refused(#[case] body: &str, #[case] part: &str) {
    let text = format!("{HEAD}{TWICE}\n.visible .entry k() {{ .reg .b32 %r<4>; .reg .b64 %rd<9>; {body} ret; }}");
    let error = Module::parse(&text).and_then(|module| module.check("k")).unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}

/// Forty functions, each of which calls one of those below, whichever the pointer names.
#[test]
fn doubling_calls_are_refused_soon() {
    let functions: String = (0..40)
        .map(|at| {
            let list: Vec<String> = (0..at).map(|below| format!("f{below}")).collect();
            match at {
                0 => ".func f0() { ret; }\n".to_owned(),
                _ => format!(
                    ".func f{at}() {{ .reg .b64 %rd<2>; callees: .calltargets {}; mov.u64 %rd1, f0; call %rd1, callees; ret; }}\n",
                    list.join(", ")
                ),
            }
        })
        .collect();
    let error = with_functions(&functions, "call.uni f39;").check("k").unwrap_err().to_string();
    assert!(error.contains("too many calls"), "{error}");
}
