//! Single precision: exact operations in all rounding modes, flush to zero, saturation; extrema, signs.

use crate::sim::ir::lanes::{Alu, alu};
use crate::sim::isa::rounding::{AnyNan, Mode, f64_to_f32, flush, fma_to_odd, saturate, sum_to_odd};
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;

/// The four forms of an operation: with and without `.ftz`, with and without `.sat`. `run` and `often` are for the first.
macro_rules! forms {
    ($op:ident; seldom |$($a:ident),+| $body:expr) => {
        match ($op.take("ftz"), $op.take("sat")) {
            (false, false) => alu!(seldom |$($a: f32),+| -> AnyNan { AnyNan($body) }),
            (true, false) => alu!(seldom |$($a: f32),+| -> AnyNan { $(let $a = flush($a);)+ AnyNan(flush($body)) }),
            (false, true) => alu!(seldom |$($a: f32),+| -> f32 { saturate($body) }),
            (true, true) => alu!(seldom |$($a: f32),+| -> f32 { $(let $a = flush($a);)+ flush(saturate($body)) }),
        }
    };
    ($op:ident; $($often:ident)? |$($a:ident),+| $body:expr) => {
        match ($op.take("ftz"), $op.take("sat")) {
            (false, false) => alu!($($often)? |$($a: f32),+| -> AnyNan { AnyNan($body) }),
            (true, false) => alu!(|$($a: f32),+| -> AnyNan { $(let $a = flush($a);)+ AnyNan(flush($body)) }),
            (false, true) => alu!(|$($a: f32),+| -> f32 { saturate($body) }),
            (true, true) => alu!(|$($a: f32),+| -> f32 { $(let $a = flush($a);)+ flush(saturate($body)) }),
        }
    };
}

pub(super) fn lookup(op: &mut Opcode<'_>) -> Option<(Alu, InstructionClass)> {
    if op.take("f32x2") {
        return pairs(op).map(|alu| (alu, InstructionClass::Float32));
    }
    if op.types.as_slice() != [Type::F32] {
        return None;
    }
    let alu = match op.name {
        "add" | "sub" | "mul" | "fma" | "mad" | "div" | "sqrt" | "rcp" => {
            return arithmetic(op).map(|alu| (alu, InstructionClass::Float32));
        }
        "abs" => match op.take("ftz") {
            false => alu!(|a: f32| -> AnyNan { AnyNan(a.abs()) }),
            true => alu!(|a: f32| -> AnyNan { AnyNan(flush(a).abs()) }),
        },
        "neg" => match op.take("ftz") {
            false => alu!(|a: f32| -> AnyNan { AnyNan(-a) }),
            true => alu!(|a: f32| -> AnyNan { AnyNan(-flush(a)) }),
        },
        "copysign" => alu!(|a: f32, b: f32| -> f32 { b.copysign(a) }),
        "min" | "max" => extremum(op)?,
        _ => return None,
    };
    Some((alu, InstructionClass::Float32))
}

/// Two numbers in a register of 64 bits, rounded to nearest.
fn pairs(op: &mut Opcode<'_>) -> Option<Alu> {
    op.take("rn");
    Some(match (op.name, op.take("ftz")) {
        ("add", false) => alu!(|a: u64, b: u64| -> u64 { both([a, b], |[a, b]| a + b) }),
        ("sub", false) => alu!(|a: u64, b: u64| -> u64 { both([a, b], |[a, b]| a - b) }),
        ("mul", false) => alu!(|a: u64, b: u64| -> u64 { both([a, b], |[a, b]| a * b) }),
        ("fma", false) => alu!(|a: u64, b: u64, c: u64| -> u64 { both([a, b, c], |[a, b, c]| a.mul_add(b, c)) }),
        _ => return None,
    })
}

#[inline(always)]
fn both<const N: usize>(sources: [u64; N], f: impl Fn([f32; N]) -> f32) -> u64 {
    let half = |by: u32| {
        let value = f(sources.map(|source| f32::from_bits((source >> by) as u32)));
        u64::from(if value.is_nan() { 0x7FFF_FFFF } else { value.to_bits() })
    };
    half(0) | half(32) << 32
}

fn arithmetic(op: &mut Opcode<'_>) -> Option<Alu> {
    if op.has("approx") || op.has("full") {
        return None;
    }
    let mode = op.take_map(Mode::from_name).unwrap_or(Mode::Nearest);
    if mode == Mode::Nearest {
        return Some(match op.name {
            "add" => forms!(op; run |a, b| a + b),
            "sub" => forms!(op; run |a, b| a - b),
            "mul" if op.has("ftz") => {
                forms!(op; |a, b| if is_tiny(wide(a) * wide(b)) { zero_like(a * b) } else { a * b })
            }
            "mul" => forms!(op; run |a, b| a * b),
            "fma" | "mad" => forms!(op; run |a, b, c| a.mul_add(b, c)),
            "div" => forms!(op; |a, b| a / b),
            "rcp" => forms!(op; |a| 1.0 / a),
            _ => forms!(op; |a| a.sqrt()),
        });
    }
    directed(op, mode)
}

/// The exact result fits into f64, or is rounded to odd there, so that the last rounding is the only one that shows.
fn directed(op: &mut Opcode<'_>, mode: Mode) -> Option<Alu> {
    macro_rules! modes {
        (|$($a:ident),+| $body:expr) => {
            match mode {
                Mode::Zero => forms!(op; seldom |$($a),+| f64_to_f32($body, Mode::Zero)),
                Mode::Down => forms!(op; seldom |$($a),+| f64_to_f32($body, Mode::Down)),
                _ => forms!(op; seldom |$($a),+| f64_to_f32($body, Mode::Up)),
            }
        };
    }
    if mode == Mode::Down && matches!(op.name, "add" | "sub" | "fma" | "mad") {
        // Only here the sign of an exact zero depends on the mode.
        return Some(match op.name {
            "add" => forms!(op; seldom |a, b| zero_down(f64_to_f32(sum_to_odd(wide(a), wide(b)), Mode::Down), a, b)),
            "sub" => forms!(op; seldom |a, b| zero_down(f64_to_f32(sum_to_odd(wide(a), -wide(b)), Mode::Down), a, -b)),
            _ => forms!(op; often |a, b, c| fma_down(a, b, c)),
        });
    }
    Some(match op.name {
        "mul" if op.has("ftz") => modes!(|a, b| zero_if_tiny(wide(a) * wide(b))),
        "div" if op.has("ftz") => modes!(|a, b| zero_if_tiny(quotient_to_odd(wide(a), wide(b)))),
        "add" => modes!(|a, b| sum_to_odd(wide(a), wide(b))),
        "sub" => modes!(|a, b| sum_to_odd(wide(a), -wide(b))),
        "mul" => modes!(|a, b| wide(a) * wide(b)),
        "fma" | "mad" => modes!(|a, b, c| fma_to_odd(wide(a), wide(b), wide(c))),
        "div" => modes!(|a, b| quotient_to_odd(wide(a), wide(b))),
        "rcp" => modes!(|a| quotient_to_odd(1.0, wide(a))),
        _ => modes!(|a| root_to_odd(wide(a))),
    })
}

#[inline(always)]
fn wide(x: f32) -> f64 {
    f64::from(x)
}

/// Whether an exact result is flushed to zero. Hardware looks before it rounds.
#[inline(always)]
fn is_tiny(exact: f64) -> bool {
    exact.abs() < f64::from(f32::MIN_POSITIVE)
}

#[inline(always)]
fn zero_if_tiny(exact: f64) -> f64 {
    if is_tiny(exact) { 0f64.copysign(exact) } else { exact }
}

#[inline(always)]
fn zero_like(x: f32) -> f32 {
    0f32.copysign(x)
}

/// The nearest number, or the one below where that is too large: exponentials do this all the time, and few lane-wise
/// operations in f64 are faster than rounding from f64. An exact sum of zero is -0 unless both terms are +0.
#[inline(always)]
fn fma_down(a: f32, b: f32, c: f32) -> f32 {
    let nearest = a.mul_add(b, c);
    let (product, c) = (wide(a) * wide(b), wide(c));
    let sum = product + c;
    // The product is exact, and so is what the sum lost: 2Sum.
    let of_c = sum - product;
    let lost = (product - (sum - of_c)) + (c - of_c);
    let is_above = sum < wide(nearest) || (sum == wide(nearest) && lost < 0.0);
    if sum == 0.0 {
        return if product.to_bits() | c.to_bits() != 0 { -0.0 } else { 0.0 };
    }
    if is_above { below(nearest) } else { nearest }
}

/// The next number below one that is not -∞.
#[inline(always)]
fn below(x: f32) -> f32 {
    let bits = x.to_bits();
    let step = if (bits as i32) < 0 { 1 } else { u32::MAX };
    f32::from_bits(if x == 0.0 { 0x8000_0001 } else { bits.wrapping_add(step) })
}

/// Rounding down, x - x is -0 unless both are +0.
#[inline(always)]
fn zero_down(result: f32, a: f32, b: f32) -> f32 {
    let both_positive = a == 0.0 && b == 0.0 && a.is_sign_positive() && b.is_sign_positive();
    if result == 0.0 && a == -b && !both_positive { -0.0 } else { result }
}

/// Makes the last bit odd where the remainder says that f64 is not exact.
#[inline(always)]
fn with_remainder(value: f64, remainder_outwards: f64) -> f64 {
    if remainder_outwards == 0.0 || !value.is_finite() || value == 0.0 || value.to_bits() & 1 != 0 {
        return value;
    }
    f64::from_bits(if remainder_outwards > 0.0 { value.to_bits() + 1 } else { value.to_bits() - 1 })
}

#[inline(always)]
fn quotient_to_odd(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    let rest = (-quotient).mul_add(b, a);
    with_remainder(
        quotient,
        if rest == 0.0 || !rest.is_finite() { 0.0 } else { rest.signum() * b.signum() * quotient.signum() },
    )
}

#[inline(always)]
fn root_to_odd(a: f64) -> f64 {
    let root = a.sqrt();
    let rest = (-root).mul_add(root, a);
    with_remainder(root, if rest.is_finite() { rest } else { 0.0 })
}

#[inline(always)]
pub(crate) fn lesser(a: f32, b: f32) -> f32 {
    let lower = if a < b { a } else { b };
    let both = if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { lower };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        both
    }
}

#[inline(always)]
pub(crate) fn greater(a: f32, b: f32) -> f32 {
    let higher = if a > b { a } else { b };
    let both = if a == b { f32::from_bits(a.to_bits() & b.to_bits()) } else { higher };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        both
    }
}

/// A magnitude with the product of two signs.
#[inline(always)]
fn xor_sign(a: f32, b: f32, magnitude: f32) -> f32 {
    f32::from_bits(magnitude.to_bits() | (a.to_bits() ^ b.to_bits()) & 1 << 31)
}

/// Without `.NaN` the number wins over NaN.
fn extremum(op: &mut Opcode<'_>) -> Option<Alu> {
    let least = op.name == "min";
    let keep_nan = op.take("NaN");
    if op.take("xorsign") {
        if !op.take("abs") {
            return None;
        }
        return Some(match (least, keep_nan) {
            (true, false) => forms!(op; seldom |a, b| xor_sign(a, b, lesser(a.abs(), b.abs()))),
            (true, true) => {
                forms!(op; seldom |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { xor_sign(a, b, lesser(a.abs(), b.abs())) })
            }
            (false, false) => forms!(op; seldom |a, b| xor_sign(a, b, greater(a.abs(), b.abs()))),
            (false, true) => {
                forms!(op; seldom |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { xor_sign(a, b, greater(a.abs(), b.abs())) })
            }
        });
    }
    Some(match (least, keep_nan) {
        (true, false) => forms!(op; often |a, b| lesser(a, b)),
        (true, true) => forms!(op; |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { lesser(a, b) }),
        (false, false) => forms!(op; often |a, b| greater(a, b)),
        (false, true) => forms!(op; |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { greater(a, b) }),
    })
}
