//! The CPU: every step by the fastest tier of its operator, in one place of memory a buffer.

use super::awake::awake;
use super::catalogue::Operators;
use super::description::{Call, Extents, Kind, Model, Operand};
use super::error::Error;
use super::layout::{Layout, Limits, Memory};
use super::session::Executor;
use super::traced::Traced;
use super::weights::{Bytes, Weights, load};
use crate::core::candidate::CpuBody;
use crate::core::dtype::{DType, Element};
use crate::core::tensor::{Inputs, Outputs, Tensor};
use crate::device::trace::Layers;
use std::collections::BTreeMap;

/// Runs a model on the CPU.
pub struct CpuExecutor {
    model: Model,
    limits: Limits,
    dtype: DType,
    bodies: BTreeMap<&'static str, CpuBody>,
    layout: Layout,
    places: Vec<Bytes>,
}

impl CpuExecutor {
    /// Loads the weights.
    ///
    /// # Errors
    /// When a weight is missing, or no CPU tier computes a step in `dtype`.
    pub fn new(model: &Model, weights: &dyn Weights, limits: Limits, dtype: DType) -> Result<Self, Error> {
        let operators = Operators::new();
        Self::with(model, weights, limits, dtype, |operator| operators.on_cpu(operator, dtype))
    }

    /// The same by the loops that are there to be read.
    ///
    /// # Errors
    /// As [`CpuExecutor::new`].
    pub fn naive(model: &Model, weights: &dyn Weights, limits: Limits, dtype: DType) -> Result<Self, Error> {
        let operators = Operators::new();
        Self::with(model, weights, limits, dtype, |operator| {
            let naive = operators.named_on_cpu(operator, dtype, "naive")?;
            naive.map_or_else(|| operators.on_cpu(operator, dtype), Ok)
        })
    }

    fn with(
        model: &Model,
        weights: &dyn Weights,
        limits: Limits,
        dtype: DType,
        choose: impl Fn(&'static str) -> Result<CpuBody, Error>,
    ) -> Result<Self, Error> {
        let calls = || model.steps.iter().flat_map(|step| step.few.iter().map(|(_, call)| call).chain([&step.usual]));
        let bodies = calls().map(|call| Ok((call.operator, choose(call.operator)?)));
        let bodies = bodies.collect::<Result<_, Error>>()?;
        let layout = Layout::of(model, &limits, dtype);
        let mut places: Vec<Bytes> = Vec::new();
        for (place, &bytes) in layout.bytes.iter().enumerate() {
            let buffer = model.buffers.iter().zip(&layout.places).find(|(_, at)| **at == place).map(|(b, _)| b);
            let loaded = buffer.map(|buffer| load(weights, buffer, dtype)).transpose()?.flatten();
            places.push(match (loaded, buffer.map(|buffer| (&buffer.kind, buffer.width))) {
                (Some(weight), _) => weight,
                (_, Some((Kind::Table(value), width))) => {
                    filled(dtype, bytes, |i| value(i / width / limits.batch, i % width))
                }
                (_, Some((Kind::Constant { value, .. }, _))) => filled(dtype, bytes, |_| *value),
                _ => Bytes::zeros(bytes),
            });
        }
        Ok(CpuExecutor { model: model.clone(), limits, dtype, bodies, layout, places })
    }

    /// The bytes that an operand is.
    fn range(&self, operand: Operand, e: &Extents) -> (usize, std::ops::Range<usize>) {
        let buffer = &self.model.buffers[operand.buffer];
        let row_bytes = buffer.width * if buffer.is_index() { DType::I32.size() } else { self.dtype.size() };
        let (first, rows) = operand.rows(buffer, e);
        (self.layout.places[operand.buffer], first * row_bytes..(first + rows) * row_bytes)
    }

    fn step(&mut self, call: &Call, output: Operand, e: &Extents) {
        let (place, range) = self.range(output, e);
        // No input of a step shares its output's place, so that it can be taken out meanwhile.
        let mut taken = std::mem::replace(&mut self.places[place], Bytes::zeros(0));
        let input = |operand: &Option<Operand>| {
            operand.map_or(&[][..], |operand| {
                let (place, range) = self.range(operand, e);
                &self.places[place].as_slice()[range]
            })
        };
        let inputs = Inputs(call.inputs.iter().map(input).collect());
        let mut outputs = Outputs(vec![&mut taken.as_mut()[range]]);
        self.bodies[call.operator].call(self.dtype, &(call.point)(e), &inputs, &mut outputs);
        self.places[place] = taken;
    }

    fn traced<'m>(&'m self, extents: &'m Extents) -> Traced<'m> {
        Traced { model: &self.model, layout: &self.layout, dtype: self.dtype, extents }
    }

    fn write_indices(&mut self, indices: &[Vec<i32>]) {
        for (buffer, indices) in self.model.index_buffers().zip(indices) {
            let place = self.places[self.layout.places[buffer]].as_mut();
            place[..size_of_val(&indices[..])].copy_from_slice(bytemuck::cast_slice(indices));
        }
    }
}

/// Elements `value(i)` in `dtype`.
pub(super) fn filled(dtype: DType, bytes: usize, value: impl Fn(usize) -> f64) -> Bytes {
    let values: Vec<f64> = (0..bytes / dtype.size()).map(value).collect();
    let tensor = Tensor::from_f64(dtype, &[values.len()], &values);
    let mut made = Bytes::zeros(bytes);
    made.as_mut().copy_from_slice(tensor.bytes());
    made
}

/// Elements of `dtype` as f32.
pub(super) fn widened(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    fn all<T: Element>(bytes: &[u8]) -> Vec<f32> {
        bytemuck::cast_slice::<u8, T>(bytes).iter().map(|x| x.to_f64() as f32).collect()
    }
    match dtype {
        DType::F16 => all::<half::f16>(bytes),
        DType::BF16 => all::<half::bf16>(bytes),
        _ => all::<f32>(bytes),
    }
}

impl Executor for CpuExecutor {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn model(&self) -> &Model {
        &self.model
    }

    fn memory(&self) -> Memory {
        self.layout.memory
    }

    fn run_on(&mut self, indices: &[Vec<i32>], e: &Extents) -> Result<Vec<f32>, Error> {
        awake(None, || self.run_steps(indices, e));
        let bytes = e.asked() * self.model.vocabulary * self.dtype.size();
        Ok(widened(self.dtype, &self.places[self.layout.places[self.model.logits]].as_slice()[..bytes]))
    }
}

impl CpuExecutor {
    fn run_steps(&mut self, indices: &[Vec<i32>], e: &Extents) {
        self.write_indices(indices);
        let mut layers = Layers::default();
        for at in 0..self.model.steps.len() {
            let step = self.model.steps[at].clone();
            let call = step.call(&self.model, e);
            let candidate = self.bodies[call.operator].name();
            let span = self.traced(e).begin(&mut layers, at, call, candidate, true);
            self.step(call, step.output, e);
            drop(span);
            self.traced(e).end(at);
        }
    }
}
