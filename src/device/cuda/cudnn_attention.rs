//! Attention by cuDNN: the graph of its definition, which the library carries out by one of its fused engines.

use super::choices::Choices;
use super::cudnn::{self, element};
use super::cudnn_graph::{Graph, Plan, Tensor, row_major};
use super::scratch::{Scratch, milliseconds};
use crate::core::candidate::Enqueue;
use crate::core::dtype::DType;
use cudarc::cudnn::sys::{
    cudnnDataType_t as Type, cudnnPointwiseMode_t as Pointwise, cudnnReduceTensorOp_t as Reduction,
};
use std::sync::Arc;

/// An attention with scores and sums in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Sequences.
    pub batch: usize,
    /// Heads of keys and values.
    pub heads: usize,
    /// Query heads to each of them.
    pub group: usize,
    /// Queries of a head.
    pub queries: usize,
    /// Keys of a head.
    pub keys: usize,
    /// Elements of a query, a key, a value.
    pub dim: usize,
    /// Whether a query sees only the keys up to its own place, counted from the end.
    pub causal: bool,
}

impl Attention {
    fn query_heads(&self) -> usize {
        self.heads * self.group
    }

    fn q(&self) -> [usize; 4] {
        [self.batch, self.query_heads(), self.queries, self.dim]
    }

    fn k(&self) -> [usize; 4] {
        [self.batch, self.heads, self.keys, self.dim]
    }

    /// Whether a query does not see all keys; the last one does.
    fn is_masked(&self) -> bool {
        self.causal && self.queries > 1
    }

    /// Extents of the scores.
    fn scores(&self) -> [usize; 4] {
        [self.batch, self.query_heads(), self.queries, self.keys]
    }
}

/// Bytes of scratch space that the library may use, for parts of outputs that are put together at the end.
pub const WORKSPACE_BYTES: usize = 1 << 22;

/// Loads the library and has it plan a shape, once a process. The context is current.
///
/// # Errors
/// Why there is no library or no plan, and what to do.
pub fn prepare(attention: Attention, dtype: DType) -> Result<(), String> {
    if attention.batch == 0 {
        return Ok(());
    }
    if attention.causal && attention.queries > attention.keys {
        return Err("cuDNN has no queries that see no key".into());
    }
    PLANS.make(attention, dtype, choose)
}

/// Enqueues the attention; [`prepare`] came before. Inputs: q, k, v.
///
/// # Errors
/// What the library said.
pub fn enqueue(attention: Attention, call: &Enqueue) -> Result<(), String> {
    if attention.batch == 0 {
        return Ok(());
    }
    let plan = PLANS.get(attention, call.dtype).ok_or("cuDNN was not prepared for this shape")?;
    let handle = cudnn::handle(call.stream)?;
    let buffers = [call.inputs[0], call.inputs[1], call.inputs[2], call.outputs[0]];
    plan.run(&handle, &buffers, call.workspace)
}

/// The graph and the engine that were chosen for a shape, by the library's number.
pub fn describe(attention: Attention, dtype: DType) -> Option<String> {
    let plan = PLANS.get(attention, dtype)?;
    let operations = plan.operations();
    let graph = if operations == 1 { "one operation".to_owned() } else { format!("{operations} operations") };
    Some(format!("cuDNN {}: engine {} for a graph of {graph}", cudnn::version(), plan.engine()))
}

static PLANS: Choices<Attention, Arc<Plan>> = Choices::new();

/// Lets the library run what it proposes, on memory of its own, and returns the fastest.
fn choose(attention: Attention, dtype: DType) -> Result<Arc<Plan>, String> {
    let handle = cudnn::handle(0)?;
    let cuda = |error: cudarc::driver::DriverError| format!("choosing a plan of cuDNN: {:?}", error.0);
    let extents = [attention.q(), attention.k(), attention.k(), attention.q()];
    let tensors = extents.map(|extents| Scratch::of(extents.iter().product::<usize>() * dtype.size()).map_err(cuda));
    let tensors = tensors.into_iter().collect::<Result<Vec<_>, _>>()?;
    let buffers: Vec<u64> = tensors.iter().map(|memory| memory.0).collect();
    let workspace = Scratch::of(WORKSPACE_BYTES).map_err(cuda)?;
    let mut fastest: Option<(f32, Plan)> = None;
    let mut refusal = String::new();
    for graph in [in_one, in_steps] {
        let plan = match graph(attention, dtype).and_then(|graph| graph.plan(&handle, WORKSPACE_BYTES)) {
            Ok(plan) => plan,
            Err(error) => {
                refusal = error;
                continue;
            }
        };
        let time = milliseconds(|| plan.run(&handle, &buffers, workspace.0))?;
        if fastest.as_ref().is_none_or(|(least, _)| time < *least) {
            fastest = Some((time, plan));
        }
    }
    fastest.map(|(_, plan)| Arc::new(plan)).ok_or(refusal)
}

const FLOAT: Type = Type::CUDNN_DATA_FLOAT;

fn scale(attention: Attention, graph: &mut Graph) -> Result<Tensor, String> {
    graph.float((1.0 / (attention.dim as f64).sqrt()) as f32)
}

/// softmax(q kᵀ scale) v as the one operation that the library has for it since 9.13, without a mask.
fn in_one(attention: Attention, dtype: DType) -> Result<Graph, String> {
    if attention.is_masked() {
        return Err("cuDNN's operation for attention has no mask".into());
    }
    let element = element(dtype)?;
    let mut graph = Graph::default();
    let mut tensor = |extents| graph.buffer(element, extents, row_major(extents));
    let (q, k, v) = (tensor(attention.q())?, tensor(attention.k())?, tensor(attention.k())?);
    let y = tensor(attention.q())?;
    let scale = scale(attention, &mut graph)?;
    graph.attention([q, k, v], scale, y)?;
    Ok(graph)
}

/// softmax(q kᵀ scale) v in the steps by which the library knows an attention, those of its backward pass among them:
/// the logarithm of a row's sum is computed, and kept nowhere.
fn in_steps(attention: Attention, dtype: DType) -> Result<Graph, String> {
    let element = element(dtype)?;
    let mut graph = Graph::default();
    let [batch, heads, keys, dim] = attention.k();
    let of_keys = row_major(attention.k());
    let q = graph.buffer(element, attention.q(), row_major(attention.q()))?;
    let k = graph.buffer(element, [batch, heads, dim, keys], [of_keys[0], of_keys[1], 1, dim])?;
    let v = graph.buffer(element, attention.k(), of_keys)?;
    let y = graph.buffer(element, attention.q(), row_major(attention.q()))?;

    let all = attention.scores();
    let rows = [all[0], all[1], all[2], 1];
    let products = graph.product(q, k, all)?;
    let scale = scale(attention, &mut graph)?;
    let scores = graph.pointwise(Pointwise::CUDNN_POINTWISE_MUL, FLOAT, &[products, scale], all)?;
    let scores = masked(attention, &mut graph, scores)?;
    let max = graph.reduce(Reduction::CUDNN_REDUCE_TENSOR_MAX, scores, rows)?;
    let below = graph.pointwise(Pointwise::CUDNN_POINTWISE_SUB, FLOAT, &[scores, max], all)?;
    let powers = graph.pointwise(Pointwise::CUDNN_POINTWISE_EXP, FLOAT, &[below], all)?;
    let sum = graph.reduce(Reduction::CUDNN_REDUCE_TENSOR_ADD, powers, rows)?;
    let log = graph.pointwise(Pointwise::CUDNN_POINTWISE_LOG, FLOAT, &[sum], rows)?;
    graph.pointwise(Pointwise::CUDNN_POINTWISE_ADD, FLOAT, &[max, log], rows)?;
    let weights = graph.pointwise(Pointwise::CUDNN_POINTWISE_DIV, element, &[powers, sum], all)?;
    graph.matmul(weights, v, y)?;
    Ok(graph)
}

/// The scores, those of keys that a query does not see lowered to the least number.
fn masked(attention: Attention, graph: &mut Graph, scores: Tensor) -> Result<Tensor, String> {
    const INT: Type = Type::CUDNN_DATA_INT32;
    if !attention.is_masked() {
        return Ok(scores);
    }
    let all = attention.scores();
    let mut row = graph.places(2, scores, all)?;
    let column = graph.places(3, scores, all)?;
    if attention.queries != attention.keys {
        let (keys, queries) = (graph.int(attention.keys as i32)?, graph.int(attention.queries as i32)?);
        row = graph.pointwise(Pointwise::CUDNN_POINTWISE_ADD, INT, &[row, keys], all)?;
        row = graph.pointwise(Pointwise::CUDNN_POINTWISE_SUB, INT, &[row, queries], all)?;
    }
    let seen = graph.pointwise(Pointwise::CUDNN_POINTWISE_CMP_GE, Type::CUDNN_DATA_BOOLEAN, &[row, column], all)?;
    let least = graph.float(f32::MIN)?;
    graph.pointwise(Pointwise::CUDNN_POINTWISE_BINARY_SELECT, FLOAT, &[scores, least, seen], all)
}
