//! A GPU or the simulator: every step a launch of the catalogue's kernel for it, on buffers that stay on the device.

use super::catalogue::Operators;
use super::cpu::{filled, widened};
use super::description::{Call, Extents, Kind, Model, Operand};
use super::error::Error;
use super::layout::{Layout, Limits, Memory};
use super::session::Executor;
use super::traced::Traced;
use super::weights::Weights;
use crate::core::candidate::Body;
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::device::arena::{Arena, BufferId, KernelId, Region};
use crate::device::trace::Layers;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A step's operator, ready on the device.
struct Ready {
    operator: Arc<dyn Operator>,
    /// What says how much scratch a launch needs.
    body: Body,
    id: KernelId,
}

impl Ready {
    fn candidate(&self) -> &str {
        if let Body::Cuda(kernel) = &self.body { &kernel.candidate } else { "" }
    }
}

/// Runs a model by launches, one a step: the `unfused` way.
pub struct LaunchedExecutor<'a> {
    model: Model,
    limits: Limits,
    dtype: DType,
    arena: Box<dyn Arena + 'a>,
    ready: BTreeMap<&'static str, Ready>,
    layout: Layout,
    places: Vec<BufferId>,
    /// Scratch that all launches share: they run one after the other.
    workspace: Option<(BufferId, usize)>,
}

impl<'a> LaunchedExecutor<'a> {
    /// Compiles the kernels and uploads the weights; `progress(done, all)` is told the bytes.
    ///
    /// # Errors
    /// When a weight is missing, a kernel does not compile, or memory does not suffice.
    pub fn new(
        model: &Model,
        weights: &dyn Weights,
        limits: Limits,
        dtype: DType,
        mut arena: Box<dyn Arena + 'a>,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Self, Error> {
        let operators = Operators::new();
        let arch = arena.arch();
        let mut ready = BTreeMap::new();
        for call in model.steps.iter().flat_map(|step| step.few.iter().map(|(_, call)| call).chain([&step.usual])) {
            if !ready.contains_key(call.operator) {
                let kernel = operators.on_gpu(call.operator, dtype, &arch)?;
                let id = arena.load(&kernel, dtype)?;
                let operator = operators.operator(call.operator)?;
                ready.insert(call.operator, Ready { operator, body: Body::Cuda(kernel), id });
            }
        }
        let layout = Layout::of(model, &limits, dtype);
        let mut places = Vec::new();
        let (mut done, all) = (0, layout.memory.weights_bytes);
        for (place, &bytes) in layout.bytes.iter().enumerate() {
            let id = arena.allocate(bytes)?;
            places.push(id);
            let buffer = model.buffers.iter().zip(&layout.places).find(|(_, at)| **at == place).map(|(b, _)| b);
            match buffer.map(|buffer| (&buffer.kind, buffer.width)) {
                Some((Kind::Weight { name, dims }, _)) => {
                    arena.upload(id, 0, weights.tensor(name, dims, dtype)?.as_slice())?;
                    done += bytes;
                    progress(done, all);
                }
                Some((Kind::Table(value), width)) => {
                    let made = filled(dtype, bytes, |i| value(i / width / limits.batch, i % width));
                    arena.upload(id, 0, made.as_slice())?;
                }
                Some((Kind::Constant(_, value), width)) => {
                    arena.upload(id, 0, filled(dtype, bytes, |i| value(i / width, i % width)).as_slice())?;
                }
                _ => {}
            }
        }
        arena.finish()?;
        Ok(LaunchedExecutor { model: model.clone(), limits, dtype, arena, ready, layout, places, workspace: None })
    }

    fn region<'n>(&self, name: &'n str, operand: Option<Operand>, e: &Extents) -> Region<'n> {
        // An input of no element still needs an address.
        let operand_or_logits = operand.map_or(self.model.logits, |operand| operand.buffer);
        let buffer = &self.model.buffers[operand_or_logits];
        let dtype = if buffer.is_index() { DType::I32 } else { self.dtype };
        let (first, rows) = operand.map_or((0, 0), |operand| operand.rows(buffer, e));
        let row_bytes = buffer.width * dtype.size();
        let place = self.places[self.layout.places[operand_or_logits]];
        Region { name, buffer: place, offset_bytes: first * row_bytes, bytes: rows * row_bytes, dtype }
    }

    fn step(&mut self, call: &Call, output: Operand, e: &Extents) -> Result<(), Error> {
        let point = (call.point)(e);
        let ready = &self.ready[call.operator];
        let (operator, id) = (Arc::clone(&ready.operator), ready.id);
        let wanted = ready.body.workspace_bytes(&point);
        let workspace = self.workspace_of(wanted)?;
        let inputs = operator.inputs().iter().zip(&call.inputs);
        let mut regions: Vec<Region<'_>> = inputs.map(|(port, at)| self.region(port.name, *at, e)).collect();
        regions.push(self.region(operator.outputs()[0].name, Some(output), e));
        if let Some(buffer) = workspace {
            regions.push(Region { name: "workspace", buffer, offset_bytes: 0, bytes: wanted, dtype: self.dtype });
        }
        Ok(self.arena.launch(id, &point, &regions)?)
    }

    /// Scratch of at least so many bytes; the one before stays, since a launch may still use it.
    fn workspace_of(&mut self, bytes: usize) -> Result<Option<BufferId>, Error> {
        if bytes == 0 {
            return Ok(None);
        }
        if let Some((buffer, held)) = self.workspace
            && held >= bytes
        {
            return Ok(Some(buffer));
        }
        let buffer = self.arena.allocate(bytes)?;
        self.layout.memory.workspace_bytes += bytes;
        self.workspace = Some((buffer, bytes));
        Ok(Some(buffer))
    }

    fn traced<'m>(&'m self, extents: &'m Extents) -> Traced<'m> {
        Traced { model: &self.model, layout: &self.layout, dtype: self.dtype, extents }
    }

    fn write_indices(&mut self, indices: &[Vec<i32>]) -> Result<(), Error> {
        for (buffer, indices) in self.model.index_buffers().zip(indices) {
            let place = self.places[self.layout.places[buffer]];
            self.arena.upload(place, 0, bytemuck::cast_slice(indices))?;
        }
        Ok(())
    }
}

impl Executor for LaunchedExecutor<'_> {
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
        self.write_indices(indices)?;
        let mut layers = Layers::default();
        for at in 0..self.model.steps.len() {
            let step = self.model.steps[at].clone();
            let call = step.call(&self.model, e);
            let span = self.traced(e).begin(&mut layers, at, call, self.ready[call.operator].candidate(), false);
            self.step(call, step.output, e)?;
            drop(span);
            self.traced(e).end(at);
        }
        drop(layers);
        let mut logits = vec![0; e.asked() * self.model.vocabulary * self.dtype.size()];
        self.arena.download(self.places[self.layout.places[self.model.logits]], 0, &mut logits)?;
        Ok(widened(self.dtype, &logits))
    }
}
