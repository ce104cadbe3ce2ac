//! The operations that hardware only approximates: results here are within one unit in the last place of the exact
//! ones.
//!
//! Their documented error bounds are larger. In the adversarial mode each result is moved by a seeded error up to that
//! bound, so that a tolerance that holds only by luck shows.

use crate::sim::ir::lanes::{Alu, alu};
use crate::sim::isa::rounding::{AnyNan, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, flush};
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type::*;

/// With and without `.ftz`.
macro_rules! forms {
    ($op:ident; $($seldom:ident)? |$($a:ident),+| $body:expr) => {
        match $op.take("ftz") {
            false => alu!($($seldom)? |$($a: f32),+| -> AnyNan { AnyNan($body) }),
            true => alu!($($seldom)? |$($a: f32),+| -> AnyNan { $(let $a = flush($a);)+ AnyNan(flush($body)) }),
        }
    };
}

pub(super) fn lookup(op: &mut Opcode<'_>) -> Option<(Alu, InstructionClass)> {
    let ty = *op.types.first()?;
    let is_full = op.take("full");
    if !is_full && !op.take("approx") {
        return None;
    }
    let alu = match (op.name, ty) {
        ("div", F32) if is_full => forms!(op; |a, b| a / b),
        ("div", F32) => forms!(op; |a, b| divided(a, b)),
        ("rcp", F32) => forms!(op; |a| 1.0 / a),
        ("sqrt", F32) => forms!(op; |a| a.sqrt()),
        ("rsqrt", F32) => forms!(op; |a| 1.0 / a.sqrt()),
        ("ex2", F32) => forms!(op; |a| exp2(a)),
        ("lg2", F32) => forms!(op; |a| log2(a)),
        ("sin", F32) => forms!(op; seldom |a| f64::from(a).sin() as f32),
        ("cos", F32) => forms!(op; seldom |a| f64::from(a).cos() as f32),
        ("tanh", F32) => forms!(op; seldom |a| f64::from(a).tanh() as f32),
        ("rcp", F64) if op.take("ftz") => {
            alu!(|a: f64| -> f64 { coarse_nan(coarse(flush64(1.0 / flush64(coarse(a))))) })
        }
        ("rsqrt", F64) if op.take("ftz") => alu!(|a: f64| -> f64 { coarse(1.0 / flush64(a).sqrt()) }),
        ("rsqrt", F64) => alu!(|a: f64| -> f64 { 1.0 / a.sqrt() }),
        ("ex2", F16) => alu!(|a: u16| -> u16 { f32_to_f16(exp2(f16_to_f32(a))) }),
        ("ex2", F16x2) => alu!(|a: u32| -> u32 { both(a, |half| f32_to_f16(exp2(f16_to_f32(half)))) }),
        ("ex2", Bf16) if op.take("ftz") => alu!(|a: u16| -> u16 { f32_to_bf16(flush(exp2(flush(bf16_to_f32(a))))) }),
        ("ex2", Bf16x2) if op.take("ftz") => {
            alu!(|a: u32| -> u32 { both(a, |half| f32_to_bf16(flush(exp2(flush(bf16_to_f32(half)))))) })
        }
        ("tanh", F16) => alu!(|a: u16| -> u16 { f32_to_f16(f16_to_f32(a).tanh()) }),
        ("tanh", F16x2) => alu!(|a: u32| -> u32 { both(a, |half| f32_to_f16(f16_to_f32(half).tanh())) }),
        ("tanh", Bf16) => alu!(|a: u16| -> u16 { f32_to_bf16(bf16_to_f32(a).tanh()) }),
        ("tanh", Bf16x2) => alu!(|a: u32| -> u32 { both(a, |half| f32_to_bf16(bf16_to_f32(half).tanh())) }),
        _ => return None,
    };
    Some((alu, InstructionClass::Transcendental))
}

/// By the reciprocal, which is 0 for a divisor beyond 2^126.
#[inline(always)]
fn divided(a: f32, b: f32) -> f32 {
    let is_large = b.abs() > 8.507_059e37 && b.is_finite();
    if is_large { a * 0f32.copysign(b) } else { a / b }
}

#[inline(always)]
fn coarse_nan(x: f64) -> f64 {
    if x.is_nan() { f64::from_bits(0x7FFF_FFFF_0000_0000) } else { x }
}

#[inline(always)]
fn both(pair: u32, f: impl Fn(u16) -> u16) -> u32 {
    u32::from(f(pair as u16)) | u32::from(f((pair >> 16) as u16)) << 16
}

#[inline(always)]
fn flush64(x: f64) -> f64 {
    if x.is_subnormal() { 0f64.copysign(x) } else { x }
}

/// These two give the upper 32 bits only.
#[inline(always)]
fn coarse(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & 0xFFFF_FFFF_0000_0000)
}

/// 2^x: the fraction by a polynomial, the integer by the exponent bits, in two steps so that subnormal results come
/// out.
#[inline(always)]
pub(crate) fn exp2(x: f32) -> f32 {
    let clamped = if x < -160.0 { -160.0 } else { x };
    let clamped = if clamped > 160.0 { 160.0 } else { clamped };
    let whole = clamped.round_ties_even();
    let part = clamped - whole;
    // Powers of ln 2 over factorials; the next term is below 2^-27 of the result.
    let mut sum = 1.525_273_4e-5f32;
    sum = sum.mul_add(part, 1.540_353e-4);
    sum = sum.mul_add(part, 1.333_355_8e-3);
    sum = sum.mul_add(part, 9.618_129e-3);
    sum = sum.mul_add(part, 5.550_411e-2);
    sum = sum.mul_add(part, 0.240_226_5);
    sum = sum.mul_add(part, std::f32::consts::LN_2);
    sum = sum.mul_add(part, 1.0);
    let whole = if whole.is_nan() { 0.0 } else { whole } as i32;
    let first = whole >> 1;
    let power = |exponent: i32| f32::from_bits(((exponent + 127) as u32) << 23);
    sum * power(first) * power(whole - first)
}

/// The logarithm in f64, by the odd series of (m - 1)/(m + 1) for m between 0.7 and 1.4.
#[inline(always)]
fn log2(x: f32) -> f32 {
    let value = f64::from(x);
    let bits = value.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & 0x000F_FFFF_FFFF_FFFF) | 0x3FF0_0000_0000_0000);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let mut sum = 1.0 / 17.0;
    for odd in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        sum = sum * square + 1.0 / odd;
    }
    let result = (exponent as f64 + 2.0 * std::f64::consts::LOG2_E * ratio * sum) as f32;
    let result = if x == f32::INFINITY { f32::INFINITY } else { result };
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    if x < 0.0 || x.is_nan() { f32::NAN } else { result }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn ulps(found: f32, exact: f64) -> f64 {
        let nearest = exact as f32;
        let ulp = f64::from(nearest.abs().next_up()) - f64::from(nearest.abs());
        (f64::from(found) - exact).abs() / ulp
    }

    #[test]
    fn powers_and_logarithms_are_within_an_ulp() {
        let mut rng = crate::sim::rng::Rng::new(3);
        for _ in 0..200_000 {
            let x = (rng.next() as u32 as f32 / u32::MAX as f32 - 0.5) * 300.0;
            let exact = f64::from(x).exp2();
            if (exact as f32).is_finite() {
                assert!(ulps(exp2(x), exact) <= 1.0, "2^{x}: {} {exact}", exp2(x));
            }
            let y = f32::from_bits(rng.next() as u32 & 0x7F7F_FFFF);
            assert!(ulps(log2(y), f64::from(y).log2()) <= 1.0, "log2 {y}: {}", log2(y));
        }
    }

    #[rstest]
    #[case(f32::INFINITY, f32::INFINITY)]
    #[case(f32::NEG_INFINITY, 0.0)]
    #[case(-149.0, f32::from_bits(1))]
    #[case(128.0, f32::INFINITY)]
    #[case(0.0, 1.0)]
    fn corners_of_exp2(#[case] x: f32, #[case] expected: f32) {
        assert_eq!(exp2(x), expected);
    }

    #[test]
    fn nan_stays_nan() {
        assert!(exp2(f32::NAN).is_nan() && log2(f32::NAN).is_nan() && log2(-1.0).is_nan());
        assert_eq!(log2(0.0), f32::NEG_INFINITY);
        assert_eq!(log2(-0.0), f32::NEG_INFINITY);
        assert_eq!(log2(f32::INFINITY), f32::INFINITY);
    }
}
