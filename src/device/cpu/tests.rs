//! The host as a device.

use super::*;
use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
use crate::core::operator::Op;

crate::shape! { struct Vector { n: 0..=1024 } }

fn plan(heat: Heat, batch_us: f64) -> TimingPlan {
    let session = Duration::from_secs(1);
    TimingPlan { heat, chained: false, batch_us, instances: 1, planted_us: 0.0, session }
}

fn with_problem<R>(
    f: impl Fn(&Vector, &Inputs<'_>, &mut Outputs<'_>) + Send + Sync + 'static,
    test: impl FnOnce(&mut dyn Problem) -> R,
) -> R {
    let op = Op::<Vector>::new("copy").input("x", |s| [s.n]).output("y", |s| [s.n]);
    let candidate: Candidate = Cpu::new::<f32>(f).named("c");
    let inputs = [Tensor::from_f64(DType::F32, &[3], &[1.0, 2.0, 3.0])];
    let job =
        Job { operator: &op, candidate: &candidate, point: &[3], dtype: DType::F32, inputs: &inputs, offset_bytes: 16 };
    let device = CpuDevice::new();
    let mut problem = device.prepare(&job).unwrap();
    test(problem.as_mut())
}

#[test]
fn a_candidate_runs_and_is_timed() {
    let plan = plan(Heat::Hot, 10.0);
    with_problem(
        |_, x, y| y.slice::<f32>(0).copy_from_slice(x.slice(0)),
        |problem| {
            assert_eq!(problem.run(Poison::Nan).unwrap()[0].to_f64(), [1.0, 2.0, 3.0]);
            assert_eq!(problem.repeat(3), Ok(0));
            assert_eq!(problem.arm(&plan), Ok(1));
            assert!(problem.sample(0).unwrap().launch_us > 0.0);
            assert_eq!(problem.timed_outputs_agree(), Ok(true));
        },
    );
}

#[test]
fn short_batches_rotate_too() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let addresses = std::sync::Arc::clone(&seen);
    let plan = plan(Heat::Cold, 0.0);
    with_problem(
        move |_, x, _| addresses.lock().unwrap().push(x.slice::<f32>(0).as_ptr() as usize),
        |problem| {
            problem.arm(&plan).unwrap();
            seen.lock().unwrap().clear();
            (0..3).for_each(|_| assert!(problem.sample(0).is_ok()));
        },
    );
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    seen.dedup();
    // More, where the scheduler made a pause: the launches before a sample that follows one do not count.
    assert!(seen.len() >= 3, "every batch of one launch ran on the same buffers");
}

#[test]
fn a_hot_launch_finds_its_data_and_no_answer() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let launches = std::sync::Arc::clone(&seen);
    let plan = plan(Heat::Hot, 0.0);
    with_problem(
        move |_, x, y| {
            let (x, y) = (x.slice::<f32>(0), y.slice::<f32>(0));
            launches.lock().unwrap().push((x.as_ptr() as usize, x == y));
            y.copy_from_slice(x);
        },
        |problem| {
            problem.arm(&plan).unwrap();
            seen.lock().unwrap().clear();
            assert!(problem.sample(0).is_ok());
        },
    );
    // What leads in, and the one that is timed.
    let seen = seen.lock().unwrap();
    assert!(seen.len() >= 2 && seen.iter().all(|launch| *launch == (seen[0].0, false)), "{seen:?}");
}

#[test]
fn a_panic_is_a_fault() {
    let fault = with_problem(|_, x, _| assert!(x.slice::<f32>(7).is_empty()), |problem| problem.run(Poison::Nan));
    assert!(matches!(fault, Err(Fault::Panic(_))), "{fault:?}");
}

#[test]
fn state_between_launches_is_seen() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let different = with_problem(
        move |_, _, y| {
            let value = (count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) / 3) as f32;
            y.slice::<f32>(0).fill(value);
        },
        |problem| {
            problem.run(Poison::Nan).unwrap();
            problem.repeat(4)
        },
    );
    assert_eq!(different, Ok(2));
}
