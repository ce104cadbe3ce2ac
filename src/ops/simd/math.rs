//! exp, erf, tanh and the activations on a vector of floats.
//!
//! Greatest errors against f64, in units in the last place (denormal results included), held by the
//! sweep in `sweep.rs`: exp 1.0, erf 2.0, tanh 2.0. Coefficients are minimax fits for this file, in
//! ascending order.

use super::vector::Simd;

/// Horner's rule.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(simd: S, x: S::V, ascending: [f32; N]) -> S::V {
    let mut sum = simd.splat(ascending[N - 1]);
    for &c in ascending[..N - 1].iter().rev() {
        sum = simd.mul_add(sum, x, simd.splat(c));
    }
    sum
}

/// `x < 0 ? 0 : x`: NaN stays.
#[inline(always)]
pub(super) fn relu<S: Simd>(simd: S, x: S::V) -> S::V {
    let zero = simd.splat(0.0);
    simd.select_lt(x, zero, zero, x)
}

/// `e^x`: `2^n e^r` with `|r| <= ln 2 / 2`.
#[inline(always)]
pub(super) fn exp<S: Simd>(simd: S, x: S::V) -> S::V {
    /// (e^r - 1 - r) / r², relative error of e^r 3.1e-9.
    const Q: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_393, 0.008_368_745, 0.001_381_453_5];
    // ln 2 in two parts, the first short enough for n times it to be exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Beyond these the result is 0 and infinity after rounding; within them n is small. The order of
    // the operands lets NaN through.
    let x = simd.max(simd.splat(-104.0), simd.min(simd.splat(89.0), x));
    let n = simd.round(simd.mul(x, simd.splat(std::f32::consts::LOG2_E)));
    let r = simd.mul_add(n, simd.splat(-LN2_HIGH), x);
    let r = simd.mul_add(n, simd.splat(-LN2_LOW), r);
    let q = polynomial(simd, r, Q);
    let p = simd.add(simd.splat(1.0), simd.mul_add(q, simd.mul(r, r), r));
    simd.scale_exp2(p, n)
}

/// erfc(t) for `0 <= t` whose square is `square + rest`: `e^(-t²)` times a function so smooth that one
/// polynomial in `(t - 3) / (t + 3)` serves. The rounding error of the square would be multiplied by
/// the square itself, hence its second part.
#[inline(always)]
fn erfc_tail<S: Simd>(simd: S, t: S::V, square: S::V, rest: S::V) -> S::V {
    /// (t + 3) e^(t²) erfc(t) for t up to 10.2, relative error 2.1e-9.
    const P: [f32; 10] = [
        1.074_006_9,
        -0.883_394_5,
        0.590_228_3,
        -0.310_466_02,
        0.119_529_07,
        -0.026_839_828,
        -0.001_226_430_2,
        0.003_080_329_9,
        -4.831_774e-4,
        -3.253_363_7e-4,
    ];
    let one = simd.splat(1.0);
    let s = simd.div(one, simd.add(t, simd.splat(3.0)));
    let p = polynomial(simd, simd.mul_add(simd.splat(-6.0), s, one), P);
    let gauss = exp(simd, simd.sub(simd.splat(0.0), square));
    simd.mul(gauss, simd.mul(simd.mul(p, s), simd.sub(one, rest)))
}

/// The error function.
#[inline(always)]
pub(super) fn erf<S: Simd>(simd: S, x: S::V) -> S::V {
    /// (erf(x) - x) / x in x², for |x| < 0.75, relative error of erf 1.4e-9.
    const SMALL: [f32; 6] = [0.128_379_17, -0.376_126_2, 0.112_833_77, -0.026_834_624, 0.005_114_345, -6.749_511e-4];
    let a = simd.abs(x);
    let small = simd.mul_add(a, polynomial(simd, simd.mul(a, a), SMALL), a);
    // From 4 on erf rounds to 1; 10 keeps the square of an infinity out. The order lets NaN through.
    let t = simd.min(simd.splat(10.0), a);
    let square = simd.mul(t, t);
    let rest = simd.mul_add(t, t, simd.sub(simd.splat(0.0), square));
    let large = simd.sub(simd.splat(1.0), erfc_tail(simd, t, square, rest));
    simd.copysign(simd.select_lt(a, simd.splat(0.75), small, large), x)
}

/// The hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh<S: Simd>(simd: S, x: S::V) -> S::V {
    /// (tanh(x) - x) / x³ in x², for |x| < 0.625, relative error of tanh 4.4e-9.
    const SMALL: [f32; 5] = [-0.333_332_8, 0.133_314_42, -0.053_739_708, 0.020_639_068, -0.005_704_968];
    let one = simd.splat(1.0);
    let a = simd.abs(x);
    let square = simd.mul(a, a);
    let small = simd.mul_add(simd.mul(square, a), polynomial(simd, square, SMALL), a);
    let e = exp(simd, simd.mul(a, simd.splat(-2.0)));
    let large = simd.div(simd.sub(one, e), simd.add(one, e));
    simd.copysign(simd.select_lt(a, simd.splat(0.625), small, large), x)
}

/// `x / (1 + e^(-v))` for `v` of the sign of `x`, without the overflow of `e^(-v)`: both tails keep
/// their relative accuracy. Minus infinity gives NaN, as `-inf * 0` does.
#[inline(always)]
fn times_sigmoid<S: Simd>(simd: S, x: S::V, v: S::V) -> S::V {
    let zero = simd.splat(0.0);
    let e = exp(simd, simd.sub(zero, simd.abs(v)));
    let numerator = simd.select_lt(x, zero, simd.mul(x, e), x);
    simd.div(numerator, simd.add(simd.splat(1.0), e))
}

/// `x sigmoid(x)`.
#[inline(always)]
pub(super) fn silu<S: Simd>(simd: S, x: S::V) -> S::V {
    times_sigmoid(simd, x, x)
}

/// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x³)))`, as `x sigmoid(2 …)`: the sum with tanh would cancel
/// in the left tail.
#[inline(always)]
pub(super) fn gelu_tanh<S: Simd>(simd: S, x: S::V) -> S::V {
    const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
    let slope =
        simd.mul_add(simd.mul(x, x), simd.splat(TWICE_SQRT_2_OVER_PI * 0.044_715), simd.splat(TWICE_SQRT_2_OVER_PI));
    times_sigmoid(simd, x, simd.mul(x, slope))
}

/// `x/2 (1 + erf(x / sqrt 2))`, as `x/2 erfc(-x / sqrt 2)`: the sum with erf would cancel in the left
/// tail. Minus infinity gives NaN, as `-inf * 0` does.
#[inline(always)]
pub(super) fn gelu<S: Simd>(simd: S, x: S::V) -> S::V {
    let half = simd.splat(0.5);
    // From 15 on erfc rounds to 0; the bound keeps the square of an infinity out. NaN passes.
    let a = simd.min(simd.splat(15.0), simd.abs(x));
    let half_a = simd.mul(half, a);
    let square = simd.mul(half_a, a);
    let rest = simd.mul_add(half_a, a, simd.sub(simd.splat(0.0), square));
    let t = simd.mul(a, simd.splat(std::f32::consts::FRAC_1_SQRT_2));
    let tail = erfc_tail(simd, t, square, rest);
    let erfc = simd.select_lt(x, simd.splat(0.0), tail, simd.sub(simd.splat(2.0), tail));
    simd.mul(simd.mul(half, x), erfc)
}
