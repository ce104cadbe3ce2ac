//! What stands between the projection of a new token and attention: queries and keys rotated by the angles of its position,
//! keys and values written into their caches there. The position is in device memory, so that one launch serves every token.
//!
//! Element `i` of a head is rotated with element `half + i`, as in rope.

mod launch;

use super::float::Float;
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

crate::shape! {
    /// The shape of an append.
    pub struct Append {
        /// Sequences, each with one new token.
        batch: 0..=1 << 10,
        /// Heads of queries.
        heads: 1..=1 << 8,
        /// Heads of keys, and of values.
        kv_heads: 1..=1 << 8,
        /// Half of the elements of a head.
        half: 1..=1 << 8,
        /// Positions before the new one.
        past: 0..=1 << 17,
        /// Positions of the caches behind it.
        spare: 0..=1 << 17,
    }
}

/// The outputs.
const KEYS: usize = 0;
const VALUES: usize = 1;
const QUERIES: usize = 2;

impl Append {
    /// Elements of the projection of a token.
    pub fn rows(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * 2 * self.half
    }

    /// Positions of the caches.
    pub fn capacity(&self) -> usize {
        self.past + 1 + self.spare
    }

    /// Elements of a position of a cache.
    pub fn cached(&self) -> usize {
        self.kv_heads * 2 * self.half
    }

    /// What is written of a cache.
    pub fn appended<'c>(&self, cache: &'c mut [f64]) -> &'c mut [f64] {
        let row = self.batch * self.cached();
        &mut cache[self.past * row..][..row]
    }

    /// Where a position of a sequence begins among rows of `width`.
    fn at(&self, position: usize, sequence: usize, width: usize) -> usize {
        (position * self.batch + sequence) * width
    }

    /// Calls `visit(output, at, head, angles)` for every head of every token: the tensor and the place there that it goes to,
    /// its elements before they are rotated, and where the angles of its token begin.
    fn spread<F>(&self, qkv: &[F], position: usize, mut visit: impl FnMut(usize, usize, &[F], usize)) {
        let width = 2 * self.half;
        for (sequence, token) in qkv.chunks_exact(self.rows()).enumerate() {
            for (number, head) in token.chunks_exact(width).enumerate() {
                let cache = self.at(position, sequence, self.cached());
                let (output, first) = match number {
                    of_q if of_q < self.heads => (QUERIES, self.at(0, sequence, self.heads * width) + of_q * width),
                    of_k if of_k < self.heads + self.kv_heads => (KEYS, cache + (of_k - self.heads) * width),
                    of_v => (VALUES, cache + (of_v - self.heads - self.kv_heads) * width),
                };
                visit(output, first, head, self.at(position, sequence, self.half));
            }
        }
    }

    /// The definition, of a projection and the inputs from the cosines on: cosine, sine, position, keys, values.
    pub fn append(&self, qkv: &[f64], rest: &[&[f64]], outputs: &mut [Vec<f64>]) {
        outputs[..2].iter_mut().zip(&rest[3..]).for_each(|(cache, before)| cache.copy_from_slice(before));
        self.rotate(qkv, rest, outputs, |a, c, b, d| a * c - b * d);
    }

    /// The size of what was added to make each element, of the sizes of the projection: what is not written has none.
    pub fn sizes(&self, qkv: &[f64], rest: &[&[f64]], outputs: &mut [Vec<f64>]) {
        outputs.iter_mut().for_each(|output| output.fill(0.0));
        self.rotate(qkv, rest, outputs, |a, c, b, d| (a * c).abs() + (b * d).abs());
    }

    /// `y = combine(low, cosine, high, sine)`, the sine negative in the upper half; values are copied.
    fn rotate(&self, qkv: &[f64], rest: &[&[f64]], outputs: &mut [Vec<f64>], combine: fn(f64, f64, f64, f64) -> f64) {
        self.spread(qkv, rest[2][0] as usize, |output, at, head, angles| {
            let y = &mut outputs[output][at..][..2 * self.half];
            if output == VALUES {
                y.copy_from_slice(head);
                return;
            }
            let (cosine, sine) = (&rest[0][angles..], &rest[1][angles..]);
            for i in 0..self.half {
                let (low, high) = (head[i], head[self.half + i]);
                y[i] = combine(low, cosine[i], high, sine[i]);
                y[self.half + i] = combine(high, cosine[i], low, -sine[i]);
            }
        });
    }

    /// The same in f32, where `first` is the place of the cosines among the inputs.
    pub fn finish<T: Float>(&self, inputs: &Inputs<'_>, first: usize, outputs: &mut Outputs<'_>, qkv: &[f32]) {
        let (cosines, sines) = (inputs.slice::<T>(first), inputs.slice::<T>(first + 1));
        self.spread(qkv, inputs.slice::<i32>(first + 2)[0] as usize, |output, at, head, angles| {
            let y = &mut outputs.slice::<T>(output)[at..][..2 * self.half];
            for i in 0..self.half {
                let (low, high) = (head[i], head[self.half + i]);
                let (cosine, sine) = match output {
                    VALUES => (1.0, 0.0),
                    _ => (cosines[angles + i].to_f32(), sines[angles + i].to_f32()),
                };
                y[i] = T::from_f32(if output == VALUES { low } else { low * cosine - high * sine });
                y[self.half + i] = T::from_f32(if output == VALUES { high } else { high * cosine + low * sine });
            }
        });
    }
}

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator()).cpu_tiers(every_float!(naive), every_float!(tiled)).candidate("cuda", launch::best()).into()
}

fn operator() -> Op<Append> {
    Op::new("rope_append")
        .input("qkv", |s: &Append| [s.batch, s.rows()])
        .parameter("cosine", 1.0, |s| [s.capacity(), s.batch, s.half])
        .parameter("sine", 0.0, |s| [s.capacity(), s.batch, s.half])
        .index("position", |_| [1], |s| s.past + 1)
        .index_from(|s| s.past)
        .in_place("keys", |s| [s.capacity(), s.batch, s.cached()])
        .in_place("values", |s| [s.capacity(), s.batch, s.cached()])
        .output("q", |s| [s.batch, s.heads * 2 * s.half])
        .reference(|s, inputs, outputs| s.append(inputs[0], &inputs[1..], outputs))
        // Both products are rounded before one is cancelled by the other; what is not written is kept to the bit.
        .magnitude(|s, inputs, outputs| s.sizes(inputs[0], &inputs[1..], outputs))
        .depth(|_| STEPS)
        .range(RANGE)
        .cost(cost)
        .exact_relation(
            "negated tokens negate what they leave",
            |_, inputs, _| inputs[0].iter_mut().for_each(|x| *x = -*x),
            |s, _, outputs, _| {
                outputs[QUERIES].iter_mut().for_each(|q| *q = -*q);
                outputs[..2].iter_mut().for_each(|cache| s.appended(cache).iter_mut().for_each(|x| *x = -*x));
            },
        )
        .varied_around(Append { batch: 2, heads: 3, kv_heads: 2, half: 4, past: 3, spare: 2 })
        .shapes(CASES.map(of))
        .perf([[256, 32, 4, 32, 255, 0], [64, 32, 8, 64, 255, 0]].map(of))
}

/// Two products and a sum.
const STEPS: usize = 3;
/// Products with a parameter, and their sum, still fit an f32.
const RANGE: f64 = 1e36;

/// As (batch, heads, kv_heads, half, past, spare): nothing, one head, odd halves, more pairs than a block has threads, and the
/// heads of models.
const CASES: [[usize; 6]; 8] = [
    [0, 2, 1, 4, 0, 0],
    [1, 1, 1, 1, 0, 3],
    [2, 3, 1, 5, 2, 0],
    [3, 2, 2, 3, 7, 1],
    [1, 14, 1, 16, 1, 1],
    [17, 4, 1, 32, 5, 2],
    [5, 9, 3, 32, 4, 1],
    [2, 32, 4, 32, 3, 2],
];

fn of([batch, heads, kv_heads, half, past, spare]: [usize; 6]) -> Append {
    Append { batch, heads, kv_heads, half, past, spare }
}

/// The projection is read and written once, the angles of each token read.
fn cost(s: &Append, dtype: DType) -> Cost {
    Cost { bytes: s.batch * (2 * s.rows() + 2 * s.half) * dtype.size(), flops: 3 * s.batch * s.rows() }
}

/// Head by head.
fn naive<T: Float>(s: &Append, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let qkv: Vec<f32> = inputs.slice::<T>(0).iter().map(|x| x.to_f32()).collect();
    s.finish::<T>(inputs, 1, outputs, &qkv);
}

/// There is nothing to gain: a copy with a few operations.
fn tiled<T: Float>(s: &Append, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    naive::<T>(s, inputs, outputs);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn rotated_values_are_seen() {
        let wrong = Cpu::new::<f32>(|s: &Append, inputs, outputs| {
            naive::<f32>(s, inputs, outputs);
            let sine = inputs.slice::<f32>(2);
            (0..s.batch).for_each(|b| {
                outputs.slice::<f32>(VALUES)[s.at(s.past, b, s.cached())] += sine[s.at(s.past, b, s.half)];
            });
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn keys_of_another_position_are_seen() {
        let wrong = Cpu::new::<f32>(|s: &Append, inputs, outputs| {
            let behind = [(s.past + usize::from(s.spare > 0)) as i32];
            let mut wrong = inputs.0.clone();
            wrong[3] = bytemuck::cast_slice(&behind);
            naive::<f32>(s, &Inputs(wrong), outputs);
        });
        rejects(operator(), wrong);
    }
}
