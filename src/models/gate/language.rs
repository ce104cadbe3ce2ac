//! Tiny models as operators of the gate: the logits of a text's last positions. The reference computes the whole text at
//! once; a candidate computes a prompt first and the rest over the cache.
//!
//! Weights are drawn by the gate. So are the tables of positions, which are inputs too: a kernel has nothing but inputs to
//! read. What the tables hold in a real model is held by the goldens of transformers.

#[cfg(test)]
mod tests;

use super::launches;
use super::signature::{Part, Signature, Tensors, bytes, narrow};
use crate::core::candidate::{Body, Cpu, Declare};
use crate::core::cost::Cost;
use crate::core::dtype::{DType, Element};
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};
use crate::core::tolerance::{Override, Tolerance};
use crate::models::Model;
use crate::models::catalogue::Operators;
use crate::models::config::{Architecture, Config};
use crate::models::cpu::CpuExecutor;
use crate::models::description::{BufferId, Extents, Kind};
use crate::models::error::Error;
use crate::models::layout::Limits;
use crate::models::named::tiny;
use crate::models::reference::ReferenceExecutor;
use crate::models::session::Executor;
use crate::models::weights::Weights;
use half::bf16;
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
        Extents {
            batch: self.batch,
            queries: self.past,
            past: 0,
            all_logits: false,
            capacity: self.past + self.queries,
        }
    }

    /// The positions behind it.
    fn of_rest(&self) -> Extents {
        Extents {
            batch: self.batch,
            queries: self.queries,
            past: self.past,
            all_logits: true,
            capacity: self.past + self.queries,
        }
    }

    fn runs(&self) -> Vec<(Extents, Part)> {
        let both = [(self.of_prompt(), Part::Prompt), (self.of_rest(), Part::Rest)];
        both.into_iter().filter(|(e, _)| e.queries > 0).collect()
    }
}

/// The tiny models, a suite each.
pub fn suites(operators: &Operators) -> Vec<Suite> {
    let of =
        |name, architecture| suite(name, &tiny(architecture), operators).unwrap_or_else(|why| panic!("{name}: {why}"));
    vec![of("llama_tiny", Architecture::Llama), of("opt_tiny", Architecture::Opt)]
}

fn suite(name: &str, config: &Config, operators: &Operators) -> Result<Suite, Error> {
    let fused = kinds(config)?;
    let unfused = fused.iter().map(|model| Model { decode: Vec::new(), ..model.clone() }).collect();
    let (signature, fused) = (Arc::new(signature(unfused)), Arc::new(signature(fused)));
    let mut suite = Suite::of(operator(name, &signature, operators)?).dtypes([DType::F32, DType::BF16]);
    suite = suite.candidate("tiers", tiers::<f32>(&signature).and::<bf16>(on_tiers::<bf16>(&signature)));
    let kernel = |dtype, arch| move |operator| operators.on_gpu(operator, dtype, arch).map(Body::Cuda);
    let launched = |signature, dtype, arch| launches::candidate(signature, operators, dtype, kernel(dtype, arch));
    for dtype in [DType::F32, DType::BF16] {
        suite = suite.candidate("unfused", launched(&signature, dtype, ARCH)?);
        suite = suite.candidate("fused", launched(&fused, dtype, HOPPER)?.needs(HOPPER));
    }
    Ok(suite.into())
}

/// The model for one sequence and for more, with steps of their own for one new token. Their weights are those of both: inputs
/// of one kind.
fn kinds(config: &Config) -> Result<Vec<Model>, Error> {
    [1, 2].map(|batch| Model::fused(config, batch)).into_iter().collect()
}

/// The inputs of a model, its tables among them as tensors that are given.
pub(super) fn signature(mut kinds: Vec<Model>) -> Signature<Extent> {
    for buffer in kinds.iter_mut().flat_map(|model| &mut model.buffers) {
        if let Kind::Stacked(parts) = &buffer.kind {
            let rows = parts.iter().map(|(_, dims)| dims[0]).sum();
            buffer.kind = Kind::Weight { name: buffer.name.clone(), dims: vec![rows, buffer.width] };
        }
    }
    let of_case = kinds.clone();
    let at = move |s: &Extent| {
        let mut model = of_case[(s.batch - 1).min(of_case.len() - 1)].clone();
        for buffer in &mut model.buffers {
            if let Kind::Table(_) = buffer.kind {
                let dims = vec![(s.past + s.queries) * s.batch, buffer.width];
                buffer.kind = Kind::Weight { name: buffer.name.clone(), dims };
            }
        }
        model
    };
    Signature::of(kinds, "logits", Box::new(at), Extent::limits, Extent::runs)
}

/// The rows of the table that a buffer of indices names rows of.
fn bound(model: &Model, indices: BufferId) -> usize {
    let reads = |operand: &Option<crate::models::description::Operand>| operand.is_some_and(|it| it.buffer == indices);
    let step = model.steps.iter().find(|step| step.usual.inputs.iter().any(reads));
    let table = step.and_then(|step| step.usual.inputs[0]).map(|table| &model.buffers[table.buffer]);
    table.map_or(1, |table| table.rows(1, 0, 0, 0))
}

/// What every GPU that the gate serves runs.
pub(super) const ARCH: &str = "sm_80";

/// A GPU for which kernels are written that others do not run.
pub(super) const HOPPER: &str = "sm_90a";

/// As the goldens' in narrow types, beside the derived tolerance.
pub(super) fn tolerance(model: &Model) -> Override {
    let steps = model.steps.len();
    let said = format!("each of {steps} steps rounds what it leaves to the next to the dtype");
    Tolerance::default().intermediate(3.0 * (steps as f64).sqrt()).because(said)
}

pub(super) fn operator(
    name: &str,
    signature: &Arc<Signature<Extent>>,
    operators: &Operators,
) -> Result<Op<Extent>, Error> {
    let mut op = Op::new(name);
    for given in &signature.inputs {
        let (buffer, part) = (given.buffer, given.part);
        let of = &signature.kinds[0].buffers[buffer];
        let (name, width) = (given.name, of.width);
        op = match &of.kind {
            // A vector, or several of them as rows of one element.
            Kind::Weight { name: tensor, dims } if dims[1..].iter().all(|&columns| columns == 1) => {
                let (mean, n) = (if tensor.ends_with("bias") { 0.0 } else { 1.0 }, dims[0]);
                op.parameter(name, mean, move |_| [n])
            }
            Kind::Weight { name: tensor, dims } => {
                let (rows, is_looked_up) = (dims[0], tensor.contains("embed"));
                // A row that is looked up is as large as a row that is normalised.
                let fan_in = move |_: &Extent| if is_looked_up { 1 } else { width };
                op.weight(name, fan_in, move |_| [rows, width])
            }
            Kind::Table(_) => op.parameter(name, 0.0, move |s: &Extent| [s.past + s.queries, s.batch, width]),
            _ => {
                let bound = bound(&signature.kinds[0], buffer);
                let positions = move |s: &Extent| if part == Part::Prompt { s.past } else { s.queries };
                op.index(name, move |s: &Extent| [positions(s), s.batch], move |_| bound)
            }
        };
    }
    let (of_reference, of_depth, of_cost) = (Arc::clone(signature), Arc::clone(signature), Arc::clone(signature));
    let steps = Arc::new(step_operators(signature, operators)?);
    let steps_of_cost = Arc::clone(&steps);
    let vocabulary = signature.kinds[0].vocabulary;
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
            let depths = of_depth.kinds[0].steps.iter().zip(&*steps);
            depths.map(|(step, operator)| operator.depth(&(step.usual.point)(&whole(s)))).sum::<f64>() as usize
        })
        .tolerance(tolerance(&signature.kinds[0]))
        .cost(move |s, dtype| {
            let steps = of_cost.kinds[0].steps.iter().zip(&*steps_of_cost);
            let of_steps = steps.map(|(step, operator)| operator.cost(&(step.usual.point)(&whole(s)), dtype));
            of_steps.fold(Cost::default(), |sum, cost| Cost {
                bytes: sum.bytes + cost.bytes,
                flops: sum.flops + cost.flops,
            })
        })
        .separable("batch")
        .varied_around(Extent { batch: 2, past: 5, queries: 3 })
        .shapes(cases())
        .perf([(40, 1), (0, 24)].map(|(past, queries)| Extent { batch: 1, past, queries })))
}

/// A first token, one token over a cache, prompts alone, both sides of the rows at which products take another operator.
fn cases() -> impl Iterator<Item = Extent> {
    let all = [(1, 0, 1), (1, 7, 1), (3, 12, 1), (2, 0, 5), (1, 3, 8), (1, 2, 9), (4, 9, 2), (4, 1, 3), (1, 40, 24)];
    all.into_iter().map(|(batch, past, queries)| Extent { batch, past, queries })
}

/// The operator of each step.
fn step_operators(
    signature: &Signature<Extent>,
    operators: &Operators,
) -> Result<Vec<Arc<dyn crate::core::operator::Operator>>, Error> {
    signature.kinds[0].steps.iter().map(|step| operators.operator(step.usual.operator)).collect()
}

fn reference(signature: &Signature<Extent>, s: &Extent, inputs: &[&[f64]], whole: &Extents) -> Vec<f64> {
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
    logits[s.past * s.batch * signature.kinds[0].vocabulary..].to_vec()
}

fn tiers<T: Element>(signature: &Arc<Signature<Extent>>) -> Cpu<Extent> {
    Cpu::new::<T>(on_tiers::<T>(signature)).untimed()
}

/// The CPU's tiers, over the cache.
fn on_tiers<T: Element>(
    signature: &Arc<Signature<Extent>>,
) -> impl Fn(&Extent, &Inputs<'_>, &mut Outputs<'_>) + use<T> {
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
    signature: &Signature<Extent>,
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
