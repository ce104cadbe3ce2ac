//! Metamorphic relations, held against the candidate itself: no reference can be wrong in the same way.

use super::case::Case;
use super::judge::{Rejection, failed, judge_of, prepare, reject};
use super::reference::expected;
use super::{Context, Subject};
use crate::core::distribution::Distribution;
use crate::core::relation::Relation;
use crate::core::seed::{derive, permutation, rng};
use crate::core::shape::Point;
use crate::core::tensor::Tensor;
use crate::device::Poison;

/// Holds one relation at one point.
///
/// # Errors
/// If the candidate violates it, or the relation's own inputs are not representable.
pub fn hold(context: &Context<'_>, subject: &Subject<'_>, relation: &Relation, point: &Point) -> Result<(), Rejection> {
    let case = Case::new(point.clone(), Distribution::Grid, derive(context.seed, &[relation.name]));
    let inputs = case.inputs(subject);
    let mut changed: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
    (relation.transform)(point, &mut changed, &mut rng(case.seed));
    let changed: Vec<Tensor> = changed
        .iter()
        .zip(&inputs)
        .map(|(values, like)| {
            let tensor = Tensor::from_f64(like.dtype(), like.dims(), values);
            let exact = values.iter().enumerate().all(|(i, &v)| tensor.get(i) == v);
            if exact {
                Ok(tensor)
            } else {
                let text = format!("`{}`: its changed inputs are not representable in {}", relation.name, like.dtype());
                Err(failed("relation", subject, &case, text))
            }
        })
        .collect::<Result<_, _>>()?;
    let before = run(context, subject, &case, &inputs)?;
    let after = run(context, subject, &case, &changed)?;
    let mut wanted: Vec<Vec<f64>> = before.iter().map(Tensor::to_f64).collect();
    (relation.expect)(point, &mut wanted, &mut rng(case.seed));
    agree(subject, &case, relation.name, relation.exact, &changed, &wanted, &after)
}

/// Holds that the order of rows does not matter, for operators whose rows are independent.
///
/// # Errors
/// If a row's outputs change when the rows around it do.
pub fn rows_are_independent(context: &Context<'_>, subject: &Subject<'_>, point: &Point) -> Result<(), Rejection> {
    let Some(axis) = subject.operator.separable() else { return Ok(()) };
    let case = Case::new(point.clone(), Distribution::Normal, derive(context.seed, &["row order"]));
    let inputs = case.inputs(subject);
    let order = permutation(&mut rng(case.seed), point[axis]);
    let shuffled = super::slice::slice(subject.operator, axis, point, &inputs, &order).inputs;
    let before = run(context, subject, &case, &inputs)?;
    let after = run(context, subject, &case, &shuffled)?;
    let wanted: Vec<Vec<f64>> = before.iter().map(|y| y.rows(&order).to_f64()).collect();
    agree(subject, &case, "row order", false, &shuffled, &wanted, &after)
}

fn run(context: &Context<'_>, subject: &Subject<'_>, case: &Case, inputs: &[Tensor]) -> Result<Vec<Tensor>, Rejection> {
    let mut problem = prepare(context, subject, case, inputs)?;
    problem.run(Poison::Nan).map_err(|fault| reject(context, subject, case, fault))
}

/// Both sides of a relation carry one error each, so they may differ by twice what one may be wrong.
fn agree(
    subject: &Subject<'_>,
    case: &Case,
    name: &str,
    exact: bool,
    inputs: &[Tensor],
    wanted: &[Vec<f64>],
    got: &[Tensor],
) -> Result<(), Rejection> {
    let reference = expected(subject.operator, &case.point, subject.dtype, inputs);
    for (i, (wanted, got)) in wanted.iter().zip(got).enumerate() {
        let judge = judge_of(subject, &case.point, i);
        for (at, &wanted) in wanted.iter().enumerate() {
            let (value, magnitude) = (reference[i].values[at], reference[i].magnitudes[at]);
            let allowed = if exact { 0.0 } else { 2.0 * judge.allowed(value, magnitude) };
            let (wanted, got) = (judge.dtype.round(wanted), got.get(at));
            let same = wanted == got || (wanted.is_nan() && got.is_nan());
            let close = (wanted - got).abs() <= allowed;
            if !(same || close) {
                let text = format!(
                    "`{name}` is violated: `{}`[{at}] is {got:e}, expected {wanted:e} within {allowed:e}",
                    subject.operator.outputs()[i].name
                );
                return Err(failed("relation", subject, case, text));
            }
        }
    }
    Ok(())
}
