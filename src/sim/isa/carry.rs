//! Operations of four operands (`lop3`, `bfi`, `bfe`) and those with a carry flag, which is kept in a hidden register.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::lanes::{Alu, alu};
use crate::sim::machine::registers::Class;
use crate::sim::metrics::InstructionClass::Integer;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type::*;

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let operands = &instruction.operands;
    match op.name {
        "lop3" => lop3(emitter, op, operands)?,
        "bfe" => extract(emitter, op, operands)?,
        "bfi" => insert(emitter, op, operands)?,
        "add" | "sub" if op.has("cc") => sum(emitter, op, operands, false)?,
        "addc" | "subc" => sum(emitter, op, operands, true)?,
        "mad" if op.has("cc") => multiply(emitter, op, operands, false)?,
        "madc" => multiply(emitter, op, operands, true)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Any function of three bits, given by its table: the sum over the rows that are set.
fn lop3(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    let with = if op.take("or") {
        Some(alu!(|d: u32, q: bool| -> bool { d != 0 || q }))
    } else if op.take("and") {
        Some(alu!(|d: u32, q: bool| -> bool { d != 0 && q }))
    } else {
        None
    };
    emitter.expect_operands(op, operands, if with.is_some() { 6 } else { 5 })?;
    let (result, predicate) = match (&operands[0], &with) {
        (Operand::Pair(d, Some(p)), Some(_)) => (&Operand::Register(*d), Some(Operand::Register(*p))),
        (result, None) => (result, None),
        _ => return Err(op.unsupported()),
    };
    let Operand::Integer(table) = operands[4] else { return Err(op.unsupported()) };
    let sources = [&operands[1], &operands[2], &operands[3]].map(|operand| emitter.source(Class::Word, operand));
    let [a, b, c] = sources;
    let (a, b, c) = (a?, b?, c?);
    let d = emitter.result(Class::Word, result)?;
    // As `table = low | high`, selected by a: high where a is set, low where not; each a function of b and c by two
    // more selections.
    let low = select_rows(emitter, table & 15, b, c);
    let high = select_rows(emitter, table >> 4 & 15, b, c);
    let blend = alu!(|a: u32, high: u32, low: u32| -> u32 { (a & high) | (!a & low) });
    emitter.push_alu(blend, Integer, d, [a, high, low]);
    if let (Some(combine), Some(predicate)) = (with, predicate) {
        let q = emitter.source(Class::Pred, &operands[5])?;
        let p = emitter.result(Class::Pred, &predicate)?;
        emitter.push_alu(combine, Integer, p, [d, q, 0]);
    }
    Ok(())
}

/// A function of two bits by its four-row table: rows (b, c) = 00, 01, 10, 11 from the lowest bit.
fn select_rows(emitter: &mut Emitter<'_>, table: u64, b: u32, c: u32) -> u32 {
    let result = emitter.temporary(Class::Word).index;
    let alu = match table {
        0 => return emitter.word_constant(0),
        1 => alu!(|b: u32, c: u32| -> u32 { !(b | c) }),
        2 => alu!(|b: u32, c: u32| -> u32 { !b & c }),
        3 => alu!(|b: u32| -> u32 { !b }),
        4 => alu!(|b: u32, c: u32| -> u32 { b & !c }),
        5 => {
            emitter.push_alu(alu!(|c: u32| -> u32 { !c }), Integer, result, [c, 0, 0]);
            return result;
        }
        6 => alu!(|b: u32, c: u32| -> u32 { b ^ c }),
        7 => alu!(|b: u32, c: u32| -> u32 { !(b & c) }),
        8 => alu!(|b: u32, c: u32| -> u32 { b & c }),
        9 => alu!(|b: u32, c: u32| -> u32 { !(b ^ c) }),
        10 => return c,
        11 => alu!(|b: u32, c: u32| -> u32 { !b | c }),
        12 => return b,
        13 => alu!(|b: u32, c: u32| -> u32 { b | !c }),
        14 => alu!(|b: u32, c: u32| -> u32 { b | c }),
        _ => return emitter.word_constant(u32::MAX),
    };
    emitter.push_alu(alu, Integer, result, [b, c, 0]);
    result
}

fn extract(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    let alu = match op.ty()? {
        U32 => alu!(|a: u32, b: u32, c: u32| -> u32 { field(u64::from(a), b & 255, c & 255, 32, false) as u32 }),
        S32 => alu!(|a: i32, b: u32, c: u32| -> u32 { field(a as i64 as u64, b & 255, c & 255, 32, true) as u32 }),
        U64 => alu!(|a: u64, b: u32, c: u32| -> u64 { field(a, b, c, 64, false) }),
        S64 => alu!(|a: u64, b: u32, c: u32| -> u64 { field(a, b, c, 64, true) }),
        _ => return Err(op.unsupported()),
    };
    emitter.bind(alu, Integer, op, operands)
}

/// `len` bits from `start`, which the forms of 32 bits reduce to 8 bits first; above the field stand zeros, or copies of its highest bit (or of the top bit, if the field
/// passes the end).
#[inline(always)]
fn field(a: u64, start: u32, len: u32, bits: u32, signed: bool) -> u64 {
    if len == 0 {
        return 0;
    }
    let highest = start.saturating_add(len - 1).min(bits - 1);
    let sign = if signed && a >> highest & 1 != 0 { u64::MAX } else { 0 };
    let shifted = if start < 64 { a >> start } else { 0 };
    let inside = if start >= bits { 0 } else { (highest - start + 1).min(64) };
    let mask = if inside >= 64 { u64::MAX } else { (1 << inside) - 1 };
    (shifted & mask) | (sign & !mask)
}

fn insert(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    emitter.expect_operands(op, operands, 5)?;
    let class = match op.ty()? {
        B32 => Class::Word,
        B64 => Class::Wide,
        _ => return Err(op.unsupported()),
    };
    let a = emitter.source(class, &operands[1])?;
    let b = emitter.source(class, &operands[2])?;
    let start = emitter.source(Class::Word, &operands[3])?;
    let len = emitter.source(Class::Word, &operands[4])?;
    let d = emitter.result(class, &operands[0])?;
    // Three steps: which bits are replaced, the value at its place, the blend.
    let mask = emitter.temporary(class).index;
    let value = emitter.temporary(class).index;
    let (make_mask, place, blend): (Alu, Alu, Alu) = match class {
        Class::Word => (
            alu!(|start: u32, len: u32| -> u32 { field_mask(start & 255, len & 255) as u32 }),
            alu!(|a: u32, start: u32| -> u32 { if start & 255 < 32 { a << (start & 31) } else { 0 } }),
            alu!(|b: u32, mask: u32, value: u32| -> u32 { (b & !mask) | (value & mask) }),
        ),
        _ => (
            alu!(|start: u32, len: u32| -> u64 { field_mask(start, len) }),
            alu!(|a: u64, start: u32| -> u64 { if start < 64 { a << start } else { 0 } }),
            alu!(|b: u64, mask: u64, value: u64| -> u64 { (b & !mask) | (value & mask) }),
        ),
    };
    emitter.push_alu(make_mask, Integer, mask, [start, len, 0]);
    emitter.push_alu(place, Integer, value, [a, start, 0]);
    emitter.push_alu(blend, Integer, d, [b, mask, value]);
    Ok(())
}

#[inline(always)]
fn field_mask(start: u32, len: u32) -> u64 {
    let ones = if len >= 64 { u64::MAX } else { (1 << len) - 1 };
    if start < 64 { ones << start } else { 0 }
}

fn carry_flag(emitter: &mut Emitter<'_>) -> u32 {
    match emitter.carry {
        Some(slot) => slot,
        None => {
            let slot = emitter.temporary(Class::Word).index;
            emitter.carry = Some(slot);
            slot
        }
    }
}

/// `add.cc`, `addc`, `addc.cc` and the same with `sub`: the new flag is made before the result, which may share a row
/// with a source.
fn sum(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand], takes: bool) -> Result<()> {
    emitter.expect_operands(op, operands, 3)?;
    let gives = op.take("cc");
    let subtract = op.name.starts_with("sub");
    let class = match op.ty()? {
        U32 | S32 | B32 => Class::Word,
        U64 | S64 | B64 => Class::Wide,
        _ => return Err(op.unsupported()),
    };
    let a = emitter.source(class, &operands[1])?;
    let b = emitter.source(class, &operands[2])?;
    let d = emitter.result(class, &operands[0])?;
    let flag = carry_flag(emitter);
    let taken = if takes { flag } else { emitter.word_constant(0) };
    let next = emitter.temporary(Class::Word).index;
    let (carry, value) = match (class, subtract) {
        (Class::Word, false) => (
            alu!(|a: u32, b: u32, c: u32| -> u32 { ((u64::from(a) + u64::from(b) + u64::from(c)) >> 32) as u32 }),
            alu!(|a: u32, b: u32, c: u32| -> u32 { a.wrapping_add(b).wrapping_add(c) }),
        ),
        (Class::Word, true) => (
            alu!(|a: u32, b: u32, c: u32| -> u32 { u32::from(u64::from(a) < u64::from(b) + u64::from(c)) }),
            alu!(|a: u32, b: u32, c: u32| -> u32 { a.wrapping_sub(b).wrapping_sub(c) }),
        ),
        (_, false) => (
            alu!(|a: u64, b: u64, c: u32| -> u32 { ((u128::from(a) + u128::from(b) + u128::from(c)) >> 64) as u32 }),
            alu!(|a: u64, b: u64, c: u32| -> u64 { a.wrapping_add(b).wrapping_add(u64::from(c)) }),
        ),
        (_, true) => (
            alu!(|a: u64, b: u64, c: u32| -> u32 { u32::from(u128::from(a) < u128::from(b) + u128::from(c)) }),
            alu!(|a: u64, b: u64, c: u32| -> u64 { a.wrapping_sub(b).wrapping_sub(u64::from(c)) }),
        ),
    };
    if gives {
        emitter.push_alu(carry, Integer, next, [a, b, taken]);
    }
    emitter.push_alu(value, Integer, d, [a, b, taken]);
    if gives {
        emitter.push_alu(alu!(|c: u32| -> u32 { c }), Integer, flag, [next, 0, 0]);
    }
    Ok(())
}

/// `mad{.hi,.lo}.cc` and `madc`: the product first, then a sum with carry.
fn multiply(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand], takes: bool) -> Result<()> {
    emitter.expect_operands(op, operands, 4)?;
    let gives = op.take("cc");
    let high = op.take("hi");
    if !high && !op.take("lo") {
        return Err(op.unsupported());
    }
    let (class, product) = match (op.ty()?, high) {
        (U32 | S32, false) => (Class::Word, alu!(|a: u32, b: u32| -> u32 { a.wrapping_mul(b) })),
        (U32, true) => (Class::Word, alu!(|a: u32, b: u32| -> u32 { ((u64::from(a) * u64::from(b)) >> 32) as u32 })),
        (S32, true) => (Class::Word, alu!(|a: i32, b: i32| -> i32 { ((i64::from(a) * i64::from(b)) >> 32) as i32 })),
        (U64 | S64, false) => (Class::Wide, alu!(|a: u64, b: u64| -> u64 { a.wrapping_mul(b) })),
        (U64, true) => (Class::Wide, alu!(|a: u64, b: u64| -> u64 { ((u128::from(a) * u128::from(b)) >> 64) as u64 })),
        (S64, true) => (Class::Wide, alu!(|a: i64, b: i64| -> i64 { ((i128::from(a) * i128::from(b)) >> 64) as i64 })),
        _ => return Err(op.unsupported()),
    };
    let a = emitter.source(class, &operands[1])?;
    let b = emitter.source(class, &operands[2])?;
    let c = emitter.source(class, &operands[3])?;
    let d = emitter.result(class, &operands[0])?;
    let part = emitter.temporary(class).index;
    emitter.push_alu(product, Integer, part, [a, b, 0]);
    let flag = carry_flag(emitter);
    let taken = if takes { flag } else { emitter.word_constant(0) };
    let next = emitter.temporary(Class::Word).index;
    let (carry, value) = match class {
        Class::Word => (
            alu!(|a: u32, b: u32, c: u32| -> u32 { ((u64::from(a) + u64::from(b) + u64::from(c)) >> 32) as u32 }),
            alu!(|a: u32, b: u32, c: u32| -> u32 { a.wrapping_add(b).wrapping_add(c) }),
        ),
        Class::Wide => (
            alu!(|a: u64, b: u64, c: u32| -> u32 { ((u128::from(a) + u128::from(b) + u128::from(c)) >> 64) as u32 }),
            alu!(|a: u64, b: u64, c: u32| -> u64 { a.wrapping_add(b).wrapping_add(u64::from(c)) }),
        ),
        Class::Pred => return Err(Error::parse(op.line, "a predicate cannot be multiplied")),
    };
    if gives {
        emitter.push_alu(carry, Integer, next, [part, c, taken]);
    }
    emitter.push_alu(value, Integer, d, [part, c, taken]);
    if gives {
        emitter.push_alu(alu!(|c: u32| -> u32 { c }), Integer, flag, [next, 0, 0]);
    }
    Ok(())
}
