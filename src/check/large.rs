//! One case with more elements than a 32-bit index can tell apart, on demand: it needs gigabytes.

use super::case::Case;
use super::judge::{Rejection, prepare, reject};
use super::outcome::{Outcome, Verdict};
use super::verify::verify_before_timing;
use super::{Context, Subject, boundary};
use crate::core::distribution::Distribution;
use crate::core::shape::Point;
use crate::device::Poison;
use crate::measure::inputs::{draw, footprint_bytes};

/// Elements from which signed 32-bit indices break.
const LARGE: usize = 1 << 31;

/// Extent of the axes that are not stretched: odd, so that no row is aligned.
const WIDTH: usize = 4097;

/// Runs the case once and compares its boundary rows and some between.
pub fn run(context: &Context<'_>, subject: &Subject<'_>) -> Outcome {
    let Some(point) = point(subject) else {
        return Outcome::skip("no shape of this operator has more than 2^31 elements along an independent axis");
    };
    let bytes = footprint_bytes(subject.operator, &point, subject.dtype);
    if bytes > context.device.capacity().timed_bytes {
        return Outcome::skip(format!("{bytes} bytes are more than this device is given"));
    }
    let case = Case::new(point, Distribution::Normal, context.seed);
    let mut outcome = Outcome { cases: 1, ..Outcome::new(Verdict::Pass) };
    if let Err(rejection) = judge(context, subject, &case) {
        match rejection {
            Rejection::Unsupported(why) => return Outcome::skip(why),
            Rejection::Failed(failure) | Rejection::Lost(failure) => super::correctness::blame(&mut outcome, *failure),
        }
    }
    outcome
}

/// The smallest shape with more than [`LARGE`] elements in its first output, if the axes allow one.
fn point(subject: &Subject<'_>) -> Option<Point> {
    let operator = subject.operator;
    let axis = operator.separable()?;
    let mut point = boundary::base(operator);
    for (i, other) in operator.axes().iter().enumerate().filter(|(i, other)| *i != axis && other.is_extent()) {
        let (min, max) = other.bounds();
        point[i] = WIDTH.clamp(min, max);
    }
    point[axis] = 1;
    let width = operator.output_dims(0, &point).iter().product::<usize>().max(1);
    point[axis] = LARGE / width + 1;
    (point[axis] <= operator.axes()[axis].bounds().1).then_some(point)
}

fn judge(context: &Context<'_>, subject: &Subject<'_>, case: &Case) -> Result<(), Rejection> {
    let inputs = draw(subject.operator, &case.point, subject.dtype, case.seed);
    let mut problem = prepare(context, subject, case, &inputs)?;
    let outputs = problem.run(Poison::Nan).map_err(|fault| reject(context, subject, case, fault))?;
    verify_before_timing(subject, case, &inputs, &outputs).map(drop)
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

    #[test]
    fn the_shape_is_just_past_the_limit() {
        let operator = Op::<Rows>::new("r").output("y", |s| [s.rows, s.cols]).separable("rows");
        let candidate: Candidate = Cpu::new::<f32>(|_: &Rows, _, _| {}).named("c");
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let point = point(&subject).unwrap();
        let elements = point[0] * point[1];
        assert!(elements > LARGE && elements - LARGE <= point[1], "{point:?}");
        // The CPU device is not given as much.
        let device = CpuDevice::new();
        let outcome = run(&Context::new(&device, 1, Duration::from_secs(1)), &subject);
        assert_eq!(outcome.verdict, Verdict::Skip);
    }
}
