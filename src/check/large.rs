//! One case with more elements than a 32-bit index can tell apart, on demand: it needs gigabytes.

use super::case::Case;
use super::judge::{Rejection, prepare, reject};
use super::outcome::{Errors, Outcome, Verdict};
use super::verify::verify_before_timing;
use super::{Context, Subject, boundary};
use crate::core::distribution::Distribution;
use crate::core::operator::Operator;
use crate::core::shape::{Point, describe};
use crate::device::Poison;
use crate::measure::inputs::{draw, footprint_bytes};

/// Elements from which signed 32-bit indices break.
const LARGE: usize = 1 << 31;

/// Extent of the axes that are not stretched: odd, so that no row is aligned.
const WIDTH: usize = 4097;

/// Runs the case once and compares its boundary rows and some between.
pub fn run(context: &Context<'_>, subject: &Subject<'_>) -> Outcome {
    let point = match point(subject) {
        Ok(point) => point,
        Err(why) => return Outcome::skip(why),
    };
    let bytes = footprint_bytes(subject.operator, &point, subject.dtype);
    let shape = describe(subject.operator.axes(), &point);
    if bytes > context.device.capacity().timed_bytes {
        return Outcome::skip(format!("{shape}: {bytes} bytes are more than this device is given"));
    }
    let case = Case::new(point, Distribution::Normal, context.seed);
    let mut outcome = Outcome { cases: 1, planned: 1, ..Outcome::new(Verdict::Pass) };
    match judge(context, subject, &case) {
        Ok(Some(errors)) => outcome.errors = Some(errors),
        // Run, but not looked at: that is no pass.
        Ok(None) => {
            return Outcome::skip(format!(
                "{shape} runs, but its reference is too long to compare with: declare the axis of independent rows with \
                 `.separable`"
            ));
        }
        Err(Rejection::Unsupported(why)) => return Outcome::skip(why),
        Err(Rejection::Failed(failure) | Rejection::Lost(failure)) => super::correctness::blame(&mut outcome, *failure),
    }
    outcome
}

/// The shape of the fewest elements at which some tensor has more than [`LARGE`], stretched along one axis; along that of
/// independent rows where it can be, since few rows are then enough to look at.
fn point(subject: &Subject<'_>) -> Result<Point, String> {
    let operator = subject.operator;
    let axes = operator.axes();
    let extents = || (0..axes.len()).filter(|&axis| axes[axis].is_extent());
    let stretched = |axis: usize| -> Option<Point> {
        let mut point = boundary::base(operator, &subject.candidate.traits.limits);
        for other in extents().filter(|&other| other != axis) {
            let (min, max) = axes[other].bounds();
            point[other] = WIDTH.clamp(min, max);
        }
        let (mut low, mut high) = axes[axis].bounds();
        let is_large = |point: &Point| largest(operator, point).0 > LARGE;
        point[axis] = high;
        if !is_large(&point) {
            return None;
        }
        while low < high {
            point[axis] = low.midpoint(high);
            if is_large(&point) { high = point[axis] } else { low = point[axis] + 1 }
        }
        point[axis] = low;
        // What a constraint makes of it may be another shape, and too small.
        subject.nearest(&point).filter(is_large)
    };
    let by_rows = operator.separable().and_then(stretched);
    let fewest = || extents().filter_map(stretched).min_by_key(|point| boundary::elements(operator, point));
    by_rows.or_else(fewest).ok_or_else(|| {
        let most: Point = axes.iter().map(|axis| axis.bounds().1).collect();
        let (elements, tensor) = largest(operator, &most);
        format!(
            "no tensor goes past 2^31 elements when one axis is stretched and the others are {WIDTH} at the most; the \
             largest at {} is `{tensor}` with {elements}",
            describe(axes, &most)
        )
    })
}

/// The elements and the name of the largest tensor at a point.
fn largest<'a>(operator: &'a dyn Operator, point: &[usize]) -> (usize, &'a str) {
    let elements = |dims: Vec<usize>| dims.iter().fold(1usize, |product, &extent| product.saturating_mul(extent));
    let inputs =
        operator.inputs().iter().enumerate().map(|(i, port)| (elements(operator.input_dims(i, point)), port.name));
    let outputs =
        operator.outputs().iter().enumerate().map(|(i, port)| (elements(operator.output_dims(i, point)), port.name));
    inputs.chain(outputs).max_by_key(|(elements, _)| *elements).unwrap_or((0, ""))
}

fn judge(context: &Context<'_>, subject: &Subject<'_>, case: &Case) -> Result<Option<Errors>, Rejection> {
    let inputs = draw(subject.operator, &case.point, subject.dtype, case.seed);
    let mut problem = prepare(context, subject, case, &inputs)?;
    let outputs = problem.run(Poison::Nan).map_err(|fault| reject(context, subject, case, fault))?;
    verify_before_timing(subject, case, &inputs, &outputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use crate::device::cpu::CpuDevice;
    use std::time::Duration;

    crate::shape! { struct Rows { rows: 1..=1 << 20, cols: 1..=1 << 18 } }

    fn with_subject<T>(operator: &Op<Rows>, test: impl FnOnce(&Subject<'_>) -> T) -> T {
        let candidate: Candidate = Cpu::new::<f32>(|_: &Rows, _, _| {}).named("c");
        test(&Subject { operator, candidate: &candidate, dtype: DType::F32 })
    }

    #[test]
    fn the_shape_is_just_past_the_limit() {
        let operator = Op::<Rows>::new("r").output("y", |s| [s.rows, s.cols]).separable("rows");
        with_subject(&operator, |subject| {
            let point = point(subject).unwrap();
            let elements = point[0] * point[1];
            assert!(elements > LARGE && elements - LARGE <= point[1] && point[1] == WIDTH, "{point:?}");
            // The CPU device is not given as much.
            let device = CpuDevice::new();
            let outcome = run(&Context::new(&device, 1, Duration::from_secs(1)), subject);
            assert_eq!(outcome.verdict, Verdict::Skip);
        });
    }

    #[test]
    fn any_axis_and_any_tensor_may_be_the_large_one() {
        // Sums of rows: the input alone is large, and no axis is declared independent.
        let sums = Op::<Rows>::new("sums").input("x", |s| [s.rows, s.cols]).output("y", |s| [s.rows]);
        with_subject(&sums, |subject| {
            let point = point(subject).unwrap();
            assert!(point[0] * point[1] > LARGE && point.contains(&WIDTH), "{point:?}");
        });
        let narrow = Op::<Rows>::new("n").input("x", |s| [s.rows]).output("y", |s| [s.cols]);
        with_subject(&narrow, |subject| {
            let why = point(subject).unwrap_err();
            assert!(why.contains("rows=1048576,cols=262144 is `x` with 1048576"), "{why}");
        });
    }
}
