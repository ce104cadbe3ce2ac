//! Sampling: a token of each row of logits, drawn with the probabilities of a softmax at a temperature from the most likely
//! ones.
//!
//! With the largest logit m of a row a token has the weight w = e^((x − m) / T). Kept are the tokens whose logit is that of
//! the `top_k` most likely ones or larger, and of these the most likely whose weights reach `top_p` of what is left; in both
//! cases every token with the logit of the last one that is kept, so that the order of tokens does not matter. The token
//! is the first, by its number, at which the weights of those kept sum up to more than u times their total. NaN is never
//! drawn and never counted; a row of nothing else gives 0. Of infinite logits all have the same weight, and all others none.
//!
//! u = draw / 2³¹, with a draw a row and position, of which `at` names one: so the launches of a token are those of the next.

mod host;
mod launch;
mod reference;

pub use host::{DRAWS, MICRO, Rule, draw};

use super::float::Float;
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

crate::shape! {
    /// The shape of sampling. What a user chooses freely are extents: an attribute has few values.
    pub struct Draw {
        /// Rows of logits: a token each.
        rows: 0..=1 << 20,
        /// Tokens there are.
        cols: 1..=1 << 18,
        /// Positions that there are draws for.
        positions: 1..=1 << 17,
        /// Tokens that are kept at least; 0 for all.
        top_k: 0..=1 << 18,
        /// The share of the weights that is kept, in millionths.
        top_p_micro: 0..=MICRO,
        /// The temperature in millionths.
        temperature_micro: Rule::LEAST_TEMPERATURE_MICRO..=Rule::MOST_TEMPERATURE_MICRO,
    }
}

impl Draw {
    /// Which tokens are kept, and how their weights come about.
    fn rule(&self) -> Rule {
        let Draw { top_k, top_p_micro, temperature_micro, .. } = *self;
        Rule { top_k, top_p_micro, temperature_micro }
    }
}

/// The operator with its candidates.
pub fn suite() -> Suite {
    Suite::of(operator()).cpu_tiers(every_float!(naive), every_float!(tiled)).candidate("cuda", launch::best()).into()
}

fn operator() -> Op<Draw> {
    Op::new("sample")
        .input("x", |s: &Draw| [s.rows, s.cols])
        .index("draws", |s| [s.positions, s.rows], |_| DRAWS - 1)
        .index("at", |_| [1], |s| s.positions)
        .output("token", |s| [s.rows])
        .in_dtype(DType::I32)
        .reference(|s, inputs, outputs| {
            for (y, (row, u)) in outputs[0].iter_mut().zip(rows(s, inputs)) {
                *y = reference::Likely::of(row, &s.rule()).token(u) as f64;
            }
        })
        .alternatives(|s, inputs, others| {
            for (at, (row, u)) in rows(s, inputs).enumerate() {
                let likely = reference::Likely::of(row, &s.rule());
                others[0].extend(likely.nearly(u).into_iter().map(|token| (at, token as f64)));
            }
        })
        .cost(|s, dtype| Cost { bytes: s.rows * (s.cols * dtype.size() + 8) + 4, flops: 32 * s.rows * s.cols })
        .separable("rows")
        .varied_around(case(3, 1025, 0.9, 40, 1.0))
        .exact_relation(
            "an infinite logit is drawn",
            |s, inputs, _| inputs[0].chunks_exact_mut(s.cols).for_each(|row| row[s.cols - 1] = f64::INFINITY),
            |s, _, outputs, _| outputs[0].fill((s.cols - 1) as f64),
        )
        .relation(
            "only differences of logits matter",
            |_, inputs, _| inputs[0].iter_mut().for_each(|x| *x += 2.0),
            |_, _, _, _| (),
        )
        .shapes(CASES.map(|(rows, cols, top_p, top_k, temperature)| case(rows, cols, top_p, top_k, temperature)))
        .perf([case(64, 32_000, 0.95, 0, 0.8), case(8, 128_256, 0.9, 50, 0.7), case(64, 128_256, 0.9, 50, 0.7)])
}

/// As (rows, cols, top_p, top_k, temperature): nothing, one token, rows of no whole pack, every rule alone and both, slices
/// of one block and of two, four and eight, of vocabularies too.
const CASES: [(usize, usize, f64, usize, f64); 13] = [
    (0, 8, 0.9, 3, 1.0),
    (3, 1, 0.5, 1, 1.0),
    (9, 7, 1.0, 0, 1.0),
    (16, 33, 0.8, 0, 1.5),
    (16, 64, 1.0, 5, 0.7),
    (9, 1025, 0.95, 100, 1.0),
    (70, 2048, 0.5, 0, 4.0),
    (8, 2049, 0.0, 0, 1.0),
    (40, 8193, 0.9, 0, 1.0),
    (20, 9000, 1.0, 2000, 2.0),
    (2, 32_000, 0.9, 0, 0.7),
    (2, 32_003, 1.0, 0, 1.0),
    (1, 128_256, 0.95, 50, 0.8),
];

fn case(rows: usize, cols: usize, top_p: f64, top_k: usize, temperature: f64) -> Draw {
    let Rule { top_k, top_p_micro, temperature_micro } = Rule::of(temperature, top_k, top_p);
    Draw { rows, cols, positions: 3, top_k, top_p_micro, temperature_micro }
}

/// Each row of logits with its u.
fn rows<'i>(s: &Draw, inputs: &[&'i [f64]]) -> impl Iterator<Item = (&'i [f64], f64)> {
    let draws = &inputs[1][inputs[2][0] as usize * s.rows..][..s.rows];
    inputs[0].chunks_exact(s.cols).zip(draws.iter().map(|draw| draw / DRAWS as f64))
}

fn naive<T: Float>(s: &Draw, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    each_row::<T>(s, inputs, outputs, host::draw_by_sorting);
}

fn tiled<T: Float>(s: &Draw, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    each_row::<T>(s, inputs, outputs, draw);
}

fn each_row<T: Float>(
    s: &Draw,
    inputs: &Inputs<'_>,
    outputs: &mut Outputs<'_>,
    choose: impl Fn(&[f32], &Rule, u32) -> usize,
) {
    let draws = &inputs.slice::<i32>(1)[inputs.slice::<i32>(2)[0] as usize * s.rows..][..s.rows];
    let rows = inputs.slice::<T>(0).chunks_exact(s.cols);
    for ((y, row), &number) in outputs.slice::<i32>(0).iter_mut().zip(rows).zip(draws) {
        let logits: Vec<f32> = row.iter().map(|x| x.to_f32()).collect();
        *y = choose(&logits, &s.rule(), number.cast_unsigned()) as i32;
    }
}

#[cfg(test)]
mod tests;
