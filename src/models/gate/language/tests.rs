//! What is wrong with a model is seen by the gate, and what is right is not.

use super::*;
use crate::check::case::Case;
use crate::check::judge::{Rejection, judge_case};
use crate::check::{Context, Subject};
use crate::core::candidate::{Candidate, IntoCandidate};
use crate::core::distribution::Distribution;
use crate::core::launch::Plan;
use crate::core::seed::DEFAULT_SEED;
use crate::core::shape::Shape;
use crate::device::Device;
use crate::device::cpu::CpuDevice;
use crate::device::sim::SimDevice;
use crate::toolchain::committed::FOLDER;
use rstest::rstest;
use std::path::Path;

/// More rows than a product takes as few vectors, so that every launch is one that the logits need.
const WITHOUT_PROMPT: Extent = Extent { batch: 1, past: 0, queries: 9 };

/// One token, which is all that fused kernels compute.
const TOKEN: Extent = Extent { batch: 1, past: 0, queries: 1 };

fn signature_of(architecture: Architecture) -> Arc<Signature<Extent>> {
    Arc::new(signature(kinds(&tiny(architecture)).unwrap()))
}

fn rejection(device: &dyn Device, op: &Op<Extent>, candidate: &Candidate, s: &Extent) -> Option<Rejection> {
    let subject = Subject { operator: op, candidate, dtype: candidate.traits.dtypes[0] };
    let case = Case::new(s.to_point(), Distribution::Normal, DEFAULT_SEED);
    judge_case(&Context::without_deadline(device, DEFAULT_SEED), &subject, &case).err()
}

fn simulator() -> SimDevice {
    SimDevice::new(Some(Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER)))
}

/// The launches of a plan but for one.
fn without(at: usize) -> impl Fn(Plan) -> Plan + Send + Sync + 'static {
    move |mut plan| {
        plan.0.remove(at);
        plan
    }
}

#[rstest]
#[case::llama(Architecture::Llama, WITHOUT_PROMPT, 16)]
#[case::opt(Architecture::Opt, WITHOUT_PROMPT, 15)]
#[case::fused(Architecture::Llama, TOKEN, 8)]
#[case::fused_for_three(Architecture::Llama, Extent { batch: 3, ..TOKEN }, 15)]
#[case::fused_opt(Architecture::Opt, TOKEN, 26)]
fn a_launch_that_is_left_out_is_seen(
    #[case] architecture: Architecture,
    #[case] s: Extent,
    #[case] at_least: usize,
    #[values(DType::F32, DType::BF16)] dtype: DType,
) {
    let (device, operators, signature) = (simulator(), Operators::new(), signature_of(architecture));
    let op = operator("model", &signature, &operators).unwrap();
    let kernel = |operator| operators.on_gpu(operator, dtype, HOPPER).map(Body::Cuda);
    let right = launches::candidate(&signature, &operators, dtype, kernel).unwrap().named("right");
    let rejected = rejection(&device, &op, &right, &s);
    assert!(rejected.is_none(), "{rejected:?}");
    let launches = right.body.launches(&s.to_point());
    assert!(launches.len() >= at_least, "{}", launches.len());
    for (at, launch) in launches.iter().enumerate() {
        let wrong = launches::changed(&signature, &operators, dtype, kernel, without(at)).unwrap().named("wrong");
        assert!(rejection(&device, &op, &wrong, &s).is_some(), "{at}: {launch:?}");
    }
}

#[test]
fn a_prompt_that_is_forgotten_is_seen() {
    let (operators, signature) = (Operators::new(), signature_of(Architecture::Llama));
    let op = operator("model", &signature, &operators).unwrap();
    let forgets = Cpu::new::<f32>(move |s: &Extent, inputs, outputs| {
        let tensors =
            signature.part(&inputs.0, Part::Whole).map(|(given, values)| (given.name, bytes(values))).collect();
        let alone = Extent { past: 0, ..s.clone() };
        let logits = over_the_cache(&signature, &alone, &Tensors(tensors), &inputs.0, DType::F32).unwrap();
        outputs.slice::<f32>(0).copy_from_slice(&logits);
    });
    let forgets = forgets.named("forgets");
    let rejected = |past| rejection(&CpuDevice::new(), &op, &forgets, &Extent { batch: 2, past, queries: 2 });
    assert!(rejected(0).is_none(), "{:?}", rejected(0));
    let is_wrong = matches!(rejected(1), Some(Rejection::Failed(failure)) if failure.check == "values");
    assert!(is_wrong, "{:?}", rejected(1));
}
