//! A model as one candidate: the kernels of its steps, launched one after the other on inputs and workspace.

use super::signature::{Part, Signature};
use crate::core::candidate::{Body, Cuda, Declare, Program};
use crate::core::dtype::DType;
use crate::core::launch::{Argument, Launch, Library, Plan};
use crate::core::operator::Operator;
use crate::core::shape::Shape;
use crate::core::tensor_map::TensorMap;
use crate::models::catalogue::Operators;
use crate::models::description::{Call, Extents, Kind, Model, Operand, Step};
use crate::models::error::Error;
use crate::models::layout::Layout;
use crate::ops::softmax::Matrix;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where places in the workspace begin.
const ALIGNMENT: usize = 256;
const THREADS: usize = 256;
const WORKSPACE: &str = "workspace";
/// What makes ones of zeros: rows of one element each, which is all of its row.
const ONES: &str = "softmax";

/// The candidate in one dtype, each operator by the kernel or the library that `choose` finds.
///
/// # Errors
/// When there is neither for a step.
pub fn candidate<S: Shape>(
    signature: &Arc<Signature<S>>,
    operators: &Operators,
    dtype: DType,
    choose: impl Fn(&'static str) -> Result<Body, Error>,
) -> Result<Cuda<S>, Error> {
    changed(signature, operators, dtype, choose, |plan| plan)
}

/// The same with a plan that is changed: a defect to be found.
pub(super) fn changed<S: Shape>(
    signature: &Arc<Signature<S>>,
    operators: &Operators,
    dtype: DType,
    choose: impl Fn(&'static str) -> Result<Body, Error>,
    change: impl Fn(Plan) -> Plan + Send + Sync + 'static,
) -> Result<Cuda<S>, Error> {
    let mut kernels = BTreeMap::new();
    let mut used = signature.operators(operators)?;
    if signature.kinds.iter().any(reads_ones) {
        used.insert(ONES, operators.operator(ONES)?);
    }
    for (name, operator) in used {
        let body = choose(name)?;
        let program = match &body {
            Body::Cuda(kernel) => Some(Arc::new(Program::clone(&kernel.program))),
            _ => None,
        };
        kernels.insert(name, Computes { operator, body, program });
    }
    let model = Arc::new(Launched { signature: Arc::clone(signature), kernels, dtype });
    let of_workspace = Arc::clone(&model);
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/models/fill.cu"));
    let cuda = Cuda::source(text, "zero", move |s: &S| change(model.plan(s))).file("kernels/models/fill.cu");
    Ok(cuda.workspace(move |s| Placed::of(&of_workspace, s).bytes()).dtypes([dtype]))
}

/// Whether it is a constant of ones: all that there is besides zeros.
fn is_ones(kind: &Kind) -> bool {
    let Kind::Constant { value, .. } = kind else { return false };
    assert!([0.0, 1.0].contains(value), "{value}: the gate makes zeros and ones");
    *value == 1.0
}

/// Whether its steps may read ones.
fn reads_ones(model: &Model) -> bool {
    model.every_step().flat_map(Step::reads).any(|operand| is_ones(&model.buffers[operand.buffer].kind))
}

/// Writes `n` zeros to a place in the workspace.
fn zeros(offset: usize, n: usize) -> Launch {
    let launch = Launch::blocks(n.div_ceil(THREADS), THREADS).without_pointers();
    launch.pointer_at(WORKSPACE, offset).scalar(n as i64)
}

/// The steps of a run.
fn steps<'m>(model: &'m Model, e: &Extents) -> impl Iterator<Item = &'m Step> + use<'m> {
    let of_run = model.steps_of(e);
    model.every_step().enumerate().filter(move |(at, _)| of_run.contains(at)).map(|(_, step)| step)
}

/// The kernel of an operator.
struct Computes {
    operator: Arc<dyn Operator>,
    body: Body,
    /// Of a kernel.
    program: Option<Arc<Program>>,
}

impl Computes {
    /// What a library enqueues on these buffers, those of the operator's ports in their order.
    fn call(&self, point: &[usize], buffers: &[(&str, (&'static str, usize))]) -> Launch {
        let Body::Enqueue(body) = &self.body else { unreachable!("a library of the catalogue") };
        let place = |&(_, (buffer, offset)): &(&str, (&'static str, usize))| (buffer.to_owned(), offset);
        let (inputs, rest) = buffers.split_at(self.operator.inputs().len());
        let (outputs, workspace) = rest.split_at(self.operator.outputs().len());
        Launch::library(Library {
            body: body.clone(),
            point: point.to_vec(),
            inputs: inputs.iter().map(place).collect(),
            outputs: outputs.iter().map(place).collect(),
            workspace: workspace.first().map(place),
        })
    }
}

/// A model with the kernels of its operators.
struct Launched<S> {
    signature: Arc<Signature<S>>,
    kernels: BTreeMap<&'static str, Computes>,
    dtype: DType,
}

/// Where the buffers of a case are.
struct Placed {
    model: Model,
    layout: Layout,
    /// Of each place, in the workspace.
    offsets: Vec<usize>,
    /// Where the scratch of kernels begins, and how long it is.
    scratch: usize,
    scratch_bytes: usize,
}

impl Placed {
    fn of<S: Shape>(launched: &Launched<S>, s: &S) -> Placed {
        let signature = &launched.signature;
        let model = signature.at(s);
        let layout = Layout::of(&model, &(signature.limits)(s), launched.dtype);
        let mut scratch = 0;
        let offsets = layout.bytes.iter().enumerate().map(|(place, &bytes)| {
            let offset = scratch;
            let is_input = signature.inputs.iter().any(|given| layout.places[given.buffer] == place);
            scratch += if is_input { 0 } else { bytes.next_multiple_of(ALIGNMENT) };
            offset
        });
        let offsets = offsets.collect();
        let runs = (signature.runs)(s);
        let wanted = runs.iter().flat_map(|(e, _)| {
            let calls = steps(&model, e).map(|step| step.call(&model, e));
            let wanted = calls.map(|call| launched.kernels[call.operator].body.workspace_bytes(&(call.point)(e)));
            wanted.collect::<Vec<_>>()
        });
        // Ones are made of zeros that stand there.
        let of_ones = model.buffers.iter().zip(&layout.places).filter(|(buffer, _)| is_ones(&buffer.kind));
        let scratch_bytes = wanted.chain(of_ones.map(|(_, &place)| layout.bytes[place])).max().unwrap_or(0);
        Placed { offsets, scratch, scratch_bytes, layout, model }
    }

    fn bytes(&self) -> usize {
        self.scratch + self.scratch_bytes
    }
}

impl<S: Shape> Launched<S> {
    fn plan(&self, s: &S) -> Plan {
        let placed = Placed::of(self, s);
        let runs = (self.signature.runs)(s);
        let mut launches = self.constants(&placed, &runs);
        for (e, part) in runs {
            launches.extend(self.position(&placed, &e));
            for step in steps(&placed.model, &e) {
                launches.extend(self.step(&placed, step.call(&placed.model, &e), step.output, &e, part));
            }
        }
        launches.into()
    }

    /// Writes the constants that the runs read, and zeros to a cache of which a step is given more than is written by then.
    fn constants(&self, placed: &Placed, runs: &[(Extents, Part)]) -> Vec<Launch> {
        let mut launches = Vec::new();
        for (id, (buffer, &place)) in placed.model.buffers.iter().zip(&placed.layout.places).enumerate() {
            if !matches!(buffer.kind, Kind::Constant { .. } | Kind::Cache) {
                continue;
            }
            let reads = |step: &Step, e: &Extents| {
                let written = if let Kind::Cache = buffer.kind { (e.past + e.queries) * e.batch } else { 0 };
                let operands = step.call(&placed.model, e).inputs.iter().flatten();
                operands.filter(|operand| operand.buffer == id).any(|operand| {
                    let (first, rows) = operand.rows(buffer, e);
                    first + rows > written
                })
            };
            if !runs.iter().any(|(e, _)| steps(&placed.model, e).any(|step| reads(step, e))) {
                continue;
            }
            let n = placed.layout.bytes[place] / self.dtype.size();
            let offset = placed.offsets[place];
            if is_ones(&buffer.kind) {
                launches.extend(self.ones(placed.scratch, offset, n));
            } else {
                launches.push(zeros(offset, n));
            }
        }
        launches
    }

    /// Writes `n` ones to the workspace, by way of zeros in its scratch.
    fn ones(&self, scratch: usize, offset: usize, n: usize) -> Vec<Launch> {
        let softmax = &self.kernels[ONES];
        let point = Matrix { rows: n, cols: 1 }.to_point();
        let ports = softmax.operator.inputs().iter().chain(softmax.operator.outputs()).map(|port| port.name);
        let buffers: Vec<_> = ports.zip([scratch, offset].map(|at| (WORKSPACE, at))).collect();
        [zeros(scratch, n)].into_iter().chain(self.computed(softmax, &point, &buffers)).collect()
    }

    /// Writes where a run begins, if its steps read that from memory.
    fn position(&self, placed: &Placed, e: &Extents) -> Option<Launch> {
        let past = placed.model.buffers.iter().position(|buffer| matches!(buffer.kind, Kind::Past))?;
        let is_read = steps(&placed.model, e).flat_map(Step::reads).any(|operand| operand.buffer == past);
        let place = placed.offsets[placed.layout.places[past]];
        let launch = Launch::blocks(1, 1).entry("set_index").without_pointers();
        is_read.then(|| launch.pointer_at(WORKSPACE, place).scalar(e.past as i32))
    }

    /// The input or place in the workspace, and the byte there, that an operand is.
    fn address(&self, placed: &Placed, operand: Operand, e: &Extents, part: Part) -> (&'static str, usize) {
        let buffer = &placed.model.buffers[operand.buffer];
        let (first, _) = operand.rows(buffer, e);
        let offset = first * buffer.width * self.dtype.size();
        match (self.signature.place(operand.buffer, part), &buffer.kind) {
            (Some(at), _) => (self.signature.inputs[at].name, offset),
            (_, Kind::Logits) if part == Part::Rest => (self.signature.output, offset),
            _ => (WORKSPACE, placed.offsets[placed.layout.places[operand.buffer]] + offset),
        }
    }

    /// The launches of a step, with the buffers of the model in place of those of the operator.
    fn step(&self, placed: &Placed, call: &Call, output: Operand, e: &Extents, part: Part) -> Vec<Launch> {
        let step = &self.kernels[call.operator];
        let point = (call.point)(e);
        // An input of no element still needs an address.
        let operands = call.inputs.iter().map(|operand| operand.unwrap_or(output)).chain([output]);
        let ports = step.operator.inputs().iter().chain(step.operator.outputs()).map(|port| port.name);
        let mut buffers: Vec<(&str, (&'static str, usize))> =
            ports.zip(operands.map(|operand| self.address(placed, operand, e, part))).collect();
        if step.body.workspace_bytes(&point) > 0 {
            buffers.push((WORKSPACE, (WORKSPACE, placed.scratch)));
        }
        self.computed(step, &point, &buffers)
    }

    /// The launches of an operator on buffers of the model.
    fn computed(&self, step: &Computes, point: &[usize], buffers: &[(&str, (&'static str, usize))]) -> Vec<Launch> {
        let Some(program) = &step.program else { return vec![step.call(point, buffers)] };
        let launches = step.body.launches(point).into_iter().filter(|launch| !launch.is_empty());
        launches.map(|launch| self.rebound(step, program, launch, buffers)).collect()
    }

    fn rebound(
        &self,
        step: &Computes,
        program: &Arc<Program>,
        launch: Launch,
        buffers: &[(&str, (&'static str, usize))],
    ) -> Launch {
        let Body::Cuda(kernel) = &step.body else { unreachable!("a kernel of the catalogue") };
        let find = |name: &str| buffers.iter().find(|(port, _)| *port == name).map_or((WORKSPACE, 0), |(_, at)| *at);
        let entry = launch.entry.clone().unwrap_or_else(|| kernel.entry.clone());
        let taken = if launch.pointers { buffers } else { &[] };
        let pointers = taken.iter().map(|(_, at)| *at);
        let pointers = pointers.map(|(buffer, offset_bytes)| Argument::Pointer { buffer: buffer.into(), offset_bytes });
        let further = launch.arguments.iter().map(|argument| match argument {
            Argument::Scalar(scalar) => Argument::Scalar(*scalar),
            Argument::Pointer { buffer, offset_bytes } => {
                let (to, offset) = find(buffer);
                Argument::Pointer { buffer: to.into(), offset_bytes: offset + offset_bytes }
            }
            Argument::Map(map) => {
                let (to, offset) = find(&map.buffer);
                let dtype = Some(map.dtype.unwrap_or(self.dtype));
                Argument::Map(TensorMap {
                    buffer: to.into(),
                    offset_bytes: offset + map.offset_bytes,
                    dtype,
                    ..map.clone()
                })
            }
        });
        let arguments = pointers.chain(further).collect();
        let program = launch.program.clone().unwrap_or_else(|| Arc::clone(program));
        Launch { pointers: false, arguments, ..launch }.entry(entry).of(program)
    }
}
