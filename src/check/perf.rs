//! The perf check: every shape verified, then timed beside yardsticks of the same work. It only measures; what the
//! times mean against an accepted baseline is judged above.

use super::beside::{Company, Party};
use super::case::Case;
use super::correctness::blame;
use super::judge::{Rejection, reject};
use super::outcome::{Outcome, Timing, Verdict};
use super::pace::work;
use super::verify::verified;
use super::{Context, Subject};
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::seed::derive;
use crate::core::shape::{Point, describe};
use crate::device::fault::Fault;
use crate::device::{Capacity, Device, DeviceKind, Heat, TimingPlan};
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
    run_beside(context, subject, settings, Company::default())
}

/// The same beside others, which are timed in the same sessions; what they do changes nothing for the candidate.
pub fn run_beside(
    context: &Context<'_>,
    subject: &Subject<'_>,
    settings: &PerfSettings,
    company: Company<'_>,
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
            break;
        }
        let (most_bytes, most_flops) = limits(capacity, settings);
        if let Some(why) = too_large(subject, point, most_bytes, most_flops) {
            outcome.notes.push(format!("{} not timed: {why}", describe(subject.operator.axes(), point)));
            continue;
        }
        match time_shape(context, subject, point, settings, company, &mut outcome.notes) {
            Ok((timing, doubt)) => {
                outcome.timings.push(timing);
                if let Some(doubt) = doubt {
                    outcome.reason = doubt;
                }
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

/// Bytes and operations of a shape, at the most. One that was asked for is timed however long it takes.
fn limits(capacity: Capacity, settings: &PerfSettings) -> (usize, usize) {
    if settings.only.is_empty() {
        (capacity.timed_bytes, settings.most_flops)
    } else {
        (capacity.asked_bytes, usize::MAX)
    }
}

/// Why a shape is not timed on a device that is given so much.
pub fn too_large(subject: &Subject<'_>, point: &[usize], most_bytes: usize, most_flops: usize) -> Option<String> {
    let bytes = footprint_bytes(subject.operator, point, subject.dtype);
    let flops = subject.operator.cost(point, subject.dtype).flops;
    if bytes > most_bytes {
        Some(format!("{} MiB, and this device is given {} MiB", bytes >> 20, most_bytes >> 20))
    } else if flops > most_flops {
        Some(format!("{:.1} Gflop, and this device is given {:.1}", flops as f64 * 1e-9, most_flops as f64 * 1e-9))
    } else {
        None
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
}

/// Of an operator that can only be computed whole, at a shape where that takes too long.
const UNVERIFIED: &str = "nothing of its outputs was compared with the reference, which is too large to compute whole: \
                          declare `Op::separable` or `Op::element`";

fn time_shape(
    context: &Context<'_>,
    subject: &Subject<'_>,
    point: &Point,
    settings: &PerfSettings,
    company: Company<'_>,
    notes: &mut Vec<String>,
) -> Result<(Timing, Option<String>), Rejection> {
    let shape = describe(subject.operator.axes(), point);
    let seed = derive(context.seed, &[subject.operator.name(), "perf", &shape]);
    let case = Case::new(point.clone(), Distribution::Normal, seed);
    let fault = |fault| reject(context, subject, &case, fault);

    let mut inputs = draw(subject.operator, point, subject.dtype, seed);
    let (problem, compared) = verified(context, subject, &case, &inputs)?;
    notes.extend(subject.candidate.body.describe(point, subject.dtype).map(|what| format!("{shape}: {what}")));
    let mut party = Party::invite(company, context, subject, &case, &inputs);
    if party.is_empty() {
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

    party.join(&mut field.contestants, &plan);
    let measurement =
        measure(&mut field.contestants, &settings.session.shared_with(party.len()), seed).map_err(fault)?;
    let mut timing = timing(&shape, subject.dtype, settings.heat, cost, &measurement, &field);
    let comparable = subject.candidate.traits.deterministic;
    let doubt = if compared.is_none() {
        Some(UNVERIFIED.to_owned())
    } else if comparable && !field.contestants[0].problem().timed_outputs_agree().map_err(fault)? {
        Some("the outputs changed while being timed, so that not the verified work was timed".to_owned())
    } else {
        unbelievable(&timing, context.device)
    };
    if doubt.is_some() {
        timing.verdict = Verdict::Invalid;
    }
    if settings.is_brief {
        notes.push(format!("{shape}: {}", in_brief(&timing)));
    }
    // What was planted is not in the code.
    timing.code = field.contestants[0].problem().code().filter(|_| settings.planted == 0.0);
    timing.peers = party.conclude(&measurement, &mut field.contestants, subject, &case, &inputs);
    Ok((timing, doubt.map(|why| format!("{shape}: {why}"))))
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
    // Tensor cores and packed halves are faster than multiply-adds in f32: no ceiling for those dtypes.
    let arithmetic_us = fma_us.filter(|_| dtype == DType::F32);
    let floor_us = match (read_us.or(copy_us), arithmetic_us) {
        (Some(memory), Some(arithmetic)) => Some(memory.max(arithmetic)),
        (memory, arithmetic) => memory.or(arithmetic),
    };
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
    }
}

/// Why a time cannot be true. The floor is a yardstick timed in between, and plain copies and multiply-adds come within
/// a few per cent of the best that a device does, so little slack is needed where the work itself takes the time. What
/// fits in the cache is mostly launch overhead and may be overlapped better than the yardstick does. On a CPU the
/// compiler and the allocator move the yardstick itself, and rotation is not always more than the cache.
fn unbelievable(timing: &Timing, device: &dyn Device) -> Option<String> {
    let streams = timing.bytes > device.fingerprint().cache_bytes;
    let share = match (device.kind(), timing.heat) {
        (DeviceKind::Cuda, Heat::Cold) if streams => 0.9,
        (DeviceKind::Cuda, Heat::Cold) => 0.7,
        (DeviceKind::Cuda, Heat::Hot) | (DeviceKind::Cpu, Heat::Cold) if streams => 0.5,
        _ => return None,
    };
    let floor_us = timing.floor_us?;
    (timing.median_us < share * floor_us).then(|| {
        format!(
            "{:.2} µs is less than {share} of the {floor_us:.2} µs that the ceilings allow: the cost of the operator is \
             overstated, or work was skipped",
            timing.median_us
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, Declare, IntoCandidate};
    use crate::core::operator::Op;
    use crate::core::tensor::{Inputs, Outputs};
    use crate::device::cpu::CpuDevice;
    use crate::measure::session::SessionSettings;
    use crate::measure::stopping::StoppingRule;
    use rstest::rstest;
    use std::time::Duration;

    crate::shape! { struct Vector { n: 1..=1 << 30 } }

    fn operator(flops_an_element: usize) -> Op<Vector> {
        Op::<Vector>::new("double")
            .input("x", |s| [s.n])
            .output("y", |s| [s.n])
            .separable("n")
            .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = 2.0 * x))
            .cost(move |s, t| Cost { bytes: 2 * s.n * t.size(), flops: flops_an_element * s.n })
            .perf([Vector { n: 10_000 }])
    }

    fn double(_: &Vector, x: &Inputs<'_>, y: &mut Outputs<'_>) {
        y.slice::<f32>(0).iter_mut().zip(x.slice::<f32>(0)).for_each(|(y, x)| *y = 2.0 * x);
    }

    fn quick() -> PerfSettings {
        let stopping = StoppingRule { half_width: 0.5, min_rounds: 6, max_rounds: 6, budget: Duration::from_secs(20) };
        let session = SessionSettings { warm_up: Duration::ZERO, stopping };
        PerfSettings { batch_us: 50.0, session, ..PerfSettings::of(DeviceKind::Cpu) }
    }

    fn time(operator: &Op<Vector>, candidate: Cpu<Vector>, settings: &PerfSettings) -> Outcome {
        let candidate: Candidate = candidate.named("c");
        let device = CpuDevice::new();
        let context = Context::new(&device, 1, Duration::from_secs(60));
        let subject = Subject { operator, candidate: &candidate, dtype: DType::F32 };
        run(&context, &subject, settings)
    }

    #[test]
    fn a_shape_is_timed_beside_a_copy_of_its_bytes() {
        let outcome = time(&operator(1), Cpu::new::<f32>(double), &quick());
        assert_eq!((outcome.verdict, outcome.cases), (Verdict::Pass, 1), "{outcome:?}");
        let timing = &outcome.timings[0];
        assert_eq!((timing.shape.as_str(), timing.bytes, timing.fma_us), ("n=10000", 80_000, None));
        assert!(timing.copy_us > Some(0.0) && timing.floor_us == timing.copy_us);
        assert!(timing.low_us <= timing.median_us && timing.median_us <= timing.high_us);
    }

    #[test]
    fn what_writes_hardly_anything_is_timed_beside_a_kernel_that_reads() {
        let operator = Op::<Vector>::new("sum")
            .input("x", |s| [s.n])
            .output("y", |_| [1])
            .reference(|_, x, y| y[0][0] = x[0].iter().sum())
            .magnitude(|_, x, y| y[0][0] = x[0].iter().map(|x| x.abs()).sum())
            .depth(|s| s.n)
            .cost(|s, t| Cost { bytes: (s.n + 1) * t.size(), flops: s.n })
            .perf([Vector { n: 10_000 }]);
        let sum = Cpu::new::<f32>(|_, x, y| y.slice::<f32>(0)[0] = x.slice::<f32>(0).iter().sum());
        let timing = &time(&operator, sum, &quick()).timings[0];
        assert!(
            timing.read_us > Some(0.0) && timing.copy_us.is_none() && timing.floor_us == timing.read_us,
            "{timing:?}"
        );
    }

    /// The median of five pairs: one pair on a busy host says little.
    #[test]
    fn a_planted_slowdown_takes_its_time() {
        let p5_us = |settings: &PerfSettings| time(&operator(1), Cpu::new::<f32>(double), settings).timings[0].p5_us;
        let planted = PerfSettings { planted: 4.0, ..quick() };
        let mut ratios: Vec<f64> = (0..5).map(|_| p5_us(&planted) / p5_us(&quick())).collect();
        ratios.sort_by(f64::total_cmp);
        assert!(ratios[2] > 2.0, "five times the time was planted, {ratios:?} were measured");
    }

    #[test]
    fn a_wrong_candidate_is_not_timed() {
        let outcome = time(&operator(1), Cpu::new::<f32>(|_, _, y| y.slice::<f32>(0).fill(0.0)), &quick());
        assert_eq!(outcome.verdict, Verdict::Fail);
        assert!(outcome.timings.is_empty() && outcome.reason.starts_with("values"), "{outcome:?}");
    }

    /// Right for the two verified runs, and lazy from then on.
    #[test]
    fn work_skipped_while_being_timed_is_invalid() {
        let calls = std::sync::atomic::AtomicUsize::new(0);
        let lazy = Cpu::new::<f32>(move |s, x, y| {
            if calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2 {
                double(s, x, y);
            }
        });
        let outcome = time(&operator(1), lazy, &quick());
        assert_eq!(outcome.verdict, Verdict::Invalid);
        assert!(outcome.reason.contains("changed while being timed"), "{}", outcome.reason);
    }

    #[test]
    fn a_listed_shape_that_takes_too_long_is_named() {
        let outcome = time(&operator(1), Cpu::new::<f32>(double), &PerfSettings { most_flops: 9_999, ..quick() });
        assert_eq!(outcome.verdict, Verdict::Skip);
        assert!(outcome.reason.contains("n=10000") && outcome.reason.contains("Gflop"), "{}", outcome.reason);
    }

    #[test]
    fn a_shape_that_was_asked_for_is_timed_if_the_memory_holds_it() {
        let ask = |n: usize| PerfSettings { only: vec![vec![n]], most_flops: 9_999, ..quick() };
        let outcome = time(&operator(1), Cpu::new::<f32>(double), &ask(10_000));
        assert_eq!((outcome.verdict, outcome.cases), (Verdict::Pass, 1), "{outcome:?}");
        let outcome = time(&operator(1), Cpu::new::<f32>(double), &ask(1 << 45));
        assert_eq!(outcome.verdict, Verdict::Skip);
        assert!(outcome.reason.contains("MiB"), "{}", outcome.reason);
    }

    #[test]
    fn rivals_are_judged_and_timed_in_the_same_session() {
        let right = Cpu::new::<f32>(double).named("right");
        let wrong = Cpu::<Vector>::new::<f32>(|_, _, y| y.slice::<f32>(0).fill(0.0)).named("wrong");
        let unasked = Cpu::<Vector>::new::<f32>(|_, _, _| panic!("asked for a dtype that it does not name"));
        let other = unasked.dtypes([DType::F16]).named("other");
        let lost = Cpu::<Vector>::new::<half::f16>(|_, _, _| {}).dtypes([DType::F32]).named("lost");
        let calls = std::sync::atomic::AtomicUsize::new(0);
        let lazy = Cpu::new::<f32>(move |s, x, y| {
            if calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2 {
                double(s, x, y);
            }
        });
        let lazy = lazy.named("lazy");
        let device = CpuDevice::new();
        let context = Context::new(&device, 1, Duration::from_secs(60));
        let (operator, candidate): (_, Candidate) = (operator(1), Cpu::new::<f32>(double).named("c"));
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let rivals = [&right, &wrong, &other, &lost, &lazy];
        let outcome = run_beside(&context, &subject, &quick(), Company { rivals: &rivals, ..Company::default() });
        assert_eq!(outcome.verdict, Verdict::Pass, "{outcome:?}");
        let found: Vec<(&str, Verdict, bool)> =
            outcome.timings[0].peers.iter().map(|p| (p.name.as_str(), p.verdict, p.samples > 0)).collect();
        assert_eq!(
            found,
            [
                ("right", Verdict::Pass, true),
                ("wrong", Verdict::Fail, false),
                ("other", Verdict::Skip, false),
                ("lost", Verdict::Skip, false),
                ("lazy", Verdict::Invalid, true)
            ]
        );
        let ratio = outcome.timings[0].peers[0].ratio;
        assert!((0.2..5.0).contains(&ratio), "the same function took {ratio} of its own time");
    }

    #[test]
    fn a_dtype_without_a_function_is_a_skip() {
        let outcome = time(&operator(1), Cpu::new::<half::f16>(|_, _, _| {}).dtypes([DType::F32]), &quick());
        assert_eq!(outcome.verdict, Verdict::Skip, "{outcome:?}");
    }

    #[rstest]
    #[case(&[Verdict::Same, Verdict::Faster], Verdict::Faster)]
    #[case(&[Verdict::Same, Verdict::Unclear, Verdict::Faster], Verdict::Unclear)]
    #[case(&[Verdict::Slower, Verdict::Unclear], Verdict::Slower)]
    #[case(&[Verdict::Slower, Verdict::Invalid], Verdict::Invalid)]
    fn the_worst_shape_decides(#[case] verdicts: &[Verdict], #[case] expected: Verdict) {
        let outcome = time(&operator(1), Cpu::new::<f32>(double), &quick());
        let timings: Vec<Timing> =
            verdicts.iter().map(|&verdict| Timing { verdict, ..outcome.timings[0].clone() }).collect();
        assert_eq!(worst(&timings), expected);
    }

    #[test]
    fn faster_than_a_copy_is_not_believed() {
        let device = CpuDevice::new();
        let outcome = time(&operator(1), Cpu::new::<f32>(double), &quick());
        let timing = Timing {
            bytes: device.fingerprint().cache_bytes + 1,
            floor_us: Some(100.0),
            median_us: 49.0,
            ..outcome.timings[0].clone()
        };
        assert!(unbelievable(&timing, &device).is_some_and(|why| why.contains("100.00")));
        assert_eq!(unbelievable(&Timing { median_us: 51.0, ..timing.clone() }, &device), None);
        assert_eq!(unbelievable(&Timing { bytes: 100, ..timing }, &device), None);
    }
}
