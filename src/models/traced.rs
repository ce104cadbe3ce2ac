//! What executors tell a recording of their steps: the layer, the work, the activations that are alive.

use super::description::{Call, Extents, Kind, Model, Operand};
use super::layout::Layout;
use crate::core::dtype::DType;
use crate::device::trace::{self, Layers, Span, Work};

/// A run of a model over its buffers.
#[derive(Clone, Copy)]
pub struct Traced<'m> {
    /// The steps.
    pub model: &'m Model,
    /// Where the buffers are.
    pub layout: &'m Layout,
    /// The dtype of what is no index.
    pub dtype: DType,
    /// What the run is over.
    pub extents: &'m Extents,
}

impl Traced<'_> {
    /// Begins step `at`, which runs `call` by this candidate.
    pub fn begin(&self, layers: &mut Layers, at: usize, call: &Call, candidate: &str, on_host: bool) -> Span {
        let Some(step) = self.model.every_step().nth(at) else { unreachable!("a step of the model") };
        layers.at(&step.layer);
        if trace::is_on() && self.is_activation(step.output) {
            trace::held(&self.model.buffers[step.output.buffer].name, self.bytes(step.output));
        }
        trace::step(on_host, || self.work(call, step.output, candidate))
    }

    /// What was last read by step `at` is alive no longer.
    pub fn end(&self, at: usize) {
        // To find who made a buffer takes a walk through the steps.
        if !trace::is_on() {
            return;
        }
        for &buffer in &self.layout.done[at] {
            let made = self.model.every_step().take(at + 1).filter(|step| step.output.buffer == buffer);
            if let Some(step) = made.last() {
                trace::freed(&self.model.buffers[buffer].name, self.bytes(step.output));
            }
        }
    }

    fn work(&self, call: &Call, output: Operand, candidate: &str) -> Work {
        let operands = call.inputs.iter().flatten().chain([&output]);
        let (mut all, mut kept) = (0, 0);
        for &operand in operands {
            let bytes = self.bytes(operand);
            all += bytes;
            kept += if self.is_kept(operand) { bytes } else { 0 };
        }
        // Weights and cache come round once a run, behind everything else that a run reads; activations were just written.
        let reuse_bytes = Some(if 2 * kept > all { self.layout.memory.total_bytes() } else { all });
        let point = (call.point)(self.extents);
        Work {
            operator: call.operator.into(),
            candidate: candidate.into(),
            point,
            dtype: self.dtype,
            reuse_bytes,
            launches: 1,
        }
    }

    fn is_activation(&self, operand: Operand) -> bool {
        matches!(self.model.buffers[operand.buffer].kind, Kind::Activation | Kind::Logits)
    }

    fn is_kept(&self, operand: Operand) -> bool {
        matches!(
            self.model.buffers[operand.buffer].kind,
            Kind::Weight { .. } | Kind::Stacked(_) | Kind::Cache | Kind::Table(_) | Kind::Constant { .. }
        )
    }

    fn bytes(&self, operand: Operand) -> usize {
        let buffer = &self.model.buffers[operand.buffer];
        let element = if buffer.is_index() { DType::I32.size() } else { self.dtype.size() };
        operand.rows(buffer, self.extents).1 * buffer.width * element
    }
}
