//! A matrix times few vectors, added to a residual: y = residual + x Wᵀ, with x `batch`×`k`, W `n`×`k`, residual and y
//! `batch`×`n`: what ends each half of a layer of a model that writes a token.

mod launch;

use super::family::pairs::{CASES, MOST_BATCH, products};
use super::family::rows::negate;
use super::float::{Float, sum};
use super::simd;
use crate::core::candidate::Declare;
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

crate::shape! {
    /// The shape of a matrix and its vectors.
    pub struct Added {
        /// Vectors.
        batch: 0..=MOST_BATCH,
        /// Rows of the matrix: elements of an output.
        n: 1..=1 << 18,
        /// Columns of the matrix: elements of a vector.
        k: 1..=1 << 18,
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

fn operator() -> Op<Added> {
    Op::new("gemv_add")
        .input("x", |s: &Added| [s.batch, s.k])
        .weight("w", |s| s.k, |s| [s.n, s.k])
        .input("residual", |s| [s.batch, s.n])
        .output("y", |s| [s.batch, s.n])
        .reference(|s, inputs, outputs| add(s, inputs, &mut outputs[0], |x| x))
        .magnitude(|s, inputs, outputs| add(s, inputs, &mut outputs[0], f64::abs))
        .depth(|s| s.k + 1)
        .range(RANGE)
        .exclude_distributions([Distribution::Tiny, Distribution::LargeMean])
        .cost(|s, dtype| Cost {
            bytes: (s.batch * s.k + s.n * s.k + 2 * s.batch * s.n) * dtype.size(),
            flops: s.batch * s.n * (2 * s.k + 1),
        })
        .separable("batch")
        .exact_relation(
            "odd symmetry in x and the residual",
            |_, inputs, _| [0, 2].into_iter().for_each(|i| negate(&mut inputs[i])),
            |_, _, outputs, _| negate(&mut outputs[0]),
        )
        .shapes(CASES.into_iter().chain(LAYERS).map(|(batch, n, k)| Added { batch, n, k }))
        .perf([(1, 2048, 2048), (1, 2048, 5632), (8, 4096, 14_336)].map(|(batch, n, k)| Added { batch, n, k }))
}

/// As in gemv: sums of so many products still fit an f32.
const RANGE: f64 = 1e16;

/// Parts of layers of models, of one sequence and of several.
const LAYERS: [(usize, usize, usize); 2] = [(1, 130, 5632), (7, 20, 2048)];

fn add(s: &Added, inputs: &[&[f64]], y: &mut [f64], term: fn(f64) -> f64) {
    let sums = products(s.k, inputs[0], inputs[1], term);
    y.iter_mut().zip(sums).zip(inputs[2]).for_each(|((y, sum), residual)| *y = sum + term(*residual));
}

fn naive<T: Float>(s: &Added, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, w, residual) = (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2));
    for (at, y) in outputs.slice::<T>(0).iter_mut().enumerate() {
        let (x, w) = (&x[at / s.n * s.k..], &w[at % s.n * s.k..]);
        *y = T::from_f32(residual[at].to_f32() + sum(s.k, &|j| x[j].to_f32() * w[j].to_f32()));
    }
}

fn tiled<T: Float>(s: &Added, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (x, w, residual) = (inputs.slice::<T>(0), inputs.slice::<T>(1), inputs.slice::<T>(2));
    let mut sums = vec![0.0f32; s.batch * s.n];
    simd::gemv(s.k, x, w, &mut sums, |sum| sum as f32);
    let ends = outputs.slice::<T>(0).iter_mut().zip(sums).zip(residual);
    ends.for_each(|((y, sum), residual)| *y = T::from_f32(residual.to_f32() + sum));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;
    use half::bf16;

    #[test]
    fn a_product_rounded_before_it_is_added_is_seen() {
        let wrong = Cpu::new::<bf16>(|s: &Added, inputs, outputs| {
            let (x, w, residual) = (inputs.slice::<bf16>(0), inputs.slice::<bf16>(1), inputs.slice::<bf16>(2));
            for (at, y) in outputs.slice::<bf16>(0).iter_mut().enumerate() {
                let (x, w) = (&x[at / s.n * s.k..], &w[at % s.n * s.k..]);
                let product = bf16::from_f32(sum(s.k, &|j| x[j].to_f32() * w[j].to_f32()));
                *y = bf16::from_f32(residual[at].to_f32() + product.to_f32());
            }
        });
        rejects(operator(), wrong);
    }
}
