//! A sweep: random shapes of a family, measured until its time is spent.

use super::features::Features;
use super::observation::Observation;
use crate::calibrate::{time_case, typical_us};
use crate::check::Subject;
use crate::core::candidate::Body;
use crate::core::seed::{derive, rng};
use crate::core::shape::describe;
use crate::device::fault::Fault;
use crate::device::{Device, DeviceKind, Heat, Job};
use crate::measure::inputs::Pool;
use crate::measure::session::SessionSettings;
use crate::measure::shapes::{Limits, MOST_MISSES};
use crate::measure::stopping::StoppingRule;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How a family is swept.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Shapes at the most.
    pub shapes: usize,
    /// Time to spend, about.
    pub budget: Duration,
    /// The seed that shapes are drawn from; validation takes another.
    pub seed: u64,
    /// What a case may be and take.
    pub limits: Limits,
    /// Whether runs begin before the one ahead has ended; shapes whose launches do not are left out.
    pub chained: bool,
}

/// Measures random shapes. `say` is told each, and whether to go on is its answer.
///
/// # Errors
/// A fault that is not the candidate's refusal of a shape.
pub fn sweep(
    device: &dyn Device,
    subject: &Subject<'_>,
    sweep: &Sweep,
    say: &mut dyn FnMut(&Observation) -> ControlFlow<()>,
) -> Result<Vec<Observation>, Fault> {
    let begun = Instant::now();
    let operator = subject.operator;
    let mut rng = rng(derive(sweep.seed, &["sweep", operator.name()]));
    let pool = Pool::new(sweep.seed);
    let (mut found, mut seen, mut misses) = (Vec::new(), BTreeSet::new(), 0);
    while found.len() < sweep.shapes && misses < MOST_MISSES && begun.elapsed() < sweep.budget {
        let Some(point) = sweep.limits.draw(operator, subject.dtype, &mut rng) else { break };
        if !seen.insert(point.clone()) {
            misses += 1;
            continue;
        }
        if sweep.chained && !overlaps(subject, &point) {
            misses += 1;
            continue;
        }
        match time_shape(device, subject, &point, &pool, sweep.chained) {
            Ok(us) => {
                let algorithm = match &subject.candidate.body {
                    Body::Enqueue(body) => body.propose(&point, subject.dtype),
                    _ => None,
                };
                let observation = Observation { algorithm, ..Observation::new(describe(operator.axes(), &point), us) };
                let goes_on = say(&observation);
                found.push(observation);
                misses = 0;
                if goes_on.is_break() {
                    break;
                }
            }
            Err(Fault::Unsupported(_)) => misses += 1,
            Err(fault) => return Err(fault),
        }
    }
    Ok(found)
}

/// Whether the first launch of a case may begin before the launch ahead has ended.
pub(super) fn overlaps(subject: &Subject<'_>, point: &[usize]) -> bool {
    let Body::Cuda(kernel) = &subject.candidate.body else { return false };
    kernel.plan(point).0.iter().find(|launch| !launch.is_empty()).is_some_and(|launch| launch.dependent)
}

/// How long a shape is measured: for a moment on a GPU that nobody else uses, longer on a host, whose other work comes and goes.
fn stopping(device: DeviceKind) -> StoppingRule {
    let (max_rounds, ms) = if device == DeviceKind::Cpu { (800, 200) } else { (80, 15) };
    StoppingRule { half_width: 0.004, min_rounds: 5, max_rounds, budget: Duration::from_millis(ms) }
}

/// How long one shape takes, µs: a short measurement with cold caches. Chained, what it adds behind a launch
/// that it overlaps.
///
/// # Errors
/// The device's, or the candidate's refusal of the shape.
pub fn time_shape(
    device: &dyn Device,
    subject: &Subject<'_>,
    point: &[usize],
    pool: &Pool,
    chained: bool,
) -> Result<f64, Fault> {
    let settings = SessionSettings { warm_up: Duration::from_millis(2), stopping: stopping(device.kind()) };
    let Subject { operator, candidate, dtype } = *subject;
    let inputs = pool.blocks(operator, point, dtype);
    let job = Job { operator, candidate, point, dtype, inputs: &inputs, offset_bytes: 0 };
    Ok(typical_us(device, &time_case(device, &job, Heat::Cold, chained, &settings)?))
}

/// The measured cases of a family with what the model knows of them; shapes that the operator does not have are left out.
pub fn with_features(subject: &Subject<'_>, observations: &[Observation]) -> Vec<(Features, f64)> {
    known(subject, observations).map(|(observation, features)| (features, observation.us)).collect()
}

/// Those that the operator has, each with what the model knows of it.
pub fn known<'o>(
    subject: &Subject<'_>,
    observations: &'o [Observation],
) -> impl Iterator<Item = (&'o Observation, Features)> {
    observations.iter().filter_map(|observation| {
        let point = crate::core::shape::parse(subject.operator.axes(), &observation.shape).ok()?;
        Some((observation, Features::observed(subject, &point, observation)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::dtype::DType;
    use crate::device::cpu::CpuDevice;
    use crate::measure::shapes::tests::{Matrix, operator};

    #[test]
    fn a_sweep_measures_within_its_limits() {
        let candidate: Candidate = Cpu::new::<f32>(|_: &Matrix, x, y| {
            y.slice::<f32>(0).iter_mut().zip(x.slice::<f32>(0)).for_each(|(y, &x)| *y = 2.0 * x);
        })
        .named("plain");
        let operator = operator();
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let limits = Limits { bytes: 1 << 20, flops: 1 << 30, ranges: Vec::new() };
        let limits = Sweep { shapes: 6, budget: Duration::from_secs(60), seed: 1, limits, chained: false };
        let swept = |limits: &Sweep, until: usize| {
            let mut said = 0;
            let mut say = |_: &Observation| {
                said += 1;
                if said < until { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            sweep(&CpuDevice::new(), &subject, limits, &mut say).unwrap()
        };
        let found = swept(&limits, usize::MAX);
        assert_eq!((found.len(), swept(&limits, 2).len()), (6, 2));
        let cases = with_features(&subject, &found);
        assert!(cases.iter().all(|(features, us)| features.bytes() <= (1 << 20) as f64 && *us > 0.0));
        let none = Sweep { budget: Duration::ZERO, ..limits.clone() };
        assert!(swept(&none, usize::MAX).is_empty());
        // On the host nothing begins before what is ahead has ended.
        assert!(swept(&Sweep { chained: true, ..limits }, usize::MAX).is_empty());
    }
}
