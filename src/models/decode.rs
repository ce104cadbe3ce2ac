//! Steps of a model that writes one token. A single sequence takes kernels that each do what several operators do, where layers
//! are without biases; for more, and for layers with biases, products on tensor cores stand alone.
//!
//! The position is in device memory and caches are seen as a whole, so that the launches of one token are those of every
//! other: they can be recorded once.

use super::builder::{Builder, Rows, call};
use super::config::Config;
use super::description::{BufferId, Extents, Kind, Operand, View};
use super::error::Error;
use crate::ops::attention_kvcache;
use crate::ops::gemv_add::Added;
use crate::ops::rmsnorm_qkv_rope::Projected;
use crate::ops::rmsnorm_swiglu::Gated;
use crate::ops::rope_append::Append;

/// The longest heads that attention over a cache whose length is in device memory takes.
const MOST_HEAD_DIM: usize = 256;

/// Fused steps take heads of pairs of elements, up to a length.
///
/// # Errors
/// When the heads of a configuration are others.
pub fn check_heads(c: &Config) -> Result<(), Error> {
    if c.head_dim.is_multiple_of(2) && (2..=MOST_HEAD_DIM).contains(&c.head_dim) {
        return Ok(());
    }
    let expected = format!("heads of an even number of elements up to {MOST_HEAD_DIM}, for the fused kernels");
    Err(Error::input(c.source.clone(), expected, c.head_dim.to_string()))
}

/// Keys and values of a layer.
#[derive(Clone, Copy)]
pub struct Caches {
    /// Keys; rotated in a model that rotates them.
    pub keys: BufferId,
    /// Values.
    pub values: BufferId,
}

impl Caches {
    fn whole(self) -> [Operand; 2] {
        [self.keys, self.values].map(|buffer| Operand { buffer, view: View::Whole })
    }
}

impl Builder {
    fn past(&mut self) -> Operand {
        self.once("past", |m| m.buffer("past", 1, Kind::Past))
    }

    /// Queries of the normalised x, rotated; its keys, rotated, and its values go to the caches. `qkv` has the rows of all
    /// three.
    pub fn project(
        &mut self,
        x: Rows,
        (norm, eps): (&str, f32),
        qkv: Operand,
        angles: [Operand; 2],
        caches: Caches,
        [heads, kv_heads, dim]: [usize; 3],
    ) -> Rows {
        if !self.is_single() {
            let h = self.rmsnorm(x, norm, eps);
            return self.project_by_linear(h, qkv, None, angles, caches, [heads, kv_heads, dim]);
        }
        let (q, k) = (self.activation("queries", heads * dim, View::New), x.width);
        let norm = self.weight(norm, &[k]);
        let shape = move |e: &Extents| {
            let Append { batch, heads, kv_heads, half, past, spare } = append([heads, kv_heads, dim], e);
            Projected { batch, heads, kv_heads, half, k, past, spare, eps }
        };
        let rest = self.appended(angles, caches);
        self.step(call("rmsnorm_qkv_rope", shape, [x.at, norm, qkv].into_iter().chain(rest)), q.at);
        q
    }

    /// The same of x as it is, plus the biases if there are such, by a product on tensor cores.
    pub fn project_by_linear(
        &mut self,
        x: Rows,
        qkv: Operand,
        bias: Option<Operand>,
        angles: [Operand; 2],
        caches: Caches,
        [heads, kv_heads, dim]: [usize; 3],
    ) -> Rows {
        let projected = self.linear_of(x, qkv, bias, (heads + 2 * kv_heads) * dim, None);
        let q = self.activation("queries", heads * dim, View::New);
        let shape = move |e: &Extents| append([heads, kv_heads, dim], e);
        let rest = self.appended(angles, caches);
        self.step(call("rope_append", shape, [projected.at].into_iter().chain(rest)), q.at);
        q
    }

    /// What an append reads and writes besides the projection: cosines, sines, position, keys, values.
    fn appended(&mut self, angles: [Operand; 2], caches: Caches) -> [Operand; 5] {
        let [cosine, sine] = angles.map(|table| Operand { view: View::Whole, ..table });
        let [keys, values] = caches.whole();
        [cosine, sine, self.past(), keys, values]
    }

    /// softmax(q kᵀ / √dim) v over the positions so far, this one's included.
    pub fn attend(&mut self, q: Rows, caches: Caches, heads: usize, group: usize) -> Rows {
        let y = self.activation("attended", q.width, View::New);
        let dim = q.width / (heads * group);
        let shape = move |e: &Extents| attention_kvcache::Step {
            batch: e.batch,
            heads,
            group,
            past: e.past,
            spare: e.capacity - e.past - 1,
            dim,
        };
        let [keys, values] = caches.whole();
        let past = self.past();
        self.step(call("attention_kvcache", shape, [q.at, keys, values, past]), y.at);
        y
    }

    /// residual + x Wᵀ, plus the bias of `name` if it has one.
    pub fn add_linear(&mut self, residual: Rows, x: Rows, name: &str, has_bias: bool) -> Rows {
        let (n, k) = (residual.width, x.width);
        let (weight, bias) = self.layer_of(name, [n, k], has_bias);
        if has_bias || !self.is_single() {
            return self.linear_of(x, weight, bias, n, Some(residual));
        }
        let y = self.activation("sum", n, View::New);
        let shape = move |e: &Extents| Added { batch: e.batch, n, k };
        self.step(call("gemv_add", shape, [x.at, weight, residual.at]), y.at);
        y
    }

    /// silu(gate) · up of the normalised x; `gate_up` has the rows of both.
    pub fn gated(&mut self, x: Rows, (norm, eps): (&str, f32), gate_up: Operand, n: usize) -> Rows {
        if !self.is_single() {
            let h = self.rmsnorm(x, norm, eps);
            let [gate, up] = [0, n].map(|first| Operand { view: View::Part { first, rows: n }, ..gate_up });
            let [gate, up] = [gate, up].map(|weight| self.linear_of(h, weight, None, n, None));
            return self.swiglu(gate, up);
        }
        let (y, k) = (self.activation("gated", n, View::New), x.width);
        let norm = self.weight(norm, &[k]);
        let shape = move |e: &Extents| Gated { batch: e.batch, n, k, eps };
        self.step(call("rmsnorm_swiglu", shape, [x.at, norm, gate_up]), y.at);
        y
    }

    /// Whether the kernels of few vectors serve: two vectors take them longer than tensor cores.
    fn is_single(&self) -> bool {
        self.decodes == Some(1)
    }
}

/// The append of a token of each sequence, with so many heads, heads of keys, and elements of each.
fn append([heads, kv_heads, dim]: [usize; 3], e: &Extents) -> Append {
    let spare = e.capacity - e.past - 1;
    Append { batch: e.batch, heads, kv_heads, half: dim / 2, past: e.past, spare }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;
    use crate::models::{Model, Way, named, planned};
    use rstest::rstest;

    #[rstest]
    fn no_launch_depends_on_the_position(
        #[values("tinyllama", "opt-125m")] name: &str,
        #[values(1, 3)] batch: usize,
        #[values(DType::F32, DType::BF16)] dtype: DType,
    ) {
        let model = Model::fused(&named(name).unwrap(), batch).unwrap();
        let launches = |past: usize| -> Vec<String> {
            let e = Extents { batch, queries: 1, past, all_logits: false, capacity: 600 };
            let steps = planned(&model, &e, dtype, &Way::Own("sm_90a".into())).unwrap();
            let launched = steps.iter().flat_map(|step| step.candidate.body.launches(&step.point));
            let operands = model.decode.iter().flat_map(|step| step.reads().chain([step.output]));
            let rows = operands.map(|operand| format!("{:?}", operand.rows(&model.buffers[operand.buffer], &e)));
            launched.map(|launch| format!("{launch:?}")).chain(rows).collect()
        };
        assert_eq!(launches(0), launches(599));
    }
}
