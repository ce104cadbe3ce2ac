//! Double precision.

use crate::sim::ir::lanes::{Alu, alu};
use crate::sim::isa::exact64::{fused, product, quotient, root, sum};
use crate::sim::isa::rounding::Mode;
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;

/// The NaN that double-precision operations give where no operand is one.
const NAN64: u64 = 0xFFF8_0000_0000_0000;

/// An operation in the modes other than the nearest, with the operands whose NaN it passes on.
macro_rules! directed {
    ($mode:expr; |$($a:ident),+| $exact:ident($($operand:expr),+), $nan:expr) => {
        match $mode {
            Mode::Down => alu!(seldom |$($a: f64),+| -> f64 { canonical($exact($($operand),+, Mode::Down), $nan) }),
            Mode::Up => alu!(seldom |$($a: f64),+| -> f64 { canonical($exact($($operand),+, Mode::Up), $nan) }),
            _ => alu!(seldom |$($a: f64),+| -> f64 { canonical($exact($($operand),+, Mode::Zero), $nan) }),
        }
    };
}

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
        ("add", mode) => directed!(mode; |a, b| sum(a, b), [b, a, a]),
        ("sub", mode) => directed!(mode; |a, b| sum(a, -b), [b, a, a]),
        ("mul", mode) => directed!(mode; |a, b| product(a, b), [b, a, a]),
        ("fma" | "mad", mode) => directed!(mode; |a, b, c| fused(a, b, c), [b, c, a]),
        ("div", mode) => directed!(mode; |a, b| quotient(a, b), [a, b, b]),
        ("rcp", mode) => directed!(mode; |a| quotient(1.0, a), [a; 3]),
        ("sqrt", mode) => directed!(mode; |a| root(a), [a; 3]),
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
pub(super) fn quiet(nan: f64) -> f64 {
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
