//! Holds candidates of the catalogue against their references, on the CPU device and in the simulator, in unit tests.

use crate::check::boundary::elements;
use crate::check::case::Case;
use crate::check::judge::{Rejection, judge_case, judge_drawn};
use crate::check::outcome::Errors;
use crate::check::{Context, Subject};
use crate::core::candidate::{Candidate, Cpu, Cuda, Declare, IntoCandidate};
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::operator::{Op, Operator};
use crate::core::seed::DEFAULT_SEED;
use crate::core::shape::{Point, Shape};
use crate::core::suite::Suite;
use crate::core::tensor::Tensor;
use crate::device::cpu::CpuDevice;
use crate::device::sim::SimDevice;
use crate::toolchain::committed::FOLDER;
use std::time::Duration;

/// Shapes with more elements, or more operations, take one distribution and one dtype each, in turn: the values that matter fit
/// in the smaller ones.
const SMALL: usize = 1 << 14;
const SHORT: usize = 1 << 19;

/// Fails unless some case tells the candidate from a right one by its values.
pub fn rejects<S: Shape>(operator: Op<S>, wrong: Cpu<S>) {
    let rejection = first_rejection(&operator, &wrong.named("wrong"));
    let Some(Rejection::Failed(failure)) = rejection else { panic!("no case rejects it: {rejection:?}") };
    assert_eq!(failure.check, "values", "{failure:#?}");
}

fn first_rejection(operator: &dyn Operator, candidate: &Candidate) -> Option<Rejection> {
    let device = CpuDevice::new();
    let context = Context::new(&device, DEFAULT_SEED, Duration::from_secs(3600));
    let is_small =
        |point: &Point| elements(operator, point) <= SMALL && operator.cost(point, DType::F32).flops <= SHORT;
    let cases = operator.shapes().iter().enumerate().flat_map(|(i, point)| {
        let all = operator.distributions();
        let few = if is_small(point) { all } else { &all[i % all.len()..][..1] };
        few.iter().map(move |&distribution| (i, Case::new(point.clone(), distribution, DEFAULT_SEED)))
    });
    let cases: Vec<(usize, Case)> = cases.collect();
    let dtypes = &candidate.traits.dtypes;
    dtypes.iter().enumerate().find_map(|(turn, &dtype)| {
        let subject = Subject { operator, candidate, dtype };
        let mine = cases.iter().filter(|(i, case)| is_small(&case.point) || i % dtypes.len() == turn);
        mine.into_iter().find_map(|(_, case)| judge_case(&context, &subject, case).err())
    })
}

/// The simulator, with the committed PTX.
pub fn simulator() -> SimDevice {
    SimDevice::new(Some(format!("{}/{FOLDER}", env!("CARGO_MANIFEST_DIR")).into()))
}

thread_local! {
    /// That of a test, which has a thread of its own: a program is unpacked and read once for all its cases.
    static SIMULATOR: SimDevice = simulator();
}

/// Hands a check one case at this point, of ordinary values, for the candidate in the simulator: in bf16 if it takes that.
pub fn in_simulator<T>(
    operator: &dyn Operator,
    candidate: &Candidate,
    point: Point,
    check: impl FnOnce(&Context<'_>, &Subject<'_>, Case) -> T,
) -> T {
    let dtypes = &candidate.traits.dtypes;
    let dtype = if dtypes.contains(&DType::BF16) { DType::BF16 } else { dtypes[0] };
    let subject = Subject { operator, candidate, dtype };
    SIMULATOR.with(|device| {
        let context = Context::new(device, 1, Duration::from_secs(60));
        check(&context, &subject, Case::new(point, Distribution::Normal, 1))
    })
}

/// What such a case comes to by its values.
pub fn judged_in_simulator(operator: &dyn Operator, candidate: &Candidate, point: Point) -> Result<Errors, Rejection> {
    judged_with(operator, candidate, point, |_| {})
}

/// The same once its inputs were changed.
fn judged_with(
    operator: &dyn Operator,
    candidate: &Candidate,
    point: Point,
    change: impl FnOnce(&mut [Tensor]),
) -> Result<Errors, Rejection> {
    in_simulator(operator, candidate, point, |context, subject, case| {
        let mut inputs = case.inputs(subject);
        change(&mut inputs);
        Ok(judge_drawn(context, subject, &case, &inputs)?.0)
    })
}

/// Holds a kernel to such a case in bf16, whichever launch rule it has.
pub fn is_right_in_bf16<S: Shape>(operator: Op<S>, kernel: Cuda<S>, shape: S) {
    let candidate = kernel.dtypes([DType::BF16]).named("kernel");
    let judged = judged_in_simulator(&operator, &candidate, shape.to_point());
    assert!(judged.is_ok(), "{judged:#?}");
}

/// Holds a candidate of a suite to such a case, by its name.
pub fn is_right_in_the_simulator(suite: &Suite, candidate: &str, point: &[usize], change: impl FnOnce(&mut [Tensor])) {
    let candidate = suite.candidates.iter().find(|of| of.name == candidate).unwrap();
    let judged = judged_with(&*suite.operator, candidate, point.to_vec(), change);
    assert!(judged.is_ok(), "{judged:#?}");
}
