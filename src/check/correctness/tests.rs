//! The correctness check on candidates with planted defects, and on what a library leaves out.

use super::*;
use crate::core::candidate::{Body, Candidate, Cpu, Cuda, CudaHost, Declare, IntoCandidate};
use crate::core::cost::Cost;
use crate::core::dtype::{DType, Element};
use crate::core::launch::Launch;
use crate::core::operator::{Op, Operator};
use crate::core::tensor::{Inputs, Outputs};
use crate::device::cpu::CpuDevice;
use crate::device::fault::Fault;
use crate::device::fingerprint::Fingerprint;
use crate::device::{Capacity, Device, Job, Problem};
use half::bf16;
use rstest::rstest;
use std::time::Duration;

crate::shape! { struct Rows { rows: 1..=1024, cols: 1..=2048 } }

/// Row sums: y[r] = Σ x[r, c].
fn operator() -> Op<Rows> {
    Op::<Rows>::new("row_sums")
        .input("x", |s| [s.rows, s.cols])
        .output("y", |s| [s.rows])
        .depth(|s| s.cols)
        .range(1e30)
        .separable("rows")
        .cost(|s, t| Cost { bytes: (s.rows * s.cols + s.rows) * t.size(), flops: s.rows * s.cols })
        .reference(|s, x, y| {
            for (y, row) in y[0].iter_mut().zip(x[0].chunks(s.cols)) {
                *y = row.iter().sum();
            }
        })
        .magnitude(|s, x, m| {
            for (m, row) in m[0].iter_mut().zip(x[0].chunks(s.cols)) {
                *m = row.iter().map(|v| v.abs()).sum();
            }
        })
        .exact_relation(
            "doubling",
            |_, x, _| x[0].iter_mut().for_each(|x| *x *= 2.0),
            |_, _, y, _| y[0].iter_mut().for_each(|y| *y *= 2.0),
        )
}

fn check(f: impl Fn(&Rows, &[f32], &mut [f32]) + Send + Sync + 'static) -> Outcome {
    let body = move |s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| f(s, x.slice(0), y.slice(0));
    outcome_of(&Cpu::new::<f32>(body).named("c"), DType::F32)
}

fn outcome_of(candidate: &Candidate, dtype: DType) -> Outcome {
    outcome_within(Duration::from_secs(60), candidate, dtype)
}

fn outcome_within(budget: Duration, candidate: &Candidate, dtype: DType) -> Outcome {
    let (device, operator) = (CpuDevice::new(), operator());
    let context = Context::new(&device, 1, budget);
    run(&context, &Subject { operator: &operator as &dyn Operator, candidate, dtype })
}

fn sums(s: &Rows, x: &[f32], y: &mut [f32]) {
    for (y, row) in y.iter_mut().zip(x.chunks(s.cols)) {
        *y = row.iter().sum();
    }
}

#[test]
fn a_right_candidate_passes() {
    let outcome = check(sums);
    assert_eq!(outcome.verdict, Verdict::Pass, "{outcome:#?}");
    assert!(outcome.cases > 40 && outcome.errors.is_some());
}

#[test]
fn the_errors_of_the_failing_case_are_among_those_of_the_trial() {
    let outcome = check(|s, x, y| {
        sums(s, x, y);
        y[0] += 1.0;
    });
    let failure = outcome.failure.as_ref().unwrap();
    assert!(outcome.errors.unwrap().max_of_allowed > 1.0, "{outcome:#?}");
    assert_eq!(outcome.shape_errors.last().unwrap().shape, failure.case.shape);
    assert_eq!(failure.errors, None, "they stand with the others");
}

#[rstest]
#[case::tried(false, Verdict::Fail)]
#[case::spared(true, Verdict::Pass)]
fn inputs_that_a_candidate_is_spared_are_not_tried_and_named(#[case] spared: bool, #[case] verdict: Verdict) {
    let candidate = Cpu::new::<f32>(|s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        sums(s, x.slice(0), y.slice(0));
        let is_constant = |row: &[f32]| row.len() > 2 && row[0] != 0.0 && row.iter().all(|x| *x == row[0]);
        if x.slice::<f32>(0).chunks(s.cols).all(is_constant) {
            y.slice::<f32>(0).fill(-1.5);
        }
    });
    let candidate =
        if spared { candidate.exclude_distributions(Distribution::ConstantRows, "a reason") } else { candidate };
    let outcome = outcome_of(&candidate.named("c"), DType::F32);
    assert_eq!(outcome.verdict, verdict, "{outcome:#?}");
    let is_said = outcome.notes.iter().any(|note| note.starts_with("not tried on") && note.ends_with("a reason"));
    assert_eq!(is_said, spared, "{outcome:#?}");
}

#[rstest]
#[case::out_of_time(0, true)]
#[case::in_time(60, false)]
fn out_of_time_relations_are_held_at_the_smallest_shape(#[case] seconds: u64, #[case] cut: bool) {
    let candidate = Cpu::new::<f32>(|s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| sums(s, x.slice(0), y.slice(0)));
    let outcome = outcome_within(Duration::from_secs(seconds), &candidate.named("c"), DType::F32);
    assert_eq!(outcome.notes.iter().any(|note| note.contains("row order, repetition at")), cut, "{outcome:#?}");
    assert_eq!(outcome.cut > 0, cut, "{outcome:#?}");
    assert_eq!(outcome.planned, outcome.cases + outcome.cut, "{outcome:#?}");
}

/// A CPU that notes what it is asked for, and takes its time where it is told to.
struct Noting {
    cpu: CpuDevice,
    delay: Duration,
    asked: std::sync::Mutex<Vec<(Vec<usize>, usize)>>,
}

impl Device for Noting {
    fn fingerprint(&self) -> &Fingerprint {
        self.cpu.fingerprint()
    }
    fn runs(&self, body: &Body) -> bool {
        self.cpu.runs(body)
    }
    fn prepare(&self, job: &Job<'_>) -> Result<Box<dyn Problem + '_>, Fault> {
        std::thread::sleep(self.delay);
        self.asked.lock().unwrap().push((job.point.to_vec(), job.offset_bytes));
        self.cpu.prepare(job)
    }
    fn capacity(&self) -> Capacity {
        self.cpu.capacity()
    }
}

#[rstest]
#[case::all(f64::INFINITY)]
#[case::little_work(1e6)]
fn a_slow_machine_judges_the_same_cases(#[case] work: f64) {
    let operator = operator();
    let candidate = Cpu::new::<f32>(|s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| sums(s, x.slice(0), y.slice(0)));
    let candidate = candidate.named("c");
    let asked = |delay| {
        let device = Noting { cpu: CpuDevice::new(), delay, asked: Vec::new().into() };
        let context = Context::without_deadline(&device, 1).planning(work, 0.0);
        let outcome = run(&context, &Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 });
        assert_eq!((outcome.verdict, outcome.cut, outcome.planned), (Verdict::Pass, 0, outcome.cases), "{outcome:#?}");
        device.asked.into_inner().unwrap()
    };
    assert_eq!(asked(Duration::ZERO), asked(Duration::from_millis(20)));
}

/// Buffers that start where the declared alignment allows, and a candidate that takes more than it declares.
#[rstest]
#[case::declared(32, Verdict::Pass)]
#[case::not_declared(16, Verdict::Fail)]
#[case::less_than_an_element(2, Verdict::Fail)]
fn every_offset_that_the_alignment_allows_is_tried(#[case] alignment: usize, #[case] expected: Verdict) {
    let candidate = Cpu::new::<f32>(|s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        let x = x.slice::<f32>(0);
        assert!(x.as_ptr().addr().is_multiple_of(32), "loads of 32 bytes");
        sums(s, x, y.slice(0));
    });
    let outcome = outcome_of(&candidate.alignment(alignment).named("c"), DType::F32);
    assert_eq!(outcome.verdict, expected, "{outcome:#?}");
    if let Some(failure) = outcome.failure {
        assert!(failure.check == "panic" && failure.case.offset_bytes % 32 != 0, "{failure:#?}");
        assert!(failure.case.offset_bytes.is_multiple_of(4), "an f32 starts at a multiple of its size: {failure:#?}");
    }
}

#[test]
fn an_alignment_below_an_element_is_no_reason_to_fail() {
    let candidate = Cpu::new::<f32>(|s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| sums(s, x.slice(0), y.slice(0)));
    let outcome = outcome_of(&candidate.alignment(2).named("c"), DType::F32);
    assert_eq!(outcome.verdict, Verdict::Pass, "{outcome:#?}");
}

#[rstest]
#[case::first(0)]
#[case::last(1)]
fn every_output_is_judged(#[case] wrong: usize) {
    let operator = Op::<Rows>::new("both")
        .input("x", |s| [s.rows, s.cols])
        .output("a", |s| [s.rows, s.cols])
        .output("b", |s| [s.rows, s.cols])
        .reference(|_, x, y| y.iter_mut().for_each(|y| y.copy_from_slice(x[0])));
    let candidate = Cpu::new::<f32>(move |_: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        for output in 0..2 {
            let shift = if output == wrong { 1.0 } else { 0.0 };
            y.slice::<f32>(output).iter_mut().zip(x.slice::<f32>(0)).for_each(|(y, x)| *y = x + shift);
        }
    });
    let (device, candidate) = (CpuDevice::new(), candidate.named("c"));
    let context = Context::without_deadline(&device, 1);
    let outcome = run(&context, &Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 });
    let worst = outcome.failure.and_then(|failure| failure.worst).map(|worst| worst.output);
    assert_eq!(worst.as_deref(), Some(["a", "b"][wrong]));
}

#[test]
fn a_value_of_another_class_is_said_to_be_one() {
    let outcome = check(|s, x, y| {
        sums(s, x, y);
        y[0] = f32::NAN;
    });
    assert!(outcome.reason.starts_with("values: class differs: expected finite, got NaN, at `y`[0]"), "{outcome:#?}");
    assert!(outcome.failure.unwrap().text.contains("`.range(…)`"));
}

/// A device that runs one candidate, whatever it is given, and nothing where an axis is too long or too short.
struct Narrow {
    cpu: CpuDevice,
    only: Candidate,
    axis: usize,
    takes: std::ops::Range<usize>,
}

impl Device for Narrow {
    fn fingerprint(&self) -> &Fingerprint {
        self.cpu.fingerprint()
    }
    fn runs(&self, _: &Body) -> bool {
        true
    }
    fn prepare(&self, job: &Job<'_>) -> Result<Box<dyn Problem + '_>, Fault> {
        if !self.takes.contains(&job.point[self.axis]) {
            return Err(Fault::Unsupported("no such columns".into()));
        }
        self.cpu.prepare(&Job { candidate: &self.only, ..*job })
    }
    fn capacity(&self) -> Capacity {
        self.cpu.capacity()
    }
}

#[rstest]
#[case::wide(sums, true, 0..1000, Verdict::Pass)]
#[case::first(sums, true, 2..usize::MAX, Verdict::Pass)]
#[case::all(sums, true, 0..0, Verdict::Skip)]
#[case::wrong(biased, true, 0..1000, Verdict::Fail)]
#[case::kernel(sums, false, 0..1000, Verdict::Skip)]
fn a_library_is_judged_by_the_cases_that_it_has_and_a_kernel_by_all(
    #[case] f: fn(&Rows, &[f32], &mut [f32]),
    #[case] is_library: bool,
    #[case] takes: std::ops::Range<usize>,
    #[case] expected: Verdict,
) {
    let body = move |s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| f(s, x.slice(0), y.slice(0));
    let only = Cpu::new::<f32>(body).named("c");
    let library = CudaHost::new(|_: &Rows, _| Ok(())).named("c");
    let candidate = if is_library { library } else { only.clone() };
    let (device, operator) = (Narrow { cpu: CpuDevice::new(), only, axis: 1, takes }, operator());
    let context = Context::new(&device, 1, Duration::from_secs(60));
    let outcome = run(&context, &Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 });
    assert_eq!(outcome.verdict, expected, "{outcome:#?}");
    let is_noted = outcome.notes.contains(&format!("{DECLINED}no such columns"));
    assert!(is_noted || expected != Verdict::Pass, "{outcome:#?}");
    assert_eq!(outcome.reason == "no such columns", expected == Verdict::Skip, "{outcome:#?}");
}

crate::shape! { struct Items { items: 0..=64 } }

#[rstest]
#[case::empty_ones(0..1, Verdict::Skip)]
#[case::all(0..usize::MAX, Verdict::Pass)]
fn a_library_that_has_empty_cases_only_is_skipped(#[case] takes: std::ops::Range<usize>, #[case] expected: Verdict) {
    let operator = Op::<Items>::new("copy")
        .input("x", |s| [s.items])
        .output("y", |s| [s.items])
        .reference(|_, x, y| y[0].copy_from_slice(x[0]));
    let copy = |_: &Items, x: &Inputs<'_>, y: &mut Outputs<'_>| y.slice::<f32>(0).copy_from_slice(x.slice(0));
    let only = Cpu::new::<f32>(copy).named("c");
    let candidate = CudaHost::new(|_: &Items, _| Ok(())).named("c");
    let device = Narrow { cpu: CpuDevice::new(), only, axis: 0, takes };
    let context = Context::new(&device, 1, Duration::from_secs(60));
    let outcome = run(&context, &Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 });
    assert_eq!(outcome.verdict, expected, "{outcome:#?}");
    assert_eq!(outcome.reason == "no such columns", expected == Verdict::Skip, "{outcome:#?}");
}

#[test]
fn a_right_candidate_passes_in_bf16() {
    let body = |s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        for (y, row) in y.slice::<bf16>(0).iter_mut().zip(x.slice::<bf16>(0).chunks(s.cols)) {
            *y = Element::from_f64(row.iter().map(|v| v.to_f32()).sum::<f32>().into());
        }
    };
    let outcome = outcome_of(&Cpu::new::<bf16>(body).named("c"), DType::BF16);
    assert_eq!(outcome.verdict, Verdict::Pass, "{outcome:#?}");
}

/// Every element is within one ulp, all of them on one side of the right one.
#[test]
fn truncation_in_place_of_rounding_is_a_bias() {
    let body = |s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        for (y, row) in y.slice::<bf16>(0).iter_mut().zip(x.slice::<bf16>(0).chunks(s.cols)) {
            let sum = row.iter().map(|v| v.to_f32()).sum::<f32>();
            *y = bf16::from_bits((sum.to_bits() >> 16) as u16);
        }
    };
    let (operator, case) = (operator(), Case::new(vec![8192, 3], Distribution::Normal, 1));
    let (device, candidate) = (CpuDevice::new(), Cpu::new::<bf16>(body).named("c"));
    let context = Context::new(&device, 1, Duration::from_secs(60));
    let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::BF16 };
    let outcome = run_case(&context, &subject, case);
    assert_eq!(outcome.failure.map(|failure| failure.check), Some("bias".into()));
}

/// Inputs in TF32 where only long sums are: no single element gives it away.
#[test]
fn sums_of_rounded_inputs_are_seen_as_a_whole() {
    let coarse = |x: &f32| f32::from_bits((x.to_bits() + 0x1000) & !0x1fff);
    let outcome = check(move |s, x, y| {
        for (y, row) in y.iter_mut().zip(x.chunks(s.cols)) {
            *y = if s.cols < 1500 { row.iter().sum() } else { row.iter().map(coarse).sum() };
        }
    });
    let found = outcome.failure.as_ref().map(|failure| failure.check.as_str());
    assert!(matches!(found, Some("spread" | "values")), "{outcome:#?}");
}

#[test]
fn an_element_that_contradicts_the_reference_is_a_fault_of_the_declaration() {
    let element = |factor: f64| {
        move |s: &Rows, x: &[Tensor], at: usize| {
            let row = || (0..s.cols).map(|c| x[0].get(at * s.cols + c));
            [factor * row().sum::<f64>(), row().map(f64::abs).sum()]
        }
    };
    let body = |s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| sums(s, x.slice(0), y.slice(0));
    let (device, candidate) = (CpuDevice::new(), Cpu::new::<f32>(body).named("c"));
    let context = Context::new(&device, 1, Duration::from_secs(60));
    let case = || Case::new(vec![9, 40], Distribution::Normal, 1);
    let outcome = |factor| {
        let operator = operator().element(element(factor));
        run_case(&context, &Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 }, case())
    };
    assert_eq!(outcome(1.0).verdict, Verdict::Pass, "{:#?}", outcome(1.0));
    let failure = outcome(1.001).failure.unwrap();
    assert!(failure.check == "reference" && failure.text.contains("Op::element"), "{failure:#?}");
}

fn tail_not_written(s: &Rows, x: &[f32], y: &mut [f32]) {
    let n = y.len() & !3;
    sums(s, x, &mut y[..n]);
}

fn accumulates(s: &Rows, x: &[f32], y: &mut [f32]) {
    for (y, row) in y.iter_mut().zip(x.chunks(s.cols)) {
        *y = if y.is_nan() { 0.0 } else { 1.0 } + row.iter().sum::<f32>();
    }
}

fn biased(s: &Rows, x: &[f32], y: &mut [f32]) {
    sums(s, x, y);
    y.iter_mut().for_each(|y| *y *= 1.0005);
}

fn swallows_nan(s: &Rows, x: &[f32], y: &mut [f32]) {
    for (y, row) in y.iter_mut().zip(x.chunks(s.cols)) {
        *y = row.iter().filter(|v| !v.is_nan()).sum();
    }
}

fn panics_at_one_width(s: &Rows, x: &[f32], y: &mut [f32]) {
    assert!(s.cols != 129);
    sums(s, x, y);
}

fn right_up_to_1024(s: &Rows, x: &[f32], y: &mut [f32]) {
    for (y, row) in y.iter_mut().zip(x.chunks(s.cols)) {
        *y = row.iter().take(1024).sum();
    }
}

#[rstest]
#[case("poison", tail_not_written)]
#[case("determinism", accumulates)]
#[case("values", biased)]
#[case("values", swallows_nan)]
#[case("panic", panics_at_one_width)]
#[case("values", right_up_to_1024)]
fn a_faulty_candidate_fails(#[case] expected: &str, #[case] fault: fn(&Rows, &[f32], &mut [f32])) {
    let outcome = check(fault);
    let found = outcome.failure.as_ref().map(|failure| failure.check.as_str());
    assert_eq!((outcome.verdict, found), (Verdict::Fail, Some(expected)), "{outcome:#?}");
}

/// Time for a few of the small cases; the fault shows in rows that a kernel launches otherwise.
#[rstest]
#[case::another_way(1024, Verdict::Fail)]
#[case::one_way(usize::MAX, Verdict::Skip)]
fn each_way_that_a_kernel_goes_is_tried_before_the_time_is_spent(
    #[case] cols_of_one_way: usize,
    #[case] expected: Verdict,
) {
    let only = Cpu::new::<f32>(|s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        std::thread::sleep(Duration::from_millis(10));
        right_up_to_1024(s, x.slice(0), y.slice(0));
    });
    let threads = move |s: &Rows| Launch::blocks(s.rows, if s.cols > cols_of_one_way { 64 } else { 32 });
    let candidate = Cuda::source("", "row_sums", threads).named("c");
    let device = Narrow { cpu: CpuDevice::new(), only: only.named("c"), axis: 1, takes: 0..usize::MAX };
    let (operator, context) = (operator(), Context::new(&device, 1, Duration::from_millis(500)));
    let outcome = run(&context, &Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 });
    assert_eq!(outcome.verdict, expected, "{outcome:#?}");
    assert!(expected == Verdict::Fail || outcome.notes.iter().any(|note| note.starts_with("budget spent")));
}

#[test]
fn an_accepted_null_is_a_failure() {
    let loose = crate::core::tolerance::Tolerance::new(1.0, 1e9).because("to show what happens");
    let body = |s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| sums(s, x.slice(0), y.slice(0));
    let mut candidate = Cpu::new::<f32>(body).named("c");
    candidate.traits.tolerance = Some(loose);
    let outcome = outcome_of(&candidate, DType::F32);
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.check, "null");
    assert!(failure.text.starts_with("the declaration of operator `row_sums` is too loose"), "{failure:#?}");
    assert!(failure.blames_declaration() && !failure.depends_on_the_case());
}

#[test]
fn an_operator_may_have_a_tolerance_of_its_own() {
    let candidate = Cpu::new::<f32>(|s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        sums(s, x.slice(0), y.slice(0));
        y.slice::<f32>(0).iter_mut().for_each(|y| *y *= 1.000_01);
    });
    let candidate = candidate.named("c");
    let (device, derived) = (CpuDevice::new(), operator());
    let coarse = operator().tolerance(crate::core::tolerance::Tolerance::new(200.0, 4.0).because("for show"));
    let outcome = |operator: &dyn Operator| {
        let context = Context::new(&device, 1, Duration::from_secs(60));
        run(&context, &Subject { operator, candidate: &candidate, dtype: DType::F32 })
    };
    assert_eq!(outcome(&derived).verdict, Verdict::Fail);
    let accepted = outcome(&coarse);
    assert_eq!(accepted.verdict, Verdict::Pass, "{accepted:#?}");
    assert!(accepted.notes.contains(&"tolerance overridden: for show".to_owned()), "{:?}", accepted.notes);
}

#[test]
fn a_spent_budget_is_said() {
    let (device, operator) = (CpuDevice::new(), operator());
    let candidate = Cpu::new::<f32>(|s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| sums(s, x.slice(0), y.slice(0)));
    let candidate = candidate.named("c");
    let context = Context::new(&device, 1, Duration::ZERO);
    let outcome = run(&context, &Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 });
    assert!(outcome.notes.iter().any(|note| note.contains("not run")), "{:?}", outcome.notes);
    assert_eq!(outcome.verdict, Verdict::Skip, "nothing was judged");
}
