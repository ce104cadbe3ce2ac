//! The check before the clock starts. A timed case is too large for a whole reference: some of its rows must be right.

use super::case::Case;
use super::judge::{Rejection, differs, prepare, reject, values};
use super::outcome::Errors;
use super::reference::expected;
use super::slice::{slice, telling_rows};
use super::{Context, Subject};
use crate::core::tensor::Tensor;
use crate::device::{Poison, Problem};

/// Rows that are compared, at the most.
const MOST_ROWS: usize = 48;

/// Operations that their reference may cost, at the most.
const MOST_FLOPS: usize = 1 << 26;

/// Verifies the outputs of a case on `inputs` and returns the errors of what was looked at; `None` where nothing could be.
///
/// # Errors
/// If a row that was looked at is wrong.
pub(super) fn verify_before_timing(
    subject: &Subject<'_>,
    case: &Case,
    inputs: &[Tensor],
    outputs: &[Tensor],
) -> Result<Option<Errors>, Rejection> {
    let operator = subject.operator;
    let flops = operator.cost(&case.point, subject.dtype).flops;
    match operator.separable() {
        Some(axis) if case.point[axis] > 0 => {
            let extent = case.point[axis];
            let affordable = (MOST_FLOPS / (flops / extent).max(1)).clamp(2, MOST_ROWS);
            rows_are_right(subject, case, inputs, outputs, axis, &telling_rows(extent, affordable)).map(Some)
        }
        _ if flops <= MOST_FLOPS => {
            let expected = expected(operator, &case.point, subject.dtype, inputs);
            values(subject, case, outputs, &expected).map(Some)
        }
        _ => Ok(None),
    }
}

/// Prepares a case as it must be before the clock starts: run under two poisons, the same bits both times, and right
/// where it was looked at; returns the errors of that.
///
/// # Errors
/// If the candidate, or the device, is found wanting.
pub fn verified<'d>(
    context: &Context<'d>,
    subject: &Subject<'_>,
    case: &Case,
    inputs: &[Tensor],
) -> Result<(Box<dyn Problem + 'd>, Option<Errors>), Rejection> {
    let fault = |fault| reject(context, subject, case, fault);
    let mut problem = prepare(context, subject, case, inputs)?;
    let outputs = problem.run(Poison::Nan).map_err(fault)?;
    let errors = verify_before_timing(subject, case, inputs, &outputs)?;
    if subject.candidate.traits.deterministic && !problem.agrees_under(Poison::Huge).map_err(fault)? {
        return Err(differs(subject, case));
    }
    Ok((problem, errors))
}

fn rows_are_right(
    subject: &Subject<'_>,
    case: &Case,
    inputs: &[Tensor],
    got: &[Tensor],
    axis: usize,
    rows: &[usize],
) -> Result<Errors, Rejection> {
    let cut = slice(subject.operator, axis, &case.point, inputs, rows);
    // Kept for the next candidate: a slice of attention takes seconds.
    let expected = expected(subject.operator, &cut.point, subject.dtype, &cut.inputs);
    let got: Vec<Tensor> = got.iter().map(|output| output.rows(rows)).collect();
    let small = Case { point: cut.point, ..case.clone() };
    values(subject, &small, &got, &expected).map_err(|rejection| match rejection {
        // The report is about the whole case.
        Rejection::Failed(mut failure) => {
            failure.case = case.id(subject);
            if let Some(row) = failure.worst.as_mut().and_then(|worst| worst.index.first_mut()) {
                *row = rows[*row];
            }
            Rejection::Failed(failure)
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::cost::Cost;
    use crate::core::distribution::Distribution;
    use crate::core::dtype::DType;
    use crate::core::operator::Op;

    crate::shape! { struct Rows { rows: 1..=1 << 20, cols: 1..=64 } }

    fn verify(change: impl FnOnce(&mut Vec<f64>)) -> Result<Option<Errors>, Rejection> {
        let operator = Op::<Rows>::new("double")
            .input("x", |s| [s.rows, s.cols])
            .output("y", |s| [s.rows, s.cols])
            .separable("rows")
            .cost(|s, _| Cost { bytes: 8 * s.rows * s.cols, flops: s.rows * s.cols })
            .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = 2.0 * x));
        let candidate: Candidate = Cpu::new::<f32>(|_: &Rows, _, _| {}).named("c");
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let dims = [100_000, 3];
        let case = Case::new(dims.to_vec(), Distribution::Normal, 1);
        let x: Vec<f64> = (0..300_000).map(|i| f64::from(i % 1000)).collect();
        let mut y: Vec<f64> = x.iter().map(|x| 2.0 * x).collect();
        change(&mut y);
        let tensor = |values: &[f64]| vec![Tensor::from_f64(DType::F32, &dims, values)];
        verify_before_timing(&subject, &case, &tensor(&x), &tensor(&y))
    }

    #[test]
    fn right_outputs_pass() {
        assert_eq!(verify(|_| {}), Ok(Some(Errors::default())));
    }

    #[test]
    fn a_wrong_last_row_is_found_and_named() {
        let Err(Rejection::Failed(failure)) = verify(|y| y[299_998] = 0.0) else { panic!("must fail") };
        assert_eq!((failure.check.as_str(), failure.case.shape.as_str()), ("values", "rows=100000,cols=3"));
        assert_eq!(failure.worst.map(|worst| worst.index), Some(vec![99_999, 1]));
    }
}
