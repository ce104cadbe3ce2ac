//! How an architecture is written down: one method an operator, each returning where its result is.

use super::description::{Buffer, BufferId, Call, Extents, Kind, Model, Operand, Step, View};
use super::sampling::Sampler;
use crate::core::shape::{Point, Shape};
use crate::ops::attention_cached::Cached;
use crate::ops::embedding::Lookup;
use crate::ops::family::elementwise::Vector;
use crate::ops::gemm::Product;
use crate::ops::gemv::Vectors;
use crate::ops::layernorm::Normalised;
use crate::ops::linear::{Activation, Layer};
use crate::ops::rope::Heads;
use crate::ops::softmax::Matrix;
use std::collections::HashMap;
use std::sync::Arc;

/// Up to so many rows a product without a bias is one of few vectors.
const FEW_ROWS: usize = 8;

/// Rows of activations.
#[derive(Clone, Copy)]
pub struct Rows {
    pub(super) at: Operand,
    pub(super) width: usize,
}

impl Rows {
    /// The rows alone whose logits are asked for.
    pub fn asked(self) -> Rows {
        Rows { at: Operand { view: View::Asked, ..self.at }, ..self }
    }
}

/// A model under construction.
#[derive(Default)]
pub struct Builder {
    buffers: Vec<Buffer>,
    steps: Vec<Step>,
    /// How many of the steps are those of [`Model::steps`], once that is settled.
    before_decode: Option<usize>,
    /// The sequences of [`Model::decode`].
    pub(super) decodes: Option<usize>,
    weights: HashMap<String, Operand>,
    layer: Arc<str>,
}

pub(super) fn call<S: Shape>(
    operator: &'static str,
    shape: impl Fn(&Extents) -> S + Send + Sync + 'static,
    inputs: impl IntoIterator<Item = Operand>,
) -> Call {
    let point = Arc::new(move |e: &Extents| -> Point { shape(e).to_point() });
    Call { operator, point, inputs: inputs.into_iter().map(Some).collect() }
}

impl Builder {
    /// What follows are the steps of [`Model::decode`], for so many sequences.
    pub fn decode(&mut self, batch: usize) {
        self.before_decode = Some(self.steps.len());
        self.decodes = Some(batch);
    }

    /// What follows is part of this layer.
    pub fn layer(&mut self, name: impl Into<Arc<str>>) {
        self.layer = name.into();
    }

    pub(super) fn buffer(&mut self, name: impl Into<String>, width: usize, kind: Kind) -> BufferId {
        self.buffers.push(Buffer { name: name.into(), width, kind });
        self.buffers.len() - 1
    }

    /// What is made once under a name: a buffer for all steps.
    pub(super) fn once(&mut self, name: &str, make: impl FnOnce(&mut Self) -> BufferId) -> Operand {
        if let Some(known) = self.weights.get(name) {
            return *known;
        }
        let made = Operand { buffer: make(self), view: View::Whole };
        self.weights.insert(name.into(), made);
        made
    }

    pub(super) fn weight(&mut self, name: &str, dims: &[usize]) -> Operand {
        let kind = Kind::Weight { name: name.into(), dims: dims.to_vec() };
        let width = dims.iter().skip(usize::from(dims.len() > 1)).product();
        self.once(name, |m| m.buffer(name, width, kind))
    }

    /// Matrices of rows of `width` in one buffer, one behind the other: a step may take all of them, and others each.
    pub fn stack(&mut self, name: &str, width: usize, parts: &[(String, usize)]) -> Operand {
        let matrices = parts.iter().map(|(part, rows)| (format!("{part}.weight"), vec![*rows, width]));
        self.stacked(name, width, matrices.collect())
    }

    /// The biases of such matrices, an element for each of their rows.
    pub fn stack_biases(&mut self, name: &str, parts: &[(String, usize)]) -> Operand {
        self.stacked(name, 1, parts.iter().map(|(part, rows)| (format!("{part}.bias"), vec![*rows])).collect())
    }

    /// Tensors by name and extents, in one buffer of rows of `width`.
    fn stacked(&mut self, name: &str, width: usize, tensors: Vec<(String, Vec<usize>)>) -> Operand {
        let whole = self.once(name, |m| m.buffer(name, width, Kind::Stacked(tensors.clone())));
        let mut first = 0;
        for (tensor, dims) in tensors {
            let rows = dims[0];
            self.weights.insert(tensor, Operand { buffer: whole.buffer, view: View::Part { first, rows } });
            first += rows;
        }
        whole
    }

    /// Rows of `width` with the view of `like`: a result for each of its rows.
    pub(super) fn activation(&mut self, name: &str, width: usize, view: View) -> Rows {
        // All rows of the buffer are those that its maker saw.
        let buffer = self.buffer(name, width, Kind::Activation);
        Rows { at: Operand { buffer, view }, width }
    }

    pub(super) fn step(&mut self, usual: Call, output: Operand) {
        self.steps.push(Step { usual, few: None, output, layer: Arc::clone(&self.layer) });
    }

    /// Rows of the tokens in `table`.
    pub fn embedding(&mut self, table: &str, vocab: usize, dim: usize) -> Rows {
        let ids = self.tokens();
        self.look_up(table, vocab, dim, ids)
    }

    fn tokens(&mut self) -> BufferId {
        self.once("tokens", |m| m.buffer("tokens", 1, Kind::Tokens)).buffer
    }

    /// Rows of the positions in `table`, which leaves `offset` rows before the first.
    pub fn positions(&mut self, table: &str, rows: usize, dim: usize, offset: usize) -> Rows {
        let ids = self.once(&format!("positions from {offset}"), |m| m.buffer("positions", 1, Kind::Positions(offset)));
        self.look_up(table, rows, dim, ids.buffer)
    }

    fn look_up(&mut self, table: &str, vocab: usize, dim: usize, ids: BufferId) -> Rows {
        let from = self.weight(table, &[vocab, dim]);
        let y = self.activation("embedded", dim, View::New);
        let shape = move |e: &Extents| Lookup { vocab, dim, ids: e.tokens() };
        self.step(call("embedding", shape, [from, Operand { buffer: ids, view: View::New }]), y.at);
        y
    }

    /// x / √(mean(x²) + ε) · weight
    pub fn rmsnorm(&mut self, x: Rows, weight: &str, eps: f32) -> Rows {
        let weight = self.weight(weight, &[x.width]);
        self.normalise("rmsnorm", x, &[weight], eps)
    }

    /// (x − mean) / √(variance + ε) · weight + bias, of `name`.
    pub fn layernorm(&mut self, x: Rows, name: &str, eps: f32) -> Rows {
        let weight = self.weight(&format!("{name}.weight"), &[x.width]);
        let bias = self.weight(&format!("{name}.bias"), &[x.width]);
        self.normalise("layernorm", x, &[weight, bias], eps)
    }

    fn normalise(&mut self, operator: &'static str, x: Rows, parameters: &[Operand], eps: f32) -> Rows {
        let y = self.activation("normalised", x.width, x.at.view);
        let (cols, view) = (x.width, x.at.view);
        let shape = move |e: &Extents| Normalised { rows: rows(view, e), cols, eps };
        self.step(call(operator, shape, [x.at].into_iter().chain(parameters.iter().copied())), y.at);
        y
    }

    /// x Wᵀ, plus the bias of `name` if it has one: `n` features.
    pub fn linear(&mut self, x: Rows, name: &str, n: usize, has_bias: bool) -> Rows {
        let y = self.activation("product", n, x.at.view);
        self.linear_into(x, name, n, has_bias, y.at);
        y
    }

    fn linear_into(&mut self, x: Rows, name: &str, n: usize, has_bias: bool, output: Operand) {
        let (weight, bias) = self.layer_of(name, [n, x.width], has_bias);
        self.product(x, weight, bias, n, output);
    }

    /// The weight of `name`, and its bias if it has one.
    pub(super) fn layer_of(&mut self, name: &str, dims: [usize; 2], has_bias: bool) -> (Operand, Option<Operand>) {
        let weight = self.weight(&format!("{name}.weight"), &dims);
        (weight, has_bias.then(|| self.weight(&format!("{name}.bias"), &dims[..1])))
    }

    fn product(&mut self, x: Rows, weight: Operand, bias: Option<Operand>, n: usize, output: Operand) {
        let (k, view) = (x.width, x.at.view);
        let few = bias.is_none().then(|| {
            let shape = move |e: &Extents| Vectors { batch: rows(view, e), n, k };
            (FEW_ROWS, call("gemv", shape, [x.at, weight]))
        });
        // The residual is added by a step of its own.
        let usual = self.linear_call(x, weight, bias, n, None);
        self.steps.push(Step { usual, few, output, layer: Arc::clone(&self.layer) });
    }

    /// x Wᵀ, plus the bias and the residual if there are such, on tensor cores.
    pub(super) fn linear_of(
        &mut self,
        x: Rows,
        weight: Operand,
        bias: Option<Operand>,
        n: usize,
        residual: Option<Rows>,
    ) -> Rows {
        let y = self.activation("product", n, x.at.view);
        let call = self.linear_call(x, weight, bias, n, residual);
        self.step(call, y.at);
        y
    }

    fn linear_call(
        &mut self,
        x: Rows,
        weight: Operand,
        bias: Option<Operand>,
        n: usize,
        residual: Option<Rows>,
    ) -> Call {
        let bias = bias.unwrap_or_else(|| self.zeros(n));
        let (view, k, has_residual) = (x.at.view, x.width, residual.is_some());
        let shape =
            move |e: &Extents| Layer { m: rows(view, e), n, k, activation: Activation::None, residual: has_residual };
        let mut call = call("linear", shape, [x.at, weight, bias]);
        call.inputs.push(residual.map(|residual| residual.at));
        call
    }

    /// A bias of none, shared by all products of that width.
    fn zeros(&mut self, n: usize) -> Operand {
        let name = format!("zeros of {n}");
        self.once(&name, |m| m.buffer(&name, n, Kind::Constant { value: 0.0, is_table: false }))
    }

    /// Cosines and sines of `angle(position, i)`, for each of `half` pairs.
    pub fn angles(&mut self, half: usize, angle: impl Fn(usize, usize) -> f64 + Send + Sync + 'static) -> [Operand; 2] {
        let angle = Arc::new(angle);
        let sine = Arc::clone(&angle);
        let tables = [
            self.buffer("cosines", half, Kind::Table(Arc::new(move |position, i| angle(position, i).cos()))),
            self.buffer("sines", half, Kind::Table(Arc::new(move |position, i| sine(position, i).sin()))),
        ];
        tables.map(|buffer| Operand { buffer, view: View::Appended })
    }

    /// Cosines and sines that rotate nothing, exactly: those of an angle of 0, for each of `half` pairs.
    pub fn zero_angles(&mut self, half: usize) -> [Operand; 2] {
        [("ones", 1.0), ("zeros", 0.0)].map(|(name, value)| {
            let buffer = self.buffer(name, half, Kind::Constant { value, is_table: true });
            Operand { buffer, view: View::Appended }
        })
    }

    /// Each head of x rotated by the angles of its position.
    pub fn rotate(&mut self, x: Rows, angles: [Operand; 2], heads: usize) -> Rows {
        let y = self.activation("rotated", x.width, View::New);
        self.rotate_into(x, angles, heads, y.at);
        y
    }

    fn rotate_into(&mut self, x: Rows, [cosine, sine]: [Operand; 2], heads: usize, output: Operand) {
        let half = x.width / heads / 2;
        let shape = move |e: &Extents| Heads { tokens: e.tokens(), heads, half };
        self.step(call("rope", shape, [x.at, cosine, sine]), output);
    }

    /// Keys, rotated, appended to a cache.
    pub fn append_rotated(&mut self, x: Rows, angles: [Operand; 2], heads: usize) -> BufferId {
        let cache = self.buffer("keys", x.width, Kind::Cache);
        self.rotate_into(x, angles, heads, Operand { buffer: cache, view: View::Appended });
        cache
    }

    /// The product of `linear`, appended to a cache.
    pub fn append_linear(&mut self, x: Rows, name: &str, n: usize, has_bias: bool) -> BufferId {
        let cache = self.buffer("cached", n, Kind::Cache);
        self.linear_into(x, name, n, has_bias, Operand { buffer: cache, view: View::Appended });
        cache
    }

    /// softmax(q kᵀ / √dim) v over the positions so far, `group` heads of q to each of the `heads` of keys.
    pub fn attention(&mut self, q: Rows, keys: BufferId, values: BufferId, heads: usize, group: usize) -> Rows {
        let y = self.activation("attended", q.width, View::New);
        let dim = q.width / (heads * group);
        let shape = move |e: &Extents| {
            let Extents { batch, queries, past, .. } = *e;
            Cached { batch, heads, group, queries, past, dim }
        };
        let [keys, values] = [keys, values].map(|buffer| Operand { buffer, view: View::Seen });
        self.step(call("attention_cached", shape, [q.at, keys, values]), y.at);
        y
    }

    /// a + b
    pub fn add(&mut self, a: Rows, b: Rows) -> Rows {
        self.elementwise("add", &[a, b])
    }

    /// silu(gate) · up
    pub fn swiglu(&mut self, gate: Rows, up: Rows) -> Rows {
        self.elementwise("swiglu", &[gate, up])
    }

    /// max(x, 0)
    pub fn relu(&mut self, x: Rows) -> Rows {
        self.elementwise("relu", &[x])
    }

    pub(super) fn elementwise(&mut self, operator: &'static str, operands: &[Rows]) -> Rows {
        let (width, view) = (operands[0].width, operands[0].at.view);
        let y = self.activation(operator, width, view);
        let shape = move |e: &Extents| Vector { n: rows(view, e) * width };
        self.step(call(operator, shape, operands.iter().map(|operand| operand.at)), y.at);
        y
    }

    /// Rows that a run is given.
    pub fn given(&mut self, name: &str, width: usize) -> Rows {
        let buffer = self.buffer(name, width, Kind::Given);
        Rows { at: Operand { buffer, view: View::New }, width }
    }

    /// x W, with W as `[inner, n]`.
    pub fn gemm(&mut self, x: Rows, weight: &str, n: usize) -> Rows {
        let weight = self.weight(weight, &[x.width, n]);
        let (y, k) = (self.activation("product", n, x.at.view), x.width);
        self.step(call("gemm", move |e: &Extents| Product { m: e.tokens(), n, k }, [x.at, weight]), y.at);
        y
    }

    /// e^x / Σ e^x of each row, or its logarithm: the operator of that name.
    pub fn softmax(&mut self, operator: &'static str, x: Rows) -> Rows {
        let (y, cols) = (self.activation(operator, x.width, x.at.view), x.width);
        self.step(call(operator, move |e: &Extents| Matrix { rows: e.tokens(), cols }, [x.at]), y.at);
        y
    }

    /// The model that computes `x` of the rows that it is given.
    pub fn result(mut self, x: Rows) -> Model {
        self.buffers[x.at.buffer].kind = Kind::Logits;
        self.model(x.at.buffer, x.width, 1)
    }

    /// Logits of the rows that are asked for, by the weight `name` of `[vocabulary, width]`.
    pub fn logits(&mut self, x: Rows, name: &str, vocabulary: usize) {
        let logits = self.logits_of(vocabulary);
        let weight = self.weight(name, &[vocabulary, x.width]);
        self.product(x.asked(), weight, None, vocabulary, Operand { buffer: logits, view: View::Asked });
    }

    fn logits_of(&mut self, vocabulary: usize) -> BufferId {
        self.once("logits", |m| m.buffer("logits", vocabulary, Kind::Logits)).buffer
    }

    /// The language model that ends in logits.
    pub fn language(mut self, vocabulary: usize, context: usize) -> Model {
        let logits = self.logits_of(vocabulary);
        let tokens = Operand { buffer: self.tokens(), view: View::Asked };
        let shape = move |e: &Extents| Matrix { rows: e.asked(), cols: vocabulary };
        let usual = call("argmax", shape, [Operand { buffer: logits, view: View::Asked }]);
        let choice = Step { usual, few: None, output: tokens, layer: Arc::clone(&self.layer) };
        Model { choice: Some(choice), ..self.model(logits, vocabulary, context) }
    }

    fn model(mut self, logits: BufferId, vocabulary: usize, context: usize) -> Model {
        let decode = self.before_decode.map(|at| self.steps.split_off(at)).unwrap_or_default();
        let sampler = Sampler::default();
        Model { buffers: self.buffers, steps: self.steps, decode, choice: None, sampler, logits, vocabulary, context }
    }
}

/// Rows that a view of activations has.
fn rows(view: View, e: &Extents) -> usize {
    if view == View::Asked { e.asked() } else { e.tokens() }
}
