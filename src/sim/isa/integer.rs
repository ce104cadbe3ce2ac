//! Integer arithmetic: sums, products, quotients, extrema, dot products of bytes.

use crate::sim::ir::lanes::{Alu, alu, by_type};
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;
use crate::sim::ptx::types::Type::*;

pub(super) fn lookup(op: &mut Opcode<'_>) -> Option<(Alu, InstructionClass)> {
    let ty = *op.types.first()?;
    let name = op.name;
    let alu = match name {
        "add" if op.take("sat") => match ty {
            S32 => alu!(|a: i32, b: i32| -> i32 { a.saturating_add(b) }),
            _ => return None,
        },
        "sub" if op.take("sat") => match ty {
            S32 => alu!(|a: i32, b: i32| -> i32 { a.saturating_sub(b) }),
            _ => return None,
        },
        "add" => by_type!(ty; U16 | S16 => u16, U32 | S32 => u32, U64 | S64 => u64; often |a, b| a.wrapping_add(b))?,
        "sub" => by_type!(ty; U16 | S16 => u16, U32 | S32 => u32, U64 | S64 => u64; often |a, b| a.wrapping_sub(b))?,
        "mul" | "mul24" | "mad" | "mad24" => return product(op, ty).map(|alu| (alu, InstructionClass::Integer)),
        "div" => {
            by_type!(ty; U16 => u16, S16 => i16, U32 => u32, S32 => i32, U64 => u64, S64 => i64; seldom |a, b| a.checked_div(b).unwrap_or(quotient_without(a, b)))?
        }
        "rem" => {
            by_type!(ty; U16 => u16, S16 => i16, U32 => u32, S32 => i32, U64 => u64, S64 => i64; seldom |a, b| a.checked_rem(b).unwrap_or(remainder_without(a, b)))?
        }
        "abs" => by_type!(ty; S16 => i16, S32 => i32, S64 => i64; |a| a.wrapping_abs())?,
        "neg" => by_type!(ty; S16 => i16, S32 => i32, S64 => i64; |a| a.wrapping_neg())?,
        "min" if op.take("relu") => match ty {
            S32 => alu!(|a: i32, b: i32| -> i32 { a.min(b).max(0) }),
            _ => return None,
        },
        "max" if op.take("relu") => match ty {
            S32 => alu!(|a: i32, b: i32| -> i32 { a.max(b).max(0) }),
            _ => return None,
        },
        "min" => by_type!(ty; U16 => u16, S16 => i16, U32 => u32, S32 => i32, U64 => u64, S64 => i64; |a, b| a.min(b))?,
        "max" => by_type!(ty; U16 => u16, S16 => i16, U32 => u32, S32 => i32, U64 => u64, S64 => i64; |a, b| a.max(b))?,
        "sad" => match ty {
            U16 => alu!(seldom |a: u16, b: u16, c: u16| -> u16 { c.wrapping_add(a.abs_diff(b)) }),
            S16 => alu!(seldom |a: i16, b: i16, c: u16| -> u16 { c.wrapping_add(a.abs_diff(b)) }),
            U32 => alu!(seldom |a: u32, b: u32, c: u32| -> u32 { c.wrapping_add(a.abs_diff(b)) }),
            S32 => alu!(seldom |a: i32, b: i32, c: u32| -> u32 { c.wrapping_add(a.abs_diff(b)) }),
            U64 => alu!(seldom |a: u64, b: u64, c: u64| -> u64 { c.wrapping_add(a.abs_diff(b)) }),
            S64 => alu!(seldom |a: i64, b: i64, c: u64| -> u64 { c.wrapping_add(a.abs_diff(b)) }),
            _ => return None,
        },
        "dp4a" => dot_of_bytes(&op.types)?,
        "dp2a" => dot_of_halves(op)?,
        _ => return None,
    };
    Some((alu, InstructionClass::Integer))
}

/// What a division by zero gives: all bits set. The other case without a quotient is the lowest number by -1, which
/// wraps.
trait Undefined: Sized + Copy + PartialEq {
    const ZERO: Self;
    const ALL_BITS: Self;
}

macro_rules! undefined {
    ($($ty:ty),*) => {$(
        impl Undefined for $ty {
            const ZERO: Self = 0;
            const ALL_BITS: Self = !0;
        }
    )*};
}
undefined!(u16, i16, u32, i32, u64, i64);

#[inline(always)]
fn quotient_without<T: Undefined>(a: T, b: T) -> T {
    if b == T::ZERO { T::ALL_BITS } else { a }
}

#[inline(always)]
fn remainder_without<T: Undefined>(a: T, b: T) -> T {
    if b == T::ZERO { a } else { T::ZERO }
}

fn product(op: &mut Opcode<'_>, ty: Type) -> Option<Alu> {
    let name = op.name;
    let part = op.take_map(|modifier| ["lo", "hi", "wide"].into_iter().find(|part| *part == modifier))?;
    if name == "mad" && part == "hi" && op.take("sat") {
        return (ty == S32).then(|| {
            alu!(|a: i32, b: i32, c: i32| -> i32 { (((i64::from(a) * i64::from(b)) >> 32) as i32).saturating_add(c) })
        });
    }
    match (name, part) {
        ("mul", "lo") => {
            by_type!(ty; U16 | S16 => u16, U32 | S32 => u32, U64 | S64 => u64; often |a, b| a.wrapping_mul(b))
        }
        ("mad", "lo") => {
            by_type!(ty; U16 | S16 => u16, U32 | S32 => u32, U64 | S64 => u64; |a, b, c| a.wrapping_mul(b).wrapping_add(c))
        }
        ("mul", "hi") => Some(match ty {
            U16 => alu!(|a: u16, b: u16| -> u16 { ((u32::from(a) * u32::from(b)) >> 16) as u16 }),
            S16 => alu!(|a: i16, b: i16| -> i16 { ((i32::from(a) * i32::from(b)) >> 16) as i16 }),
            U32 => alu!(|a: u32, b: u32| -> u32 { ((u64::from(a) * u64::from(b)) >> 32) as u32 }),
            S32 => alu!(|a: i32, b: i32| -> i32 { ((i64::from(a) * i64::from(b)) >> 32) as i32 }),
            U64 => alu!(|a: u64, b: u64| -> u64 { ((u128::from(a) * u128::from(b)) >> 64) as u64 }),
            S64 => alu!(|a: i64, b: i64| -> i64 { ((i128::from(a) * i128::from(b)) >> 64) as i64 }),
            _ => return None,
        }),
        ("mad", "hi") => Some(match ty {
            U32 => {
                alu!(|a: u32, b: u32, c: u32| -> u32 { (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c) })
            }
            S32 => {
                alu!(|a: i32, b: i32, c: i32| -> i32 { (((i64::from(a) * i64::from(b)) >> 32) as i32).wrapping_add(c) })
            }
            U64 => alu!(|a: u64, b: u64, c: u64| -> u64 {
                (((u128::from(a) * u128::from(b)) >> 64) as u64).wrapping_add(c)
            }),
            S64 => alu!(|a: i64, b: i64, c: i64| -> i64 {
                (((i128::from(a) * i128::from(b)) >> 64) as i64).wrapping_add(c)
            }),
            _ => return None,
        }),
        ("mul", "wide") => Some(match ty {
            U16 => alu!(|a: u16, b: u16| -> u32 { u32::from(a) * u32::from(b) }),
            S16 => alu!(|a: i16, b: i16| -> i32 { i32::from(a) * i32::from(b) }),
            U32 => alu!(often |a: u32, b: u32| -> u64 { u64::from(a) * u64::from(b) }),
            S32 => alu!(often |a: i32, b: i32| -> i64 { i64::from(a) * i64::from(b) }),
            _ => return None,
        }),
        ("mad", "wide") => Some(match ty {
            U16 => alu!(|a: u16, b: u16, c: u32| -> u32 { (u32::from(a) * u32::from(b)).wrapping_add(c) }),
            S16 => alu!(|a: i16, b: i16, c: i32| -> i32 { (i32::from(a) * i32::from(b)).wrapping_add(c) }),
            U32 => alu!(|a: u32, b: u32, c: u64| -> u64 { (u64::from(a) * u64::from(b)).wrapping_add(c) }),
            S32 => alu!(|a: i32, b: i32, c: i64| -> i64 { (i64::from(a) * i64::from(b)).wrapping_add(c) }),
            _ => return None,
        }),
        ("mul24", "lo") => Some(match ty {
            U32 => alu!(seldom |a: u32, b: u32| -> u32 { low24(a).wrapping_mul(low24(b)) }),
            S32 => alu!(seldom |a: i32, b: i32| -> i32 { low24_signed(a).wrapping_mul(low24_signed(b)) }),
            _ => return None,
        }),
        ("mad24", "lo") => Some(match ty {
            U32 => alu!(seldom |a: u32, b: u32, c: u32| -> u32 { low24(a).wrapping_mul(low24(b)).wrapping_add(c) }),
            S32 => {
                alu!(seldom |a: i32, b: i32, c: i32| -> i32 { low24_signed(a).wrapping_mul(low24_signed(b)).wrapping_add(c) })
            }
            _ => return None,
        }),
        ("mul24", "hi") => Some(match ty {
            U32 => alu!(seldom |a: u32, b: u32| -> u32 { high24(a, b) }),
            S32 => alu!(seldom |a: i32, b: i32| -> i32 { high24_signed(a, b) }),
            _ => return None,
        }),
        ("mad24", "hi") => Some(match (ty, op.take("sat")) {
            (U32, false) => alu!(seldom |a: u32, b: u32, c: u32| -> u32 { high24(a, b).wrapping_add(c) }),
            (S32, false) => alu!(seldom |a: i32, b: i32, c: i32| -> i32 { high24_signed(a, b).wrapping_add(c) }),
            (S32, true) => alu!(seldom |a: i32, b: i32, c: i32| -> i32 { high24_signed(a, b).saturating_add(c) }),
            _ => return None,
        }),
        _ => None,
    }
}

/// The upper 32 of the 48 bits of a product.
#[inline(always)]
fn high24(a: u32, b: u32) -> u32 {
    ((u64::from(low24(a)) * u64::from(low24(b))) >> 16) as u32
}

#[inline(always)]
fn high24_signed(a: i32, b: i32) -> i32 {
    ((i64::from(low24_signed(a)) * i64::from(low24_signed(b))) >> 16) as i32
}

#[inline(always)]
fn low24(a: u32) -> u32 {
    a & 0xFF_FFFF
}

#[inline(always)]
fn low24_signed(a: i32) -> i32 {
    (a << 8) >> 8
}

#[inline(always)]
fn byte(word: u32, at: u32, signed: bool) -> i32 {
    let bits = (word >> (8 * at)) as u8;
    if signed { i32::from(bits as i8) } else { i32::from(bits) }
}

#[inline(always)]
fn half(word: u32, at: u32, signed: bool) -> i32 {
    let bits = (word >> (16 * at)) as u16;
    if signed { i32::from(bits as i16) } else { i32::from(bits) }
}

#[inline(always)]
fn dot4(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    (0..4).fold(c, |sum, at| sum.wrapping_add(byte(a, at, a_signed).wrapping_mul(byte(b, at, b_signed)) as u32))
}

#[inline(always)]
fn dot2(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool, high: u32) -> u32 {
    (0..2).fold(c, |sum, at| {
        sum.wrapping_add(half(a, at, a_signed).wrapping_mul(byte(b, at + 2 * high, b_signed)) as u32)
    })
}

fn dot_of_bytes(types: &[Type]) -> Option<Alu> {
    Some(match types {
        [U32, U32] => alu!(|a: u32, b: u32, c: u32| -> u32 { dot4(a, b, c, false, false) }),
        [U32, S32] => alu!(|a: u32, b: u32, c: u32| -> u32 { dot4(a, b, c, false, true) }),
        [S32, U32] => alu!(|a: u32, b: u32, c: u32| -> u32 { dot4(a, b, c, true, false) }),
        [S32, S32] => alu!(|a: u32, b: u32, c: u32| -> u32 { dot4(a, b, c, true, true) }),
        _ => return None,
    })
}

fn dot_of_halves(op: &mut Opcode<'_>) -> Option<Alu> {
    let high = op.take("hi");
    if !high && !op.take("lo") {
        return None;
    }
    Some(match (op.types.as_slice(), high) {
        ([U32, U32], false) => alu!(|a: u32, b: u32, c: u32| -> u32 { dot2(a, b, c, false, false, 0) }),
        ([U32, U32], true) => alu!(|a: u32, b: u32, c: u32| -> u32 { dot2(a, b, c, false, false, 1) }),
        ([U32, S32], false) => alu!(|a: u32, b: u32, c: u32| -> u32 { dot2(a, b, c, false, true, 0) }),
        ([U32, S32], true) => alu!(|a: u32, b: u32, c: u32| -> u32 { dot2(a, b, c, false, true, 1) }),
        ([S32, U32], false) => alu!(|a: u32, b: u32, c: u32| -> u32 { dot2(a, b, c, true, false, 0) }),
        ([S32, U32], true) => alu!(|a: u32, b: u32, c: u32| -> u32 { dot2(a, b, c, true, false, 1) }),
        ([S32, S32], false) => alu!(|a: u32, b: u32, c: u32| -> u32 { dot2(a, b, c, true, true, 0) }),
        ([S32, S32], true) => alu!(|a: u32, b: u32, c: u32| -> u32 { dot2(a, b, c, true, true, 1) }),
        _ => return None,
    })
}
