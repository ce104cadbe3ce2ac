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
        ("add", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { canonical(a + b, a, b) }),
        ("sub", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { canonical(a - b, a, b) }),
        ("mul", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { canonical(a * b, a, b) }),
        ("fma" | "mad", Mode::Nearest) => {
            alu!(|a: f64, b: f64, c: f64| -> f64 { canonical(a.mul_add(b, c), canonical(a, a, b), c) })
        }
        ("div", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { canonical(a / b, a, b) }),
        ("rcp", Mode::Nearest) => alu!(|a: f64| -> f64 { canonical(1.0 / a, a, a) }),
        ("sqrt", Mode::Nearest) => alu!(|a: f64| -> f64 { canonical(a.sqrt(), a, a) }),
        ("add", Mode::Zero) => alu!(|a: f64, b: f64| -> f64 { step(a + b, sum_error(a, b), Mode::Zero) }),
        ("add", Mode::Down) => alu!(|a: f64, b: f64| -> f64 { step(a + b, sum_error(a, b), Mode::Down) }),
        ("add", Mode::Up) => alu!(|a: f64, b: f64| -> f64 { step(a + b, sum_error(a, b), Mode::Up) }),
        ("sub", Mode::Zero) => alu!(|a: f64, b: f64| -> f64 { step(a - b, sum_error(a, -b), Mode::Zero) }),
        ("sub", Mode::Down) => alu!(|a: f64, b: f64| -> f64 { step(a - b, sum_error(a, -b), Mode::Down) }),
        ("sub", Mode::Up) => alu!(|a: f64, b: f64| -> f64 { step(a - b, sum_error(a, -b), Mode::Up) }),
        ("mul", Mode::Zero) => alu!(|a: f64, b: f64| -> f64 { step(a * b, a.mul_add(b, -(a * b)), Mode::Zero) }),
        ("mul", Mode::Down) => alu!(|a: f64, b: f64| -> f64 { step(a * b, a.mul_add(b, -(a * b)), Mode::Down) }),
        ("mul", Mode::Up) => alu!(|a: f64, b: f64| -> f64 { step(a * b, a.mul_add(b, -(a * b)), Mode::Up) }),
        ("abs", Mode::Nearest) => alu!(|a: f64| -> f64 { a.abs() }),
        ("neg", Mode::Nearest) => alu!(|a: f64| -> f64 { -a }),
        ("copysign", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { b.copysign(a) }),
        ("min", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { lesser(a, b) }),
        ("max", Mode::Nearest) => alu!(|a: f64, b: f64| -> f64 { -lesser(-a, -b) }),
        _ => return None,
    };
    Some((alu, InstructionClass::Float64))
}

/// NaN payloads of double precision pass through; a new NaN has the default bits. On bits, because a compiler may take
/// one NaN for another.
#[inline(always)]
fn canonical(x: f64, a: f64, b: f64) -> f64 {
    let is_nan = |bits: u64| bits & !(1 << 63) > 0x7FF0_0000_0000_0000;
    let (x, a, b) = (x.to_bits(), a.to_bits(), b.to_bits());
    f64::from_bits(if !is_nan(x) {
        x
    } else if is_nan(a) {
        a
    } else if is_nan(b) {
        b
    } else {
        NAN64
    })
}

#[inline(always)]
fn lesser(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
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

/// Moves the nearest result by one place if it lies on the wrong side of the exact one.
#[inline(always)]
fn step(nearest: f64, error: f64, mode: Mode) -> f64 {
    if nearest.is_infinite() && error.is_nan() {
        // An overflow of finite operands; the modes that round towards zero stay finite.
        return nearest;
    }
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
