//! What is wrong with a workload is seen by the gate, and what is right is not.

use super::*;
use crate::check::case::Case;
use crate::check::judge::{Rejection, judge_case};
use crate::check::{Context, Subject};
use crate::core::candidate::{Candidate, IntoCandidate};
use crate::core::operator::Operator;
use crate::core::seed::DEFAULT_SEED;
use crate::core::shape::Point;
use crate::device::Device;
use crate::device::cpu::CpuDevice;
use crate::device::sim::SimDevice;
use crate::toolchain::committed::FOLDER;
use rstest::rstest;
use std::path::Path;

fn simulator() -> SimDevice {
    SimDevice::new(Some(Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER)))
}

fn rejection(device: &dyn Device, operator: &dyn Operator, candidate: &Candidate, point: &Point) -> Option<Rejection> {
    let subject = Subject { operator, candidate, dtype: candidate.traits.dtypes[0] };
    let case = Case::new(point.clone(), Distribution::Normal, DEFAULT_SEED);
    judge_case(&Context::without_deadline(device, DEFAULT_SEED), &subject, &case).err()
}

const DIGITS: Digits = Digits { batch: 3, side: 8, activation: Activation::Gelu };
const CHAIN: Chain = Chain { rows: 3, inner: 9, cols: 33 };

#[rstest]
#[case(cnn_suite(&Operators::new()).unwrap(), DIGITS.to_point())]
#[case(chain_suite(&Operators::new()).unwrap(), CHAIN.to_point())]
fn every_variant_is_right(#[case] suite: Suite, #[case] point: Point) {
    let (cpu, sim) = (CpuDevice::new(), simulator());
    let mut judged = 0;
    for candidate in &suite.candidates {
        let device: &dyn Device = if candidate.body.is_host() { &cpu } else { &sim };
        match rejection(device, &*suite.operator, candidate, &point) {
            // The plans with steps of a library, in a build that has one.
            Some(Rejection::Unsupported(why)) => assert!(why.contains("a library's"), "{}: {why}", candidate.name),
            rejected => assert!(rejected.is_none(), "{}: {rejected:?}", candidate.name),
        }
        judged += 1;
    }
    assert!(judged > 5, "{judged}");
}

/// Every launch of a plan is needed: without it the result is wrong.
fn each_launch_is_needed<S: Rows>(signature: &Arc<Signature<S>>, shape: &S, launches_at_least: usize) {
    let (device, operators) = (simulator(), Operators::new());
    let op = super::operator("workload", signature, &operators).unwrap();
    let kernel = |name: &'static str| own(&operators, name, DType::F32);
    let right = launches::candidate(signature, &operators, DType::F32, kernel).unwrap().named("right");
    let launches = right.body.launches(&shape.to_point());
    assert!(launches.len() >= launches_at_least, "{}", launches.len());
    for (at, launch) in launches.iter().enumerate() {
        let without = move |mut plan: crate::core::launch::Plan| {
            plan.0.remove(at);
            plan
        };
        let wrong = launches::changed(signature, &operators, DType::F32, kernel, without).unwrap().named("wrong");
        assert!(rejection(&device, &op, &wrong, &shape.to_point()).is_some(), "{at}: {launch:?}");
    }
}

#[test]
fn a_launch_of_the_classifier_that_is_left_out_is_seen() {
    each_launch_is_needed(&digits(true), &DIGITS, 4);
    each_launch_is_needed(&digits(false), &DIGITS, 8);
}

#[test]
fn a_launch_of_the_chain_that_is_left_out_is_seen() {
    each_launch_is_needed(&signature(vec![chain(&CHAIN)], "y", chain), &CHAIN, 3);
}

#[test]
fn an_activation_that_is_another_is_seen() {
    // The very case, but for what follows its convolutions.
    let (operators, signature) = (Operators::new(), digits(true));
    let op = super::operator("cnn", &signature, &operators).unwrap();
    let model = OnHost::new(&signature, &operators, DType::F32, |name| operators.on_cpu(name, DType::F32)).unwrap();
    let wrong = Cpu::new::<f32>(move |s: &Digits, inputs, outputs| {
        model.run(&Digits { activation: Activation::Silu, ..s.clone() }, inputs, outputs);
    });
    let rejected = rejection(&CpuDevice::new(), &op, &wrong.named("wrong"), &DIGITS.to_point());
    assert!(matches!(&rejected, Some(Rejection::Failed(failure)) if failure.check == "values"), "{rejected:?}");
}

#[test]
fn what_must_be_moved_is_what_goes_in_and_what_comes_out() {
    let bytes = |suite: Suite, point: Point| suite.operator.cost(&point, DType::F32).bytes;
    let Chain { rows, inner, cols } = CHAIN;
    let of_chain = rows * inner + inner * cols + 2 * cols + rows * cols;
    assert_eq!(bytes(chain_suite(&Operators::new()).unwrap(), CHAIN.to_point()), 4 * of_chain);
    let of_weights = 32 * 9 + 64 * 9 * 32 + 10 * 4 * 64 + 10;
    assert_eq!(bytes(cnn_suite(&Operators::new()).unwrap(), DIGITS.to_point()), 4 * (3 * 64 + of_weights + 3 * 10));
}
