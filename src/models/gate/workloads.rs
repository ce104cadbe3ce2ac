//! The classifier of digits and the inference chain as operators of the gate: rows are given, and a row each comes out.

#[cfg(test)]
mod tests;

use super::host::OnHost;
use super::language::{ARCH, HOPPER, tolerance};
use super::launches;
use super::signature::{Part, Signature, Tensors, narrow};
use crate::core::candidate::{Body, Cpu, CpuBody, Cuda, Declare};
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::operator::Op;
use crate::core::shape::Shape;
use crate::core::suite::Suite;
use crate::models::Model;
use crate::models::catalogue::Operators;
use crate::models::chain::{Chain, EPS, chain};
use crate::models::cnn::{Digits, SIDE, cnn};
use crate::models::description::{Extents, Kind};
use crate::models::error::Error;
use crate::models::layout::Limits;
use crate::models::reference::ReferenceExecutor;
use crate::ops::max_pool2d::Activation;
use half::bf16;
use std::slice::ChunksExactMut;
use std::sync::Arc;

/// Distributions whose values do not drown what comes out in the roundings between the steps.
const DRAWN: [Distribution; 4] =
    [Distribution::Normal, Distribution::Uniform, Distribution::ConstantRows, Distribution::SignedZeros];

/// A shape that says how many rows there are.
trait Rows: Shape + PartialEq {
    fn rows(&self) -> usize;

    fn limits(&self) -> Limits {
        Limits { batch: self.rows(), capacity: 1, queries: 1, all_logits: false }
    }

    fn runs(&self) -> Vec<(Extents, Part)> {
        vec![(Extents::rows(self.rows()), Part::Rest)]
    }

    /// What a rounding on the way is relative to, in each row: the largest of what comes out, where nothing else is said.
    fn magnitude(&self, _inputs: &[&[f64]], rows: ChunksExactMut<'_, f64>) {
        rows.for_each(|row| row.fill(largest(row)));
    }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0f64, |largest, value| largest.max(value.abs()))
}

impl Rows for Digits {
    fn rows(&self) -> usize {
        self.batch
    }
}

impl Rows for Chain {
    fn rows(&self) -> usize {
        self.rows
    }

    /// The norm enlarges what softmax has rounded where its row hardly varies. A probability is off in proportion to itself, to
    /// its logit and to the mean logit; so is the deviation of the row, by those it is made of.
    fn magnitude(&self, inputs: &[&[f64]], rows: ChunksExactMut<'_, f64>) {
        let [x, projection, weight, ..] = inputs else { return };
        let n = self.cols as f64;
        for (row, x) in rows.zip(x.chunks_exact(self.inner)) {
            let logits = (0..self.cols).map(|col| {
                let terms = x.iter().zip(projection[col..].iter().step_by(self.cols));
                terms.map(|(x, w)| x * w).sum::<f64>()
            });
            let logits: Vec<f64> = logits.collect();
            let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> = logits.iter().map(|logit| (logit - most).exp()).collect();
            let sum: f64 = powers.iter().sum();
            let logit: f64 = powers.iter().zip(&logits).map(|(power, logit)| power / sum * logit.abs()).sum();
            let rounded: Vec<f64> =
                powers.iter().zip(&logits).map(|(power, own)| power / sum * (1.0 + own.abs() + logit)).collect();
            let apart: Vec<f64> = powers.iter().map(|power| (power / sum - 1.0 / n).abs()).collect();
            let variance = apart.iter().map(|apart| apart * apart).sum::<f64>() / n + f64::from(EPS);
            let of_mean = rounded.iter().sum::<f64>() / n;
            let of_deviation =
                apart.iter().zip(&rounded).map(|(apart, rounded)| apart * rounded).sum::<f64>() / n / variance;
            for (i, y) in row.iter_mut().enumerate() {
                let enlarged = (rounded[i] + of_mean + apart[i] * of_deviation) / variance.sqrt();
                *y = y.abs() + enlarged * weight[i].abs();
            }
        }
    }
}

fn signature<S: Rows>(
    kinds: Vec<Model>,
    output: &'static str,
    model: impl Fn(&S) -> Model + Send + Sync + 'static,
) -> Arc<Signature<S>> {
    Arc::new(Signature::of(kinds, output, Box::new(model), S::limits, S::runs))
}

/// The classifier, with convolution, activation and pooling apart or in one step.
fn digits(is_fused: bool) -> Arc<Signature<Digits>> {
    let kinds =
        [Activation::Relu, Activation::Gelu, Activation::Silu].map(|activation| cnn(SIDE, activation, is_fused));
    signature(kinds.into(), "log_probabilities", move |s: &Digits| cnn(s.side, s.activation, is_fused))
}

/// The classifier with its variants: `tiers` on the CPU; `baseline` (a library where the catalogue has one), `cuda` and
/// `triton` on a GPU.
///
/// # Errors
/// When the catalogue lacks a candidate for a step.
pub fn cnn_suite(operators: &Operators) -> Result<Suite, Error> {
    let (fused, apart) = (digits(true), digits(false));
    let op = operator("cnn", &apart, operators)?
        .varied_around(Digits { batch: 2, side: 8, activation: Activation::Gelu })
        .shapes(digit_cases())
        .perf([1, 64, 1024].map(|batch| Digits { batch, side: SIDE, activation: Activation::Relu }));
    let mut suite = Suite::of(op).dtypes([DType::F32, DType::BF16]);
    suite = suite.candidate("tiers", on_host(&fused, operators, |name, dtype| operators.on_cpu(name, dtype))?);
    for dtype in [DType::F32, DType::BF16] {
        let triton = |name: &'static str| operators.by_triton(name, dtype, arch(dtype)).map(Body::Cuda);
        let library = |name: &'static str| operators.by_library(name, dtype, arch(dtype));
        suite = suite
            .candidate("cuda", launched(&fused, operators, dtype, &|name| own(operators, name, dtype))?)
            .candidate("triton", launched(&apart, operators, dtype, &triton)?)
            .candidate("baseline", by_library(&apart, operators, dtype, &library)?);
    }
    Ok(suite.into())
}

/// Both sides of the rows at which products take another operator; images that pooling cuts.
fn digit_cases() -> impl Iterator<Item = Digits> {
    use Activation::{Gelu, Relu, Silu};
    let all = [(1, 4, Relu), (1, 8, Gelu), (3, 5, Silu), (2, 12, Relu), (9, 6, Gelu), (1, 28, Silu)];
    all.into_iter().map(|(batch, side, activation)| Digits { batch, side, activation })
}

/// Which candidate each of its three stages is.
pub type Stages = [Tier; 3];

/// A tier of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The loops that are there to be read.
    Naive,
    /// A library where the catalogue has one, else the best.
    Library,
    /// The fastest of the catalogue's own.
    Best,
}

/// The operators of the stages.
pub const STAGES: [&str; 3] = ["gemm", "softmax", "layernorm"];

/// The tier of a stage by the operator's name.
fn tier_of(stages: Stages, operator: &str) -> Tier {
    STAGES.iter().position(|stage| *stage == operator).map_or(Tier::Best, |at| stages[at])
}

/// The chain with all its stages of one tier, or with some exchanged; a name each.
pub const CHAINS: [(&str, Stages); 6] = {
    use Tier::{Best, Library, Naive};
    [
        ("naive", [Naive, Naive, Naive]),
        ("library", [Library, Library, Library]),
        ("best", [Best, Best, Best]),
        ("best_gemm", [Best, Naive, Naive]),
        ("best_softmax", [Naive, Best, Naive]),
        ("best_layernorm", [Naive, Naive, Best]),
    ]
};

/// The chain with its variants: on the CPU under the names of [`CHAINS`], on a GPU under the same behind `cuda_`.
///
/// # Errors
/// When the catalogue lacks a candidate for a step.
pub fn chain_suite(operators: &Operators) -> Result<Suite, Error> {
    let signature = signature(vec![chain(&Chain { rows: 1, inner: 1, cols: 2 })], "y", chain);
    let op = operator("chain", &signature, operators)?
        .varied_around(Chain { rows: 3, inner: 9, cols: 16 })
        .shapes(chain_cases())
        .perf([64, 256, 1024].map(|side| Chain { rows: side, inner: side, cols: side }));
    let mut suite = Suite::of(op).dtypes([DType::F32, DType::BF16]);
    for (name, stages) in CHAINS {
        let tier = |name: &'static str, dtype: DType| on_cpu(operators, name, dtype, tier_of(stages, name));
        suite = suite.candidate(name, on_host(&signature, operators, tier)?);
    }
    for (name, stages) in CHAINS {
        for dtype in [DType::F32, DType::BF16] {
            let choose = |name: &'static str| match tier_of(stages, name) {
                Tier::Naive => operators.naive_on_gpu(name, dtype).map(Body::Cuda),
                Tier::Library => operators.by_library(name, dtype, arch(dtype)),
                Tier::Best => own(operators, name, dtype),
            };
            let make = if stages.contains(&Tier::Library) { by_library } else { launched };
            suite = suite.candidate(&format!("cuda_{name}"), make(&signature, operators, dtype, &choose)?);
        }
    }
    Ok(suite.into())
}

/// The tier of an operator on the CPU.
fn on_cpu(operators: &Operators, name: &str, dtype: DType, tier: Tier) -> Result<CpuBody, Error> {
    let first = match tier {
        Tier::Naive => "naive",
        Tier::Library => "library",
        Tier::Best => "tiled",
    };
    match operators.named_on_cpu(name, dtype, first)? {
        Some(body) => Ok(body),
        None => operators.on_cpu(name, dtype),
    }
}

/// Single rows and columns, both sides of a warp and of usual tiles; extents never equal.
fn chain_cases() -> impl Iterator<Item = Chain> {
    let all = [(1, 1, 2), (1, 33, 7), (5, 16, 31), (3, 64, 33), (2, 7, 130), (17, 40, 64), (2, 12, 1025)];
    all.into_iter().map(|(rows, inner, cols)| Chain { rows, inner, cols })
}

/// Products in half width are written for one architecture.
const fn arch(dtype: DType) -> &'static str {
    if matches!(dtype, DType::F32) { ARCH } else { HOPPER }
}

fn on_host<S: Rows>(
    signature: &Arc<Signature<S>>,
    operators: &Operators,
    choose: impl Fn(&'static str, DType) -> Result<CpuBody, Error>,
) -> Result<Cpu<S>, Error> {
    let model = |dtype| OnHost::new(signature, operators, dtype, |name| choose(name, dtype));
    let (of_f32, of_bf16) = (model(DType::F32)?, model(DType::BF16)?);
    let cpu = Cpu::new::<f32>(move |s: &S, inputs, outputs| of_f32.run(s, inputs, outputs));
    Ok(cpu.and::<bf16>(move |s: &S, inputs, outputs| of_bf16.run(s, inputs, outputs)).untimed())
}

/// The fastest kernel of the crate's own.
fn own(operators: &Operators, name: &'static str, dtype: DType) -> Result<Body, Error> {
    operators.on_gpu(name, dtype, arch(dtype)).map(Body::Cuda)
}

type Choose<'c> = &'c dyn Fn(&'static str) -> Result<Body, Error>;

fn launched<S: Rows>(
    signature: &Arc<Signature<S>>,
    operators: &Operators,
    dtype: DType,
    choose: Choose<'_>,
) -> Result<Cuda<S>, Error> {
    let cuda = launches::candidate(signature, operators, dtype, choose)?.untimed();
    Ok(if dtype == DType::F32 { cuda } else { cuda.needs(HOPPER) })
}

/// The same with steps that a library enqueues: its algorithms, and so its bits, are its own.
fn by_library<S: Rows>(
    signature: &Arc<Signature<S>>,
    operators: &Operators,
    dtype: DType,
    choose: Choose<'_>,
) -> Result<Cuda<S>, Error> {
    Ok(launched(signature, operators, dtype, choose)?.nondeterministic())
}

/// What is computed: the inputs and the reference of the steps.
fn operator<S: Rows>(name: &str, signature: &Arc<Signature<S>>, operators: &Operators) -> Result<Op<S>, Error> {
    let mut op = Op::new(name);
    let of_kind = &signature.kinds[0];
    for given in &signature.inputs {
        let (name, buffer) = (given.name, given.buffer);
        let at = Arc::clone(signature);
        let dims = move |s: &S| {
            let model = at.at(s);
            match &model.buffers[buffer].kind {
                Kind::Weight { dims, .. } => dims.clone(),
                _ => vec![s.rows(), model.buffers[buffer].width],
            }
        };
        op = match &of_kind.buffers[buffer].kind {
            Kind::Weight { dims: of, name: tensor } if of.len() == 1 => {
                op.parameter(name, if tensor.ends_with("bias") { 0.0 } else { 1.0 }, dims)
            }
            Kind::Weight { .. } => {
                // Of a product the rows are summed over, of filters and layers everything but the rows.
                let is_product = of_kind
                    .steps
                    .iter()
                    .any(|step| step.usual.operator == "gemm" && step.reads().any(|operand| operand.buffer == buffer));
                let of = dims.clone();
                let fan_in = move |s: &S| {
                    let dims = of(s);
                    if is_product { dims[0] } else { dims[1..].iter().product() }
                };
                op.weight(name, fan_in, dims)
            }
            _ => op.input(name, dims),
        };
    }
    let steps = Arc::new(signature.operators(operators)?);
    let (of_output, of_reference) = (Arc::clone(signature), Arc::clone(signature));
    let (of_depth, of_cost, for_depth) = (Arc::clone(signature), Arc::clone(signature), Arc::clone(&steps));
    let columns = Arc::clone(signature);
    Ok(op
        .output(signature.output, move |s: &S| [s.rows(), of_output.at(s).vocabulary])
        .reference(move |s, inputs, outputs| outputs[0] = reference(&of_reference, s, inputs))
        .magnitude(move |s, inputs, outputs| {
            s.magnitude(inputs, outputs[0].chunks_exact_mut(columns.at(s).vocabulary));
        })
        .depth(move |s| {
            let (model, e) = (of_depth.at(s), Extents::rows(s.rows()));
            let depths = model.steps.iter().map(|step| for_depth[step.usual.operator].depth(&(step.usual.point)(&e)));
            depths.sum::<f64>() as usize
        })
        .tolerance(tolerance(of_kind))
        .cost(move |s, dtype| {
            let (model, e) = (of_cost.at(s), Extents::rows(s.rows()));
            let costs = model.steps.iter().map(|step| steps[step.usual.operator].cost(&(step.usual.point)(&e), dtype));
            // What goes from step to step need not go through memory.
            let kept = model.buffers.iter().filter(|buffer| !matches!(buffer.kind, Kind::Activation));
            let elements: usize = kept.map(|buffer| buffer.rows(s.rows(), 1, s.rows(), s.rows()) * buffer.width).sum();
            Cost { bytes: elements * dtype.size(), flops: costs.map(|cost| cost.flops).sum() }
        })
        .distributions(DRAWN)
        .separable(S::axes()[0].name))
}

fn reference<S: Rows>(signature: &Signature<S>, s: &S, inputs: &[&[f64]]) -> Vec<f64> {
    let tensors = signature.part(inputs, Part::Whole).map(|(given, values)| (given.name, narrow(values))).collect();
    let executor = ReferenceExecutor::new(&signature.at(s), &Tensors(tensors), s.limits(), DType::F32);
    let computed = executor.and_then(|mut executor| {
        signature.part(inputs, Part::Rest).for_each(|(_, rows)| executor.give(rows));
        executor.logits(&[], &Extents::rows(s.rows())).map(<[f64]>::to_vec)
    });
    computed.unwrap_or_else(|why| panic!("the reference: {why}"))
}
