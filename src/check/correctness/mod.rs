//! The correctness check: the cases of its plan, then relations, the order of rows, repetition.

use super::boundary::has_outputs;
use super::case::Case;
use super::compare::Expected;
use super::judge::{Rejection, failed, judge_drawn, judge_in, overridden, prepare, reject};
use super::null::accepted_null;
use super::outcome::{Failure, Outcome, Verdict};
use super::pace::Pace;
use super::plan::Plan;
use super::relation::{hold, rows_are_independent};
use super::state::remembers_nothing;
use super::{Context, Subject};
use crate::core::distribution::Distribution;
use crate::core::seed::derive;
use crate::core::shape::{Point, describe};
use crate::core::tensor::Tensor;
use crate::device::Poison;

/// Runs the whole check.
pub fn run(context: &Context<'_>, subject: &Subject<'_>) -> Outcome {
    carry_out(context, subject, Plan::new(context, subject))
}

/// Everything that the check asks of one case: its values, then the null oracle, relations and repetition at its shape.
pub fn run_case(context: &Context<'_>, subject: &Subject<'_>, case: Case) -> Outcome {
    carry_out(context, subject, Plan::of(case))
}

fn carry_out(context: &Context<'_>, subject: &Subject<'_>, mut plan: Plan) -> Outcome {
    let mut outcome = Outcome::new(Verdict::Pass);
    outcome.notes.append(&mut plan.notes);
    if let Some(own) = overridden(subject) {
        outcome.notes.push(format!("tolerance overridden: {}", own.because));
    }
    match check_all(context, subject, &plan, &mut outcome) {
        // Relations alone say too little to be a pass.
        Ok(()) if outcome.errors.is_none() && !plan.cases.is_empty() => {
            let reason = outcome.notes.iter().rev().find_map(|note| note.strip_prefix(DECLINED));
            outcome.reason = reason.unwrap_or("no case with outputs was run").to_owned();
            outcome.verdict = Verdict::Skip;
        }
        Ok(()) => {}
        Err(Rejection::Unsupported(why)) => return Outcome { cases: 0, ..Outcome::skip(why) },
        Err(Rejection::Failed(failure) | Rejection::Lost(failure)) => blame(&mut outcome, *failure),
    }
    outcome.unless_mostly_cut()
}

/// Turns an outcome into a failure for this reason. Its errors are among those of the outcome.
pub(super) fn blame(outcome: &mut Outcome, mut failure: Failure) {
    if let Some(errors) = failure.errors.take() {
        outcome.add_errors(failure.case.shape.clone(), errors);
    }
    outcome.verdict = Verdict::Fail;
    outcome.reason = format!("{}: {}", failure.check, failure.text.lines().next().unwrap_or_default());
    outcome.failure = Some(failure);
}

fn check_all(
    context: &Context<'_>,
    subject: &Subject<'_>,
    plan: &Plan,
    outcome: &mut Outcome,
) -> Result<(), Rejection> {
    let mut pace = Pace::default();
    outcome.planned = plan.cases.len();
    for case in &plan.cases {
        check(context, subject, case, &mut pace, outcome)?;
    }
    outcome.cut = pace.left_out();
    outcome.notes.extend(pace.note(subject, plan.cases.len()));
    hold_everywhere(context, subject, plan, outcome)
}

/// One case, if there is time for it.
fn check(
    context: &Context<'_>,
    subject: &Subject<'_>,
    case: &Case,
    pace: &mut Pace,
    outcome: &mut Outcome,
) -> Result<(), Rejection> {
    let judged = pace.run(context, subject, &case.point, || {
        let inputs = case.inputs(subject);
        let (found, expected) = judge_drawn(context, subject, case, &inputs)?;
        asks_for_work(subject, case, &inputs, &expected)?;
        elements_agree(subject, case, &inputs, &expected)?;
        Ok(found)
    });
    if let Some(judged) = judged
        && let Some(found) = unless_declined(subject, judged, outcome)?
    {
        outcome.cases += 1;
        // Where nothing is computed nothing is shown.
        if has_outputs(subject.operator, &case.point) {
            outcome.add_errors(describe(subject.operator.axes(), &case.point), found);
        }
    }
    Ok(())
}

/// Relations, the order of rows and repetition: at the smallest shape, and at the middling one where that is planned and
/// time is left.
fn hold_everywhere(
    context: &Context<'_>,
    subject: &Subject<'_>,
    plan: &Plan,
    outcome: &mut Outcome,
) -> Result<(), Rejection> {
    let base = &plan.base;
    let relations = |point: &Point, outcome: &mut Outcome| {
        for relation in subject.operator.relations() {
            outcome.planned += 1;
            outcome.cases += 1;
            unless_declined(subject, hold(context, subject, relation, point), outcome)?;
        }
        Ok(())
    };
    relations(base, outcome)?;
    let point = if plan.at_representative && !context.is_over() { &plan.representative } else { base };
    if point != base {
        relations(point, outcome)?;
    } else if plan.at_representative && &plan.representative != base {
        let relations = subject.operator.relations().len();
        outcome.planned += relations;
        outcome.cut += relations;
        let axes = subject.operator.axes();
        let (small, representative) = (describe(axes, point), describe(axes, &plan.representative));
        outcome
            .notes
            .push(format!("budget spent: relations, row order, repetition at {small} only, not at {representative}"));
    }
    unless_declined(subject, rows_are_independent(context, subject, point), outcome)?;
    unless_declined(subject, repeats(context, subject, point), outcome)?;
    unless_declined(subject, remembers_nothing(context, subject, base), outcome)?;
    Ok(())
}

/// In front of the reason why a library has not all cases.
const DECLINED: &str = "not every case: ";

/// A library may have some cases of an operator and not others: a note says which it has not. One that has none is skipped.
/// A kernel must run in all cases.
fn unless_declined<T>(
    subject: &Subject<'_>,
    judged: Result<T, Rejection>,
    outcome: &mut Outcome,
) -> Result<Option<T>, Rejection> {
    match judged {
        Err(Rejection::Unsupported(why)) if subject.candidate.body.is_library() => {
            let note = format!("{DECLINED}{why}");
            if !outcome.notes.contains(&note) {
                outcome.notes.push(note);
            }
            Ok(None)
        }
        judged => judged.map(Some),
    }
}

/// The null oracle of a case.
fn asks_for_work(
    subject: &Subject<'_>,
    case: &Case,
    inputs: &[Tensor],
    expected: &[Expected],
) -> Result<(), Rejection> {
    for (i, expected) in expected.iter().enumerate() {
        let judge = judge_in(subject, case, i);
        if let Some(null) = accepted_null(expected, inputs, &judge) {
            let text = format!(
                "the declaration of operator `{}` is too loose, whatever its candidates compute: its tolerance would \
                 accept {null} as `{}`. Tighten its `.magnitude` or `.depth`, or the tolerance that replaces them",
                subject.operator.name(),
                subject.operator.outputs()[i].name
            );
            return Err(failed("null", subject, case, text));
        }
    }
    Ok(())
}

/// Elements of a case whose computation alone is held against the reference.
const ELEMENTS: usize = 4;

/// How far both may be apart, as a part of the magnitude: both are computed in f64.
const APART: f64 = 1e-9;

/// What the operator says of single elements is what its reference says of all.
fn elements_agree(
    subject: &Subject<'_>,
    case: &Case,
    inputs: &[Tensor],
    expected: &[Expected],
) -> Result<(), Rejection> {
    let [expected] = expected else { return Ok(()) };
    let n = expected.values.len();
    for at in (0..ELEMENTS.min(n)).map(|i| (i + 1) * n / ELEMENTS.min(n) - 1) {
        let Some([value, magnitude]) = subject.operator.element(&case.point, inputs, at) else { return Ok(()) };
        let (right, size) = (expected.values[at], expected.magnitudes[at]);
        let agrees = |a: f64, b: f64| a == b || !b.is_finite() || (a - b).abs() <= APART * size.abs();
        if !agrees(value, right) || !agrees(magnitude, size) {
            let text = format!(
                "`Op::element` of element {at} gives {value:e} of magnitude {magnitude:e}, the reference has {right:e} of \
                 {size:e}: the declarations of the operator contradict each other"
            );
            return Err(failed("reference", subject, case, text));
        }
    }
    Ok(())
}

/// Many launches in a row on one set of buffers.
fn repeats(context: &Context<'_>, subject: &Subject<'_>, point: &Point) -> Result<(), Rejection> {
    if !subject.has_fixed_bits() {
        return Ok(());
    }
    let case = Case::new(point.clone(), Distribution::Normal, derive(context.seed, &["repeat"]));
    let inputs = case.inputs(subject);
    let mut problem = prepare(context, subject, &case, &inputs)?;
    let ran = problem.run(Poison::Nan).and_then(|_| problem.repeat(context.device.repeats()));
    match ran.map_err(|fault| reject(context, subject, &case, fault))? {
        0 => Ok(()),
        n => {
            let times = context.device.repeats();
            let text = format!("{n} of {times} launches on the same inputs gave other bits than the first");
            Err(failed("determinism", subject, &case, text))
        }
    }
}

#[cfg(test)]
mod tests;
