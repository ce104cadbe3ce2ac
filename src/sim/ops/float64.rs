//! Double precision.

use super::rounding::Mode;
use crate::sim::lanes::{Alu, alu};
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;

/// The NaN that double-precision operations give where no operand is one.
const NAN64: u64 = 0xFFF8_0000_0000_0000;

pub(super) fn lookup(op: &mut Opcode<'_>) -> Option<(Alu, InstructionClass)> {
    if op.types.as_slice() != [Type::F64] {
        return None;
    }
    if op.has("approx") {
        return None;
    }
    let mode = op.take_map(Mode::from_name).unwrap_or(Mode::Nearest);
    let alu = match (op.name, mode) {
        ("add", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { canonical(a + b, [b, a, a]) }),
        ("sub", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { canonical(a - b, [b, a, a]) }),
        ("mul", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { canonical(a * b, [b, a, a]) }),
        ("fma" | "mad", Mode::Nearest) => {
            alu!(|a: f64, b: f64, c: f64| -> f64 { canonical(a.mul_add(b, c), [b, c, a]) })
        }
        ("div", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { canonical(a / b, [a, b, b]) }),
        ("rcp", Mode::Nearest) => alu!(|a: f64| -> f64 { canonical(1.0 / a, [a; 3]) }),
        ("sqrt", Mode::Nearest) => alu!(|a: f64| -> f64 { canonical(a.sqrt(), [a; 3]) }),
        ("add", Mode::Zero) => alu!(|a: f64, b: f64| -> f64 { canonical(sum(a, b, Mode::Zero), [b, a, a]) }),
        ("add", Mode::Down) => alu!(|a: f64, b: f64| -> f64 { canonical(sum(a, b, Mode::Down), [b, a, a]) }),
        ("add", Mode::Up) => alu!(|a: f64, b: f64| -> f64 { canonical(sum(a, b, Mode::Up), [b, a, a]) }),
        ("sub", Mode::Zero) => alu!(|a: f64, b: f64| -> f64 { canonical(sum(a, -b, Mode::Zero), [b, a, a]) }),
        ("sub", Mode::Down) => alu!(|a: f64, b: f64| -> f64 { canonical(sum(a, -b, Mode::Down), [b, a, a]) }),
        ("sub", Mode::Up) => alu!(|a: f64, b: f64| -> f64 { canonical(sum(a, -b, Mode::Up), [b, a, a]) }),
        ("mul", Mode::Zero) => alu!(|a: f64, b: f64| -> f64 { canonical(product(a, b, Mode::Zero), [b, a, a]) }),
        ("mul", Mode::Down) => alu!(|a: f64, b: f64| -> f64 { canonical(product(a, b, Mode::Down), [b, a, a]) }),
        ("mul", Mode::Up) => alu!(|a: f64, b: f64| -> f64 { canonical(product(a, b, Mode::Up), [b, a, a]) }),
        ("abs", Mode::Nearest) => alu!(|a: f64| -> f64 { if is_nan(a.to_bits()) { quiet(a) } else { a.abs() } }),
        ("neg", Mode::Nearest) => alu!(|a: f64| -> f64 { if is_nan(a.to_bits()) { quiet(a) } else { -a } }),
        ("copysign", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { b.copysign(a) }),
        ("min", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { lesser(a, b) }),
        ("max", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { -lesser(-a, -b) }),
        _ => return None,
    };
    Some((alu, InstructionClass::Float64))
}

#[inline(always)]
fn is_nan(bits: u64) -> bool {
    bits & !(1 << 63) > 0x7FF0_0000_0000_0000
}

/// A NaN with the bit that makes it quiet.
#[inline(always)]
fn quiet(nan: f64) -> f64 {
    f64::from_bits(nan.to_bits() | 1 << 51)
}

/// NaN payloads of double precision pass through, those of the first operand in the list that is one; a new NaN has the
/// default bits. On bits, because a compiler may take one NaN for another.
#[inline(always)]
fn canonical(x: f64, operands: [f64; 3]) -> f64 {
    if !is_nan(x.to_bits()) {
        return x;
    }
    let first = operands.into_iter().find(|operand| is_nan(operand.to_bits()));
    first.map_or(f64::from_bits(NAN64), quiet)
}

#[inline(always)]
fn lesser(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        if b.is_nan() { quiet(b) } else { b }
    } else if b.is_nan() {
        a
    } else if a == b {
        f64::from_bits(a.to_bits() | b.to_bits())
    } else if a < b {
        a
    } else {
        b
    }
}

#[inline(always)]
fn sum_error(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let b_part = sum - a;
    (a - (sum - b_part)) + (b - b_part)
}

/// A sum in a directed mode.
#[inline(always)]
fn sum(a: f64, b: f64, mode: Mode) -> f64 {
    let nearest = a + b;
    if nearest == 0.0 {
        // A sum of zero is exact; rounding down, it is -0 unless both terms are +0.
        return if mode == Mode::Down && (a.to_bits() | b.to_bits()) != 0 { -0.0 } else { nearest };
    }
    if nearest.is_infinite() && a.is_finite() && b.is_finite() {
        return overflow(nearest, mode);
    }
    if nearest.is_finite() { step(nearest, sum_error(a, b), mode) } else { nearest }
}

/// A product in a directed mode, by its exact bits: near zero its error is too small for a fused multiply-add to show.
#[inline(always)]
fn product(a: f64, b: f64, mode: Mode) -> f64 {
    let nearest = a * b;
    if nearest.is_nan() || a == 0.0 || b == 0.0 || a.is_infinite() || b.is_infinite() {
        return nearest;
    }
    let (a_bits, a_exponent) = parts(a);
    let (b_bits, b_exponent) = parts(b);
    let (bits, exponent) = (u128::from(a_bits) * u128::from(b_bits), a_exponent + b_exponent);
    let length = 128 - bits.leading_zeros() as i32;
    // Below this exponent nothing is kept.
    let shift = (length - 53).max(-1074 - exponent);
    if shift <= 0 {
        return nearest;
    }
    let (kept, lost) = if shift < 128 { ((bits >> shift) as u64, bits & ((1 << shift) - 1) != 0) } else { (0, true) };
    let negative = nearest.is_sign_negative();
    let away = lost && ((mode == Mode::Up && !negative) || (mode == Mode::Down && negative));
    let magnitude = scaled(kept + u64::from(away), exponent + shift);
    if magnitude.is_infinite() {
        return overflow(f64::INFINITY.copysign(nearest), mode);
    }
    magnitude.copysign(nearest)
}

/// Integer significand and exponent of a finite number.
#[inline(always)]
fn parts(x: f64) -> (u64, i32) {
    let bits = x.to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52 & 0x7FF) as i32);
    if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) }
}

/// A significand of up to 53 bits (or 2^53) times a power of two, where that is exact or overflows.
#[inline(always)]
fn scaled(bits: u64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
    // In two steps: the power alone may lie outside the normal numbers.
    let half = exponent / 2;
    bits as f64 * power(half) * power(exponent - half)
}

/// Past the largest finite number a mode that rounds towards zero stays there.
#[inline(always)]
fn overflow(infinite: f64, mode: Mode) -> f64 {
    let stays = match mode {
        Mode::Nearest => false,
        Mode::Zero => true,
        Mode::Down => infinite > 0.0,
        Mode::Up => infinite < 0.0,
    };
    if stays { f64::MAX.copysign(infinite) } else { infinite }
}

/// Moves the nearest result by one place if it lies on the wrong side of the exact one.
#[inline(always)]
fn step(nearest: f64, error: f64, mode: Mode) -> f64 {
    let too_high = error < 0.0;
    let too_low = error > 0.0;
    match mode {
        Mode::Zero if (nearest > 0.0 && too_high) || (nearest < 0.0 && too_low) => {
            f64::from_bits(nearest.to_bits() - 1)
        }
        Mode::Down if too_high => nearest.next_down(),
        Mode::Up if too_low => nearest.next_up(),
        _ => nearest,
    }
}
