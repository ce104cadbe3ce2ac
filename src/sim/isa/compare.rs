//! Comparisons and selections: `setp`, `set`, `selp`, `slct`, `testp`.

use crate::sim::error::Result;
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::lanes::{Alu, alu};
use crate::sim::isa::rounding::{bf16_to_f32, f16_to_f32, flush};
use crate::sim::machine::registers::Class;
use crate::sim::metrics::InstructionClass::Compare;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;
use crate::sim::ptx::types::Type::*;

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let operands = &instruction.operands;
    match op.name {
        "setp" => set_predicate(emitter, op, operands)?,
        "set" => set_value(emitter, op, operands)?,
        "selp" => {
            let alu = match op.ty()? {
                B16 | U16 | S16 | F16 | Bf16 | B32 | U32 | S32 | F32 => {
                    alu!(often |a: u32, b: u32, p: bool| -> u32 { select(a, b, p) })
                }
                B64 | U64 | S64 | F64 => alu!(|a: u64, b: u64, p: bool| -> u64 { if p { a } else { b } }),
                _ => return Err(op.unsupported()),
            };
            emitter.bind(alu, Compare, op, operands)?;
        }
        "slct" => emitter.bind(by_sign(op)?, Compare, op, operands)?,
        "testp" => emitter.bind(test(op)?, Compare, op, operands)?,
        _ => return Ok(false),
    }
    Ok(true)
}

#[inline(always)]
fn select(a: u32, b: u32, p: bool) -> u32 {
    let mask = 0u32.wrapping_sub(u32::from(p));
    (a & mask) | (b & !mask)
}

#[expect(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::double_comparisons,
    reason = "NaN makes each of these differ from its simplification"
)]
/// The comparison that the modifiers name, over the types of the instruction.
fn comparison(op: &mut Opcode<'_>, ty: Type) -> Option<Alu> {
    macro_rules! integers {
        (|$a:ident, $b:ident| $body:expr) => {
            match ty {
                B16 | U16 => alu!(|$a: u16, $b: u16| -> bool { $body }),
                S16 => alu!(|$a: i16, $b: i16| -> bool { $body }),
                B32 | U32 => alu!(often |$a: u32, $b: u32| -> bool { $body }),
                S32 => alu!(often |$a: i32, $b: i32| -> bool { $body }),
                B64 | U64 => alu!(|$a: u64, $b: u64| -> bool { $body }),
                S64 => alu!(|$a: i64, $b: i64| -> bool { $body }),
                _ => return None,
            }
        };
    }
    macro_rules! floats {
        ($ftz:expr, |$a:ident, $b:ident| $body:expr) => {
            match (ty, $ftz) {
                (F32, false) => alu!(often |$a: f32, $b: f32| -> bool { $body }),
                (F32, true) => alu!(|$a: f32, $b: f32| -> bool {
                    let ($a, $b) = (flush($a), flush($b));
                    $body
                }),
                (F64, false) => alu!(|$a: f64, $b: f64| -> bool { $body }),
                (F16, false) => alu!(|$a: u16, $b: u16| -> bool {
                    let ($a, $b) = (f16_to_f32($a), f16_to_f32($b));
                    $body
                }),
                (Bf16, false) => alu!(|$a: u16, $b: u16| -> bool {
                    let ($a, $b) = (bf16_to_f32($a), bf16_to_f32($b));
                    $body
                }),
                _ => return None,
            }
        };
    }
    const NAMES: [&str; 18] = [
        "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num",
        "nan",
    ];
    let name = op.take_map(|modifier| NAMES.into_iter().find(|name| *name == modifier))?;
    if matches!(ty, F32 | F64 | F16 | Bf16) {
        let ftz = op.take("ftz");
        return Some(match name {
            "eq" => floats!(ftz, |a, b| a == b),
            "ne" => floats!(ftz, |a, b| a < b || a > b),
            "lt" => floats!(ftz, |a, b| a < b),
            "le" => floats!(ftz, |a, b| a <= b),
            "gt" => floats!(ftz, |a, b| a > b),
            "ge" => floats!(ftz, |a, b| a >= b),
            "equ" => floats!(ftz, |a, b| !(a < b || a > b)),
            "neu" => floats!(ftz, |a, b| a != b),
            "ltu" => floats!(ftz, |a, b| !(a >= b)),
            "leu" => floats!(ftz, |a, b| !(a > b)),
            "gtu" => floats!(ftz, |a, b| !(a <= b)),
            "geu" => floats!(ftz, |a, b| !(a < b)),
            "num" => floats!(ftz, |a, b| !a.is_nan() && !b.is_nan()),
            "nan" => floats!(ftz, |a, b| a.is_nan() || b.is_nan()),
            _ => return None,
        });
    }
    Some(match name {
        "eq" => integers!(|a, b| a == b),
        "ne" => integers!(|a, b| a != b),
        "lt" | "lo" => integers!(|a, b| a < b),
        "le" | "ls" => integers!(|a, b| a <= b),
        "gt" | "hi" => integers!(|a, b| a > b),
        "ge" | "hs" => integers!(|a, b| a >= b),
        _ => return None,
    })
}

/// The operation with a third predicate, if one is named.
fn combination(op: &mut Opcode<'_>) -> Option<Alu> {
    if op.take("and") {
        Some(alu!(|a: bool, b: bool| -> bool { a & b }))
    } else if op.take("or") {
        Some(alu!(|a: bool, b: bool| -> bool { a | b }))
    } else if op.take("xor") {
        Some(alu!(|a: bool, b: bool| -> bool { a ^ b }))
    } else {
        None
    }
}

fn set_predicate(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    let combine = combination(op);
    if let [F16x2 | Bf16x2] = op.types.as_slice() {
        return compare_pairs(emitter, op, operands, combine);
    }
    let ty = op.ty()?;
    let alu = comparison(op, ty).ok_or_else(|| op.unsupported())?;
    emitter.expect_operands(op, operands, if combine.is_some() { 4 } else { 3 })?;
    let a = emitter.source(alu.sources[0], &operands[1])?;
    let b = emitter.source(alu.sources[1], &operands[2])?;
    let (first, second) = destinations(emitter, &operands[0])?;
    let Some(combine) = combine else {
        emitter.push_alu(alu, Compare, first, [a, b, 0]);
        if let Some(second) = second {
            emitter.push_alu(alu!(|p: bool| -> bool { !p }), Compare, second, [first, 0, 0]);
        }
        return Ok(());
    };
    let c = emitter.source(Class::Pred, &operands[3])?;
    let test = emitter.temporary(Class::Pred).index;
    emitter.push_alu(alu, Compare, test, [a, b, 0]);
    if let Some(second) = second {
        let inverse = emitter.temporary(Class::Pred).index;
        emitter.push_alu(alu!(|p: bool| -> bool { !p }), Compare, inverse, [test, 0, 0]);
        emitter.push_alu(combine, Compare, second, [inverse, c, 0]);
    }
    emitter.push_alu(combine, Compare, first, [test, c, 0]);
    Ok(())
}

/// `p` or `p|q`.
fn destinations(emitter: &mut Emitter<'_>, operand: &Operand) -> Result<(u32, Option<u32>)> {
    match operand {
        Operand::Pair(first, second) => {
            let first = emitter.result(Class::Pred, &Operand::Register(*first))?;
            let second = second.map(|second| emitter.result(Class::Pred, &Operand::Register(second))).transpose()?;
            Ok((first, second))
        }
        _ => Ok((emitter.result(Class::Pred, operand)?, None)),
    }
}

/// `setp` on pairs: the low halves decide the first predicate, the high halves the second.
fn compare_pairs(
    emitter: &mut Emitter<'_>,
    op: &mut Opcode<'_>,
    operands: &[Operand],
    combine: Option<Alu>,
) -> Result<()> {
    if combine.is_some() {
        return Err(op.unsupported());
    }
    emitter.expect_operands(op, operands, 3)?;
    let single = if op.ty()? == F16x2 { F16 } else { Bf16 };
    let alu = comparison(op, single).ok_or_else(|| op.unsupported())?;
    let a = emitter.source(Class::Word, &operands[1])?;
    let b = emitter.source(Class::Word, &operands[2])?;
    let (first, second) = destinations(emitter, &operands[0])?;
    if let Some(second) = second {
        let upper = alu!(|a: u32| -> u32 { a >> 16 });
        let (high_a, high_b) = (emitter.temporary(Class::Word).index, emitter.temporary(Class::Word).index);
        emitter.push_alu(upper, Compare, high_a, [a, 0, 0]);
        emitter.push_alu(upper, Compare, high_b, [b, 0, 0]);
        emitter.push_alu(alu, Compare, second, [high_a, high_b, 0]);
    }
    emitter.push_alu(alu, Compare, first, [a, b, 0]);
    Ok(())
}

/// `set`: a comparison as a number, all ones for integers and 1.0 for floats.
fn set_value(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    let [to, from] = *op.types.as_slice() else { return Err(op.unsupported()) };
    let combine = combination(op);
    if matches!(from, F16x2 | Bf16x2) {
        return set_pairs(emitter, op, operands, to, from);
    }
    let alu = comparison(op, from).ok_or_else(|| op.unsupported())?;
    emitter.expect_operands(op, operands, if combine.is_some() { 4 } else { 3 })?;
    let a = emitter.source(alu.sources[0], &operands[1])?;
    let b = emitter.source(alu.sources[1], &operands[2])?;
    let mut test = emitter.temporary(Class::Pred).index;
    emitter.push_alu(alu, Compare, test, [a, b, 0]);
    if let Some(combine) = combine {
        let c = emitter.source(Class::Pred, &operands[3])?;
        let combined = emitter.temporary(Class::Pred).index;
        emitter.push_alu(combine, Compare, combined, [test, c, 0]);
        test = combined;
    }
    let value = match to {
        U32 | S32 => alu!(|p: bool| -> u32 { 0u32.wrapping_sub(u32::from(p)) }),
        U16 | S16 => alu!(|p: bool| -> u16 { 0u16.wrapping_sub(u16::from(p)) }),
        F32 => alu!(|p: bool| -> f32 { if p { 1.0 } else { 0.0 } }),
        F16 => alu!(|p: bool| -> u16 { if p { 0x3C00 } else { 0 } }),
        Bf16 => alu!(|p: bool| -> u16 { if p { 0x3F80 } else { 0 } }),
        _ => return Err(op.unsupported()),
    };
    let d = emitter.result(Class::Word, &operands[0])?;
    emitter.push_alu(value, Compare, d, [test, 0, 0]);
    Ok(())
}

fn set_pairs(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand], to: Type, from: Type) -> Result<()> {
    emitter.expect_operands(op, operands, 3)?;
    let (low, high) = (emitter.temporary(Class::Pred).index, emitter.temporary(Class::Pred).index);
    let single = if from == F16x2 { F16 } else { Bf16 };
    let alu = comparison(op, single).ok_or_else(|| op.unsupported())?;
    let a = emitter.source(Class::Word, &operands[1])?;
    let b = emitter.source(Class::Word, &operands[2])?;
    let upper = alu!(|a: u32| -> u32 { a >> 16 });
    let (high_a, high_b) = (emitter.temporary(Class::Word).index, emitter.temporary(Class::Word).index);
    emitter.push_alu(upper, Compare, high_a, [a, 0, 0]);
    emitter.push_alu(upper, Compare, high_b, [b, 0, 0]);
    emitter.push_alu(alu, Compare, low, [a, b, 0]);
    emitter.push_alu(alu, Compare, high, [high_a, high_b, 0]);
    let join = match to {
        F16x2 => alu!(|low: bool, high: bool| -> u32 { (u32::from(low) * 0x3C00) | (u32::from(high) * 0x3C00_0000) }),
        Bf16x2 => alu!(|low: bool, high: bool| -> u32 { (u32::from(low) * 0x3F80) | (u32::from(high) * 0x3F80_0000) }),
        U32 | S32 => {
            alu!(|low: bool, high: bool| -> u32 { (u32::from(low) * 0xFFFF) | (u32::from(high) * 0xFFFF_0000) })
        }
        _ => return Err(op.unsupported()),
    };
    let d = emitter.result(Class::Word, &operands[0])?;
    emitter.push_alu(join, Compare, d, [low, high, 0]);
    Ok(())
}

/// `slct`: a where c is not negative, else b. NaN counts as negative.
fn by_sign(op: &mut Opcode<'_>) -> Result<Alu> {
    let ftz = op.take("ftz");
    Ok(match (op.types.as_slice(), ftz) {
        ([B16 | U16 | S16 | B32 | U32 | S32 | F32, S32], false) => {
            alu!(|a: u32, b: u32, c: i32| -> u32 { select(a, b, c >= 0) })
        }
        ([B64 | U64 | S64 | F64, S32], false) => alu!(|a: u64, b: u64, c: i32| -> u64 { if c >= 0 { a } else { b } }),
        ([B16 | U16 | S16 | B32 | U32 | S32 | F32, F32], false) => {
            alu!(|a: u32, b: u32, c: f32| -> u32 { select(a, b, c >= 0.0) })
        }
        ([B16 | U16 | S16 | B32 | U32 | S32 | F32, F32], true) => {
            alu!(|a: u32, b: u32, c: f32| -> u32 { select(a, b, flush(c) >= 0.0) })
        }
        ([B64 | U64 | S64 | F64, F32], _) => {
            alu!(|a: u64, b: u64, c: f32| -> u64 { if flush(c) >= 0.0 { a } else { b } })
        }
        _ => return Err(op.unsupported()),
    })
}

fn test(op: &mut Opcode<'_>) -> Result<Alu> {
    macro_rules! both {
        (|$a:ident| $body:expr) => {
            match op.ty()? {
                F32 => alu!(|$a: f32| -> bool { $body }),
                F64 => alu!(|$a: f64| -> bool { $body }),
                _ => return Err(op.unsupported()),
            }
        };
    }
    const NAMES: [&str; 6] = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
    let name = op.take_map(|modifier| NAMES.into_iter().find(|name| *name == modifier));
    Ok(match name {
        Some("finite") => both!(|a| a.is_finite()),
        Some("infinite") => both!(|a| a.is_infinite()),
        Some("number") => both!(|a| !a.is_nan()),
        Some("notanumber") => both!(|a| a.is_nan()),
        Some("normal") => both!(|a| a.is_normal()),
        Some("subnormal") => both!(|a| a.is_subnormal()),
        _ => return Err(op.unsupported()),
    })
}
