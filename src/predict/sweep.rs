//! A sweep: random shapes of a family, measured until its time is spent.

use super::family::Observation;
use super::features::Features;
use crate::calibrate::{time_case, typical_us};
use crate::check::Subject;
use crate::core::candidate::Body;
use crate::core::operator::Operator;
use crate::core::seed::{Rng, below, derive, rng, unit};
use crate::core::shape::{Point, describe, outside};
use crate::device::fault::Fault;
use crate::device::{Device, Heat, Job};
use crate::measure::inputs::{Pool, footprint_bytes};
use crate::measure::session::SessionSettings;
use crate::measure::stopping::StoppingRule;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How a family is swept.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// Shapes at the most.
    pub shapes: usize,
    /// Time to spend, about.
    pub budget: Duration,
    /// The seed that shapes are drawn from; validation takes another.
    pub seed: u64,
    /// Bytes of a case at the most.
    pub most_bytes: usize,
    /// Operations of a case at the most.
    pub most_flops: usize,
}

/// Extents are drawn from half the smallest to twice the largest of the shapes that the operator lists to be timed.
const BEYOND: f64 = 2.0;

/// Axes with so few listed extents keep to them where they are small: heads and their sizes are no lengths.
const FEW_VALUES: usize = 2;

/// From so many on an extent is a length, drawn from a sixty-fourth of the smallest where few are listed.
const LENGTH: usize = 256;
const FAR_BELOW: f64 = 64.0;

/// Draws without a shape that fits, after which the family has no more.
const MOST_MISSES: usize = 400;

/// Measures random shapes. `say` is told each.
///
/// # Errors
/// A fault that is not the candidate's refusal of a shape.
pub fn sweep(
    device: &dyn Device,
    subject: &Subject<'_>,
    sweep: &Sweep,
    say: &mut dyn FnMut(&Observation),
) -> Result<Vec<Observation>, Fault> {
    let begun = Instant::now();
    let operator = subject.operator;
    let mut rng = rng(derive(sweep.seed, &["sweep", operator.name()]));
    let pool = Pool::new(sweep.seed);
    let (mut found, mut seen, mut misses) = (Vec::new(), BTreeSet::new(), 0);
    while found.len() < sweep.shapes && misses < MOST_MISSES && begun.elapsed() < sweep.budget {
        let Some(point) = draw_shape(operator, &mut rng) else { break };
        let fits = || {
            footprint_bytes(operator, &point, subject.dtype) <= sweep.most_bytes
                && operator.cost(&point, subject.dtype).flops <= sweep.most_flops
        };
        if !seen.insert(point.clone()) || outside(operator.axes(), &point).is_some() || !fits() {
            misses += 1;
            continue;
        }
        match measured(device, subject, &point, &pool) {
            Ok(us) => {
                let work = match &subject.candidate.body {
                    Body::Enqueue(body) => body.work(&point, subject.dtype, None),
                    _ => None,
                };
                let observation = Observation { shape: describe(operator.axes(), &point), us, work };
                say(&observation);
                found.push(observation);
                misses = 0;
            }
            Err(Fault::Unsupported(_)) => misses += 1,
            Err(fault) => return Err(fault),
        }
    }
    Ok(found)
}

fn measured(device: &dyn Device, subject: &Subject<'_>, point: &[usize], pool: &Pool) -> Result<f64, Fault> {
    let stopping = StoppingRule { half_width: 0.004, min_rounds: 5, max_rounds: 80, budget: Duration::from_millis(15) };
    let settings = SessionSettings { warm_up: Duration::from_millis(2), stopping };
    let Subject { operator, candidate, dtype } = *subject;
    let inputs = pool.blocks(operator, point, dtype);
    let job = Job { operator, candidate, point, dtype, inputs: &inputs, offset_bytes: 0 };
    Ok(typical_us(device, &time_case(device, &job, Heat::Cold, &settings)?))
}

/// A shape like those that the operator lists to be timed, log-uniform in every extent; `None` if it lists none.
fn draw_shape(operator: &dyn Operator, rng: &mut Rng) -> Option<Point> {
    let listed = operator.perf_shapes();
    let like = listed.get(below(rng, listed.len().max(1)))?;
    let at = operator.axes().iter().enumerate().map(|(i, axis)| {
        let values: BTreeSet<usize> = listed.iter().map(|point| point[i]).collect();
        let (min, max) = axis.bounds();
        let (low, high) = (values.first().copied().unwrap_or(min), values.last().copied().unwrap_or(max));
        let is_few = values.len() <= FEW_VALUES;
        if !axis.is_extent() || (is_few && high < LENGTH) {
            return like[i];
        }
        let divisor = if is_few { FAR_BELOW } else { BEYOND };
        let (low, high) = ((low as f64 / divisor).max(min.max(1) as f64), (high as f64 * BEYOND).min(max as f64));
        let extent = (low.ln() + unit(rng) * (high.ln() - low.ln())).exp();
        // A third of all extents are multiples of 64, as most of those in models are, a third of eight.
        let step = [1.0, 8.0, 64.0][below(rng, 3)];
        ((extent / step).round().max(1.0) * step).clamp(low.ceil(), high.floor()) as usize
    });
    Some(at.collect())
}

/// The measured cases of a family with what the model knows of them; shapes that the operator does not have are left out.
pub fn with_features(subject: &Subject<'_>, observations: &[Observation]) -> Vec<(Features, f64)> {
    let parsed = observations.iter().filter_map(|observation| {
        let point = crate::core::shape::parse(subject.operator.axes(), &observation.shape).ok()?;
        Some((Features::with_work(subject, &point, observation.work), observation.us))
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::cost::Cost;
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use crate::device::cpu::CpuDevice;

    crate::shape! { struct Matrix { rows: 1..=1 << 20, cols: 1..=1 << 16, heads: 1..=64 } }

    fn operator() -> Op<Matrix> {
        let listed = [(64, 128), (256, 512), (512, 32)].map(|(rows, cols)| Matrix { rows, cols, heads: 8 });
        Op::<Matrix>::new("scale")
            .input("x", |s| [s.rows, s.cols])
            .output("y", |s| [s.rows, s.cols])
            .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, &x)| *y = 2.0 * x))
            .cost(|s, t| Cost { bytes: 2 * s.rows * s.cols * t.size(), flops: s.rows * s.cols })
            .perf(listed)
    }

    #[test]
    fn shapes_are_drawn_around_those_that_are_listed_and_repeat_by_seed() {
        let drawn = |seed| -> Vec<Point> {
            let mut rng = rng(seed);
            (0..300).filter_map(|_| draw_shape(&operator(), &mut rng)).collect()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        for point in drawn(1) {
            assert!((32..=1024).contains(&point[0]) && (16..=1024).contains(&point[1]) && point[2] == 8, "{point:?}");
        }
        assert!(drawn(1).iter().any(|point| point[0] % 8 != 0), "ragged ones among them");
    }

    #[test]
    fn a_sweep_measures_within_its_limits() {
        let candidate: Candidate = Cpu::new::<f32>(|_: &Matrix, x, y| {
            y.slice::<f32>(0).iter_mut().zip(x.slice::<f32>(0)).for_each(|(y, &x)| *y = 2.0 * x);
        })
        .named("plain");
        let operator = operator();
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let limits =
            Sweep { shapes: 6, budget: Duration::from_secs(60), seed: 1, most_bytes: 1 << 20, most_flops: 1 << 30 };
        let mut said = 0;
        let found = sweep(&CpuDevice::new(), &subject, &limits, &mut |_| said += 1).unwrap();
        assert!(found.len() == 6 && said == 6);
        let cases = with_features(&subject, &found);
        assert!(cases.iter().all(|(features, us)| features.bytes() <= (1 << 20) as f64 && *us > 0.0));
        let none = Sweep { budget: Duration::ZERO, ..limits };
        assert!(sweep(&CpuDevice::new(), &subject, &none, &mut |_| ()).unwrap().is_empty());
    }
}
