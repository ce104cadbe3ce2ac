//! Attention of one new token of each sequence over a cache whose length is in device memory:
//! y = softmax(q kᵀ / √dim) v over the positions up to the token's own, position by position, as attention_cached has it.
//!
//! A query head `h` reads the keys of head `h / group`.

mod launch;

use super::attention::RANGE;
use super::attention_cached::{self, Cached};
use super::family::FUNCTION_FLOPS;
use super::family::rows::double;
use super::float::Float;
use crate::core::candidate::Declare;
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

crate::shape! {
    /// The shape of a step of attention.
    pub struct Step {
        /// Sequences, all of the same length.
        batch: 0..=1 << 10,
        /// Heads of keys and values.
        heads: 1..=1 << 8,
        /// Query heads to each of them.
        group: 1..=1 << 6,
        /// Positions before the token's own.
        past: 0..=1 << 17,
        /// Positions of the cache behind it.
        spare: 0..=1 << 17,
        /// Elements of a query, a key, a value.
        dim: 1..=256,
    }
}

impl Step {
    fn capacity(&self) -> usize {
        self.past + 1 + self.spare
    }

    fn query_heads(&self) -> usize {
        self.heads * self.group
    }

    /// The same attention over the part of the caches that is seen.
    fn seen(&self) -> Cached {
        let Step { batch, heads, group, past, dim, .. } = *self;
        Cached { batch, heads, group, queries: 1, past, dim }
    }

    /// Elements of that part.
    fn seen_elements(&self) -> usize {
        (self.past + 1) * self.batch * self.heads * self.dim
    }
}

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", launch::naive().untimed().lesson())
        .candidate("cuda", launch::best().needs("sm_90"))
        .into()
}

fn operator() -> Op<Step> {
    Op::new("attention_kvcache")
        .input("q", |s: &Step| [s.batch, s.query_heads(), s.dim])
        .input("k", |s| [s.capacity(), s.batch, s.heads, s.dim])
        .input("v", |s| [s.capacity(), s.batch, s.heads, s.dim])
        .index("position", |_| [1], |s| s.past + 1)
        .index_from(|s| s.past)
        .output("y", |s| [s.batch, s.query_heads(), s.dim])
        .reference(|s, inputs, outputs| {
            each_key(s, inputs, &mut outputs[0], |y, weight, _, v| {
                y.iter_mut().zip(v).for_each(|(y, v)| *y += weight * v);
            });
        })
        // An error of a score changes its weight by as much, and a score collects the sizes of its products.
        .magnitude(|s, inputs, outputs| {
            outputs[0].fill(0.0);
            each_key(s, inputs, &mut outputs[0], |y, weight, size, v| {
                y.iter_mut().zip(v).for_each(|(y, v)| *y += weight * (1.0 + size) * v.abs());
            });
        })
        .depth(|s| s.dim + s.past + 1 + STEPS)
        .range(RANGE)
        .exclude_distributions([Distribution::Tiny, Distribution::LargeMean, Distribution::NonFinite])
        .cost(cost)
        .relation(
            "doubled values double the output",
            |_, inputs, _| double(&mut inputs[2]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .exact_relation(
            "positions behind the token's own are not seen",
            |s, inputs, _| {
                let row = s.batch * s.heads * s.dim;
                inputs[1..3].iter_mut().for_each(|cache| cache[(s.past + 1) * row..].fill(1.0));
            },
            |_, _, _, _| {},
        )
        .varied_around(Step { batch: 2, heads: 3, group: 2, past: 9, spare: 3, dim: 8 })
        .shapes(CASES.map(of))
        .perf(
            [[1, 4, 8, 2047, 0, 64], [1, 4, 8, 4095, 0, 64], [4, 8, 4, 255, 256, 128], [16, 4, 8, 255, 256, 64]]
                .map(of),
        )
}

/// Roundings besides those of the two sums: scale, difference, two of the exponential, quotient, and three corrections.
const STEPS: usize = 8;

/// As (batch, heads, group, past, spare, dim): nothing, a first token, every group, rows of every power of two, rows that are
/// none, fewer keys than blocks of a cluster and more than all threads take at once, the heads of models, and every cluster.
const CASES: [[usize; 6]; 22] = [
    [0, 2, 1, 4, 1, 8],
    [1, 1, 1, 0, 0, 1],
    [2, 3, 1, 0, 5, 8],
    [1, 2, 2, 3, 2, 16],
    [3, 2, 3, 6, 0, 32],
    [1, 2, 4, 7, 1, 64],
    [2, 1, 5, 8, 3, 128],
    [1, 1, 8, 63, 0, 64],
    [1, 2, 7, 64, 9, 8],
    [2, 2, 1, 65, 0, 64],
    [1, 1, 9, 20, 4, 64],
    [1, 2, 3, 31, 2, 40],
    [1, 1, 2, 300, 1, 256],
    [1, 3, 3, 257, 5, 64],
    [2, 4, 2, 511, 0, 32],
    [1, 1, 6, 700, 2, 128],
    [1, 4, 8, 130, 30, 64],
    [1, 1, 8, 2100, 3, 64],
    [1, 12, 1, 90, 0, 64],
    [5, 4, 4, 70, 1, 64],
    [10, 5, 8, 40, 3, 64],
    [35, 4, 2, 12, 2, 32],
];

fn of([batch, heads, group, past, spare, dim]: [usize; 6]) -> Step {
    Step { batch, heads, group, past, spare, dim }
}

/// q, y, and the keys and values that are seen; two products for each key of a query, and its exponential.
fn cost(s: &Step, dtype: DType) -> Cost {
    let of_queries = 2 * s.batch * s.query_heads() * s.dim;
    let of_keys = 2 * (s.past + 1) * s.batch * s.heads * s.dim;
    let flops = s.batch * s.query_heads() * (s.past + 1) * (4 * s.dim + FUNCTION_FLOPS);
    Cost { bytes: (of_queries + of_keys) * dtype.size(), flops }
}

/// Calls `visit(y, weight, score_size, v)` for every key that every query sees.
fn each_key(s: &Step, inputs: &[&[f64]], y: &mut [f64], visit: impl FnMut(&mut [f64], f64, f64, &[f64])) {
    let [k, v] = [1, 2].map(|cache| &inputs[cache][..s.seen_elements()]);
    attention_cached::each_key(&s.seen(), &[inputs[0], k, v], y, visit);
}

/// What is seen, as attention_cached takes it.
fn seen<'a, T: Float>(s: &Step, inputs: &Inputs<'a>) -> Inputs<'a> {
    let bytes = s.seen_elements() * size_of::<T>();
    Inputs(vec![inputs.0[0], &inputs.0[1][..bytes], &inputs.0[2][..bytes]])
}

fn naive<T: Float>(s: &Step, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    attention_cached::naive::<T>(&s.seen(), &seen::<T>(s, inputs), outputs);
}

fn tiled<T: Float>(s: &Step, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    attention_cached::tiled::<T>(&s.seen(), &seen::<T>(s, inputs), outputs);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn a_key_that_is_left_out_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Step, inputs, outputs| {
            let before = Step { past: s.past.saturating_sub(1), ..s.clone() };
            naive::<f32>(&before, inputs, outputs);
        });
        rejects(operator(), wrong);
    }
}
