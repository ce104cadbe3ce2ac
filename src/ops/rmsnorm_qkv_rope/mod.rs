//! What a model that writes a token does before attention: queries, keys and values of the normalised token, queries and keys
//! rotated by the angles of its position, keys and values written into their caches. The position is in device memory, so that
//! one launch serves every token.
//!
//! Element `i` of a head is rotated with element `half + i`, as in rope; nothing is rounded in between.

mod launch;

use super::family::pairs::{MOST_BATCH, normalised, normalised_f32, products};
use super::float::{Float, sum};
use super::rope_append::Append;
use super::simd;
use crate::core::candidate::Declare;
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

crate::shape! {
    /// The shape of a projection to queries, keys and values.
    pub struct Projected {
        /// Sequences, each with one new token.
        batch: 0..=MOST_BATCH,
        /// Heads of queries.
        heads: 1..=1 << 8,
        /// Heads of keys, and of values.
        kv_heads: 1..=1 << 8,
        /// Half of the elements of a head.
        half: 1..=1 << 8,
        /// Elements of a token.
        k: 1..=1 << 16,
        /// Positions before the new one.
        past: 0..=1 << 17,
        /// Positions of the caches behind it.
        spare: 0..=1 << 17,
        /// What is added to the mean of the squares.
        eps: f32 = [1e-5, 1e-6],
    }
}

impl Projected {
    /// Rows of the matrix.
    fn rows(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * 2 * self.half
    }

    fn capacity(&self) -> usize {
        self.past + 1 + self.spare
    }

    /// What is done with the projection.
    fn append(&self) -> Append {
        let Projected { batch, heads, kv_heads, half, past, spare, .. } = *self;
        Append { batch, heads, kv_heads, half, past, spare }
    }

    fn cached(&self) -> usize {
        self.append().cached()
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

fn operator() -> Op<Projected> {
    Op::new("rmsnorm_qkv_rope")
        .input("x", |s: &Projected| [s.batch, s.k])
        .parameter("weight", 1.0, |s| [s.k])
        .weight("w", |s| s.k, |s| [s.rows(), s.k])
        .parameter("cosine", 1.0, |s| [s.capacity(), s.batch, s.half])
        .parameter("sine", 0.0, |s| [s.capacity(), s.batch, s.half])
        .index("position", |_| [1], |s| s.past + 1)
        .index_from(|s| s.past)
        .in_place("keys", |s| [s.capacity(), s.batch, s.cached()])
        .in_place("values", |s| [s.capacity(), s.batch, s.cached()])
        .output("q", |s| [s.batch, s.heads * 2 * s.half])
        .reference(|s, inputs, outputs| {
            let h = normalised(inputs[0], inputs[1], s.eps);
            s.append().append(&products(s.k, &h, inputs[2], |x| x), &inputs[3..], outputs);
        })
        // What is not written is kept to the bit.
        .magnitude(|s, inputs, outputs| {
            let h = normalised(inputs[0], inputs[1], s.eps);
            s.append().sizes(&products(s.k, &h, inputs[2], f64::abs), &inputs[3..], outputs);
        })
        .depth(|s| 2 * s.k + STEPS)
        .range(RANGE)
        .exclude_distributions([Distribution::Tiny, Distribution::LargeMean])
        .cost(cost)
        .relation(
            "negated tokens negate what they leave",
            |_, inputs, _| inputs[0].iter_mut().for_each(|x| *x = -*x),
            |s, _, outputs, _| {
                outputs[2].iter_mut().for_each(|q| *q = -*q);
                outputs[..2].iter_mut().for_each(|cache| s.append().appended(cache).iter_mut().for_each(|x| *x = -*x));
            },
        )
        .varied_around(Projected { batch: 2, heads: 3, kv_heads: 2, half: 4, k: 24, past: 3, spare: 2, eps: EPS })
        .shapes(CASES.map(of))
        .perf([(1, 32, 4, 32, 2048, 255, 256), (1, 32, 8, 64, 2048, 1023, 0)].map(of))
}

const EPS: f32 = 1e-5;
/// As of the norms: squares still fit an f32.
const RANGE: f64 = 1e16;
/// Besides the sums of squares and of products: the mean, ε, the root, weight, and a rotation.
const STEPS: usize = 9;

/// As (batch, heads, kv_heads, half, k, past, spare): nothing, one head, odd halves, rows of no whole pack, both sides of what
/// one, two and eight warps have in flight, and the heads of models.
const CASES: [[usize; 7]; 11] = [
    [0, 2, 1, 4, 16, 0, 0],
    [1, 1, 1, 1, 8, 0, 3],
    [2, 3, 1, 5, 5, 2, 0],
    [1, 2, 2, 3, 24, 7, 1],
    [8, 4, 1, 8, 40, 1, 1],
    [3, 3, 1, 4, 1024, 5, 0],
    [1, 4, 2, 4, 1032, 0, 0],
    [5, 1, 1, 8, 2056, 3, 2],
    [1, 4, 1, 32, 2048, 11, 4],
    [1, 2, 1, 2, 8200, 2, 2],
    [1, 9, 3, 32, 576, 4, 1],
];

fn of(case: impl Into<[usize; 7]>) -> Projected {
    let [batch, heads, kv_heads, half, k, past, spare] = case.into();
    Projected { batch, heads, kv_heads, half, k, past, spare, eps: EPS }
}

/// The matrix, the tokens, their angles and what is written; caches are as long as they like.
fn cost(s: &Projected, dtype: DType) -> Cost {
    let of_tokens = s.batch * (s.k + 2 * s.half + s.rows());
    Cost {
        bytes: (s.rows() * s.k + s.k + of_tokens) * dtype.size(),
        flops: s.batch * (4 * s.k + s.rows() * (2 * s.k + 3)),
    }
}

fn naive<T: Float>(s: &Projected, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (h, w) = (normalised_f32(inputs.slice::<T>(0), inputs.slice::<T>(1), s.eps), inputs.slice::<T>(2));
    let rows = h.chunks_exact(s.k).flat_map(|h| (0..s.rows()).map(move |row| (h, row)));
    let all: Vec<f32> = rows.map(|(h, row)| sum(s.k, &|j| h[j] * w[row * s.k + j].to_f32())).collect();
    s.append().finish::<T>(inputs, 3, outputs, &all);
}

fn tiled<T: Float>(s: &Projected, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let h = normalised_f32(inputs.slice::<T>(0), inputs.slice::<T>(1), s.eps);
    let mut all = vec![0.0f32; s.batch * s.rows()];
    simd::gemv(s.k, &h, inputs.slice::<T>(2), &mut all, |sum| sum as f32);
    s.append().finish::<T>(inputs, 3, outputs, &all);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn a_key_written_one_position_ahead_is_seen() {
        let wrong = Cpu::new::<f32>(|s: &Projected, inputs, outputs| {
            naive::<f32>(s, inputs, outputs);
            let row = s.batch * s.cached();
            if s.spare > 0 {
                let keys = outputs.slice::<f32>(0);
                keys.copy_within(s.past * row..(s.past + 1) * row, (s.past + 1) * row);
            }
        });
        rejects(operator(), wrong);
    }
}
