//! The property check on candidates with planted defects of shape.

use super::*;
use crate::core::candidate::{Candidate, Cpu, Declare, IntoCandidate};
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::operator::{Op, Operator};
use crate::core::tensor::{Inputs, Outputs};
use crate::device::cpu::CpuDevice;
use crate::device::fault::Fault;
use crate::device::fingerprint::Fingerprint;
use crate::device::{Capacity, Device, DeviceKind, Job, Problem};
use rstest::rstest;

crate::shape! { struct Rows { rows: 0..=1 << 20, cols: 1..=1 << 20, negate: bool = [false, true] } }

/// y[r, c] = ±2 x[r, c].
fn operator() -> Op<Rows> {
    Op::<Rows>::new("double")
        .input("x", |s| [s.rows, s.cols])
        .output("y", |s| [s.rows, s.cols])
        .cost(|s, t| Cost { bytes: 2 * s.rows * s.cols * t.size(), flops: s.rows * s.cols })
        .range(1e30)
        .reference(|s, x, y| {
            let factor = if s.negate { -2.0 } else { 2.0 };
            y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = factor * x);
        })
}

/// Right but where `wrong` says: there the last element is off by one.
fn planted(wrong: fn(&Rows) -> bool) -> Candidate {
    let body = move |s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        let factor = if s.negate { -2.0 } else { 2.0 };
        let (x, y) = (x.slice::<f32>(0), y.slice::<f32>(0));
        y.iter_mut().zip(x).for_each(|(y, x)| *y = factor * x);
        if let Some(last) = y.last_mut().filter(|_| wrong(s)) {
            *last += 1.0;
        }
    };
    Cpu::new::<f32>(body).tile("cols", 1024).named("planted")
}

fn searched(candidate: &Candidate, device: &dyn Device, budget: Duration, settings: &Settings) -> Outcome {
    let operator = operator();
    let context = Context::new(device, 11, budget);
    run(&context, &Subject { operator: &operator, candidate, dtype: DType::F32 }, settings)
}

fn cases(cases: u32) -> Settings {
    Settings { cases, regressions: None, shrinking: SHRINKING }
}

const MINUTE: Duration = Duration::from_secs(60);

#[rstest]
#[case::divisibility(|s: &Rows| s.cols % 7 == 3, "rows=1,cols=3,negate=false")]
#[case::two_axes(|s: &Rows| s.rows > 100 && s.cols % 2 == 1, "rows=101,cols=1,negate=false")]
#[case::past_the_tile(|s: &Rows| s.cols == 1025, "rows=1,cols=1025,negate=false")]
#[case::an_attribute(|s: &Rows| s.negate && s.cols > 64, "rows=1,cols=65,negate=true")]
fn the_smallest_failing_shape_is_reported(#[case] wrong: fn(&Rows) -> bool, #[case] smallest: &str) {
    let outcome = searched(&planted(wrong), &CpuDevice::new(), MINUTE, &cases(256));
    let failure = outcome.failure.expect("a failure");
    assert_eq!((outcome.verdict, failure.case.shape.as_str()), (Verdict::Fail, smallest), "{:?}", outcome.notes);
    assert_eq!(failure.check, "values");
    assert!(failure.worst.is_some() && outcome.reason.starts_with("values: "), "{}", outcome.reason);
    assert!(outcome.notes[0].starts_with("first seen at rows="), "{:?}", outcome.notes);
    assert!(!outcome.notes[0].contains("limit"), "{:?}", outcome.notes);
}

#[test]
fn the_errors_of_the_failing_case_are_among_those_of_the_trial() {
    let outcome = searched(&planted(|s| s.cols > 3), &CpuDevice::new(), MINUTE, &cases(256));
    assert!(outcome.verdict == Verdict::Fail && outcome.errors.unwrap().max_of_allowed > 1.0, "{outcome:#?}");
}

#[test]
fn a_right_candidate_passes_every_case() {
    let outcome = searched(&planted(|_| false), &CpuDevice::new(), MINUTE, &cases(64));
    assert_eq!((outcome.verdict, outcome.cases), (Verdict::Pass, 64), "{outcome:#?}");
    assert!(outcome.errors.is_some() && outcome.notes.is_empty(), "{:?}", outcome.notes);
}

#[test]
fn an_empty_budget_is_no_pass() {
    let outcome = searched(&planted(|_| true), &CpuDevice::new(), Duration::ZERO, &cases(64));
    assert_eq!((outcome.verdict, outcome.cases), (Verdict::Skip, 0));
    assert!(outcome.reason.contains("0 of 64 cases run: budget of 0.000 s spent"), "{}", outcome.reason);
}

#[test]
fn a_spent_budget_is_said() {
    let slow = |_: &Rows| {
        std::thread::sleep(Duration::from_millis(20));
        false
    };
    let outcome = searched(&planted(slow), &CpuDevice::new(), Duration::from_secs(1), &cases(1_000));
    assert_eq!((outcome.verdict, outcome.cut + outcome.cases), (Verdict::Skip, 1_000), "most of it is missing");
    assert!((1..200).contains(&outcome.cases), "{} cases", outcome.cases);
    let said = format!("{} of 1000 cases run: budget of 1.", outcome.cases);
    assert!(outcome.notes.iter().any(|note| note.starts_with(&said)), "{:?}", outcome.notes);
}

#[test]
fn a_pass_may_lack_a_few_cases_and_says_how_many() {
    static CALLS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let slow_in_the_end = |_: &Rows| {
        // A case is two runs; the last but two takes all of the time.
        if CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 2 * 61 {
            std::thread::sleep(Duration::from_secs(6));
        }
        false
    };
    let outcome = searched(&planted(slow_in_the_end), &CpuDevice::new(), Duration::from_secs(5), &cases(64));
    assert_eq!((outcome.verdict, outcome.planned, outcome.cases, outcome.cut), (Verdict::Pass, 64, 62, 2));
    assert_eq!(outcome.cut_note().as_deref(), Some("cut: 2 of 64 cases not run"));
}

#[test]
fn work_decides_how_many_cases_are_planned() {
    let (operator, candidate, device) = (operator(), planted(|_| false), CpuDevice::new());
    let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
    let planned = |work: f64| {
        let context = Context::without_deadline(&device, 11).planning(work, 0.0);
        let outcome = run(&context, &subject, &cases(64));
        assert_eq!((outcome.verdict, outcome.planned, outcome.cut), (Verdict::Pass, outcome.cases, 0), "{outcome:#?}");
        assert_eq!(outcome.notes.iter().any(|note| note.contains("random cases planned")), outcome.cases < 64);
        outcome.cases
    };
    assert_eq!(planned(f64::INFINITY), 64);
    assert_eq!(planned(0.0), FEWEST);
    let counts = [1e5, 1e6, 1e7, 1e8].map(planned);
    assert!(counts.is_sorted() && counts.iter().any(|some| (FEWEST + 1..64).contains(some)), "{counts:?}");
    assert_eq!(counts, [1e5, 1e6, 1e7, 1e8].map(planned));
}

#[test]
fn what_no_case_can_change_is_neither_shrunk_nor_kept() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { cases: 8, regressions: Some(folder.path().to_path_buf()), shrinking: SHRINKING };
    let device = Broken::new(Fault::Compile { log: "expected a `;`".into() }, false, 1 << 20);
    let outcome = searched(&planted(|_| false), &device, MINUTE, &settings);
    assert_eq!((outcome.verdict, outcome.cases), (Verdict::Fail, 1), "{outcome:#?}");
    assert!(outcome.notes.is_empty() && std::fs::read_dir(folder.path()).unwrap().next().is_none(), "{outcome:#?}");
}

#[test]
fn a_failing_case_is_kept_and_replayed_first() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { cases: 256, regressions: Some(folder.path().to_path_buf()), shrinking: SHRINKING };
    let wrong = |s: &Rows| s.cols % 7 == 3;
    let first = searched(&planted(wrong), &CpuDevice::new(), MINUTE, &settings);
    let file = folder.path().join("double.planted.txt");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("rows=1,cols=3,negate=false f32 normal seed 0x"), "{text}");

    let again = searched(&planted(wrong), &CpuDevice::new(), MINUTE, &settings);
    assert_eq!((again.cases, again.failure), (1, first.failure), "the kept case alone is judged");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "and not kept twice");

    let mended = searched(&planted(|_| false), &CpuDevice::new(), MINUTE, &settings);
    assert_eq!((mended.verdict, mended.cases), (Verdict::Pass, 257));
}

/// The cases that a seed draws.
fn drawn(seed: u64, count: u32) -> Vec<Case> {
    let (operator, candidate, device) = (operator(), planted(|_| false), CpuDevice::new());
    let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
    let mut drawn = Vec::new();
    search(&Context::new(&device, seed, MINUTE), &subject, &cases(count), &mut |case| {
        drawn.push(case.clone());
        Ok(Errors::default())
    });
    drawn
}

#[test]
fn one_seed_draws_the_same_cases() {
    assert_eq!(drawn(1, 50), drawn(1, 50));
    assert_ne!(drawn(1, 50), drawn(2, 50));
}

#[test]
fn draws_reach_every_corner_within_the_device() {
    let (cases, operator, capacity) = (drawn(3, 200), operator(), CpuDevice::new().capacity());
    let elements = |case: &Case| crate::check::boundary::elements(&operator, &case.point);
    assert!(cases.iter().all(|case| elements(case) <= capacity.elements));
    assert!(cases.iter().all(|case| case.offset_bytes.is_multiple_of(16) && case.offset_bytes < 256));
    let reached = |what: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| what(case)).count();
    assert!(reached(&|case| case.point[0] == 0) > 0, "no rows");
    assert!(reached(&|case| case.point[0] > 65_535) > 0, "many rows");
    assert!(reached(&|case| [1023, 1024, 1025].contains(&case.point[1])) > 3, "around the tile");
    assert!(reached(&|case| case.point[2] == 1) > 50, "the attribute");
    assert!(reached(&|case| case.offset_bytes > 0) > 50, "offsets");
    assert!(reached(&|case| elements(case) > capacity.elements / 2) < 60, "not all as large as can be");
    for distribution in Distribution::ALL {
        assert!(reached(&|case| case.distribution == distribution) > 5, "{distribution}");
    }
}

/// A device that answers every case with one fault.
struct Broken {
    host: CpuDevice,
    fault: Fault,
    lost: bool,
    elements: usize,
    prepared: std::sync::atomic::AtomicUsize,
}

impl Broken {
    fn new(fault: Fault, lost: bool, elements: usize) -> Self {
        Broken { host: CpuDevice::new(), fault, lost, elements, prepared: std::sync::atomic::AtomicUsize::new(0) }
    }
}

impl Device for Broken {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cuda
    }
    fn fingerprint(&self) -> &Fingerprint {
        self.host.fingerprint()
    }
    fn runs(&self, _: &crate::core::candidate::Body) -> bool {
        true
    }
    fn prepare(&self, _: &Job<'_>) -> Result<Box<dyn Problem + '_>, Fault> {
        self.prepared.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Err(self.fault.clone())
    }
    fn is_lost(&self) -> bool {
        self.lost
    }
    fn capacity(&self) -> Capacity {
        Capacity {
            elements: self.elements,
            flops: 1 << 20,
            threads: usize::MAX,
            timed: false,
            timed_bytes: 0,
            asked_bytes: 0,
        }
    }
}

#[test]
fn nothing_runs_once_the_device_is_lost() {
    let device = Broken::new(Fault::Crash("illegal access".into()), true, 1 << 12);
    let outcome = searched(&planted(|_| false), &device, MINUTE, &cases(64));
    assert_eq!((outcome.verdict, outcome.cases), (Verdict::Fail, 1));
    assert_eq!(outcome.failure.map(|failure| failure.check), Some("crash".into()));
    assert_eq!(device.prepared.into_inner(), 1);
    assert!(outcome.notes.iter().any(|note| note.contains("not shrunk")), "{:?}", outcome.notes);
}

#[test]
fn what_no_case_runs_for_is_skipped_with_the_reason() {
    let device = Broken::new(Fault::Unsupported("needs sm_90".into()), false, 1 << 12);
    let outcome = searched(&planted(|_| false), &device, MINUTE, &cases(8));
    assert_eq!((outcome.verdict, outcome.reason.as_str()), (Verdict::Skip, "needs sm_90"));
    assert!(outcome.notes.contains(&"8 cases not supported here: needs sm_90".into()), "{:?}", outcome.notes);

    let outcome =
        searched(&planted(|_| false), &Broken::new(Fault::Launch(String::new()), false, 1), MINUTE, &cases(8));
    assert_eq!(outcome.verdict, Verdict::Skip);
    assert!(outcome.reason.contains("rows=1,cols=1,negate=false alone has 2 elements"), "{}", outcome.reason);
}

#[rstest]
#[case("256", Ok(256))]
#[case(" 8\n", Ok(8))]
#[case("many", Err("PROPTEST_CASES=many: expected a number"))]
#[case("-1", Err("PROPTEST_CASES=-1"))]
fn the_number_of_cases(#[case] text: &str, #[case] expected: Result<u32, &str>) {
    match (parse_cases(text), expected) {
        (Ok(cases), Ok(expected)) => assert_eq!(cases, expected),
        (Err(message), Err(part)) => assert!(message.starts_with(part), "{message}"),
        (got, expected) => panic!("{got:?} against {expected:?}"),
    }
}

#[test]
fn axes_that_multiply_past_the_address_space_are_drawn() {
    crate::shape! { struct Cube { a: 1..=1 << 40, b: 0..=1 << 40, c: 1..=1 << 40 } }
    let op = Op::<Cube>::new("cube")
        .input("x", |s| [s.a * s.b * s.c])
        .output("y", |s| [s.a])
        .cost(|s, _| Cost { bytes: 0, flops: 2 * s.a * s.b * s.c });
    let candidate = Cpu::new::<f32>(|_: &Cube, _: &Inputs<'_>, _: &mut Outputs<'_>| {}).named("c");
    let subject = Subject { operator: &op as &dyn Operator, candidate: &candidate, dtype: DType::F32 };
    let device = CpuDevice::new();
    let outcome = search(&Context::new(&device, 1, MINUTE), &subject, &cases(500), &mut |case| {
        assert!(case.point.iter().map(|&extent| extent.max(1)).product::<usize>() <= 1 << 19, "{:?}", case.point);
        Ok(Errors::default())
    });
    assert_eq!(outcome.cases, 500);
}
