//! Rotary position embedding: element i of each head and element half + i rotated by the angle of their token.

mod launch;

use super::family::rows::double;
use super::float::Float;
use super::simd;
use crate::core::cost::Cost;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

crate::shape! {
    /// The shape of queries or keys.
    pub struct Heads {
        /// Tokens, each with angles of its own.
        tokens: 0..=1 << 20,
        /// Heads, rotated alike.
        heads: 1..=1 << 10,
        /// Half of the elements of a head.
        half: 1..=1 << 10,
    }
}

impl Heads {
    /// Elements of all heads of a token.
    fn width(&self) -> usize {
        2 * self.heads * self.half
    }
}

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator())
        .cpu_tiers(every_float!(naive), every_float!(tiled))
        .candidate("lesson1_naive", launch::naive())
        .candidate("cuda", launch::best())
        .into()
}

fn operator() -> Op<Heads> {
    Op::new("rope")
        .input("x", |s: &Heads| [s.tokens, s.heads, 2 * s.half])
        .parameter("cosine", 1.0, |s| [s.tokens, s.half])
        .parameter("sine", 0.0, |s| [s.tokens, s.half])
        .output("y", |s| [s.tokens, s.heads, 2 * s.half])
        .reference(|s, inputs, outputs| rotate(s, inputs, &mut outputs[0], |a, c, b, d| a * c - b * d))
        // Both products are rounded before one is cancelled by the other.
        .magnitude(|s, inputs, outputs| rotate(s, inputs, &mut outputs[0], |a, c, b, d| (a * c).abs() + (b * d).abs()))
        .depth(|_| STEPS)
        .range(RANGE)
        .cost(|s, dtype| Cost {
            bytes: s.tokens * (2 * s.width() + 2 * s.half) * dtype.size(),
            flops: 3 * s.tokens * s.width(),
        })
        .separable("tokens")
        .exact_relation(
            "doubled elements stay doubled",
            |_, inputs, _| double(&mut inputs[0]),
            |_, _, outputs, _| double(&mut outputs[0]),
        )
        .relation(
            "swapped halves rotate the other way",
            |s, inputs, _| {
                swap_halves(s, &mut inputs[0]);
                inputs[2].iter_mut().for_each(|sine| *sine = -*sine);
            },
            |s, _, outputs, _| swap_halves(s, &mut outputs[0]),
        )
        .shapes(cases().map(|(tokens, heads, half)| Heads { tokens, heads, half }))
        .perf([Heads { tokens: 2048, heads: 8, half: 64 }, Heads { tokens: 8192, heads: 32, half: 64 }])
}

/// Two products and a sum.
const STEPS: usize = 3;
/// Products with a parameter, and their sum, still fit an f32.
const RANGE: f64 = 1e36;

/// As (tokens, heads, half), always different: nothing, every narrow half, one head, more tokens than a grid has
/// blocks along y, what models hold.
fn cases() -> impl Iterator<Item = (usize, usize, usize)> {
    let narrow = (1..=33).map(|half| (5, 3, half));
    let edges = [(0, 3, 8), (1, 1, 1), (3, 1, 64), (2, 257, 8), (65_535, 1, 2), (65_536, 2, 1), (65_537, 1, 3)];
    let realistic = [(37, 32, 64), (19, 8, 128), (23, 12, 32), (7, 71, 40), (3, 5, 1023)];
    narrow.chain(edges).chain(realistic)
}

/// `y = combine(x, cosine, other, sine)`, the sine negative in the upper half.
fn rotate(s: &Heads, inputs: &[&[f64]], y: &mut [f64], combine: fn(f64, f64, f64, f64) -> f64) {
    let angles = inputs[1].chunks_exact(s.half).zip(inputs[2].chunks_exact(s.half));
    let tokens = inputs[0].chunks_exact(s.width()).zip(y.chunks_exact_mut(s.width()));
    for ((x, y), (cosine, sine)) in tokens.zip(angles) {
        for (x, y) in x.chunks_exact(2 * s.half).zip(y.chunks_exact_mut(2 * s.half)) {
            for i in 0..s.half {
                let (low, high) = (x[i], x[s.half + i]);
                y[i] = combine(low, cosine[i], high, sine[i]);
                y[s.half + i] = combine(high, cosine[i], low, -sine[i]);
            }
        }
    }
}

fn swap_halves(s: &Heads, values: &mut [f64]) {
    values.chunks_exact_mut(2 * s.half).for_each(|head| head.rotate_left(s.half));
}

fn naive<T: Float>(s: &Heads, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let angles = inputs.slice::<T>(1).chunks_exact(s.half).zip(inputs.slice::<T>(2).chunks_exact(s.half));
    let tokens = inputs.slice::<T>(0).chunks_exact(s.width()).zip(outputs.slice::<T>(0).chunks_exact_mut(s.width()));
    for ((x, y), (cosine, sine)) in tokens.zip(angles) {
        for (x, y) in x.chunks_exact(2 * s.half).zip(y.chunks_exact_mut(2 * s.half)) {
            for i in 0..s.half {
                let (low, high) = (x[i].to_f32(), x[s.half + i].to_f32());
                let (cosine, sine) = (cosine[i].to_f32(), sine[i].to_f32());
                y[i] = T::from_f32(low * cosine - high * sine);
                y[s.half + i] = T::from_f32(high * cosine + low * sine);
            }
        }
    }
}

fn tiled<T: Float>(s: &Heads, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, cosine, sine) = (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2));
    simd::rope(s.heads, s.half, x, cosine, sine, outputs.slice::<T>(0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn neighbours_paired_in_place_of_halves_are_seen() {
        let wrong = Cpu::new::<f32>(|s: &Heads, inputs, outputs| {
            let (x, cosine, sine) = (inputs.slice::<f32>(0), inputs.slice::<f32>(1), inputs.slice::<f32>(2));
            for (i, (x, y)) in x.chunks_exact(2).zip(outputs.slice::<f32>(0).chunks_exact_mut(2)).enumerate() {
                let angle = i / (s.heads * s.half) * s.half + i % s.half;
                y[0] = x[0] * cosine[angle] - x[1] * sine[angle];
                y[1] = x[1] * cosine[angle] + x[0] * sine[angle];
            }
        });
        rejects(operator(), wrong);
    }

    #[test]
    fn a_quarter_turn_swaps_the_halves() {
        let mut y = vec![0.0; 4];
        let inputs: [&[f64]; 3] = [&[1.0, 2.0, 3.0, 4.0], &[0.0; 2], &[1.0; 2]];
        rotate(&Heads { tokens: 1, heads: 1, half: 2 }, &inputs, &mut y, |a, c, b, d| a * c - b * d);
        assert_eq!(y, [-3.0, -4.0, 1.0, 2.0]);
    }
}
