//! Tiny models as operators of the gate: the logits of a text's last positions. The reference computes the whole text at
//! once; a candidate computes a prompt first and the rest over the cache.
//!
//! Weights are drawn by the gate. So are the tables of positions, which are inputs too: a kernel has nothing but inputs to
//! read. What the tables hold in a real model is held by the goldens of transformers.

mod launches;

#[cfg(test)]
mod tests;

use super::catalogue::Operators;
use super::config::{Architecture, Config};
use super::cpu::CpuExecutor;
use super::description::{BufferId, Extents, Kind, Model};
use super::error::Error;
use super::layout::Limits;
use super::named::tiny;
use super::reference::ReferenceExecutor;
use super::session::Executor;
use super::weights::{Bytes, Weights};
use crate::core::candidate::{Cpu, Declare};
use crate::core::cost::Cost;
use crate::core::dtype::{DType, Element};
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};
use crate::core::tolerance::{Override, Tolerance};
use half::bf16;
use std::collections::HashMap;
use std::sync::Arc;

crate::shape! {
    /// The shape of a text.
    pub struct Extent {
        /// Sequences.
        batch: 1..=4,
        /// Positions of the prompt, which the cache holds when the rest is computed.
        past: 0..=40,
        /// Positions whose logits are asked for.
        queries: 1..=24,
    }
}

impl Extent {
    fn limits(&self) -> Limits {
        let Extent { batch, past, queries } = *self;
        Limits { batch, capacity: past + queries, queries: past.max(queries), all_logits: true }
    }

    /// The prompt alone.
    fn of_prompt(&self) -> Extents {
        Extents { batch: self.batch, queries: self.past, past: 0, all_logits: false }
    }

    /// The positions behind it.
    fn of_rest(&self) -> Extents {
        Extents { batch: self.batch, queries: self.queries, past: self.past, all_logits: true }
    }
}

/// The tiny models, a suite each.
pub fn suites() -> Vec<Suite> {
    let operators = Operators::new();
    let of =
        |name, architecture| suite(name, &tiny(architecture), &operators).unwrap_or_else(|why| panic!("{name}: {why}"));
    vec![of("llama_tiny", Architecture::Llama), of("opt_tiny", Architecture::Opt)]
}

fn suite(name: &str, config: &Config, operators: &Operators) -> Result<Suite, Error> {
    let signature = Arc::new(Signature::of(Model::of(config)?));
    let suite = Suite::of(operator(name, &signature, operators)?).dtypes([DType::F32, DType::BF16]);
    let suite = suite.candidate("tiers", tiers::<f32>(&signature).and::<bf16>(on_tiers::<bf16>(&signature)));
    let launched = |dtype| launches::candidate(&signature, operators, dtype);
    Ok(suite.candidate("unfused", launched(DType::F32)?).candidate("unfused", launched(DType::BF16)?).into())
}

/// What an input is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Prompt,
    Rest,
}

/// An input of the operator.
struct Given {
    name: &'static str,
    buffer: BufferId,
    part: Part,
}

/// A model and the inputs that it is given.
struct Signature {
    model: Model,
    inputs: Vec<Given>,
}

impl Signature {
    fn of(model: Model) -> Signature {
        let mut inputs = Vec::new();
        for (buffer, of) in model.buffers.iter().enumerate() {
            // Names of ports live as long as the program.
            let name: &'static str = of.name.clone().leak();
            match of.kind {
                Kind::Weight { .. } | Kind::Table(_) => inputs.push(Given { name, buffer, part: Part::Whole }),
                Kind::Tokens | Kind::Positions(_) => {
                    inputs.push(Given { name: format!("{name} of the prompt").leak(), buffer, part: Part::Prompt });
                    inputs.push(Given { name, buffer, part: Part::Rest });
                }
                _ => {}
            }
        }
        Signature { model, inputs }
    }

    /// The model with its tables as tensors that are given.
    fn at(&self, s: &Extent) -> Model {
        let mut model = self.model.clone();
        for buffer in &mut model.buffers {
            if let Kind::Table(_) = buffer.kind {
                let dims = vec![(s.past + s.queries) * s.batch, buffer.width];
                buffer.kind = Kind::Weight { name: buffer.name.clone(), dims };
            }
        }
        model
    }

    /// The rows of the table that a buffer of indices names rows of.
    fn bound(&self, indices: BufferId) -> usize {
        let reads = |operand: &Option<super::description::Operand>| operand.is_some_and(|it| it.buffer == indices);
        let step = self.model.steps.iter().find(|step| step.usual.inputs.iter().any(reads));
        let table = step.and_then(|step| step.usual.inputs[0]).map(|table| &self.model.buffers[table.buffer]);
        table.map_or(1, |table| table.rows(1, 0, 0, 0))
    }

    /// The inputs of a part among all of them.
    fn part<'i, T>(&'i self, inputs: &'i [T], part: Part) -> impl Iterator<Item = (&'i Given, &'i T)> {
        self.inputs.iter().zip(inputs).filter(move |(given, _)| given.part == part)
    }
}

/// As the goldens' in narrow types, beside the derived tolerance.
fn tolerance(model: &Model) -> Override {
    let steps = model.steps.len();
    let said = format!("each of {steps} steps rounds what it leaves to the next to the dtype");
    Tolerance::default().intermediate(3.0 * (steps as f64).sqrt()).because(said)
}

fn operator(name: &str, signature: &Arc<Signature>, operators: &Operators) -> Result<Op<Extent>, Error> {
    let mut op = Op::new(name);
    for given in &signature.inputs {
        let (buffer, part) = (given.buffer, given.part);
        let of = &signature.model.buffers[buffer];
        let (name, width) = (given.name, of.width);
        op = match &of.kind {
            Kind::Weight { name: tensor, dims } if dims.len() == 1 => {
                let mean = if tensor.ends_with("bias") { 0.0 } else { 1.0 };
                op.parameter(name, mean, move |_| [width])
            }
            Kind::Weight { name: tensor, dims } => {
                let (rows, is_looked_up) = (dims[0], tensor.contains("embed"));
                // A row that is looked up is as large as a row that is normalised.
                let fan_in = move |_: &Extent| if is_looked_up { 1 } else { width };
                op.weight(name, fan_in, move |_| [rows, width])
            }
            Kind::Table(_) => op.parameter(name, 0.0, move |s: &Extent| [s.past + s.queries, s.batch, width]),
            _ => {
                let bound = signature.bound(buffer);
                let positions = move |s: &Extent| if part == Part::Prompt { s.past } else { s.queries };
                op.index(name, move |s: &Extent| [positions(s), s.batch], move |_| bound)
            }
        };
    }
    let (of_reference, of_depth, of_cost) = (Arc::clone(signature), Arc::clone(signature), Arc::clone(signature));
    let steps = Arc::new(step_operators(signature, operators)?);
    let steps_of_cost = Arc::clone(&steps);
    let vocabulary = signature.model.vocabulary;
    let whole = |s: &Extent| Extents { queries: s.past + s.queries, past: 0, ..s.of_rest() };
    Ok(op
        .output("logits", move |s: &Extent| [s.queries, s.batch, vocabulary])
        .reference(move |s, inputs, outputs| outputs[0] = reference(&of_reference, s, inputs, &whole(s)))
        // A rounding on the way is one of the residual stream, of which every logit is a sum.
        .magnitude(move |_, _, outputs| {
            for row in outputs[0].chunks_exact_mut(vocabulary) {
                let largest = row.iter().fold(0.0f64, |largest, logit| largest.max(logit.abs()));
                row.fill(largest);
            }
        })
        .depth(move |s| {
            let depths = of_depth.model.steps.iter().zip(&*steps);
            depths.map(|(step, operator)| operator.depth(&(step.usual.point)(&whole(s)))).sum::<f64>() as usize
        })
        .tolerance(tolerance(&signature.model))
        .cost(move |s, dtype| {
            let steps = of_cost.model.steps.iter().zip(&*steps_of_cost);
            let of_steps = steps.map(|(step, operator)| operator.cost(&(step.usual.point)(&whole(s)), dtype));
            of_steps.fold(Cost::default(), |sum, cost| Cost {
                bytes: sum.bytes + cost.bytes,
                flops: sum.flops + cost.flops,
            })
        })
        .separable("batch")
        .varied_around(Extent { batch: 2, past: 5, queries: 3 })
        .shapes(cases()))
}

/// A first token, one token over a cache, prompts alone, both sides of the rows at which products take another operator.
fn cases() -> impl Iterator<Item = Extent> {
    let all = [(1, 0, 1), (1, 7, 1), (3, 12, 1), (2, 0, 5), (1, 3, 8), (1, 2, 9), (4, 9, 2), (4, 1, 3), (1, 40, 24)];
    all.into_iter().map(|(batch, past, queries)| Extent { batch, past, queries })
}

/// The operator of each step.
fn step_operators(
    signature: &Signature,
    operators: &Operators,
) -> Result<Vec<Arc<dyn crate::core::operator::Operator>>, Error> {
    signature.model.steps.iter().map(|step| operators.operator(step.usual.operator)).collect()
}

/// Tensors by their names.
struct Tensors<'a>(HashMap<&'a str, Bytes>);

impl Weights for Tensors<'_> {
    fn tensor(&self, name: &str, _: &[usize], _: DType) -> Result<Bytes, Error> {
        self.0.get(name).cloned().ok_or_else(|| Error::input(format!("tensor `{name}`"), "an input", "none"))
    }
}

/// The elements as bytes.
fn bytes<T: bytemuck::Pod>(elements: &[T]) -> Bytes {
    let mut bytes = Bytes::zeros(size_of_val(elements));
    bytes.as_mut().copy_from_slice(bytemuck::cast_slice(elements));
    bytes
}

fn reference(signature: &Signature, s: &Extent, inputs: &[&[f64]], whole: &Extents) -> Vec<f64> {
    // Exact in f32, whatever the dtype of the case.
    let narrow = |values: &&[f64]| bytes(&values.iter().map(|&value| value as f32).collect::<Vec<_>>());
    let tensors = signature.part(inputs, Part::Whole).map(|(given, values)| (given.name, narrow(values))).collect();
    let indices: Vec<Vec<i32>> = signature
        .part(inputs, Part::Prompt)
        .zip(signature.part(inputs, Part::Rest))
        .map(|((_, prompt), (_, rest))| prompt.iter().chain(*rest).map(|&index| index as i32).collect())
        .collect();
    let limits = Limits { queries: s.past + s.queries, ..s.limits() };
    let executor = ReferenceExecutor::new(&signature.at(s), &Tensors(tensors), limits, DType::F32);
    let logits = executor.and_then(|mut executor| executor.logits(&indices, whole).map(<[f64]>::to_vec));
    let logits = logits.unwrap_or_else(|why| panic!("the reference: {why}"));
    logits[s.past * s.batch * signature.model.vocabulary..].to_vec()
}

fn tiers<T: Element>(signature: &Arc<Signature>) -> Cpu<Extent> {
    Cpu::new::<T>(on_tiers::<T>(signature)).untimed()
}

/// The CPU's tiers, over the cache.
fn on_tiers<T: Element>(signature: &Arc<Signature>) -> impl Fn(&Extent, &Inputs<'_>, &mut Outputs<'_>) + use<T> {
    let signature = Arc::clone(signature);
    move |s, inputs, outputs| {
        let tensors =
            signature.part(&inputs.0, Part::Whole).map(|(given, values)| (given.name, bytes(values))).collect();
        let logits = over_the_cache(&signature, s, &Tensors(tensors), &inputs.0, T::DTYPE);
        let logits = logits.unwrap_or_else(|why| panic!("{why}"));
        for (to, from) in outputs.slice::<T>(0).iter_mut().zip(logits) {
            *to = T::from_f64(f64::from(from));
        }
    }
}

fn over_the_cache(
    signature: &Signature,
    s: &Extent,
    weights: &dyn Weights,
    inputs: &[&[u8]],
    dtype: DType,
) -> Result<Vec<f32>, Error> {
    let mut executor = CpuExecutor::new(&signature.at(s), weights, s.limits(), dtype)?;
    let indices = |part| -> Vec<Vec<i32>> {
        let of = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|four| i32::from_le_bytes(*four)).collect();
        signature.part(inputs, part).map(|(_, bytes)| of(bytes)).collect()
    };
    if s.past > 0 {
        executor.run_on(&indices(Part::Prompt), &s.of_prompt())?;
    }
    executor.run_on(&indices(Part::Rest), &s.of_rest())
}
