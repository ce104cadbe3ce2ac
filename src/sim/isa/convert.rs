//! `cvt`: between integers, between floats, between both, and into packed small floats.

use crate::sim::ir::lanes::{Alu, alu};
use crate::sim::isa::convert_narrow::{finite_half, packed, rectify, to_tf32};
use crate::sim::isa::float64::quiet;
use crate::sim::isa::rounding::{
    Mode, bf16_to_f32, canonical, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_bf16, f64_to_f16, f64_to_f32, flush,
    saturate, saturate64, to_integral,
};
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;
use crate::sim::ptx::types::Type::*;

pub(super) fn lookup(op: &mut Opcode<'_>) -> Option<(Alu, InstructionClass)> {
    if op.name != "cvt" {
        return None;
    }
    let [to, from] = *op.types.as_slice() else { return None };
    let alu = match (is_integer(to), is_integer(from)) {
        (true, true) => between_integers(op, to, from)?,
        (false, true) => from_integer(op, to, from)?,
        (true, false) => to_integer(op, to, from)?,
        (false, false) => between_floats(op, to, from)?,
    };
    Some((alu, InstructionClass::Convert))
}

fn is_integer(ty: Type) -> bool {
    matches!(ty, U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64)
}

fn between_integers(op: &mut Opcode<'_>, to: Type, from: Type) -> Option<Alu> {
    macro_rules! clamped {
        ($To:ty) => {
            match from {
                U16 => {
                    alu!(seldom |a: u16| -> $To { i64::from(a).clamp(i64::from(<$To>::MIN), i64::from(<$To>::MAX)) as $To })
                }
                S16 => {
                    alu!(seldom |a: i16| -> $To { i64::from(a).clamp(i64::from(<$To>::MIN), i64::from(<$To>::MAX)) as $To })
                }
                U32 => {
                    alu!(seldom |a: u32| -> $To { i64::from(a).clamp(i64::from(<$To>::MIN), i64::from(<$To>::MAX)) as $To })
                }
                S32 => {
                    alu!(seldom |a: i32| -> $To { i64::from(a).clamp(i64::from(<$To>::MIN), i64::from(<$To>::MAX)) as $To })
                }
                U64 => alu!(seldom |a: u64| -> $To { a.min(<$To>::MAX as u64) as $To }),
                S64 => alu!(seldom |a: i64| -> $To { a.clamp(i64::from(<$To>::MIN), i64::from(<$To>::MAX)) as $To }),
                _ => return None,
            }
        };
    }
    macro_rules! cut {
        ($To:ty) => {
            match from {
                U8 => alu!(|a: u8| -> $To { a as $To }),
                S8 => alu!(|a: i8| -> $To { a as $To }),
                U16 => alu!(|a: u16| -> $To { a as $To }),
                S16 => alu!(|a: i16| -> $To { a as $To }),
                U32 => alu!(often |a: u32| -> $To { a as $To }),
                S32 => alu!(often |a: i32| -> $To { a as $To }),
                U64 => alu!(often |a: u64| -> $To { a as $To }),
                _ => alu!(|a: i64| -> $To { a as $To }),
            }
        };
    }
    if op.take("sat") {
        return Some(match to {
            U8 => clamped!(u8),
            S8 => clamped!(i8),
            U16 => clamped!(u16),
            S16 => clamped!(i16),
            U32 => clamped!(u32),
            S32 => clamped!(i32),
            _ => return None,
        });
    }
    Some(match to {
        U8 => cut!(u8),
        S8 => cut!(i8),
        U16 => cut!(u16),
        S16 => cut!(i16),
        U32 | S32 => cut!(u32),
        _ => cut!(u64),
    })
}

/// An integer as f64, its last bit odd if 53 bits do not hold it: a second rounding then does no harm.
#[inline(always)]
fn to_odd(magnitude: u64, negative: bool) -> f64 {
    let spare = 11u32.saturating_sub(magnitude.leading_zeros());
    let lost = magnitude & ((1 << spare) - 1);
    let kept = (magnitude >> spare | u64::from(lost != 0)) << spare;
    let value = kept as f64;
    if negative { -value } else { value }
}

trait Integer: Copy {
    fn odd(self) -> f64;
}

macro_rules! integer {
    ($($ty:ty: $value:ident => $odd:expr;)*) => {$(
        impl Integer for $ty {
            #[inline(always)]
            fn odd(self) -> f64 {
                let $value = self;
                $odd
            }
        }
    )*};
}
integer! {
    u8: a => f64::from(a);
    i8: a => f64::from(a);
    u16: a => f64::from(a);
    i16: a => f64::from(a);
    u32: a => f64::from(a);
    i32: a => f64::from(a);
    u64: a => to_odd(a, false);
    i64: a => to_odd(a.unsigned_abs(), a < 0);
}

fn from_integer(op: &mut Opcode<'_>, to: Type, from: Type) -> Option<Alu> {
    let mode = op.take_map(Mode::from_name)?;
    macro_rules! each {
        ($Out:ty; $($seldom:ident)? |$a:ident| $body:expr) => {
            match from {
                U8 => alu!($($seldom)? |$a: u8| -> $Out { $body }),
                S8 => alu!($($seldom)? |$a: i8| -> $Out { $body }),
                U16 => alu!($($seldom)? |$a: u16| -> $Out { $body }),
                S16 => alu!($($seldom)? |$a: i16| -> $Out { $body }),
                U32 => alu!($($seldom)? |$a: u32| -> $Out { $body }),
                S32 => alu!($($seldom)? |$a: i32| -> $Out { $body }),
                U64 => alu!($($seldom)? |$a: u64| -> $Out { $body }),
                _ => alu!($($seldom)? |$a: i64| -> $Out { $body }),
            }
        };
    }
    Some(match (to, mode) {
        (F32, Mode::Nearest) => each!(f32; |a| a as f32),
        (F64, Mode::Nearest) => each!(f64; |a| a as f64),
        (F32, Mode::Zero) => each!(f32; seldom |a| f64_to_f32(a.odd(), Mode::Zero)),
        (F32, Mode::Down) => each!(f32; seldom |a| f64_to_f32(a.odd(), Mode::Down)),
        (F32, Mode::Up) => each!(f32; seldom |a| f64_to_f32(a.odd(), Mode::Up)),
        (F16, Mode::Nearest) => each!(u16; seldom |a| f64_to_f16(a.odd(), Mode::Nearest)),
        (F16, Mode::Zero) => each!(u16; seldom |a| f64_to_f16(a.odd(), Mode::Zero)),
        (Bf16, Mode::Nearest) => each!(u16; seldom |a| f64_to_bf16(a.odd(), Mode::Nearest)),
        (Bf16, Mode::Zero) => each!(u16; seldom |a| f64_to_bf16(a.odd(), Mode::Zero)),
        // All 32-bit integers are exact in f64.
        (F64, _) if !matches!(from, U64 | S64) => each!(f64; |a| a as f64),
        _ => return None,
    })
}

/// The direction of a rounding to an integer: `rni`, `rzi`, `rmi`, `rpi`.
fn integer_mode(name: &str) -> Option<Mode> {
    Mode::from_name(name.strip_suffix('i')?)
}

fn to_integer(op: &mut Opcode<'_>, to: Type, from: Type) -> Option<Alu> {
    let mode = op.take_map(integer_mode)?;
    let flushes = op.take("ftz");
    op.take("sat");
    // NaN becomes 0, but the lowest number (or half of the range) where 64 bits take part: so hardware does it.
    macro_rules! each {
        ($From:ty, |$a:ident| $value:expr, $mode:expr, $wide:expr) => {
            match to {
                U8 => alu!(seldom |$a: $From| -> u8 { to_integral($value, $mode) as u8 }),
                S8 => alu!(seldom |$a: $From| -> i8 { to_integral($value, $mode) as i8 }),
                U16 if $wide => alu!(seldom |$a: $From| -> u16 {
                    let x = $value;
                    if x.is_nan() { 1 << 15 } else { to_integral(x, $mode) as u16 }
                }),
                S16 if $wide => alu!(seldom |$a: $From| -> u16 {
                    let x = $value;
                    if x.is_nan() { 1 << 15 } else { to_integral(x, $mode) as i16 as u16 }
                }),
                U16 => alu!(seldom |$a: $From| -> u16 { to_integral($value, $mode) as u16 }),
                S16 => alu!(seldom |$a: $From| -> i16 { to_integral($value, $mode) as i16 }),
                U32 if $wide => alu!(seldom |$a: $From| -> u32 {
                    let x = $value;
                    if x.is_nan() { 1 << 31 } else { to_integral(x, $mode) as u32 }
                }),
                S32 if $wide => alu!(seldom |$a: $From| -> i32 {
                    let x = $value;
                    if x.is_nan() { i32::MIN } else { to_integral(x, $mode) as i32 }
                }),
                U32 => alu!(seldom |$a: $From| -> u32 { to_integral($value, $mode) as u32 }),
                S32 => alu!(seldom |$a: $From| -> i32 { to_integral($value, $mode) as i32 }),
                U64 => alu!(seldom |$a: $From| -> u64 {
                    let x = $value;
                    if x.is_nan() { 1 << 63 } else { to_integral(x, $mode) as u64 }
                }),
                _ => alu!(seldom |$a: $From| -> i64 {
                    let x = $value;
                    if x.is_nan() { i64::MIN } else { to_integral(x, $mode) as i64 }
                }),
            }
        };
    }
    macro_rules! modes {
        ($From:ty, |$a:ident| $value:expr, $wide:expr) => {
            match mode {
                Mode::Nearest => each!($From, |$a| $value, Mode::Nearest, $wide),
                Mode::Zero => each!($From, |$a| $value, Mode::Zero, $wide),
                Mode::Down => each!($From, |$a| $value, Mode::Down, $wide),
                Mode::Up => each!($From, |$a| $value, Mode::Up, $wide),
            }
        };
    }
    // What kernels do in their loops.
    if from == F32 && !flushes {
        match (to, mode) {
            (S32, Mode::Zero) => return Some(alu!(|a: f32| -> i32 { to_integral(f64::from(a), Mode::Zero) as i32 })),
            (S32, Mode::Nearest) => {
                return Some(alu!(|a: f32| -> i32 { to_integral(f64::from(a), Mode::Nearest) as i32 }));
            }
            (U32, Mode::Zero) => return Some(alu!(|a: f32| -> u32 { to_integral(f64::from(a), Mode::Zero) as u32 })),
            _ => {}
        }
    }
    Some(match (from, flushes) {
        (F32, false) => modes!(f32, |a| f64::from(a), false),
        (F32, true) => modes!(f32, |a| f64::from(flush(a)), false),
        (F64, false) => modes!(f64, |a| a, true),
        (F16, _) => modes!(u16, |a| f64::from(f16_to_f32(a)), false),
        (Bf16, false) => modes!(u16, |a| f64::from(bf16_to_f32(a)), false),
        _ => return None,
    })
}

fn between_floats(op: &mut Opcode<'_>, to: Type, from: Type) -> Option<Alu> {
    if let Some(mode) = op.take_map(integer_mode) {
        return integral(op, to, from, mode);
    }
    if matches!(to, F16x2 | Bf16x2 | E4m3x2 | E5m2x2) {
        return packed(op, to, from);
    }
    if to == Tf32 {
        return to_tf32(op, from);
    }
    let mode = op.take_map(Mode::from_name);
    let (flushes, saturates, rectifies) = (op.take("ftz"), op.take("sat"), op.take("relu"));
    if op.take("satfinite") {
        return if flushes || saturates { None } else { finite_half(to, from, mode?, rectifies) };
    }
    Some(match (to, from, mode.unwrap_or(Mode::Nearest), flushes, saturates, rectifies) {
        (F32, F16, _, _, false, false) => alu!(often |a: u16| -> f32 { f16_to_f32(a) }),
        (F32, F16, _, _, true, false) => alu!(|a: u16| -> f32 { saturate(f16_to_f32(a)) }),
        (F32, Bf16, _, _, false, false) => alu!(often |a: u16| -> f32 { bf16_to_f32(a) }),
        (F64, Bf16, _, _, false, false) => alu!(|a: u16| -> f64 { bf16_to_f64(a) }),
        (F64, F16, _, _, false, false) => alu!(|a: u16| -> f64 { f16_to_f64(a) }),
        (F64, F32, _, false, false, false) => alu!(|a: f32| -> f64 { f64::from(a) }),
        (F64, F32, _, true, false, false) => alu!(|a: f32| -> f64 { f64::from(flush(a)) }),
        (F32, F64, Mode::Nearest, false, false, false) => alu!(|a: f64| -> f32 { narrow_nan(a, a as f32) }),
        (F32, F64, Mode::Nearest, true, false, false) => alu!(|a: f64| -> f32 { flush(narrow_nan(a, a as f32)) }),
        (F32, F64, Mode::Zero, false, false, false) => {
            alu!(|a: f64| -> f32 { narrow_nan(a, f64_to_f32(a, Mode::Zero)) })
        }
        (F32, F64, Mode::Down, false, false, false) => {
            alu!(|a: f64| -> f32 { narrow_nan(a, f64_to_f32(a, Mode::Down)) })
        }
        (F32, F64, Mode::Up, false, false, false) => alu!(|a: f64| -> f32 { narrow_nan(a, f64_to_f32(a, Mode::Up)) }),
        (F32, F32, _, false, true, false) => alu!(often |a: f32| -> f32 { saturate(a) }),
        (F32, F32, _, true, true, false) => alu!(|a: f32| -> f32 { saturate(flush(a)) }),
        (F32, F32, _, true, false, false) => alu!(|a: f32| -> f32 { canonical(flush(a)) }),
        (F32, F32, _, false, false, false) => alu!(|a: f32| -> f32 { a }),
        (F64, F64, _, false, true, false) => alu!(|a: f64| -> f64 { saturate64(a) }),
        (F16, F32, Mode::Nearest, false, false, false) => alu!(often |a: f32| -> u16 { f32_to_f16(a) }),
        (F16, F32, Mode::Nearest, true, false, false) => alu!(|a: f32| -> u16 { f32_to_f16(flush(a)) }),
        (F16, F32, Mode::Nearest, false, true, false) => alu!(|a: f32| -> u16 { f32_to_f16(saturate(a)) }),
        (F16, F32, Mode::Nearest, false, false, true) => alu!(|a: f32| -> u16 { f32_to_f16(rectify(a)) }),
        (F16, F32, Mode::Zero, false, false, false) => alu!(|a: f32| -> u16 { f64_to_f16(f64::from(a), Mode::Zero) }),
        (F16, F32, Mode::Down, false, false, false) => alu!(|a: f32| -> u16 { f64_to_f16(f64::from(a), Mode::Down) }),
        (F16, F32, Mode::Up, false, false, false) => alu!(|a: f32| -> u16 { f64_to_f16(f64::from(a), Mode::Up) }),
        (F16, F64, Mode::Nearest, false, false, false) => alu!(|a: f64| -> u16 { wide_to_f16(a, Mode::Nearest) }),
        (F16, F64, Mode::Zero, false, false, false) => alu!(|a: f64| -> u16 { wide_to_f16(a, Mode::Zero) }),
        (F16, F64, Mode::Down, false, false, false) => alu!(|a: f64| -> u16 { wide_to_f16(a, Mode::Down) }),
        (F16, F64, Mode::Up, false, false, false) => alu!(|a: f64| -> u16 { wide_to_f16(a, Mode::Up) }),
        (F16, F32, Mode::Zero, false, false, true) => {
            alu!(|a: f32| -> u16 { f64_to_f16(f64::from(rectify(a)), Mode::Zero) })
        }
        (Bf16, F32, Mode::Zero, false, false, true) => {
            alu!(|a: f32| -> u16 { f64_to_bf16(f64::from(rectify(a)), Mode::Zero) })
        }
        (Bf16, F32, Mode::Nearest, false, false, false) => alu!(often |a: f32| -> u16 { f32_to_bf16(a) }),
        (Bf16, F32, Mode::Nearest, false, false, true) => alu!(|a: f32| -> u16 { f32_to_bf16(rectify(a)) }),
        (Bf16, F32, Mode::Zero, false, false, false) => alu!(|a: f32| -> u16 { f64_to_bf16(f64::from(a), Mode::Zero) }),
        (Bf16, F32, Mode::Down, false, false, false) => alu!(|a: f32| -> u16 { f64_to_bf16(f64::from(a), Mode::Down) }),
        (Bf16, F32, Mode::Up, false, false, false) => alu!(|a: f32| -> u16 { f64_to_bf16(f64::from(a), Mode::Up) }),
        (Bf16, F64, Mode::Nearest, false, false, false) => alu!(|a: f64| -> u16 { f64_to_bf16(a, Mode::Nearest) }),
        (Bf16, F16, Mode::Nearest, false, false, false) => alu!(|a: u16| -> u16 { f32_to_bf16(f16_to_f32(a)) }),
        (F16, Bf16, Mode::Nearest, false, false, false) => alu!(|a: u16| -> u16 { f32_to_f16(bf16_to_f32(a)) }),
        _ => return None,
    })
}

/// Between double precision and the others NaN keeps its sign and what fits of its payload.
#[inline(always)]
fn narrow_nan(from: f64, number: f32) -> f32 {
    let bits = from.to_bits();
    let nan = (bits >> 32) as u32 & 0x8000_0000 | 0x7FC0_0000 | (bits >> 29) as u32 & 0x003F_FFFF;
    if from.is_nan() { f32::from_bits(nan) } else { number }
}

#[inline(always)]
fn wide_to_f16(a: f64, mode: Mode) -> u16 {
    if a.is_nan() {
        0x7E00 | (a.to_bits() >> 48 & 0x8000 | a.to_bits() >> 42 & 0x1FF) as u16
    } else {
        f64_to_f16(a, mode)
    }
}

#[inline(always)]
fn bf16_to_f64(half: u16) -> f64 {
    let bits = u64::from(half);
    let nan = (bits & 0x8000) << 48 | 0x7FF8_0000_0000_0000 | (bits & 0x3F) << 45;
    if bits & 0x7FFF > 0x7F80 { f64::from_bits(nan) } else { f64::from(bf16_to_f32(half)) }
}

#[inline(always)]
fn f16_to_f64(half: u16) -> f64 {
    let bits = u64::from(half);
    let nan = (bits & 0x8000) << 48 | 0x7FF8_0000_0000_0000 | (bits & 0x1FF) << 42;
    if bits & 0x7FFF > 0x7C00 { f64::from_bits(nan) } else { f64::from(f16_to_f32(half)) }
}

fn integral(op: &mut Opcode<'_>, to: Type, from: Type, mode: Mode) -> Option<Alu> {
    let (flushes, saturates) = (op.take("ftz"), op.take("sat"));
    macro_rules! modes {
        ($Ty:ty; $($seldom:ident)? |$a:ident, $m:ident| $body:expr) => {
            match mode {
                Mode::Nearest => alu!($($seldom)? |$a: $Ty| -> $Ty {
                    let $m = Mode::Nearest;
                    $body
                }),
                Mode::Zero => alu!($($seldom)? |$a: $Ty| -> $Ty {
                    let $m = Mode::Zero;
                    $body
                }),
                Mode::Down => alu!($($seldom)? |$a: $Ty| -> $Ty {
                    let $m = Mode::Down;
                    $body
                }),
                Mode::Up => alu!($($seldom)? |$a: $Ty| -> $Ty {
                    let $m = Mode::Up;
                    $body
                }),
            }
        };
    }
    Some(match (to, from, flushes, saturates) {
        (F32, F32, false, false) => modes!(f32; |a, m| canonical(integral32(a, m))),
        (F32, F32, true, false) => modes!(f32; seldom |a, m| canonical(integral32(flush(a), m))),
        (F32, F32, false, true) => modes!(f32; seldom |a, m| saturate(integral32(a, m))),
        (F64, F64, false, false) => modes!(f64; seldom |a, m| if a.is_nan() { quiet(a) } else { to_integral(a, m) }),
        (F16, F16, false, false) => modes!(u16; seldom |a, m| f32_to_f16(integral32(f16_to_f32(a), m))),
        (Bf16, Bf16, false, false) => modes!(u16; seldom |a, m| f32_to_bf16(integral32(bf16_to_f32(a), m))),
        _ => return None,
    })
}

#[inline(always)]
fn integral32(x: f32, mode: Mode) -> f32 {
    match mode {
        Mode::Nearest => x.round_ties_even(),
        Mode::Zero => x.trunc(),
        Mode::Down => x.floor(),
        Mode::Up => x.ceil(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::small_formats::{from_e4m3, to_e4m3, to_e5m2};
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(448.0, 0x7E)]
    #[case(1e9, 0x7E)]
    #[case(-0.0, 0x80)]
    #[case(1.0, 0x38)]
    #[case(1.0625, 0x38)] // a tie, to even
    #[case(1.1875, 0x3A)]
    #[case(0.001953125, 0x01)]
    #[case(0.0009765625, 0x00)]
    #[case(f32::NAN, 0x7F)]
    fn e4m3(#[case] x: f32, #[case] bits: u8) {
        assert_eq!(to_e4m3(x), bits);
    }

    #[test]
    fn e4m3_comes_back() {
        for bits in (0..=255u8).filter(|bits| bits & 0x7F != 0x7F) {
            assert_eq!(to_e4m3(from_e4m3(bits)), bits);
        }
    }

    #[rstest]
    #[case(57_344.0, 0x7B)]
    #[case(1e9, 0x7B)]
    #[case(1.0, 0x3C)]
    #[case(-1.25, 0xBD)]
    fn e5m2(#[case] x: f32, #[case] bits: u8) {
        assert_eq!(to_e5m2(x), bits);
    }

    #[test]
    fn integers_beyond_53_bits_keep_what_a_tie_needs() {
        let above_tie = (1u64 << 63) + (1 << 39) + 1;
        assert_eq!(f64_to_f32(to_odd(above_tie, false), Mode::Nearest), above_tie as f32);
        assert_eq!(f64_to_f32(to_odd(above_tie, true), Mode::Zero), -((1u64 << 63) as f32));
    }
}
