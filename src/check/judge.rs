//! One case, judged whole: two runs under different poisons, their bits against each other, their values against the
//! reference.

use super::bias::lean;
use super::case::Case;
use super::compare::{Comparison, Expected, Judge, compare, unflatten};
use super::outcome::{Errors, Failure, Worst};
use super::pace::work;
use super::reference::expected;
use super::spread::spread;
use super::{Context, Subject};
use crate::core::distribution::Distribution;
use crate::core::tensor::Tensor;
use crate::core::tolerance::{Override, Tolerance};
use crate::device::fault::Fault;
use crate::device::{Job, Poison, Problem};
use std::borrow::Cow;
use std::sync::Arc;

/// Why a case was not accepted.
#[derive(Clone, Debug, PartialEq)]
pub enum Rejection {
    /// The candidate is wrong.
    Failed(Box<Failure>),
    /// The device cannot run it.
    Unsupported(String),
    /// The candidate is wrong and took the device with it: nothing more can run in this process.
    Lost(Box<Failure>),
}

impl Rejection {
    /// What was wrong, or why it could not be tried.
    pub fn text(self) -> String {
        match self {
            Rejection::Failed(failure) | Rejection::Lost(failure) => failure.text,
            Rejection::Unsupported(why) => why,
        }
    }
}

/// Judges one case and returns its errors.
///
/// # Errors
/// If the candidate, or the case itself, is found wanting.
pub fn judge_case(context: &Context<'_>, subject: &Subject<'_>, case: &Case) -> Result<Errors, Rejection> {
    Ok(judge_drawn(context, subject, case, &case.inputs(subject))?.0)
}

/// The same on these inputs, as the case draws them; returns the reference too.
pub(crate) fn judge_drawn(
    context: &Context<'_>,
    subject: &Subject<'_>,
    case: &Case,
    inputs: &[Tensor],
) -> Result<(Errors, Arc<Vec<Expected>>), Rejection> {
    // The reference is computed while the device works.
    let (expected, outputs) = std::thread::scope(|scope| {
        let reference = scope.spawn(|| expected(subject.operator, &case.point, subject.dtype, inputs));
        let outputs = run_all(context, subject, case, inputs);
        (reference.join(), outputs)
    });
    let Runs { mut first, mut second, varied } = outputs?;
    let expected = expected.map_err(|_| failed("reference", subject, case, "the reference itself panicked"))?;
    if subject.operator.has_unspecified() {
        [&mut first, &mut second].into_iter().for_each(|outputs| settle(outputs, &expected));
    }
    unwritten(subject, case, &first, &second)?;
    let mut errors = values(subject, case, &first, &expected)?;
    if subject.candidate.traits.deterministic {
        same_bits(subject, case, &first, &second)?;
    } else {
        errors = errors.max(values(subject, case, &second, &expected)?);
    }
    if let Some(varied) = varied {
        errors = errors.max(values_within(subject, case, &varied, &expected, AT_THE_EDGE)?);
    }
    Ok((errors, expected))
}

/// How output `i` of a subject is judged at a point.
pub fn judge_of(subject: &Subject<'_>, point: &[usize], output: usize) -> Judge {
    Judge {
        dtype: subject.operator.outputs()[output].dtype(subject.dtype),
        tolerance: tolerance(subject),
        depth: subject.operator.depth(point),
        equal_terms: false,
    }
}

/// How output `i` of a subject is judged in a case: where rows are constant the terms of a sum may be the same.
pub fn judge_in(subject: &Subject<'_>, case: &Case, output: usize) -> Judge {
    let equal_terms = case.distribution == Distribution::ConstantRows;
    Judge { equal_terms, ..judge_of(subject, &case.point, output) }
}

/// What replaces the derived tolerance: the candidate's own, or that of the operator.
pub fn overridden<'a>(subject: &Subject<'a>) -> Option<&'a Override> {
    subject.candidate.traits.tolerance.as_ref().or_else(|| subject.operator.tolerance())
}

/// The tolerance that a subject is judged by.
pub fn tolerance(subject: &Subject<'_>) -> Tolerance {
    overridden(subject).map(|own| own.tolerance).unwrap_or_default()
}

/// Prepares a case on the device of the context, in a dtype that the candidate computes: a library that is called with a
/// type that it was never given may break the device.
pub(super) fn prepare<'d>(
    context: &Context<'d>,
    subject: &Subject<'_>,
    case: &Case,
    inputs: &[Tensor],
) -> Result<Box<dyn Problem + 'd>, Rejection> {
    if !subject.candidate.traits.computes(subject.dtype) {
        return Err(Rejection::Unsupported(format!("does not compute {}", subject.dtype)));
    }
    let job = Job {
        operator: subject.operator,
        candidate: subject.candidate,
        point: &case.point,
        dtype: subject.dtype,
        inputs,
        offset_bytes: case.offset_bytes,
    };
    context.device.prepare(&job).map_err(|fault| reject(context, subject, case, fault))
}

/// The outputs of the runs that a case is judged by.
struct Runs {
    first: Vec<Tensor>,
    /// The same bits, whatever memory held.
    second: Vec<Tensor>,
    /// Right too, where the device can choose among several results and the case is not among the largest.
    varied: Option<Vec<Tensor>>,
}

/// The work of a case whose results are varied, at the most: what is in the largest ones alone is an index that overflows, and
/// their smaller neighbours have the same arithmetic.
const MOST_VARIED: f64 = 5e7;

fn run_all(context: &Context<'_>, subject: &Subject<'_>, case: &Case, inputs: &[Tensor]) -> Result<Runs, Rejection> {
    let mut problem = prepare(context, subject, case, inputs)?;
    let is_varied = work(subject, &case.point) <= MOST_VARIED;
    let mut runs = || {
        let [first, second] = [problem.run(Poison::Nan)?, problem.run(Poison::Huge)?];
        Ok(Runs { first, second, varied: if is_varied { problem.run_varied()? } else { None } })
    };
    runs().map_err(|fault| reject(context, subject, case, fault))
}

/// A fault as a rejection.
pub(super) fn reject(context: &Context<'_>, subject: &Subject<'_>, case: &Case, fault: Fault) -> Rejection {
    match fault {
        Fault::Unsupported(why) => Rejection::Unsupported(why),
        fault => {
            let failure = Box::new(failure(fault.check(), subject, case, fault.to_string()));
            if context.device.is_lost() { Rejection::Lost(failure) } else { Rejection::Failed(failure) }
        }
    }
}

/// A failure of a case without a worst element.
pub(super) fn failure(check: &str, subject: &Subject<'_>, case: &Case, text: impl Into<String>) -> Failure {
    Failure { check: check.into(), case: case.id(subject), text: text.into(), worst: None, errors: None }
}

/// The same, as a rejection.
pub(super) fn failed(check: &str, subject: &Subject<'_>, case: &Case, text: impl Into<String>) -> Rejection {
    Rejection::Failed(Box::new(failure(check, subject, case, text)))
}

/// Puts the reference where nothing is said of the outputs.
pub(super) fn settle(outputs: &mut [Tensor], expected: &[Expected]) {
    outputs.iter_mut().zip(expected).for_each(|(output, expected)| expected.settle(output));
}

/// Puts the reference where an output has another value that is right as well.
pub(super) fn settle_others(outputs: &mut [Tensor], expected: &[Expected]) {
    outputs.iter_mut().zip(expected).for_each(|(output, expected)| expected.settle_others(output));
}

/// Elements that hold the poison after both runs were never written.
fn unwritten(subject: &Subject<'_>, case: &Case, first: &[Tensor], second: &[Tensor]) -> Result<(), Rejection> {
    for ((port, a), b) in subject.operator.outputs().iter().zip(first).zip(second) {
        let size = a.dtype().size();
        let poisoned = |bytes: &[u8], poison: Poison| bytes.iter().all(|&byte| byte == poison.byte());
        let mut elements = a.bytes().chunks(size).zip(b.bytes().chunks(size)).enumerate();
        let is_unwritten =
            |(_, (a, b)): &(usize, (&[u8], &[u8]))| poisoned(a, Poison::Nan) && poisoned(b, Poison::Huge);
        if let Some((at, _)) = elements.by_ref().find(is_unwritten) {
            let more = elements.filter(is_unwritten).count();
            let index = unflatten(at, a.dims());
            let text =
                format!("`{}` was not written at {index:?}, {} of {} elements in all", port.name, more + 1, a.len());
            return Err(failed("poison", subject, case, text));
        }
    }
    Ok(())
}

/// The tolerance grows with the square root of the depth, as roundings do that know nothing of each other. Errors drawn
/// up to the bound of every single operation are larger than that.
const AT_THE_EDGE: f64 = 2.0;

/// The values of all outputs against the reference.
pub(crate) fn values(
    subject: &Subject<'_>,
    case: &Case,
    got: &[Tensor],
    expected: &Arc<Vec<Expected>>,
) -> Result<Errors, Rejection> {
    values_within(subject, case, got, expected, 1.0)
}

/// The same where the arithmetic before the last rounding may be off by `widened` times as much.
fn values_within(
    subject: &Subject<'_>,
    case: &Case,
    got: &[Tensor],
    expected: &Arc<Vec<Expected>>,
    widened: f64,
) -> Result<Errors, Rejection> {
    let mut errors = Errors::default();
    let mut settled = Cow::Borrowed(got);
    if subject.operator.has_unspecified() {
        settle(settled.to_mut(), expected);
    }
    if subject.operator.has_alternatives() {
        settle_others(settled.to_mut(), expected);
    }
    for (i, (got, expected)) in settled.iter().zip(expected.iter()).enumerate() {
        let mut judge = judge_in(subject, case, i);
        judge.tolerance.factor *= widened;
        let comparison = compare(got, expected, &judge);
        errors = errors.max(comparison.errors);
        let name = subject.operator.outputs()[i].name;
        if let Some(worst) = comparison.describe(name, got, expected, &judge) {
            let failure = wrong_values(subject, case, worst, &comparison);
            return Err(Rejection::Failed(Box::new(Failure { errors: Some(errors), ..failure })));
        }
        // On data without repetition alone: the other distributions repeat values.
        if case.distribution == Distribution::Normal {
            typical_as_a_whole(subject, case, i, got, expected, &judge)?;
        }
    }
    Ok(errors)
}

/// What no single element gives away: errors that are all on one side, or all larger than rounding makes them.
fn typical_as_a_whole(
    subject: &Subject<'_>,
    case: &Case,
    output: usize,
    got: &Tensor,
    expected: &Expected,
    judge: &Judge,
) -> Result<(), Rejection> {
    let name = subject.operator.outputs()[output].name;
    if let Some(leaning) = lean(got, expected, judge) {
        let text = format!(
            "`{name}` leans one way: its mean signed error is {:+.3} ulp over {} elements, each of them within its \
             tolerance. Truncated instead of rounded, or scaled by a factor close to 1",
            leaning.mean_ulp, leaning.elements
        );
        return Err(failed("bias", subject, case, text));
    }
    let rows = subject.operator.separable().map_or(1, |axis| case.point[axis]);
    match spread(got, expected, judge, subject.dtype, rows) {
        Some(found) if found.of_typical > 1.0 || found.of_typical.is_nan() => {
            let text = format!(
                "the errors of `{name}` are {:.2} times as large as rounding makes them: a root mean square of {:.3} ulp \
                 over {} elements, each of them within its tolerance. Inputs or sums of a narrower type than f32, terms \
                 left out, or a function that is too coarse",
                found.of_typical, found.rms_ulp, found.elements
            );
            Err(failed("spread", subject, case, text))
        }
        _ => Ok(()),
    }
}

fn wrong_values(subject: &Subject<'_>, case: &Case, worst: Worst, comparison: &Comparison) -> Failure {
    let errors = comparison.errors;
    if let Some(classes) = worst.class_difference() {
        let remedy = match case.distribution {
            Distribution::NonFinite | Distribution::WithNan | Distribution::Infinite => {
                "where the operator is not defined for such inputs, say so with `.without_nan()` or `.without_infinities()`"
            }
            _ => {
                "where f32 arithmetic cannot carry the formula for such inputs, say so with `.range(…)`, or `.magnitude(…)` \
                 for large terms that cancel"
            }
        };
        let text = format!(
            "class differs: {classes}, at `{}`{:?}; {} of {} elements of `{}` are of another class, {} are wrong in \
             all\n{remedy}",
            worst.output, worst.index, comparison.of_other_class, worst.elements, worst.output, worst.failing
        );
        return Failure { worst: Some(worst), ..failure("values", subject, case, text) };
    }
    let text = format!(
        "`{}` is wrong in {} of {} elements; max abs {:.3e}, max rel {:.3e}, max {:.3} ulp, {:.3} of the allowed error",
        worst.output,
        worst.failing,
        worst.elements,
        errors.max_abs,
        errors.max_rel,
        errors.max_ulp,
        errors.max_of_allowed
    );
    Failure { worst: Some(worst), ..failure("values", subject, case, text) }
}

/// Two runs on the same inputs that differ in some bit, where nobody looked at which.
pub(super) fn differs(subject: &Subject<'_>, case: &Case) -> Rejection {
    failed("determinism", subject, case, "two runs on the same inputs, under different poisons, differ in their bits")
}

/// Two runs that differ only in what unwritten memory held must agree bit for bit.
pub(super) fn same_bits(
    subject: &Subject<'_>,
    case: &Case,
    first: &[Tensor],
    second: &[Tensor],
) -> Result<(), Rejection> {
    for ((port, a), b) in subject.operator.outputs().iter().zip(first).zip(second) {
        let size = a.dtype().size();
        let differs = a.bytes().chunks(size).zip(b.bytes().chunks(size)).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let index = unflatten(at, a.dims());
            let text = format!(
                "two runs on the same inputs differ: `{}` at {index:?} is {:e}, then {:e}. It depends on memory that \
                 nobody wrote, on state kept between launches, or on the order of threads (then declare it \
                 nondeterministic)",
                port.name,
                a.get(at),
                b.get(at)
            );
            return Err(failed("determinism", subject, case, text));
        }
    }
    Ok(())
}
