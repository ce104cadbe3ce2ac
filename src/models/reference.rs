//! The reference: every step by its operator's own, in f64, nothing rounded between.

use super::catalogue::Operators;
use super::description::{Extents, Kind, Model};
use super::error::Error;
use super::layout::{Layout, Limits, Memory};
use super::session::Executor;
use super::weights::{Weights, load};
use crate::core::dtype::DType;
use crate::core::tensor::Tensor;

/// Runs a model in f64.
pub struct ReferenceExecutor {
    model: Model,
    limits: Limits,
    operators: Operators,
    /// The values of every buffer; those of activations are made anew in each run.
    values: Vec<Vec<f64>>,
    memory: Memory,
}

impl ReferenceExecutor {
    /// Loads the weights, each rounded to `dtype` first: what they are in the model that is judged.
    ///
    /// # Errors
    /// When a weight is missing.
    pub fn new(model: &Model, weights: &dyn Weights, limits: Limits, dtype: DType) -> Result<Self, Error> {
        let mut values = Vec::new();
        for buffer in &model.buffers {
            let rows = buffer.rows(limits.batch, limits.capacity, 0, 0);
            if let Some(bytes) = load(weights, buffer, dtype)? {
                values.push(Tensor::from_bytes(dtype, &[rows, buffer.width], bytes.as_slice()).to_f64());
                continue;
            }
            values.push(match &buffer.kind {
                Kind::Table(value) => {
                    (0..rows * buffer.width).map(|i| value(i / buffer.width / limits.batch, i % buffer.width)).collect()
                }
                Kind::Constant { value, .. } => vec![*value; rows * buffer.width],
                Kind::Cache => vec![0.0; rows * buffer.width],
                _ => Vec::new(),
            });
        }
        let memory = Layout::of(model, &limits, dtype).memory;
        Ok(ReferenceExecutor { model: model.clone(), limits, operators: Operators::new(), values, memory })
    }

    /// What the rows hold that a run is given.
    pub fn give(&mut self, rows: &[f64]) {
        for (buffer, values) in self.model.buffers.iter().zip(&mut self.values) {
            if matches!(buffer.kind, Kind::Given) {
                *values = rows.to_vec();
            }
        }
    }

    /// The logits of a run where each buffer of indices holds these.
    ///
    /// # Errors
    /// When the catalogue lacks an operator.
    pub fn logits(&mut self, indices: &[Vec<i32>], e: &Extents) -> Result<&[f64], Error> {
        for (buffer, indices) in self.model.index_buffers().zip(indices) {
            self.values[buffer] = indices.iter().map(|&index| f64::from(index)).collect();
        }
        for (buffer, values) in self.model.buffers.iter().zip(&mut self.values) {
            match buffer.kind {
                Kind::Activation => *values = vec![0.0; e.tokens() * buffer.width],
                Kind::Logits => *values = vec![0.0; e.asked() * buffer.width],
                _ => {}
            }
        }
        for step in &self.model.steps {
            let call = &step.usual;
            let operator = self.operators.operator(call.operator)?;
            let inputs: Vec<&[f64]> = call
                .inputs
                .iter()
                .map(|operand| {
                    operand.map_or(&[][..], |operand| {
                        let buffer = &self.model.buffers[operand.buffer];
                        let (first, rows) = operand.rows(buffer, e);
                        &self.values[operand.buffer][first * buffer.width..][..rows * buffer.width]
                    })
                })
                .collect();
            let buffer = &self.model.buffers[step.output.buffer];
            let (first, rows) = step.output.rows(buffer, e);
            let mut outputs = [vec![0.0; rows * buffer.width]];
            operator.reference(&(call.point)(e), DType::F32, &inputs, &mut outputs);
            self.values[step.output.buffer][first * buffer.width..][..outputs[0].len()].copy_from_slice(&outputs[0]);
        }
        Ok(&self.values[self.model.logits])
    }
}

impl Executor for ReferenceExecutor {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn model(&self) -> &Model {
        &self.model
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn run_on(&mut self, indices: &[Vec<i32>], e: &Extents) -> Result<Vec<f32>, Error> {
        Ok(self.logits(indices, e)?.iter().map(|&logit| logit as f32).collect())
    }
}
