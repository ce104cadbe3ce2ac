//! The error bounds that `math.rs` states, held against f64 over a stride through all bit patterns; the
//! full sweep is ignored by default, since it takes minutes.

use rayon::prelude::*;
use rstest::rstest;

use super::elementwise::{Erf, Exp, Formula, Gelu, GeluTanh, Silu, Tanh, apply};
use super::level::Level;
use super::run::Stores;
use super::testing::reference;

/// A prime near 2^11: every exponent and both signs are visited, at ever other mantissas.
const STRIDE: usize = 2039;

/// The size of a unit in the last place of the f32 nearest to `x`.
fn ulp(x: f64) -> f64 {
    let exponent = x.abs().log2().floor().clamp(-126.0, 127.0);
    (exponent - 23.0).exp2()
}

/// The greatest error in units in the last place, and where.
fn greatest_error(level: Level, formula: impl Formula, reference: fn(f64) -> f64, stride: usize) -> (f64, f32) {
    const BLOCK: usize = 1 << 14;
    let inputs = (1usize << 32).div_ceil(stride);
    (0..inputs.div_ceil(BLOCK))
        .into_par_iter()
        .map(|block| {
            let end = ((block + 1) * BLOCK).min(inputs);
            let x: Vec<f32> = (block * BLOCK..end).map(|i| f32::from_bits((i * stride) as u32)).collect();
            let mut y = vec![0.0; x.len()];
            apply(level, Stores::Cached, formula, &x, &mut y);
            let errors = x.iter().zip(&y).map(|(&x, &y)| {
                let want = reference(f64::from(x));
                // What rounds to an infinity or is NaN has to be exactly that.
                let error = if (want as f32).is_finite() && y.is_finite() {
                    (f64::from(y) - want).abs() / ulp(want)
                } else if y == want as f32 || (y.is_nan() && want.is_nan()) {
                    0.0
                } else {
                    f64::INFINITY
                };
                (error, x)
            });
            errors.fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
        })
        .reduce(|| (0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a })
}

fn assert_within(bound: f64, formula: impl Formula, reference: fn(f64) -> f64, stride: usize) {
    for level in Level::available() {
        let (error, x) = greatest_error(level, formula, reference, stride);
        assert!(error <= bound, "{level:?}: {error:.3} ulp at {x:e}, bound {bound}");
    }
}

#[rstest]
#[case::exp(1.0, Exp, f64::exp)]
#[case::erf(2.0, Erf, libm::erf)]
#[case::tanh(2.0, Tanh, f64::tanh)]
#[case::gelu(8.0, Gelu, reference::gelu)]
#[case::gelu_tanh(200.0, GeluTanh, reference::gelu_tanh)]
#[case::silu(80.0, Silu, reference::silu)]
fn the_stated_bounds_hold(#[case] bound: f64, #[case] formula: impl Formula, #[case] reference: fn(f64) -> f64) {
    assert_within(bound, formula, reference, STRIDE);
}

#[rstest]
#[case::exp(1.0, Exp, f64::exp)]
#[case::erf(2.0, Erf, libm::erf)]
#[case::tanh(2.0, Tanh, f64::tanh)]
#[ignore = "all 2^32 inputs, minutes"]
fn the_stated_bounds_hold_everywhere(
    #[case] bound: f64,
    #[case] formula: impl Formula,
    #[case] reference: fn(f64) -> f64,
) {
    assert_within(bound, formula, reference, 1);
}
