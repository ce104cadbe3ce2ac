//! A GPU or the simulator: every step a launch of the catalogue's kernel for it, on buffers that stay on the device.

use super::catalogue::Operators;
use super::cpu::{filled, widened};
use super::description::{Buffer, Call, Extents, Kind, Model, Operand, Step, View};
use super::error::Error;
use super::layout::{Layout, Limits, Memory};
use super::session::{Executor, one_by_one};
use super::traced::Traced;
use super::weights::Weights;
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::device::arena::{Arena, BufferId, GraphId, KernelId, Pending, Region};
use crate::device::trace::Layers;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Zeros that are uploaded at a time, bytes.
const MOST_ZEROS: usize = 1 << 24;

/// A step's operator, ready on the device.
struct Ready {
    operator: Arc<dyn Operator>,
    candidate: String,
    id: KernelId,
}

/// How a model is run by launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launches {
    /// One a step.
    EachStep,
    /// Those of [`Model::decode`] and the choice of the next token recorded once, and replayed for every token.
    Recorded,
}

/// Runs a model by launches.
pub struct LaunchedExecutor<'a> {
    model: Arc<Model>,
    limits: Limits,
    dtype: DType,
    arena: Box<dyn Arena + 'a>,
    ready: BTreeMap<&'static str, Ready>,
    layout: Layout,
    places: Vec<BufferId>,
    /// Scratch that all launches share: they run one after the other.
    workspace: Option<(BufferId, usize)>,
    /// Room for the regions of a launch.
    regions: Vec<Region<'static>>,
    launches: Launches,
    /// The launches of a token.
    token: Option<GraphId>,
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
        launches: Launches,
        mut arena: Box<dyn Arena + 'a>,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Self, Error> {
        let operators = Operators::new();
        let arch = arena.arch();
        let mut ready = BTreeMap::new();
        for call in model.every_step().chain(&model.choice).flat_map(Step::calls) {
            if !ready.contains_key(call.operator) {
                let kernel = operators.on_gpu(call.operator, dtype, &arch)?;
                let id = arena.load(&kernel, dtype)?;
                let operator = operators.operator(call.operator)?;
                ready.insert(call.operator, Ready { operator, candidate: kernel.candidate, id });
            }
        }
        let layout = Layout::of(model, &limits, dtype);
        let mut places = Vec::new();
        let (mut done, all) = (0, layout.memory.weights_bytes);
        for (place, &bytes) in layout.bytes.iter().enumerate() {
            let id = arena.allocate(bytes)?;
            places.push(id);
            let buffer = model.buffers.iter().zip(&layout.places).find(|(_, at)| **at == place).map(|(b, _)| b);
            // Tensor by tensor: a stack of them is never as a whole in memory here.
            let mut offset = 0;
            for (name, dims) in buffer.into_iter().flat_map(Buffer::tensors) {
                let tensor = weights.tensor(name, dims, dtype)?;
                arena.upload(id, offset, tensor.as_slice())?;
                offset += tensor.as_slice().len();
                done += tensor.as_slice().len();
                progress(done, all);
            }
            match buffer.map(|buffer| (&buffer.kind, buffer.width)) {
                Some((Kind::Table(value), width)) => {
                    let made = filled(dtype, bytes, |i| value(i / width / limits.batch, i % width));
                    arena.upload(id, 0, made.as_slice())?;
                }
                Some((Kind::Draws(sampler), _)) => {
                    let number = |i: usize| sampler.number(i / limits.batch, i % limits.batch);
                    let made = filled(DType::I32, bytes, |i| f64::from(number(i)));
                    arena.upload(id, 0, made.as_slice())?;
                }
                Some((Kind::Constant { value, .. }, _)) => {
                    arena.upload(id, 0, filled(dtype, bytes, |_| *value).as_slice())?;
                }
                // A step that is given a whole cache may read rows that nothing has written yet.
                Some((Kind::Cache, _)) => {
                    let zeros = vec![0; bytes.min(MOST_ZEROS)];
                    for offset in (0..bytes).step_by(MOST_ZEROS) {
                        arena.upload(id, offset, &zeros[..zeros.len().min(bytes - offset)])?;
                    }
                }
                _ => {}
            }
        }
        arena.finish()?;
        Ok(LaunchedExecutor {
            model: Arc::new(model.clone()),
            limits,
            dtype,
            arena,
            ready,
            layout,
            places,
            workspace: None,
            regions: Vec::new(),
            launches,
            token: None,
        })
    }

    fn region(&self, name: &'static str, operand: Option<Operand>, e: &Extents) -> Region<'static> {
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
        let wanted = self.arena.workspace_bytes(id, &point);
        let workspace = self.workspace_of(wanted)?;
        let mut regions = std::mem::take(&mut self.regions);
        regions.clear();
        let inputs = operator.inputs().iter().zip(&call.inputs);
        regions.extend(inputs.map(|(port, at)| self.region(port.name, *at, e)));
        regions.push(self.region(operator.outputs()[0].name, Some(output), e));
        if let Some(buffer) = workspace {
            regions.push(Region { name: "workspace", buffer, offset_bytes: 0, bytes: wanted, dtype: self.dtype });
        }
        let launched = self.arena.launch(id, &point, &regions);
        self.regions = regions;
        Ok(launched?)
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
        self.launch_steps(e)?;
        let mut logits = vec![0; e.asked() * self.model.vocabulary * self.dtype.size()];
        self.arena.download(self.places[self.layout.places[self.model.logits]], 0, &mut logits)?;
        Ok(widened(self.dtype, &logits))
    }

    fn next_tokens(&mut self, tokens: &[i32], e: &Extents) -> Result<Vec<i32>, Error> {
        let indices = self.model.indices(tokens, e);
        self.write_indices(&indices)?;
        self.launch_steps(e)?;
        self.launch_choice(e)?;
        let read = self.begin_read(e)?;
        let mut next = vec![0; e.batch];
        self.arena.end_read(read, bytemuck::cast_slice_mut(&mut next))?;
        Ok(next)
    }

    fn write(
        &mut self,
        first: &[i32],
        e: &Extents,
        count: usize,
        each: &mut dyn FnMut(&[i32]) -> bool,
    ) -> Result<(), Error> {
        if self.launches == Launches::EachStep || self.model.decode.is_empty() {
            return one_by_one(self, first, e, count, each);
        }
        let indices = self.model.indices(first, e);
        self.write_indices(&indices)?;
        let mut under_way = None;
        let mut tokens = vec![0; e.batch];
        // The next token is begun before this one is read: what it needs is on the device.
        for i in 0..=count {
            let begun = (i < count).then(|| self.begin_token(&Extents { past: e.past + i, ..*e })).transpose()?;
            if let Some(read) = std::mem::replace(&mut under_way, begun) {
                self.arena.end_read(read, bytemuck::cast_slice_mut(&mut tokens))?;
                if !each(&tokens) {
                    break;
                }
            }
        }
        self.arena.finish()?;
        Ok(())
    }
}

impl LaunchedExecutor<'_> {
    /// Enqueues all steps: those of one new token a sequence where the model has such.
    fn launch_steps(&mut self, e: &Extents) -> Result<(), Error> {
        let mut layers = Layers::default();
        let (model, of_run) = (Arc::clone(&self.model), self.model.steps_of(e));
        for (at, step) in model.every_step().enumerate().skip(of_run.start).take(of_run.len()) {
            let call = step.call(&model, e);
            let span = self.traced(e).begin(&mut layers, at, call, &self.ready[call.operator].candidate, false);
            self.step(call, step.output, e)?;
            drop(span);
            self.traced(e).end(at);
        }
        Ok(())
    }

    /// Enqueues the choice of the next tokens, which become those of the next run.
    fn launch_choice(&mut self, e: &Extents) -> Result<(), Error> {
        let model = Arc::clone(&self.model);
        let Some(choice) = &model.choice else {
            return Err(Error::input("the model", "tokens", "none"));
        };
        // As rows of a run of one token each: the first of the buffer, where the next run looks for its own.
        let tokens = Operand { view: View::New, ..choice.output };
        self.step(&choice.usual, tokens, &Extents { queries: 1, ..*e })
    }

    /// Enqueues everything up to the next tokens.
    fn begin_token(&mut self, e: &Extents) -> Result<Pending, Error> {
        for (buffer, place) in self.model.buffers.iter().zip(&self.layout.places) {
            let (position, rows) = match buffer.kind {
                Kind::Positions(offset) => (e.past + offset, e.batch),
                Kind::Past => (e.past, 1),
                Kind::Last => (e.last(), 1),
                _ => continue,
            };
            self.arena.set(self.places[*place], 0, position as i32, rows)?;
        }
        match self.token {
            Some(graph) => self.arena.replay(graph)?,
            None => {
                // Once as launches, so that what is loaded and allocated on the way is there; they write what the
                // recorded ones write again.
                self.launch_token(e)?;
                if let Some(graph) = self.record_token(e)? {
                    self.token = Some(graph);
                }
            }
        }
        self.begin_read(e)
    }

    /// Enqueues the reading of the next tokens.
    fn begin_read(&mut self, e: &Extents) -> Result<Pending, Error> {
        let buffer = self.model.choice.as_ref().map_or(self.model.logits, |choice| choice.output.buffer);
        let tokens = self.places[self.layout.places[buffer]];
        Ok(self.arena.begin_read(tokens, 0, e.batch * DType::I32.size())?)
    }

    fn launch_token(&mut self, e: &Extents) -> Result<(), Error> {
        self.launch_steps(e)?;
        self.launch_choice(e)
    }

    fn record_token(&mut self, e: &Extents) -> Result<Option<GraphId>, Error> {
        if !self.arena.begin_record()? {
            return Ok(None);
        }
        let launched = self.launch_token(e);
        let graph = self.arena.end_record();
        launched?;
        Ok(Some(graph?))
    }
}
