//! Steps of a model that writes one token. A single sequence takes kernels that each do what several operators do; for more,
//! products on tensor cores stand alone.
//!
//! The position is in device memory and caches are seen as a whole, so that the launches of one token are those of every
//! other: they can be recorded once.

use super::builder::{Builder, Rows, call};
use super::description::{BufferId, Extents, Kind, Operand, View};
use crate::ops::attention_kvcache;
use crate::ops::gemv_add::Added;
use crate::ops::rmsnorm_qkv_rope::Projected;
use crate::ops::rmsnorm_swiglu::Gated;
use crate::ops::rope_append::Append;

/// Keys and values of a layer.
#[derive(Clone, Copy)]
pub struct Caches {
    /// Keys, rotated.
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
        let (q, k) = (self.activation("queries", heads * dim, View::New), x.width);
        let [cosine, sine] = angles.map(|table| Operand { view: View::Whole, ..table });
        let [keys, values] = caches.whole();
        let past = self.past();
        let append = move |e: &Extents| {
            let (half, spare) = (dim / 2, e.capacity - e.past - 1);
            Append { batch: e.batch, heads, kv_heads, half, past: e.past, spare }
        };
        let rest = [cosine, sine, past, keys, values];
        if self.is_single() {
            let norm = self.weight(norm, &[k]);
            let shape = move |e: &Extents| {
                let Append { batch, heads, kv_heads, half, past, spare } = append(e);
                Projected { batch, heads, kv_heads, half, k, past, spare, eps }
            };
            self.step(call("rmsnorm_qkv_rope", shape, [x.at, norm, qkv].into_iter().chain(rest)), q.at);
        } else {
            let h = self.rmsnorm(x, norm, eps);
            let projected = self.linear_of(h, qkv, (heads + 2 * kv_heads) * dim, None);
            self.step(call("rope_append", append, [projected.at].into_iter().chain(rest)), q.at);
        }
        q
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

    /// residual + x Wᵀ
    pub fn add_linear(&mut self, residual: Rows, x: Rows, name: &str) -> Rows {
        let (n, k) = (residual.width, x.width);
        let weight = self.weight(&format!("{name}.weight"), &[n, k]);
        if !self.is_single() {
            return self.linear_of(x, weight, n, Some(residual));
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
            let (gate, up) = (self.linear_of(h, gate, n, None), self.linear_of(h, up, n, None));
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
