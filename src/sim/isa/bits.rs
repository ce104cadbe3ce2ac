//! Bits: logic, shifts, fields, counts, permutation of bytes.

use crate::sim::ir::lanes::{Alu, alu, by_type};
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type::*;

pub(super) fn lookup(op: &mut Opcode<'_>) -> Option<(Alu, InstructionClass)> {
    let ty = *op.types.first()?;
    let alu = match op.name {
        "and" if ty == Pred => alu!(|a: bool, b: bool| -> bool { a & b }),
        "or" if ty == Pred => alu!(|a: bool, b: bool| -> bool { a | b }),
        "xor" if ty == Pred => alu!(|a: bool, b: bool| -> bool { a ^ b }),
        "not" if ty == Pred => alu!(|a: bool| -> bool { !a }),
        "and" => by_type!(ty; B16 => u16, B32 => u32, B64 => u64; often |a, b| a & b)?,
        "or" => by_type!(ty; B16 => u16, B32 => u32, B64 => u64; often |a, b| a | b)?,
        "xor" => by_type!(ty; B16 => u16, B32 => u32, B64 => u64; often |a, b| a ^ b)?,
        "not" => by_type!(ty; B16 => u16, B32 => u32, B64 => u64; |a| !a)?,
        "cnot" => match ty {
            B16 => alu!(|a: u16| -> u16 { u16::from(a == 0) }),
            B32 => alu!(|a: u32| -> u32 { u32::from(a == 0) }),
            B64 => alu!(|a: u64| -> u64 { u64::from(a == 0) }),
            _ => return None,
        },
        // A shift by the width or more gives 0, or copies of the sign.
        "shl" => match ty {
            B16 => alu!(|a: u16, b: u32| -> u16 { if b < 16 { a << b } else { 0 } }),
            B32 => alu!(often |a: u32, b: u32| -> u32 { if b < 32 { a << b } else { 0 } }),
            B64 => alu!(often |a: u64, b: u32| -> u64 { if b < 64 { a << b } else { 0 } }),
            _ => return None,
        },
        "shr" => match ty {
            B16 | U16 => alu!(|a: u16, b: u32| -> u16 { if b < 16 { a >> b } else { 0 } }),
            B32 | U32 => alu!(often |a: u32, b: u32| -> u32 { if b < 32 { a >> b } else { 0 } }),
            B64 | U64 => alu!(|a: u64, b: u32| -> u64 { if b < 64 { a >> b } else { 0 } }),
            S16 => alu!(|a: i16, b: u32| -> i16 { a >> b.min(15) }),
            S32 => alu!(often |a: i32, b: u32| -> i32 { a >> b.min(31) }),
            S64 => alu!(|a: i64, b: u32| -> i64 { a >> b.min(63) }),
            _ => return None,
        },
        "shf" if ty == B32 => funnel(op)?,
        "popc" => match ty {
            B32 => alu!(|a: u32| -> u32 { a.count_ones() }),
            B64 => alu!(|a: u64| -> u32 { a.count_ones() }),
            _ => return None,
        },
        "clz" => match ty {
            B32 => alu!(|a: u32| -> u32 { a.leading_zeros() }),
            B64 => alu!(|a: u64| -> u32 { a.leading_zeros() }),
            _ => return None,
        },
        "brev" => by_type!(ty; B32 => u32, B64 => u64; |a| a.reverse_bits())?,
        "bfind" => highest_bit(op)?,
        "fns" if ty == B32 => alu!(seldom |mask: u32, base: u32, n: i32| -> u32 { nth_set(mask, base, n) }),
        "prmt" if ty == B32 => permute(op)?,
        "bmsk" if ty == B32 => bit_mask(op)?,
        "szext" => extend(op)?,
        _ => return None,
    };
    Some((alu, InstructionClass::Integer))
}

#[inline(always)]
fn funnel_left(a: u32, b: u32, c: u32) -> u32 {
    (((u64::from(b) << 32 | u64::from(a)) << c) >> 32) as u32
}

#[inline(always)]
fn funnel_right(a: u32, b: u32, c: u32) -> u32 {
    ((u64::from(b) << 32 | u64::from(a)) >> c) as u32
}

fn funnel(op: &mut Opcode<'_>) -> Option<Alu> {
    let left = op.take("l");
    if !left && !op.take("r") {
        return None;
    }
    let clamp = op.take("clamp");
    if !clamp && !op.take("wrap") {
        return None;
    }
    Some(match (left, clamp) {
        (true, true) => alu!(|a: u32, b: u32, c: u32| -> u32 { funnel_left(a, b, c.min(32)) }),
        (true, false) => alu!(|a: u32, b: u32, c: u32| -> u32 { funnel_left(a, b, c & 31) }),
        (false, true) => alu!(|a: u32, b: u32, c: u32| -> u32 { funnel_right(a, b, c.min(32)) }),
        (false, false) => alu!(|a: u32, b: u32, c: u32| -> u32 { funnel_right(a, b, c & 31) }),
    })
}

/// Position of the highest bit that differs from the sign, or -1; with `shiftamt` the shift that brings it to the top.
fn highest_bit(op: &mut Opcode<'_>) -> Option<Alu> {
    let shift = op.take("shiftamt");
    Some(match (*op.types.first()?, shift) {
        (U32, false) => alu!(|a: u32| -> u32 { 31u32.wrapping_sub(a.leading_zeros()) }),
        (U32, true) => alu!(|a: u32| -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } }),
        (S32, false) => alu!(|a: i32| -> u32 { 31u32.wrapping_sub((a ^ (a >> 31)).leading_zeros()) }),
        (S32, true) => {
            alu!(|a: i32| -> u32 { if a ^ (a >> 31) == 0 { u32::MAX } else { (a ^ (a >> 31)).leading_zeros() } })
        }
        (U64, false) => alu!(|a: u64| -> u32 { 63u32.wrapping_sub(a.leading_zeros()) }),
        (U64, true) => alu!(|a: u64| -> u32 { if a == 0 { u32::MAX } else { a.leading_zeros() } }),
        (S64, false) => alu!(|a: i64| -> u32 { 63u32.wrapping_sub((a ^ (a >> 63)).leading_zeros()) }),
        (S64, true) => {
            alu!(|a: i64| -> u32 { if a ^ (a >> 63) == 0 { u32::MAX } else { (a ^ (a >> 63)).leading_zeros() } })
        }
        _ => return None,
    })
}

/// The n-th set bit from `base` upwards (n > 0), downwards (n < 0), or the base itself (n = 0).
fn nth_set(mask: u32, base: u32, n: i32) -> u32 {
    if base > 31 {
        return u32::MAX;
    }
    if n == 0 {
        return if mask >> base & 1 != 0 { base } else { u32::MAX };
    }
    let mut left = n.unsigned_abs();
    let mut at = base as i32;
    while (0..32).contains(&at) {
        left -= mask >> at & 1;
        if left == 0 {
            return at as u32;
        }
        at += n.signum();
    }
    u32::MAX
}

#[inline(always)]
fn selected_byte(a: u32, b: u32, selector: u32) -> u32 {
    let byte = ((u64::from(b) << 32 | u64::from(a)) >> ((selector & 7) * 8)) as u8;
    let replicate_sign = selector & 8 != 0;
    u32::from(if replicate_sign { ((byte as i8) >> 7) as u8 } else { byte })
}

#[inline(always)]
fn four_bytes(a: u32, b: u32, selectors: [u32; 4]) -> u32 {
    (0..4).fold(0, |word, at| word | selected_byte(a, b, selectors[at]) << (8 * at))
}

fn permute(op: &mut Opcode<'_>) -> Option<Alu> {
    let mode =
        op.take_map(|modifier| ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"].into_iter().find(|mode| *mode == modifier));
    Some(match mode {
        None => {
            alu!(|a: u32, b: u32, c: u32| -> u32 { four_bytes(a, b, [c & 15, c >> 4 & 15, c >> 8 & 15, c >> 12 & 15]) })
        }
        Some("f4e") => alu!(seldom |a: u32, b: u32, c: u32| -> u32 {
            let s = c & 3;
            four_bytes(a, b, [s, s + 1, s + 2, s + 3])
        }),
        Some("b4e") => alu!(seldom |a: u32, b: u32, c: u32| -> u32 {
            let s = c & 3;
            four_bytes(a, b, [s, s.wrapping_sub(1) & 7, s.wrapping_sub(2) & 7, s.wrapping_sub(3) & 7])
        }),
        Some("rc8") => alu!(seldom |a: u32, b: u32, c: u32| -> u32 { four_bytes(a, b, [c & 3; 4]) }),
        Some("ecl") => alu!(seldom |a: u32, b: u32, c: u32| -> u32 {
            let s = c & 3;
            four_bytes(a, b, [s, s.max(1), s.max(2), 3])
        }),
        Some("ecr") => alu!(seldom |a: u32, b: u32, c: u32| -> u32 {
            let s = c & 3;
            four_bytes(a, b, [0, s.min(1), s.min(2), s])
        }),
        _ => alu!(|a: u32, b: u32, c: u32| -> u32 {
            let s = (c & 1) * 2;
            four_bytes(a, b, [s, s + 1, s, s + 1])
        }),
    })
}

fn bit_mask(op: &mut Opcode<'_>) -> Option<Alu> {
    if op.take("clamp") {
        return Some(alu!(|a: u32, b: u32| -> u32 { mask_of(a.min(32), b.min(32)) }));
    }
    op.take("wrap").then(|| alu!(|a: u32, b: u32| -> u32 { mask_of(a & 31, b & 31) }))
}

#[inline(always)]
fn mask_of(start: u32, width: u32) -> u32 {
    ((((1u64 << width) - 1) << start) & 0xFFFF_FFFF) as u32
}

fn extend(op: &mut Opcode<'_>) -> Option<Alu> {
    let clamp = op.take("clamp");
    if !clamp && !op.take("wrap") {
        return None;
    }
    Some(match (*op.types.first()?, clamp) {
        (U32, true) => alu!(|a: u32, b: u32| -> u32 { a & mask_of(0, b.min(32)) }),
        (U32, false) => alu!(|a: u32, b: u32| -> u32 { a & mask_of(0, b & 31) }),
        (S32, true) => alu!(|a: u32, b: u32| -> u32 { sign_extend(a, b.min(32)) }),
        (S32, false) => alu!(|a: u32, b: u32| -> u32 { sign_extend(a, b & 31) }),
        _ => return None,
    })
}

#[inline(always)]
fn sign_extend(value: u32, width: u32) -> u32 {
    if width == 0 { 0 } else { (((value << (32 - width)) as i32) >> (32 - width)) as u32 }
}
