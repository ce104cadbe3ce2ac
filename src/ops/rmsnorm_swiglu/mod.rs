//! The first half of a gated layer of a model that writes a token: y = silu(h Gᵀ) · (h Uᵀ), h = x / √(mean(x²) + ε) · weight,
//! with G and U the halves of one matrix of `2 n` rows, and nothing rounded in between.

mod launch;

use super::family::FUNCTION_FLOPS;
use super::family::pairs::{CASES, MOST_BATCH, normalised, normalised_f32, products};
use super::float::{Float, sum};
use super::silu::{self, silu};
use super::simd;
use crate::core::candidate::Declare;
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::operator::Op;
use crate::core::suite::Suite;
use crate::core::tensor::{Inputs, Outputs};

crate::shape! {
    /// The shape of a gated layer.
    pub struct Gated {
        /// Vectors.
        batch: 0..=MOST_BATCH,
        /// Elements of an output.
        n: 1..=1 << 17,
        /// Elements of a vector.
        k: 1..=1 << 16,
        /// What is added to the mean of the squares.
        eps: f32 = [1e-5, 1e-6],
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

fn operator() -> Op<Gated> {
    Op::new("rmsnorm_swiglu")
        .input("x", |s: &Gated| [s.batch, s.k])
        .parameter("weight", 1.0, |s| [s.k])
        .weight("w", |s| s.k, |s| [2 * s.n, s.k])
        .output("y", |s| [s.batch, s.n])
        .reference(|s, inputs, outputs| {
            let h = normalised(inputs[0], inputs[1], s.eps);
            gate(s, &products(s.k, &h, inputs[2], |x| x), |y, gate, up| outputs[0][y] = silu(gate) * up);
        })
        // Errors of both products: the gate's go through silu, whose slope is at most 1.1.
        .magnitude(|s, inputs, outputs| {
            let h = normalised(inputs[0], inputs[1], s.eps);
            let exact = products(s.k, &h, inputs[2], |x| x);
            let sizes = products(s.k, &h, inputs[2], f64::abs);
            let mut of_gate = vec![[0.0; 2]; outputs[0].len()];
            gate(s, &exact, |y, gate, up| of_gate[y] = [gate, up]);
            gate(s, &sizes, |y, gate_size, up_size| {
                let [gate, up] = of_gate[y];
                outputs[0][y] = silu::magnitude(gate, silu(gate)) * up.abs()
                    + 1.1 * gate_size * up.abs()
                    + silu(gate).abs() * up_size;
            });
        })
        .depth(|s| 2 * s.k + STEPS)
        .range(RANGE)
        .exclude_distributions([Distribution::Tiny, Distribution::LargeMean])
        .cost(|s, dtype| Cost {
            bytes: (s.batch * s.k + s.k + 2 * s.n * s.k + s.batch * s.n) * dtype.size(),
            flops: s.batch * (4 * s.k + s.n * (4 * s.k + FUNCTION_FLOPS + 4)),
        })
        .separable("batch")
        .relation(
            "rows of the matrix that trade places take their outputs along",
            |s, inputs, _| rotate_rows(s, &mut inputs[2]),
            |s, _, outputs, _| outputs[0].chunks_exact_mut(s.n).for_each(|y| y.rotate_left(1)),
        )
        .shapes(CASES.map(|(batch, n, k)| Gated { batch, n, k, eps: EPS }))
        .perf([(1, 5632, 2048), (1, 8192, 2048), (8, 5632, 2048)].map(|(batch, n, k)| Gated { batch, n, k, eps: EPS }))
}

const EPS: f32 = 1e-5;
/// As of the norms: squares still fit an f32.
const RANGE: f64 = 1e16;
/// Besides the sums of squares and of products: the mean, ε, the root, weight, SiLU, the last product.
const STEPS: usize = 12;

/// Calls `visit(y, gate, up)` for each output, with its two products.
fn gate(s: &Gated, products: &[f64], mut visit: impl FnMut(usize, f64, f64)) {
    for (b, row) in products.chunks_exact(2 * s.n).enumerate() {
        (0..s.n).for_each(|i| visit(b * s.n + i, row[i], row[s.n + i]));
    }
}

fn rotate_rows(s: &Gated, w: &mut [f64]) {
    w.chunks_exact_mut(s.n * s.k).for_each(|half| half.rotate_left(s.k));
}

fn naive<T: Float>(s: &Gated, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let (h, w) = (normalised_f32(inputs.slice::<T>(0), inputs.slice::<T>(1), s.eps), inputs.slice::<T>(2));
    for (h, y) in h.chunks_exact(s.k).zip(outputs.slice::<T>(0).chunks_exact_mut(s.n)) {
        let product = |i: usize| sum(s.k, &|j| h[j] * w[i * s.k + j].to_f32());
        for (i, y) in y.iter_mut().enumerate() {
            let gate = product(i);
            *y = T::from_f32(gate / (1.0 + (-gate).exp()) * product(s.n + i));
        }
    }
}

fn tiled<T: Float>(s: &Gated, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
    let h = normalised_f32(inputs.slice::<T>(0), inputs.slice::<T>(1), s.eps);
    let mut sums = vec![0.0f32; s.batch * 2 * s.n];
    simd::gemv(s.k, &h, inputs.slice::<T>(2), &mut sums, |sum| sum as f32);
    for (sums, y) in sums.chunks_exact(2 * s.n).zip(outputs.slice::<T>(0).chunks_exact_mut(s.n)) {
        for (i, y) in y.iter_mut().enumerate() {
            let gate = sums[i];
            *y = T::from_f32(gate / (1.0 + (-gate).exp()) * sums[s.n + i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::ops::agreement::rejects;

    #[test]
    fn halves_of_the_matrix_that_trade_places_are_seen() {
        let wrong = Cpu::new::<f32>(|s: &Gated, inputs, outputs| {
            let mut w = inputs.slice::<f32>(2).to_vec();
            w.rotate_left(s.n * s.k);
            let swapped = Inputs(vec![inputs.0[0], inputs.0[1], bytemuck::cast_slice(&w)]);
            naive::<f32>(s, &swapped, outputs);
        });
        rejects(operator(), wrong);
    }
}
