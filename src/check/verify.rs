//! The check before the clock starts. A timed case is too large for a whole reference: some of its rows must be right.

use super::case::Case;
use super::compare::{Expected, unflatten};
use super::judge::{Rejection, differs, prepare, reject, values};
use super::outcome::Errors;
use super::reference::expected;
use super::slice::{representative_rows, rows_of_output, slice};
use super::{Context, Subject};
use crate::core::seed::{below, permutation, rng};
use crate::core::tensor::Tensor;
use crate::device::{Poison, Problem};
use rayon::prelude::*;
use std::sync::Arc;

/// Rows that are compared, at the most.
const MOST_ROWS: usize = 48;

/// Single elements that are compared, at least and at the most.
const FEWEST_ELEMENTS: usize = 2048;
const MOST_ELEMENTS: usize = 1 << 14;

/// Operations that the reference of what is compared may cost, as far as the least of it allows.
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
    if let Some(elements) = representative_elements(subject, case, flops) {
        return elements_are_right(subject, case, inputs, outputs, &elements).map(Some);
    }
    match operator.separable() {
        Some(axis) if case.point[axis] > 0 => {
            let extent = case.point[axis];
            let affordable = (MOST_FLOPS / (flops / extent).max(1)).clamp(2, MOST_ROWS);
            rows_are_right(subject, case, inputs, outputs, axis, &representative_rows(extent, affordable)).map(Some)
        }
        _ if flops <= MOST_FLOPS || outputs.iter().all(Tensor::is_empty) => {
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
    if subject.has_fixed_bits() && !problem.agrees_under(Poison::Huge).map_err(fault)? {
        return Err(differs(subject, case));
    }
    Ok((problem, errors))
}

/// Elements to compare of an operator that can compute single ones, where the whole costs too much: as many as may be,
/// in a random place of each of as many equal parts of the output, and of each of its columns in turn. So every few rows
/// and every few columns have some, and with them every row and every column of tiles.
fn representative_elements(subject: &Subject<'_>, case: &Case, flops: usize) -> Option<Vec<usize>> {
    let operator = subject.operator;
    if flops <= MOST_FLOPS || operator.outputs().len() != 1 {
        return None;
    }
    let dims = operator.output_dims(0, &case.point);
    let elements: usize = dims.iter().product();
    let width = dims.last().copied().unwrap_or(1);
    // Before any is computed: whether one can be.
    if elements == 0 || !operator.computes_elements() {
        return None;
    }
    let count = (MOST_FLOPS / (flops / elements).max(1)).clamp(FEWEST_ELEMENTS, MOST_ELEMENTS).min(elements);
    let mut rng = rng(case.seed);
    let columns = permutation(&mut rng, width);
    let rows = elements / width;
    let at = (0..count).map(|i| {
        let (from, to) = (i * rows / count, ((i + 1) * rows).div_ceil(count));
        (from + below(&mut rng, (to - from).max(1))).min(rows - 1) * width + columns[i % width]
    });
    let mut at: Vec<usize> = at.chain([0, elements - 1]).collect();
    at.sort_unstable();
    at.dedup();
    Some(at)
}

fn elements_are_right(
    subject: &Subject<'_>,
    case: &Case,
    inputs: &[Tensor],
    got: &[Tensor],
    elements: &[usize],
) -> Result<Errors, Rejection> {
    let of = |&at: &usize| subject.operator.element(&case.point, inputs, at).unwrap_or([f64::NAN; 2]);
    let (values_there, magnitudes) = elements.par_iter().map(of).map(|[value, magnitude]| (value, magnitude)).unzip();
    let expected = Arc::new(vec![Expected::new(values_there, magnitudes)]);
    values(subject, case, &[got[0].elements(elements)], &expected).map_err(|rejection| match rejection {
        Rejection::Failed(mut failure) => {
            if let Some(worst) = &mut failure.worst {
                worst.index = unflatten(elements[worst.index[0]], got[0].dims());
            }
            Rejection::Failed(failure)
        }
        other => other,
    })
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
    let along = |i: usize| rows_of_output(subject.operator, i, &case.point, axis);
    let got: Vec<Tensor> = got.iter().enumerate().map(|(i, output)| output.take(along(i), rows)).collect();
    let small = Case { point: cut.point, ..case.clone() };
    values(subject, &small, &got, &expected).map_err(|rejection| match rejection {
        // The report is about the whole case.
        Rejection::Failed(mut failure) => {
            failure.case = case.id(subject);
            if let Some(worst) = &mut failure.worst {
                let output = subject.operator.outputs().iter().position(|port| port.name == worst.output);
                if let Some(row) = output.and_then(|i| worst.index.get_mut(along(i))) {
                    *row = rows[*row];
                }
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

    crate::shape! { struct Square { n: 1..=1 << 14 } }

    /// A product too large for its reference, in which `wrong` says what is zero. The inputs are 1.
    fn verify_product(n: usize, wrong: impl Fn(usize, usize) -> bool) -> Result<Option<Errors>, Rejection> {
        let operator = Op::<Square>::new("product")
            .input("a", |s| [s.n, s.n])
            .output("c", |s| [s.n, s.n])
            .cost(|s, _| Cost { bytes: 0, flops: 2 * s.n * s.n * s.n })
            .element(|s, x, at| [s.n as f64 * x[0].get(at), s.n as f64]);
        let candidate: Candidate = Cpu::new::<f32>(|_: &Square, _, _| {}).named("c");
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let case = Case::new(vec![n], Distribution::Uniform, 3);
        let y: Vec<f64> = (0..n * n).map(|at| if wrong(at / n, at % n) { 0.0 } else { n as f64 }).collect();
        let tensor = |values: &[f64]| vec![Tensor::from_f64(DType::F32, &[n, n], values)];
        verify_before_timing(&subject, &case, &tensor(&vec![1.0; n * n]), &tensor(&y))
    }

    #[test]
    fn single_elements_reach_every_row_and_column_of_tiles() {
        assert_eq!(verify_product(1024, |_, _| false), Ok(Some(Errors::default())));
        for tile in 0..32 {
            let rows = verify_product(512, |i, _| i / 16 == tile);
            assert!(matches!(rows, Err(Rejection::Failed(_))), "rows of tile {tile}: {rows:?}");
            let columns = verify_product(512, |_, j| j / 16 == tile);
            assert!(matches!(columns, Err(Rejection::Failed(_))), "columns of tile {tile}: {columns:?}");
        }
        let Err(Rejection::Failed(failure)) = verify_product(1024, |i, _| (600..610).contains(&i)) else {
            panic!("rows 600 to 609 of 1024 are zero")
        };
        assert!((600..610).contains(&failure.worst.unwrap().index[0]));
    }

    #[test]
    fn what_can_only_be_computed_whole_and_is_too_large_is_not_verified() {
        let operator = Op::<Square>::new("whole")
            .output("c", |s| [s.n, s.n])
            .cost(|s, _| Cost { bytes: 0, flops: 2 * s.n * s.n * s.n });
        let candidate: Candidate = Cpu::new::<f32>(|_: &Square, _, _| {}).named("c");
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let case = Case::new(vec![1024], Distribution::Normal, 3);
        let output = Tensor::zeros(DType::F32, &[1024, 1024]);
        assert_eq!(verify_before_timing(&subject, &case, &[], &[output]), Ok(None));
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
