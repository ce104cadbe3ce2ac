//! Tests of the perf check.

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
    assert!(timing.read_us > Some(0.0) && timing.copy_us.is_none() && timing.floor_us == timing.read_us, "{timing:?}");
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
    let settings = PerfSettings { most_elements: 19_999, ..quick() };
    let outcome = time(&operator(1), Cpu::new::<f32>(double), &settings);
    assert_eq!(outcome.verdict, Verdict::Skip);
    assert!(outcome.reason.contains("million elements"), "{}", outcome.reason);
    let settings = PerfSettings { most_elements: 20_000, ..settings };
    assert_eq!(time(&operator(1), Cpu::new::<f32>(double), &settings).verdict, Verdict::Pass);
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
    let candidates = [&right, &wrong, &other, &lost, &lazy];
    let outcome =
        run_beside(&context, &subject, &quick(), Competition { candidates: &candidates, ..Competition::default() });
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
    let right = &outcome.timings[0].peers[0];
    let is_within = right.interval_us.is_none_or(|[low, high]| (low..=high).contains(&right.median_us));
    assert!(right.median_us > 0.0 && is_within, "{right:?}");
    let ratio = outcome.timings[0].peers[0].ratio;
    assert!((0.2..5.0).contains(&ratio), "the same function took {ratio} of its own time");
}

#[test]
fn the_yardstick_of_multiply_adds_does_the_work_of_the_case_and_a_part_of_it_for_half_types() {
    let work = |dtype| fma_flops(Cost { bytes: 4, flops: 3200 }, dtype);
    assert_eq!([DType::F32, DType::F16, DType::BF16].map(work), [3200, 200, 200]);
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
    let timing = Timing { bytes: device.fingerprint().cache_bytes + 1, median_us: 49.0, ..outcome.timings[0].clone() };
    let floor_us = Some(100.0);
    assert!(unbelievable(&timing, floor_us, &device).is_some_and(|why| why.contains("100.00")));
    assert_eq!(unbelievable(&Timing { median_us: 51.0, ..timing.clone() }, floor_us, &device), None);
    // What fits in the cache is held to a looser floor, what is mostly a call to none.
    let in_cache = Timing { bytes: CPU_FLOOR_BYTES, ..timing.clone() };
    assert_eq!(unbelievable(&in_cache, floor_us, &device), None);
    assert!(unbelievable(&Timing { median_us: 24.0, ..in_cache }, floor_us, &device).is_some());
    assert_eq!(unbelievable(&Timing { bytes: 100, median_us: 1.0, ..timing }, floor_us, &device), None);
}

#[test]
fn work_that_is_overstated_is_found_on_a_cpu_too() {
    let operator = Op::<Vector>::new("first")
        .input("x", |s| [s.n])
        .output("y", |_| [1])
        .reference(|_, x, y| y[0][0] = x[0][0])
        .cost(|s, t| Cost { bytes: s.n * t.size(), flops: 0 })
        .perf([Vector { n: 1 << 18 }]);
    let first = Cpu::new::<f32>(|_, x, y| y.slice::<f32>(0)[0] = x.slice::<f32>(0)[0]);
    let outcome = time(&operator, first, &quick());
    assert_eq!(outcome.verdict, Verdict::Invalid, "{outcome:?}");
    assert!(outcome.reason.contains("the ceilings allow"), "{}", outcome.reason);
}

/// The values of timed launches count where their bits may differ.
#[test]
fn a_candidate_whose_bits_may_differ_must_still_be_right_while_timed() {
    let late = |change: f32| {
        let calls = std::sync::atomic::AtomicUsize::new(0);
        let candidate = Cpu::new::<f32>(move |s, x, y| {
            double(s, x, y);
            if calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 3 {
                y.slice::<f32>(0).iter_mut().for_each(|y| *y *= change);
            }
        });
        time(&operator(1), candidate.nondeterministic(), &quick())
    };
    assert_eq!(late(1.0).verdict, Verdict::Pass);
    let outcome = late(1.5);
    assert_eq!(outcome.verdict, Verdict::Invalid, "{outcome:?}");
    assert!(outcome.reason.contains("wrong while being timed"), "{}", outcome.reason);
}

#[test]
fn a_time_above_the_yardstick_is_flagged() {
    let outcome = time(&operator(1), Cpu::new::<f32>(double), &quick());
    let of = |share: f64| Timing { of_ceiling: Some(share), ..outcome.timings[0].clone() };
    assert_eq!(above_the_yardstick(&of(1.04)), None);
    assert!(above_the_yardstick(&of(1.45)).is_some_and(|what| what.starts_with("145 % of the yardstick")));
    assert_eq!(above_the_yardstick(&Timing { heat: Heat::Hot, ..of(1.45) }), None);
}
