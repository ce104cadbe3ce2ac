//! Every mistake of a declaration is found, all of them at once, and a right declaration has none.

use super::*;
use crate::core::candidate::{Cpu, Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::launch::Launch;
use crate::core::operator::Op;
use crate::core::suite::SuiteOf;
use crate::core::tensor::{Inputs, Outputs};
use rstest::rstest;

crate::shape! { struct Rows { rows: 0..=64, cols: 1..=64, eps: f32 = [1e-5, 1e-3] } }

fn op() -> Op<Rows> {
    Op::<Rows>::new("copy")
        .input("x", |s| [s.rows, s.cols])
        .output("y", |s| [s.rows, s.cols])
        .separable("rows")
        .cost(|s, t| Cost { bytes: 2 * s.rows * s.cols * t.size(), flops: 0 })
        .reference(|_, x, y| y[0].copy_from_slice(x[0]))
}

fn cpu() -> Cpu<Rows> {
    Cpu::new::<f32>(|_: &Rows, _: &Inputs<'_>, _: &mut Outputs<'_>| {})
}

fn suite() -> SuiteOf<Rows> {
    Suite::of(op()).candidate("c", cpu())
}

fn with(operator: Op<Rows>) -> SuiteOf<Rows> {
    Suite::of(operator).candidate("c", cpu())
}

fn shape(rows: usize, cols: usize, eps: f32) -> Rows {
    Rows { rows, cols, eps }
}

#[test]
fn a_right_declaration_has_no_mistake() {
    assert_eq!(mistakes(&[suite().into()]), Vec::<String>::new());
}

#[rstest]
#[case::no_candidate(Suite::of(op()), "operator `copy`: it has no candidate")]
#[case::dtypes_do_not_meet(suite().dtypes([DType::I32]), "`copy::c`: it has no trial: it computes f32, the operator runs in i32")]
#[case::no_dtypes(suite().dtypes([]), "leaves no dtype")]
#[case::dtype_twice(suite().dtypes([DType::F32, DType::F32]), "names f32 twice")]
#[case::candidate_twice(suite().candidate("c", cpu()), "two candidates are called `c`")]
#[case::candidate_name(suite().candidate("a::b", cpu()), "the candidate name `a::b`")]
#[case::empty_name(suite().candidate("", cpu()), "the candidate name ``")]
#[case::no_function(suite().candidate("d", cpu().dtypes([DType::F32, DType::F16])), "`.dtypes` names f16, for which it has no function")]
#[case::tile(suite().candidate("d", cpu().tile("colls", 4)), "`copy::d`: `.tile(\"colls\", 4)`: no such axis; the axes are rows, cols, eps")]
#[case::tile_of_an_attribute(suite().candidate("d", cpu().tile("eps", 4)), "is an attribute")]
#[case::empty_tile(suite().candidate("d", cpu().tile("cols", 0)), "a tile has at least one element")]
#[case::alignment(suite().candidate("d", cpu().alignment(12)), "`.alignment(12)`: a power of two")]
#[case::no_reason(suite().candidate("d", cpu().exclude_distributions(Distribution::Tiny, " ")), "gives no reason")]
#[case::nothing_left(with(op().distributions([Distribution::Tiny])).candidate("d", cpu().exclude_distributions(Distribution::Tiny, "r")), "leaves no inputs to try it on")]
#[case::kernel_name(suite().candidate("a b", Cuda::source("", "k", |_: &Rows| Launch::blocks(1, 1))), "the candidate name `a b`")]
#[case::no_reference(with(Op::new("copy").output("y", |s: &Rows| [s.rows])), "no reference, so zeros would pass")]
#[case::no_output(with(Op::new("copy").input("x", |s: &Rows| [s.rows]).reference(|_, _, _| {})), "it has no output")]
#[case::operator_name(with(Op::<Rows>::new("a::b").output("y", |s| [s.rows]).reference(|_, _, _| {})), "the operator name `a::b`")]
#[case::tensor_twice(with(op().input("y", |s| [s.rows])), "two tensors are called `y`")]
#[case::tensor_name(with(op().input("", |s| [s.rows])), "a tensor has an empty name")]
#[case::perf_outside(with(op().perf([shape(8, 8, 1e-5), shape(8, 65, 1e-5)])), "`.perf`, shape 2: `cols=65`: expected a number in 1..=64")]
#[case::attribute(with(op().shapes([shape(8, 8, 1.0)])), "`.shapes`, shape 1: `eps` has a value that is not listed: expected one of 1e-5, 0.001")]
#[case::base_outside(with(op().varied_around(shape(65, 1, 1e-5))), "`.varied_around`, shape 1: `rows=65`")]
#[case::no_cost(with(op().cost(|_, _| Cost::default()).perf([shape(8, 8, 1e-5)])), "has no cost")]
#[case::separable(with(op().separable("row")), "`.separable(\"row\")`: no such axis")]
#[case::separable_attribute(with(op().separable("eps")), "names an attribute")]
#[case::separable_lost(with(op().output("sum", |s| [s.rows]).separable("cols")), "output `sum` does not have `cols` as an extent")]
#[case::in_dtype_first(with(Op::<Rows>::new("copy").in_dtype(DType::F32)), "stands before any tensor")]
#[case::in_dtype_of_an_index(with(op().index("i", |s| [s.rows], |s| s.cols).in_dtype(DType::F32)), "on index input `i`")]
#[case::bound(with(op().index("i", |s| [s.cols], |s| s.rows)), "index input `i` has the bound 0")]
#[case::panics(with(op().depth(|s| { assert!(s.cols < 33); 1 })), "panics at rows=")]
#[case::reference_panics(with(op().reference(|_, _, _| panic!("no"))), "its reference or magnitude panics at rows=1,cols=1")]
#[case::reference_length(with(op().reference(|_, _, y| y[0] = vec![0.0; 7])), "leaves outputs of [7] elements")]
#[case::magnitude_length(with(op().magnitude(|_, _, y| y[0].clear())), "its magnitude leaves outputs of [0] elements")]
#[case::distributions(with(op().distributions([])), "leaves no inputs to draw")]
#[case::range(with(op().range(0.0)), "`.range(0)` is no magnitude")]
fn a_mistake_is_named_with_its_place(#[case] suite: SuiteOf<Rows>, #[case] expected: &str) {
    let found = mistakes(&[suite.into()]);
    assert!(found.iter().any(|mistake| mistake.contains(expected)), "{found:#?}");
}

#[test]
fn all_mistakes_are_told_at_once() {
    let bad = Suite::of(op().separable("row")).candidate("d", cpu().tile("colls", 4).alignment(0)).into();
    let found = mistakes(&[bad, suite().into()]);
    assert_eq!(found.len(), 4, "{found:#?}");
    assert!(found[3].contains("two operators are called `copy`"), "{found:#?}");
    assert!(mistakes(&[])[0].contains("has no operator"));
}

crate::shape! { struct Backwards { n: 1..=9, order: usize = [1, 1] } }

#[test]
fn an_axis_with_a_value_twice_is_named() {
    let op = Op::<Backwards>::new("o").output("y", |s| [s.n]).reference(|_, _, _| {});
    let candidate = Cpu::new::<f32>(|_: &Backwards, _: &Inputs<'_>, _: &mut Outputs<'_>| {});
    let found = mistakes(&[Suite::of(op).candidate("c", candidate).into()]);
    assert!(found[0].contains("axis `order` lists the value 1 twice"), "{found:#?}");
}

#[cfg(feature = "catalogue")]
#[test]
fn the_shipped_catalogue_has_none() {
    assert_eq!(mistakes(&crate::ops::catalogue()), Vec::<String>::new());
}
