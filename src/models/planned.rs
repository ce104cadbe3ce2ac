//! The steps of a run as cases of the catalogue's operators, in their order: what an executor would run, without one.

use super::catalogue::Operators;
use super::description::{Buffer, Extents, Kind, Model, Operand};
use super::error::Error;
use crate::core::candidate::Candidate;
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::core::shape::Point;
use std::sync::Arc;

/// Who computes the steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// The fastest tiers of the CPU.
    Tiers,
    /// The fastest of the crate's own kernels, for an architecture.
    Own(String),
    /// Libraries where the catalogue has one, else as before.
    Library(String),
}

/// A step of a run.
pub struct PlannedStep {
    /// What is computed.
    pub operator: Arc<dyn Operator>,
    /// By whom.
    pub candidate: Candidate,
    /// At which point.
    pub point: Point,
    /// Compulsory bytes that the step before has left or the next one reads: activations.
    pub passed_bytes: usize,
    /// All compulsory bytes.
    pub bytes: usize,
}

/// The steps of a run over these extents, the choice of the next tokens among them; those of one new token where the model has
/// such.
///
/// # Errors
/// When the catalogue lacks a candidate for a step.
pub fn planned(model: &Model, e: &Extents, dtype: DType, way: &Way) -> Result<Vec<PlannedStep>, Error> {
    let operators = Operators::new();
    let of_run = model.steps_of(e);
    let of_run = model.every_step().skip(of_run.start).take(of_run.len());
    // Where the logits are wanted, nothing chooses by them.
    let choice = model.choice.iter().filter(|_| !e.all_logits);
    let steps = of_run.chain(choice).map(|step| {
        let call = step.call(model, e);
        let operator = operators.operator(call.operator)?;
        let candidate = match way {
            Way::Tiers => operators.candidate_on_cpu(call.operator, dtype)?,
            Way::Own(arch) => operators.candidate_on_gpu(call.operator, dtype, arch)?,
            Way::Library(arch) => operators.candidate_by_library(call.operator, dtype, arch)?,
        };
        let point = (call.point)(e);
        let bytes = operator.cost(&point, dtype).bytes;
        let passed = call.inputs.iter().flatten().chain([&step.output]);
        let passed: usize = passed.map(|operand| passed_bytes(model, operand, e, dtype)).sum();
        Ok(PlannedStep { candidate: candidate.clone(), passed_bytes: passed.min(bytes), bytes, operator, point })
    });
    steps.collect()
}

/// Bytes of an operand that does not outlive the run.
fn passed_bytes(model: &Model, operand: &Operand, e: &Extents, dtype: DType) -> usize {
    let buffer: &Buffer = &model.buffers[operand.buffer];
    let element = if buffer.is_index() { DType::I32 } else { dtype };
    match buffer.kind {
        Kind::Activation | Kind::Logits | Kind::Given | Kind::Tokens | Kind::Positions(_) | Kind::Past | Kind::Last => {
            operand.rows(buffer, e).1 * buffer.width * element.size()
        }
        Kind::Weight { .. }
        | Kind::Stacked(_)
        | Kind::Table(_)
        | Kind::Constant { .. }
        | Kind::Draws(_)
        | Kind::Cache => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::named;

    #[test]
    fn a_fused_token_has_five_launches_a_layer() {
        let model = Model::fused(&named("tinyllama").unwrap(), 1).unwrap();
        let own = Way::Own("sm_90a".into());
        let at = |queries: usize| Extents { batch: 1, queries, past: 512, all_logits: false, capacity: 600 };
        let names = |queries: usize| -> Vec<String> {
            planned(&model, &at(queries), DType::BF16, &own).unwrap().iter().map(|s| s.operator.name().into()).collect()
        };
        let (token, prompt) = (names(1), names(64));
        let layer = ["rmsnorm_qkv_rope", "attention_kvcache", "gemv_add", "rmsnorm_swiglu", "gemv_add"];
        assert!(token.len() == 1 + 22 * 5 + 3 && token[1..6] == layer, "{token:?}");
        assert!(prompt.len() > token.len() && !prompt.iter().any(|name| layer.contains(&name.as_str())));
    }

    fn steps(e: &Extents, way: &Way, dtype: DType) -> Vec<PlannedStep> {
        let model = Model::of(&named("tinyllama").unwrap()).unwrap();
        planned(&model, e, dtype, way).unwrap()
    }

    #[test]
    fn one_token_is_products_of_few_vectors_whose_weights_are_most_of_the_bytes() {
        let e = Extents { batch: 1, queries: 1, past: 512, all_logits: false, capacity: 513 };
        let found = steps(&e, &Way::Own("sm_90a".into()), DType::BF16);
        let count = |name: &str| found.iter().filter(|step| step.operator.name() == name).count();
        assert_eq!((count("gemv"), count("linear"), count("attention_cached")), (22 * 7 + 1, 0, 22));
        let read: usize = found.iter().filter(|step| step.operator.name() == "gemv").map(|step| step.bytes).sum();
        let passed: usize = found.iter().map(|step| step.passed_bytes).sum();
        assert!(read > 2_060_000_000 && passed < read / 500, "{read} {passed}");
    }

    #[test]
    fn a_prompt_is_linear_layers_and_logits_of_its_last_row() {
        let e = Extents { batch: 1, queries: 512, past: 0, all_logits: false, capacity: 512 };
        let found = steps(&e, &Way::Library("sm_90a".into()), DType::BF16);
        let [.., last, choice] = &found[..] else { panic!("{} steps", found.len()) };
        let names = [&found[0], last, choice].map(|step| step.operator.name());
        assert_eq!(names, ["embedding", "gemv", "argmax"]);
        let linear = found.iter().find(|step| step.operator.name() == "linear").unwrap();
        if cfg!(feature = "cuda") {
            assert_eq!(linear.candidate.name, "cublaslt");
        }
        let host = steps(&e, &Way::Tiers, DType::F32);
        assert!(host.len() == found.len() && host.iter().all(|step| step.candidate.body.is_host()));
    }
}
