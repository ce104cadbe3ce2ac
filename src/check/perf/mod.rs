//! The perf check: every shape verified, then timed beside yardsticks of the same work. It only measures; what the
//! times mean against an accepted baseline is judged above.

use super::beside::{Competition, Competitors};
use super::boundary::elements;
use super::case::Case;
use super::correctness::blame;
use super::judge::{Rejection, reject};
use super::outcome::{Outcome, Timing, Verdict};
use super::pace::work;
use super::verify::{verified, verify_before_timing};
use super::{Context, Subject};
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::seed::derive;
use crate::core::shape::{Point, describe};
use crate::core::tensor::Tensor;
use crate::device::fault::Fault;
use crate::device::{Capacity, Device, DeviceKind, Heat, Problem, TimingPlan};
use crate::measure::Change;
use crate::measure::change::MIN_SAMPLES;
use crate::measure::inputs::{draw, footprint_bytes, output_bytes};
use crate::measure::lock::DeviceLock;
use crate::measure::session::{Contestant, Measurement, measure};
use crate::measure::yardstick::Yardstick;

pub use super::perf_settings::PerfSettings;

/// Operations a byte from which arithmetic may be the limit, far below the ridge of any device: the multiply-add
/// yardstick is then timed too, and whichever yardstick takes longer is the ceiling.
const INTENSITY_TO_TIME_FMA: f64 = 8.0;

/// An operator whose outputs are no more than such a part of its bytes is timed beside a kernel that only reads.
const WRITES_HARDLY: usize = 16;

/// Times every perf shape that fits. Each [`Timing`] has the verdict `pass` when it is sound, `unclear` with too few
/// samples, `invalid` when it cannot be believed.
pub fn run(context: &Context<'_>, subject: &Subject<'_>, settings: &PerfSettings) -> Outcome {
    run_beside(context, subject, settings, Competition::default())
}

/// The same beside others, which are timed in the same sessions; what they do changes nothing for the candidate.
pub fn run_beside(
    context: &Context<'_>,
    subject: &Subject<'_>,
    settings: &PerfSettings,
    competition: Competition<'_>,
) -> Outcome {
    run_watched(context, subject, settings, competition, &mut |_| {})
}

/// The same, for somebody who wants to see the outcome so far after each shape.
pub fn run_watched(
    context: &Context<'_>,
    subject: &Subject<'_>,
    settings: &PerfSettings,
    competition: Competition<'_>,
    seen: &mut dyn FnMut(&Outcome),
) -> Outcome {
    let capacity = context.device.capacity();
    if !capacity.timed {
        return Outcome::skip(format!("times on the {} device mean nothing", context.device.kind()));
    }
    let listed = if settings.only.is_empty() { subject.operator.perf_shapes() } else { &settings.only };
    let mut points: Vec<&Point> = listed.iter().collect();
    if settings.is_brief {
        // One of them may be all that there is time for.
        points.sort_by(|a, b| work(subject, a).total_cmp(&work(subject, b)));
    }
    if points.is_empty() {
        return Outcome::skip(format!("operator {} lists no shapes to time (`Op::perf`)", subject.operator.name()));
    }
    let _lock = match DeviceLock::acquire(&context.device.fingerprint().key()) {
        Ok(lock) => lock,
        Err(error) => return Outcome::fail(format!("cannot take the device lock: {error}")),
    };
    let mut outcome = Outcome::new(Verdict::Pass);
    for (done, point) in points.iter().enumerate() {
        if context.is_over() {
            outcome.notes.push(format!("budget spent: {} of {} shapes not timed", points.len() - done, points.len()));
            outcome.unreached = points.len() - done;
            break;
        }
        if let Some(why) = too_large(subject, point, &limits(capacity, settings)) {
            outcome.notes.push(format!("{} not timed: {why}", describe(subject.operator.axes(), point)));
            continue;
        }
        match time_shape(context, subject, point, settings, competition, &mut outcome.notes) {
            Ok((timing, doubt)) => {
                outcome.timings.push(timing);
                if let Some(doubt) = doubt {
                    outcome.reason = doubt;
                }
                outcome.verdict = worst(&outcome.timings);
                seen(&outcome);
            }
            Err(Rejection::Unsupported(why)) => outcome.notes.push(why),
            Err(Rejection::Failed(failure) | Rejection::Lost(failure)) => {
                blame(&mut outcome, *failure);
                return outcome;
            }
        }
        outcome.cases += 1;
    }
    if outcome.timings.is_empty() {
        let why = outcome.notes.first().cloned().unwrap_or_default();
        return Outcome { notes: outcome.notes, ..Outcome::skip(format!("no shape was timed: {why}")) };
    }
    outcome.verdict = worst(&outcome.timings);
    if outcome.verdict == Verdict::Unclear {
        outcome.reason = "too few samples within the budget".into();
    }
    outcome
}

/// The verdict of a trial from those of its shapes: the worst, and `faster` before `same`.
pub fn worst(timings: &[Timing]) -> Verdict {
    use Verdict::{Fail, Faster, Invalid, Pass, Same, Skip, Slower, Unclear};
    let order = [Fail, Invalid, Slower, Unclear, Skip, Faster, Same, Pass];
    order.into_iter().find(|&verdict| timings.iter().any(|t| t.verdict == verdict)).unwrap_or(Skip)
}

impl From<Change> for Verdict {
    fn from(change: Change) -> Self {
        match change {
            Change::Same => Verdict::Same,
            Change::Faster => Verdict::Faster,
            Change::Slower => Verdict::Slower,
            Change::Unclear => Verdict::Unclear,
        }
    }
}

/// The work of the multiply-add yardstick. Half types are computed by tensor cores, some sixteen times as fast: the
/// same operations would take most of the session, and a sixteenth of them watches the clock as well.
fn fma_flops(cost: Cost, dtype: DType) -> usize {
    if dtype == DType::F32 { cost.flops } else { cost.flops.div_ceil(16) }
}

/// What a shape may have at the most to be timed.
pub struct Largest {
    /// Bytes of all tensors.
    pub bytes: usize,
    /// Operations.
    pub flops: usize,
    /// Elements of all tensors.
    pub elements: usize,
}

/// One that was asked for is timed however long it takes.
pub fn limits(capacity: Capacity, settings: &PerfSettings) -> Largest {
    if settings.only.is_empty() {
        Largest { bytes: capacity.timed_bytes, flops: settings.most_flops, elements: settings.most_elements }
    } else {
        Largest { bytes: capacity.asked_bytes, flops: usize::MAX, elements: usize::MAX }
    }
}

/// Why a shape is not timed on a device that is given so much, or by a candidate that does not take it.
pub fn too_large(subject: &Subject<'_>, point: &[usize], most: &Largest) -> Option<String> {
    let bytes = footprint_bytes(subject.operator, point, subject.dtype);
    let flops = subject.operator.cost(point, subject.dtype).flops;
    let has = elements(subject.operator, point);
    if bytes > most.bytes {
        Some(format!("{} MiB, and this device is given {} MiB", bytes >> 20, most.bytes >> 20))
    } else if flops > most.flops {
        Some(format!("{:.1} Gflop, and this device is given {:.1}", flops as f64 * 1e-9, most.flops as f64 * 1e-9))
    } else if has > most.elements {
        let [has, given] = [has, most.elements].map(|number| number as f64 * 1e-6);
        Some(format!("{has:.1} million elements, and this device is given {given:.1}"))
    } else {
        subject.objection(point)
    }
}

/// The contestants of a session: the candidate first, then the yardsticks that could be prepared.
struct Field<'d> {
    contestants: Vec<Contestant<'d>>,
    copy: Option<usize>,
    read: Option<usize>,
    fma: Option<usize>,
}

impl<'d> Field<'d> {
    fn of(candidate: Contestant<'d>) -> Self {
        Field { contestants: vec![candidate], copy: None, read: None, fma: None }
    }

    /// Adds a yardstick and returns its place; a device that has none is no reason not to time.
    fn join(&mut self, yardstick: &Yardstick, device: &'d dyn Device, plan: &TimingPlan) -> Result<usize, Fault> {
        self.contestants.push(Contestant::arm(yardstick.prepare(device)?, plan)?);
        Ok(self.contestants.len() - 1)
    }

    /// What the ceilings allow, by one statistic of each yardstick's times.
    fn floor_us(&self, dtype: DType, of: impl Fn(usize) -> f64) -> Option<f64> {
        // Tensor cores and packed halves are faster than multiply-adds in f32: no ceiling for those dtypes.
        let arithmetic_us = self.fma.filter(|_| dtype == DType::F32).map(&of);
        let memory_us = self.read.or(self.copy).map(&of);
        memory_us.into_iter().chain(arithmetic_us).reduce(f64::max)
    }
}

/// Of an operator that can only be computed whole, at a shape where that takes too long.
const UNVERIFIED: &str = "nothing of its outputs was compared with the reference, which is too large to compute whole: \
                          declare `Op::separable` or `Op::element`";

fn time_shape(
    context: &Context<'_>,
    subject: &Subject<'_>,
    point: &Point,
    settings: &PerfSettings,
    competition: Competition<'_>,
    notes: &mut Vec<String>,
) -> Result<(Timing, Option<String>), Rejection> {
    let shape = describe(subject.operator.axes(), point);
    let seed = derive(context.seed, &[subject.operator.name(), "perf", &shape]);
    let case = Case::new(point.clone(), Distribution::Normal, seed);
    let fault = |fault| reject(context, subject, &case, fault);

    let mut inputs = draw(subject.operator, point, subject.dtype, seed);
    let (problem, compared) = verified(context, subject, &case, &inputs)?;
    notes.extend(subject.candidate.body.describe(point, subject.dtype).map(|what| format!("{shape}: {what}")));
    let mut competitors = Competitors::admit(competition, context, subject, &case, &inputs);
    if competitors.is_empty() && subject.has_fixed_bits() {
        inputs.clear();
    }

    let plan = settings.plan();
    let mut candidate = Contestant::unarmed(problem);
    candidate.arm_planted(&plan, settings.planted).map_err(fault)?;
    let cost = subject.operator.cost(point, subject.dtype);
    let mut field = Field::of(candidate);
    let mut yardstick = |yardstick: Yardstick| match field.join(&yardstick, context.device, &plan) {
        Ok(at) => Some(at),
        Err(Fault::Unsupported(_)) => None,
        Err(fault) => {
            notes.push(format!("{shape}: no `{}` yardstick: {fault}", yardstick.operator().name()));
            None
        }
    };
    let only_reads = output_bytes(subject.operator, point, subject.dtype) * WRITES_HARDLY <= cost.bytes;
    let copy = (cost.bytes > 0 && !only_reads).then(|| Yardstick::copy(cost.bytes)).and_then(&mut yardstick);
    let read = (cost.bytes > 0 && only_reads).then(|| Yardstick::read(cost.bytes)).and_then(&mut yardstick);
    let is_dense = cost.intensity() >= INTENSITY_TO_TIME_FMA;
    let fma = is_dense.then(|| Yardstick::fma(fma_flops(cost, subject.dtype))).and_then(&mut yardstick);
    (field.copy, field.read, field.fma) = (copy, read, fma);

    competitors.join(&mut field.contestants, &plan);
    let measurement =
        measure(&mut field.contestants, &settings.session.shared_with(competitors.len()), seed).map_err(fault)?;
    let mut timing = timing(&shape, subject.dtype, settings.heat, cost, &measurement, &field);
    let wrong = wrong_while_timed(field.contestants[0].problem(), subject, &case, &inputs).map_err(fault)?;
    let unverified = compared.is_none().then(|| UNVERIFIED.to_owned());
    let fastest_us = field.floor_us(subject.dtype, |at| measurement.summary(at).p5_us);
    let doubt = unverified.or(wrong).or_else(|| unbelievable(&timing, fastest_us, context.device));
    if doubt.is_some() {
        timing.verdict = Verdict::Invalid;
    }
    notes.extend(above_the_yardstick(&timing).map(|what| format!("{shape}: {what}")));
    if settings.is_brief {
        notes.push(format!("{shape}: {}", in_brief(&timing)));
    }
    // What was planted is not in the code.
    timing.code = field.contestants[0].problem().code().filter(|_| settings.planted == 0.0);
    timing.peers = competitors.conclude(&measurement, &mut field.contestants, subject, &case, &inputs);
    Ok((timing, doubt.map(|why| format!("{shape}: {why}"))))
}

/// What was wrong with the outputs of timed launches. Where the bits may differ, their values must be right.
fn wrong_while_timed(
    problem: &mut dyn Problem,
    subject: &Subject<'_>,
    case: &Case,
    inputs: &[Tensor],
) -> Result<Option<String>, Fault> {
    let agree = problem.timed_outputs_agree()?;
    if subject.has_fixed_bits() {
        let what = "the outputs changed while being timed, so that not the verified work was timed";
        return Ok((!agree).then(|| what.to_owned()));
    }
    let Some(outputs) = problem.timed_outputs()? else { return Ok(None) };
    Ok(match verify_before_timing(subject, case, inputs, &outputs) {
        Err(Rejection::Failed(failure) | Rejection::Lost(failure)) => {
            Some(format!("the outputs were wrong while being timed: {}", failure.text))
        }
        Err(Rejection::Unsupported(_)) | Ok(_) => None,
    })
}

/// What a reader of a time must know that was taken in brief.
fn in_brief(timing: &Timing) -> String {
    let percent = 50.0 * (timing.high_us - timing.low_us) / timing.median_us;
    let known =
        if timing.samples < MIN_SAMPLES { "too few for an interval".into() } else { format!("±{percent:.1} %") };
    format!("budget spent: timed in brief ({} samples: {known}), which makes no baseline", timing.samples)
}

fn timing(shape: &str, dtype: DType, heat: Heat, cost: Cost, measurement: &Measurement, field: &Field<'_>) -> Timing {
    let summary = measurement.summary(0);
    let median_of = |at: Option<usize>| at.map(|at| measurement.summary(at).median_us);
    let (copy_us, read_us, fma_us) = (median_of(field.copy), median_of(field.read), median_of(field.fma));
    let floor_us = field.floor_us(dtype, |at| measurement.summary(at).median_us);
    Timing {
        shape: shape.into(),
        heat,
        median_us: summary.median_us,
        p5_us: summary.p5_us,
        p95_us: summary.p95_us,
        low_us: summary.interval_us.low,
        high_us: summary.interval_us.high,
        samples: summary.samples,
        dropped: summary.dropped,
        clock_mhz: summary.clock_mhz,
        bytes: cost.bytes,
        flops: cost.flops,
        copy_us,
        read_us,
        fma_us,
        floor_us,
        of_ceiling: floor_us.map(|floor| floor / summary.median_us),
        baseline_us: None,
        ratio: None,
        normalised_ratio: None,
        threshold: None,
        verdict: if summary.samples < MIN_SAMPLES { Verdict::Unclear } else { Verdict::Pass },
        peers: Vec::new(),
        code: None,
        predicted_us: None,
        predicted_interval_us: None,
        bound: None,
    }
}

/// A time is compared with a yardstick that finds nothing in the caches. One that beats it by more than this does not fetch
/// all that it is said to.
const ABOVE_YARDSTICK: f64 = 1.05;

/// What a reader of a time must know that is better than the yardstick.
fn above_the_yardstick(timing: &Timing) -> Option<String> {
    let share = timing.of_ceiling.filter(|&share| share > ABOVE_YARDSTICK && timing.heat == Heat::Cold)?;
    Some(format!(
        "{:.0} % of the yardstick: a part of what it reads stays in the caches from launch to launch (rows of a table that are \
         asked for again), or the cost of the operator counts too much. It is no time of a cold launch",
        100.0 * share
    ))
}

/// Bytes below which a launch on a CPU is mostly its call.
const CPU_FLOOR_BYTES: usize = 1 << 16;

/// Why a time cannot be true. The floor is a yardstick timed in between, and plain copies and multiply-adds come within
/// a few per cent of the best that a device does, so little slack is needed where the work itself takes the time. What
/// fits in the cache is mostly launch overhead and may be overlapped better than the yardstick does. On a CPU the
/// compiler and the allocator move the yardstick itself, and one of less than a MiB is copied by one thread where the
/// candidate may have several. What disturbs a yardstick makes it slower, so its fastest samples decide.
fn unbelievable(timing: &Timing, fastest_us: Option<f64>, device: &dyn Device) -> Option<String> {
    let streams = timing.bytes > device.fingerprint().cache_bytes;
    let share = match (device.kind(), timing.heat) {
        (DeviceKind::Cuda, Heat::Cold) if streams => 0.9,
        (DeviceKind::Cuda, Heat::Cold) => 0.7,
        (DeviceKind::Cuda, Heat::Hot) | (DeviceKind::Cpu, Heat::Cold) if streams => 0.5,
        (DeviceKind::Cpu, Heat::Cold) if timing.bytes >= CPU_FLOOR_BYTES => 0.25,
        _ => return None,
    };
    let floor_us = fastest_us?;
    (timing.median_us < share * floor_us).then(|| {
        format!(
            "{:.2} µs is less than {share} of the {floor_us:.2} µs that the ceilings allow: the cost of the operator is \
             overstated, or work was skipped",
            timing.median_us
        )
    })
}

#[cfg(test)]
mod tests;
