//! What operators and candidates can say of themselves, from the declaration to the verdict, on the CPU.

use super::outcome::{Outcome, Verdict};
use super::property::{SHRINKING, Settings};
use super::*;
use crate::core::candidate::{Cpu, Declare, IntoCandidate};
use crate::core::narrow::{b8, e4m3};
use crate::core::operator::Op;
use crate::core::shape::Shape;
use crate::core::tensor::{Inputs, Outputs};
use crate::core::{dtype::Element, suite::Suite};
use crate::device::cpu::CpuDevice;
use rstest::rstest;
use std::sync::{Arc, Mutex};

crate::shape! { struct Vector { n: 0..=1 << 16 } }
crate::shape! { struct Heads { heads: 1..=64, kv_heads: 1..=8, n: 1..=300 } }
crate::shape! { struct Rows { rows: 1..=40, cols: 1..=70 } }

fn correctness<S: Shape>(op: &Op<S>, candidate: impl IntoCandidate<S>, dtype: DType) -> Outcome {
    let (device, candidate) = (CpuDevice::new(), candidate.named("c"));
    let context = Context::without_deadline(&device, 3);
    correctness::run(&context, &Subject { operator: op, candidate: &candidate, dtype })
}

fn property<S: Shape>(op: &Op<S>, candidate: impl IntoCandidate<S>, dtype: DType) -> Outcome {
    let (device, candidate) = (CpuDevice::new(), candidate.named("c"));
    let context = Context::without_deadline(&device, 3);
    let settings = Settings { cases: 64, regressions: None, shrinking: SHRINKING };
    property::run(&context, &Subject { operator: op, candidate: &candidate, dtype }, &settings)
}

fn accumulate() -> Op<Vector> {
    Op::<Vector>::new("accumulate")
        .input("x", |s| [s.n])
        .in_place("sum", |s| [s.n])
        .magnitude(|_, x, size| size[0].iter_mut().enumerate().for_each(|(i, m)| *m = x[0][i].abs() + x[1][i].abs()))
        .reference(|_, x, y| y[0].iter_mut().enumerate().for_each(|(i, y)| *y = x[0][i] + x[1][i]))
}

#[rstest]
#[case::right(|x: f32, sum: f32| x + sum, None)]
#[case::forgets_what_was_there(|x: f32, _| x, Some("values"))]
#[case::leaves_it(|_, sum: f32| sum, Some("values"))]
fn a_tensor_is_changed_in_place(#[case] f: fn(f32, f32) -> f32, #[case] check: Option<&str>) {
    let candidate = Cpu::new::<f32>(move |_, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        y.slice::<f32>(0).iter_mut().zip(x.slice::<f32>(0)).for_each(|(y, &x)| *y = f(x, *y));
    });
    let outcome = correctness(&accumulate(), candidate, DType::F32);
    assert_eq!(outcome.failure.map(|failure| failure.check), check.map(Into::into), "{}", outcome.reason);
}

#[test]
fn what_is_changed_in_place_is_timed_on_inputs_as_they_should_be() {
    let candidate = Cpu::new::<f32>(|_: &Vector, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        y.slice::<f32>(0).iter_mut().zip(x.slice::<f32>(0)).for_each(|(y, &x)| *y += x);
    });
    let op = accumulate().cost(|s, t| crate::core::cost::Cost { bytes: 3 * s.n * t.size(), flops: s.n });
    let (device, candidate) = (CpuDevice::new(), candidate.named("c"));
    let subject = Subject { operator: &op, candidate: &candidate, dtype: DType::F32 };
    for heat in [crate::device::Heat::Cold, crate::device::Heat::Hot] {
        let mut settings = perf::PerfSettings { heat, only: vec![vec![4099]], ..perf::PerfSettings::of(device.kind()) };
        settings.session.stopping.budget = Duration::from_millis(100);
        let outcome = perf::run(&Context::new(&device, 1, Duration::from_secs(20)), &subject, &settings);
        assert!(
            matches!(outcome.verdict, Verdict::Pass | Verdict::Unclear),
            "{}: {:?}",
            outcome.reason,
            outcome.timings
        );
    }
}

/// Notes the shapes that it is given.
fn noting(seen: &Arc<Mutex<Vec<Heads>>>) -> Cpu<Heads> {
    let seen = Arc::clone(seen);
    Cpu::new::<f32>(move |s: &Heads, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        seen.lock().unwrap().push(s.clone());
        y.slice::<f32>(0).copy_from_slice(x.slice(0));
    })
}

fn grouped() -> Op<Heads> {
    Op::<Heads>::new("grouped")
        .input("x", |s| [s.heads, s.n])
        .output("y", |s| [s.heads, s.n])
        .reference(|_, x, y| y[0].copy_from_slice(x[0]))
        .constraint("heads % kv_heads == 0", |s| Heads { heads: s.heads.next_multiple_of(s.kv_heads), ..s })
}

#[rstest]
fn every_shape_is_legal(
    #[values(correctness::<Heads>, property::<Heads>)] run: fn(&Op<Heads>, Cpu<Heads>, DType) -> Outcome,
) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let outcome = run(&grouped(), noting(&seen).extents("n", 8..=100).multiples("n", 4), DType::F32);
    assert_eq!(outcome.verdict, Verdict::Pass, "{}", outcome.reason);
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|s| s.heads % s.kv_heads == 0 && (8..=100).contains(&s.n) && s.n % 4 == 0));
    assert!(seen.iter().any(|s| s.heads > s.kv_heads && s.kv_heads > 1), "grouped heads are among them");
    assert!(outcome.notes.iter().any(|note| note.contains("`n` from 8 to 100")), "{:?}", outcome.notes);
}

#[test]
fn shrinking_stays_legal() {
    let candidate = Cpu::new::<f32>(|s: &Heads, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        y.slice::<f32>(0).copy_from_slice(x.slice(0));
        if s.heads >= 6 && s.kv_heads >= 3 {
            y.slice::<f32>(0)[0] += 1.0;
        }
    });
    let failure = property(&grouped(), candidate, DType::F32).failure.expect("it is wrong");
    assert_eq!(failure.case.shape, "heads=6,kv_heads=3,n=1");
}

#[test]
fn a_listed_shape_that_is_not_legal_is_a_mistake() {
    let op = grouped().shapes([Heads { heads: 7, kv_heads: 2, n: 3 }]);
    let suite: Suite = Suite::of(op).candidate("c", noting(&Arc::default()).extents("m", 1..=2)).into();
    let mistakes = declaration::mistakes(&[suite]);
    let said = |part: &str| mistakes.iter().any(|mistake| mistake.contains(part));
    assert!(said("heads=7,kv_heads=2,n=3 is listed, but the operator demands `heads % kv_heads == 0`"), "{mistakes:?}");
    assert!(said("no such axis; the axes are heads, kv_heads, n"), "{mistakes:?}");
}

/// Doubles each row up to its length; says nothing of what is behind.
fn ragged() -> Op<Rows> {
    Op::<Rows>::new("ragged")
        .input("x", |s| [s.rows, s.cols])
        .index("lengths", |s| [s.rows], |s| s.cols + 1)
        .output("y", |s| [s.rows, s.cols])
        .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = 2.0 * x))
        .unspecified(|s, x, free| {
            free[0].chunks_mut(s.cols).zip(x[1]).for_each(|(row, &length)| row[length as usize..].fill(true));
        })
}

#[rstest]
#[case::nothing_behind(0, None)]
#[case::one_element_less(1, Some("poison"))]
fn what_is_unspecified_may_hold_anything_and_the_rest_may_not(#[case] less: i32, #[case] check: Option<&str>) {
    let candidate = Cpu::new::<f32>(move |s: &Rows, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        let rows = y.slice::<f32>(0).chunks_mut(s.cols).zip(x.slice::<f32>(0).chunks(s.cols));
        for ((y, x), &length) in rows.zip(x.slice::<i32>(1)) {
            let length = (length - less).max(0) as usize;
            y[..length].iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
        }
    });
    let outcome = correctness(&ragged(), candidate, DType::F32);
    assert_eq!(outcome.failure.map(|failure| failure.check), check.map(Into::into), "{}", outcome.reason);
}

#[rstest]
#[case::padding(|table: &[f32], id: i32| if id < 0 { 0.0 } else { table[id as usize] }, None)]
#[case::clamped(|table: &[f32], id: i32| table[id.max(0) as usize], Some("values"))]
fn an_index_may_stand_for_padding(#[case] look_up: fn(&[f32], i32) -> f32, #[case] check: Option<&str>) {
    let op = Op::<Rows>::new("padded")
        .input("table", |s| [s.rows])
        .index("ids", |s| [s.cols], |s| s.rows)
        .further_indices(|_| [-1])
        .output("y", |s| [s.cols])
        .reference(|_, x, y| {
            for (y, &id) in y[0].iter_mut().zip(x[1]) {
                *y = if id < 0.0 { 0.0 } else { x[0][id as usize] };
            }
        });
    let candidate = Cpu::new::<f32>(move |_, x: &Inputs<'_>, y: &mut Outputs<'_>| {
        y.slice::<f32>(0).iter_mut().zip(x.slice::<i32>(1)).for_each(|(y, &id)| *y = look_up(x.slice(0), id));
    });
    let outcome = correctness(&op, candidate, DType::F32);
    assert_eq!(outcome.failure.map(|failure| failure.check), check.map(Into::into), "{}", outcome.reason);
}

/// Rounds an f32 to the dtype of the case after scaling: what is defined depends on the dtype.
fn quantised<T: Element>(most: f64) -> (Op<Vector>, Cpu<Vector>) {
    let op = Op::<Vector>::new("quantised")
        .input("x", |s| [s.n])
        .in_dtype(DType::F32)
        .output("q", |s| [s.n])
        .range(1e6)
        .distributions([Distribution::Normal, Distribution::Uniform, Distribution::LargeMean])
        .reference_in(|_, dtype, x, y| {
            let most = dtype.max_finite();
            y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = (x * most / 4.0).clamp(-most, most).round_ties_even());
        });
    let candidate = Cpu::new::<T>(move |_, x: &Inputs<'_>, q: &mut Outputs<'_>| {
        for (q, &x) in q.slice::<T>(0).iter_mut().zip(x.slice::<f32>(0)) {
            *q = T::from_f64((f64::from(x) * most / 4.0).clamp(-most, most).round_ties_even());
        }
    });
    (op, candidate)
}

#[test]
fn a_reference_may_see_the_dtype() {
    let (op, candidate) = quantised::<i8>(127.0);
    let outcome = correctness(&op, candidate, DType::I8);
    assert_eq!(outcome.verdict, Verdict::Pass, "{}", outcome.reason);
    let (op, wrong) = quantised::<i8>(126.0);
    assert_eq!(correctness(&op, wrong, DType::I8).verdict, Verdict::Fail);
}

/// The right copy of a type, and one that is wrong in its last place.
fn copies<T: Element>() -> [Cpu<Vector>; 2] {
    let off = |x: T| {
        let (value, dtype) = (x.to_f64(), T::DTYPE);
        let next = if value + dtype.ulp(value) > dtype.max_finite() { -dtype.ulp(value) } else { dtype.ulp(value) };
        T::from_f64(value + 2.0 * next.min(0.5).max(next))
    };
    let copy = |change: Box<dyn Fn(T) -> T + Send + Sync>| {
        Cpu::new::<T>(move |_, x: &Inputs<'_>, y: &mut Outputs<'_>| {
            y.slice::<T>(0).iter_mut().zip(x.slice::<T>(0)).for_each(|(y, &x)| *y = change(x));
        })
    };
    [copy(Box::new(|x| x)), copy(Box::new(off))]
}

#[rstest]
#[case(DType::E4M3, copies::<e4m3>())]
#[case(DType::E5M2, copies::<crate::core::narrow::e5m2>())]
#[case(DType::U8, copies::<u8>())]
#[case(DType::I8, copies::<i8>())]
#[case(DType::I64, copies::<i64>())]
#[case(DType::Bool, copies::<b8>())]
fn every_dtype_is_judged(#[case] dtype: DType, #[case] copies: [Cpu<Vector>; 2]) {
    let [right, wrong] = copies;
    let op = Op::<Vector>::new("identity")
        .input("x", |s| [s.n])
        .output("y", |s| [s.n])
        .reference(|_, x, y| y[0].copy_from_slice(x[0]));
    for (run, candidate) in [(correctness as fn(_, _, _) -> _, right.clone()), (property, right)] {
        let outcome: Outcome = run(&op, candidate, dtype);
        assert_eq!(outcome.verdict, Verdict::Pass, "{dtype}: {}", outcome.reason);
    }
    let outcome = correctness(&op, wrong, dtype);
    assert_eq!(outcome.failure.map(|failure| failure.check).as_deref(), Some("values"), "{dtype}: {}", outcome.reason);
}

#[test]
fn an_alignment_may_be_that_of_a_dtype() {
    let op = grouped();
    let candidate = noting(&Arc::default()).alignment(16).alignment_in(DType::F32, 64).named("c");
    let step = |dtype| Subject { operator: &op, candidate: &candidate, dtype }.offset_step();
    assert_eq!((step(DType::F32), step(DType::F16)), (64, 16));
}

#[test]
fn terms_that_are_all_equal_may_all_be_rounded_to_one_side() {
    let op = Op::<Vector>::new("sum").input("x", |s| [s.n]).output("y", |_| [1]).depth(|s| s.n);
    let candidate = Cpu::new::<f32>(|_: &Vector, _: &Inputs<'_>, _: &mut Outputs<'_>| ()).named("c");
    let subject = Subject { operator: &op, candidate: &candidate, dtype: DType::F32 };
    let roundings = |distribution| {
        let case = case::Case::new(vec![1 << 16], distribution, 1);
        judge::judge_in(&subject, &case, 0).allowed(1.0, 1.0) * f64::from(1 << 24)
    };
    // A quarter of all, and otherwise four times their square root.
    let [of_equal, of_others] = [Distribution::ConstantRows, Distribution::Normal].map(roundings);
    assert!(
        (16_384.0..17_000.0).contains(&of_equal) && (1024.0..1100.0).contains(&of_others),
        "{of_equal}, {of_others}"
    );
}
