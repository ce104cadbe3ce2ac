//! State kept between launches: many launches on one set of buffers, each on other inputs, must each be right. It finds
//! answers that are remembered by address or by shape, and kernels that are right at first and drift.

use super::case::Case;
use super::judge::{Rejection, failed, prepare, reject, values};
use super::reference::expected;
use super::{Context, Subject};
use crate::core::distribution::Distribution;
use crate::core::seed::derive;
use crate::core::shape::Point;
use crate::core::tensor::Tensor;
use crate::device::Poison;
use crate::device::fault::Fault;

/// Launches in a row: more than a kernel would take for a warm-up.
const LAUNCHES: usize = 16;

/// Runs a candidate on inputs that change under it, and holds every launch against the reference.
///
/// # Errors
/// If a launch is wrong, or the candidate or the device fails.
pub(super) fn remembers_nothing(context: &Context<'_>, subject: &Subject<'_>, point: &Point) -> Result<(), Rejection> {
    let case = Case::new(point.clone(), Distribution::Normal, derive(context.seed, &["state"]));
    let inputs = case.inputs(subject);
    let mut problem = prepare(context, subject, &case, &inputs)?;
    for launch in 0..LAUNCHES {
        let now: Vec<Tensor> = inputs.iter().map(|tensor| rotated(tensor, launch)).collect();
        let poison = if launch % 2 == 0 { Poison::Nan } else { Poison::Huge };
        let outputs = match problem.run_on(&now, poison) {
            Err(Fault::Unsupported(_)) => return Ok(()),
            outputs => outputs.map_err(|fault| reject(context, subject, &case, fault))?,
        };
        let expected = expected(subject.operator, point, subject.dtype, &now);
        if let Err(Rejection::Failed(failure)) = values(subject, &case, &outputs, &expected) {
            if launch == 0 {
                return Err(Rejection::Failed(failure)); // nothing was kept yet
            }
            let text = format!(
                "launch {} of {LAUNCHES} in the same buffers, each on other inputs, is wrong: {}. It depends on state \
                 kept between launches",
                launch + 1,
                failure.text
            );
            return Err(failed("state", subject, &case, text));
        }
    }
    Ok(())
}

/// The tensor with its elements rotated by `by`: other inputs of the same kind.
fn rotated(tensor: &Tensor, by: usize) -> Tensor {
    let (mut rotated, size) = (tensor.clone(), tensor.dtype().size());
    if !tensor.is_empty() {
        rotated.bytes_mut().rotate_left(by % tensor.len() * size);
    }
    rotated
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use crate::core::tensor::{Inputs, Outputs};
    use crate::device::cpu::CpuDevice;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    crate::shape! { struct Vector { n: 0..=1024 } }

    fn check(n: usize, f: impl Fn(&[f32], &mut [f32]) + Send + Sync + 'static) -> Result<(), Rejection> {
        let operator = Op::<Vector>::new("double")
            .input("x", |s| [s.n])
            .output("y", |s| [s.n])
            .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = 2.0 * x));
        let body = move |_: &Vector, x: &Inputs<'_>, y: &mut Outputs<'_>| f(x.slice(0), y.slice(0));
        let candidate: Candidate = Cpu::new::<f32>(body).named("c");
        let device = CpuDevice::new();
        let context = Context::new(&device, 1, Duration::from_secs(60));
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        remembers_nothing(&context, &subject, &vec![n])
    }

    fn double(x: &[f32], y: &mut [f32]) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
    }

    fn found(result: Result<(), Rejection>) -> String {
        match result {
            Err(Rejection::Failed(failure)) if failure.check == "state" => failure.text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_keeps_nothing_passes() {
        assert_eq!(check(100, double), Ok(()));
        assert_eq!(check(0, double), Ok(()));
    }

    #[test]
    fn a_first_launch_that_is_wrong_keeps_nothing() {
        let wrong = check(100, |x, y| {
            double(x, y);
            y[99] += 1.0;
        });
        assert!(matches!(&wrong, Err(Rejection::Failed(failure)) if failure.check == "values"), "{wrong:?}");
    }

    #[test]
    fn an_answer_that_is_remembered_by_address_is_found() {
        let known: Mutex<Vec<(usize, Vec<f32>)>> = Mutex::default();
        let text = found(check(100, move |x, y| {
            let mut known = known.lock().unwrap();
            match known.iter().find(|(of, _)| *of == x.as_ptr() as usize) {
                Some((_, answer)) => y.copy_from_slice(answer),
                None => {
                    double(x, y);
                    known.push((x.as_ptr() as usize, y.to_vec()));
                }
            }
        }));
        assert!(text.starts_with("launch 2 of 16"), "{text}");
    }

    #[test]
    fn a_kernel_that_drifts_after_ten_launches_is_found() {
        let calls = AtomicUsize::new(0);
        let text = found(check(100, move |x, y| {
            double(x, y);
            if calls.fetch_add(1, Ordering::Relaxed) >= 10 {
                y[0] *= 1.01;
            }
        }));
        assert!(text.starts_with("launch 11 of 16"), "{text}");
    }
}
