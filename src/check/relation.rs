//! Metamorphic relations, held against the candidate itself: no reference can be wrong in the same way.

use super::case::Case;
use super::judge::{Rejection, failed, judge_of, prepare, reject, settle, settle_others};
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
    let unchanged: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
    let mut changed = unchanged.clone();
    (relation.transform)(point, &mut changed, &mut rng(case.seed));
    let changed: Vec<Tensor> = changed
        .iter()
        .zip(&inputs)
        .map(|(values, like)| {
            let tensor = Tensor::from_f64(like.dtype(), like.dims(), values);
            let exact = values.iter().enumerate().all(|(i, v)| {
                let kept = tensor.get(i);
                kept == *v || kept.is_nan() && v.is_nan()
            });
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
    let expect = |mut outputs: Vec<Vec<f64>>| {
        (relation.expect)(point, &unchanged, &mut outputs, &mut rng(case.seed));
        outputs
    };
    let before: Vec<Vec<f64>> = before.iter().map(Tensor::to_f64).collect();
    if relation.exact {
        let wanted = expect(before);
        let none: Vec<Vec<f64>> = wanted.iter().map(|wanted| vec![0.0; wanted.len()]).collect();
        return agree(subject, &case, relation.name, &wanted, &none, &after);
    }
    let mut off = before.clone();
    for (off, allowed) in off.iter_mut().zip(allowed(subject, &case, &inputs)) {
        off.iter_mut().zip(allowed).for_each(|(off, allowed)| *off += allowed);
    }
    let (wanted, off) = (expect(before), expect(off));
    let mut both = allowed(subject, &case, &changed);
    for ((both, off), wanted) in both.iter_mut().zip(&off).zip(&wanted) {
        let apart = off.iter().zip(wanted).map(|(off, wanted)| (off - wanted).abs());
        // Infinities are not apart.
        both.iter_mut().zip(apart).filter(|(_, apart)| apart.is_finite()).for_each(|(both, apart)| *both += apart);
    }
    agree(subject, &case, relation.name, &wanted, &both, &after)
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
    let reordered = |(i, y): (usize, &Tensor)| {
        y.take(super::slice::rows_of_output(subject.operator, i, point, axis), &order).to_f64()
    };
    let wanted: Vec<Vec<f64>> = before.iter().enumerate().map(reordered).collect();
    // Both sides carry an error each, of the same element.
    let mut both = allowed(subject, &case, &shuffled);
    both.iter_mut().flatten().for_each(|allowed| *allowed *= 2.0);
    agree(subject, &case, "row order", &wanted, &both, &after)
}

fn run(context: &Context<'_>, subject: &Subject<'_>, case: &Case, inputs: &[Tensor]) -> Result<Vec<Tensor>, Rejection> {
    let mut problem = prepare(context, subject, case, inputs)?;
    let mut outputs = problem.run(Poison::Nan).map_err(|fault| reject(context, subject, case, fault))?;
    if subject.operator.has_unspecified() || subject.operator.has_alternatives() {
        let expected = expected(subject.operator, &case.point, subject.dtype, inputs);
        settle(&mut outputs, &expected);
        settle_others(&mut outputs, &expected);
    }
    Ok(outputs)
}

/// What each output may be wrong by on `inputs`.
fn allowed(subject: &Subject<'_>, case: &Case, inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let reference = expected(subject.operator, &case.point, subject.dtype, inputs);
    let outputs = reference.iter().enumerate().map(|(i, expected)| {
        let judge = judge_of(subject, &case.point, i);
        let elements = expected.values.iter().zip(&expected.magnitudes);
        elements.map(|(&value, &magnitude)| judge.allowed(value, magnitude)).collect()
    });
    outputs.collect()
}

/// Holds both sides of a relation against each other.
fn agree(
    subject: &Subject<'_>,
    case: &Case,
    name: &str,
    wanted: &[Vec<f64>],
    allowed: &[Vec<f64>],
    got: &[Tensor],
) -> Result<(), Rejection> {
    for (i, (wanted, got)) in wanted.iter().zip(got).enumerate() {
        let judge = judge_of(subject, &case.point, i);
        for (at, (&wanted, &allowed)) in wanted.iter().zip(&allowed[i]).enumerate() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use crate::core::tensor::{Inputs, Outputs};
    use crate::device::cpu::CpuDevice;
    use std::time::Duration;

    crate::shape! { struct Rows { rows: 1..=64, cols: 1..=64 } }

    /// A row that knows its place is found though nothing else is asked of it.
    #[test]
    fn a_row_that_depends_on_its_place_is_found() {
        let operator = Op::<Rows>::new("double")
            .input("x", |s| [s.rows, s.cols])
            .output("y", |s| [s.rows, s.cols])
            .separable("rows")
            .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = 2.0 * x));
        let check = |by_row: f32| {
            let body = move |s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| {
                let (x, y) = (x.slice::<f32>(0), y.slice::<f32>(0));
                (0..x.len()).for_each(|i| y[i] = 2.0 * x[i] + by_row * (i / s.cols) as f32);
            };
            let candidate: Candidate = Cpu::new::<f32>(body).named("c");
            let device = CpuDevice::new();
            let context = Context::new(&device, 1, Duration::from_secs(60));
            let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
            rows_are_independent(&context, &subject, &vec![16, 3])
        };
        assert_eq!(check(0.0), Ok(()));
        assert!(matches!(check(1.0), Err(Rejection::Failed(failure)) if failure.text.contains("row order")));
    }
}
