//! Moves: plain, packing and unpacking, addresses of variables, changes of address space.

use crate::sim::decode::Decoder;
use crate::sim::error::{Error, Result};
use crate::sim::exec::{Context, Outcome};
use crate::sim::lanes::{Alu, Class, LANES, Slot, alu};
use crate::sim::memory::access::window_base;
use crate::sim::memory::address::{Window, window};
use crate::sim::metrics::InstructionClass::{Compare, Move};
use crate::sim::program::Instr;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::special::Special;
use crate::sim::ptx::types::{Space, Type};

pub(super) fn decode(decoder: &mut Decoder<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let operands = &instruction.operands;
    match op.name {
        "mov" => {
            decoder.expect_operands(op, operands, 2)?;
            mov(decoder, op, operands)?;
        }
        "cvta" => convert_address(decoder, op, operands)?,
        "isspacep" => is_space(decoder, op, operands)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn copy(class: Class) -> Alu {
    match class {
        Class::Word => alu!(often |a: u32| -> u32 { a }),
        Class::Wide => alu!(often |a: u64| -> u64 { a }),
        Class::Pred => alu!(|a: bool| -> bool { a }),
    }
}

fn mov(decoder: &mut Decoder<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    if op.ty()? == Type::B128 {
        return both_halves(decoder, op, operands);
    }
    let class = match op.ty()? {
        Type::Pred => Class::Pred,
        ty if ty.bytes() == 8 => Class::Wide,
        ty if ty.bytes() <= 4 => Class::Word,
        _ => return Err(op.unsupported()),
    };
    match (&operands[0], &operands[1]) {
        (Operand::Vector(parts), source) => unpack(decoder, op, class, parts, source),
        (target, Operand::Vector(parts)) => pack(decoder, op, class, target, parts),
        (
            target,
            Operand::Special(special @ (Special::Clock | Special::ClockHi | Special::Clock64 | Special::Globaltimer)),
        ) => {
            let d = decoder.result(class, target)?;
            // Time makes results depend on the order of blocks.
            decoder.push_plain(
                clock,
                Move,
                [d, u32::from(class == Class::Wide), u32::from(*special == Special::ClockHi), 0, 0],
            );
            Ok(())
        }
        _ => decoder.bind(copy(class), Move, op, operands),
    }
}

/// A move of 128 bits, between registers or from or into a pair: the halves are read before either is written.
fn both_halves(decoder: &mut Decoder<'_>, op: &Opcode<'_>, operands: &[Operand]) -> Result<()> {
    let (Operand::Vector(targets), Operand::Vector(sources)) = (&operands[0], &operands[1]) else {
        return Err(op.unsupported());
    };
    let ([low, high], [from_low, from_high]) = (targets.as_slice(), sources.as_slice()) else {
        return Err(op.unsupported());
    };
    let kept = decoder.temporary(Class::Wide);
    let from_high = decoder.source(Class::Wide, from_high)?;
    decoder.push_alu(copy(Class::Wide), Move, kept.index, [from_high, 0, 0]);
    for (target, source) in [(low, decoder.source(Class::Wide, from_low)?), (high, kept.index)] {
        let d = decoder.result(Class::Wide, target)?;
        decoder.push_alu(copy(Class::Wide), Move, d, [source, 0, 0]);
    }
    Ok(())
}

/// The count of instructions of the block stands in for time.
fn clock(ctx: &mut Context<'_>, instr: &Instr, mask: u32) -> Outcome {
    let block = ctx.block();
    block.instructions += 64;
    let now = block.instructions;
    if instr.a != 0 {
        ctx.warp.registers.set_wide(instr.d, &[now; LANES], mask);
    } else {
        let value = if instr.b != 0 { now >> 32 } else { now };
        ctx.warp.registers.set_word(instr.d, &[value as u32; LANES], mask);
    }
    Outcome::Next
}

/// `mov.b32 d, {a, b}`: the first part is the lowest.
fn pack(decoder: &mut Decoder<'_>, op: &Opcode<'_>, class: Class, target: &Operand, parts: &[Operand]) -> Result<()> {
    let d = decoder.result(class, target)?;
    match (class, parts) {
        (Class::Word, [a, b]) => {
            let sources = [decoder.source(Class::Word, a)?, decoder.source(Class::Word, b)?, 0];
            decoder.push_alu(alu!(|a: u16, b: u16| -> u32 { u32::from(a) | u32::from(b) << 16 }), Move, d, sources);
        }
        (Class::Word, [_, _, _, _]) => {
            let low = join_bytes(decoder, &parts[..2])?;
            let high = join_bytes(decoder, &parts[2..])?;
            decoder.push_alu(
                alu!(|a: u16, b: u16| -> u32 { u32::from(a) | u32::from(b) << 16 }),
                Move,
                d,
                [low, high, 0],
            );
        }
        (Class::Wide, [a, b]) => {
            let sources = [decoder.source(Class::Word, a)?, decoder.source(Class::Word, b)?, 0];
            decoder.push_alu(alu!(|a: u32, b: u32| -> u64 { u64::from(a) | u64::from(b) << 32 }), Move, d, sources);
        }
        (Class::Wide, [a, b, c, e]) => {
            let join = alu!(|a: u16, b: u16| -> u32 { u32::from(a) | u32::from(b) << 16 });
            let (low, high) = (decoder.temporary(Class::Word).index, decoder.temporary(Class::Word).index);
            let sources = [decoder.source(Class::Word, a)?, decoder.source(Class::Word, b)?, 0];
            decoder.push_alu(join, Move, low, sources);
            let sources = [decoder.source(Class::Word, c)?, decoder.source(Class::Word, e)?, 0];
            decoder.push_alu(join, Move, high, sources);
            decoder.push_alu(
                alu!(|a: u32, b: u32| -> u64 { u64::from(a) | u64::from(b) << 32 }),
                Move,
                d,
                [low, high, 0],
            );
        }
        _ => return Err(op.unsupported()),
    }
    Ok(())
}

fn join_bytes(decoder: &mut Decoder<'_>, parts: &[Operand]) -> Result<u32> {
    let joined = decoder.temporary(Class::Word).index;
    let sources = [decoder.source(Class::Word, &parts[0])?, decoder.source(Class::Word, &parts[1])?, 0];
    decoder.push_alu(alu!(|a: u8, b: u8| -> u16 { u16::from(a) | u16::from(b) << 8 }), Move, joined, sources);
    Ok(joined)
}

/// `mov.b32 {a, b}, s`. The source may share a row with no part: rows of results and sources of one instruction differ.
fn unpack(decoder: &mut Decoder<'_>, op: &Opcode<'_>, class: Class, parts: &[Operand], source: &Operand) -> Result<()> {
    let s = decoder.source(class, source)?;
    let pieces: &[Alu] = match (class, parts.len()) {
        (Class::Word, 2) => &[alu!(|s: u32| -> u16 { s as u16 }), alu!(|s: u32| -> u16 { (s >> 16) as u16 })],
        (Class::Word, 4) => &[
            alu!(|s: u32| -> u8 { s as u8 }),
            alu!(|s: u32| -> u8 { (s >> 8) as u8 }),
            alu!(|s: u32| -> u8 { (s >> 16) as u8 }),
            alu!(|s: u32| -> u8 { (s >> 24) as u8 }),
        ],
        (Class::Wide, 2) => &[alu!(|s: u64| -> u32 { s as u32 }), alu!(|s: u64| -> u32 { (s >> 32) as u32 })],
        (Class::Wide, 4) => &[
            alu!(|s: u64| -> u16 { s as u16 }),
            alu!(|s: u64| -> u16 { (s >> 16) as u16 }),
            alu!(|s: u64| -> u16 { (s >> 32) as u16 }),
            alu!(|s: u64| -> u16 { (s >> 48) as u16 }),
        ],
        _ => return Err(op.unsupported()),
    };
    for (piece, part) in pieces.iter().zip(parts) {
        if *part != Operand::Sink {
            let d = decoder.result(Class::Word, part)?;
            decoder.push_alu(*piece, Move, d, [s, 0, 0]);
        }
    }
    Ok(())
}

/// The space that the modifiers name.
fn space(op: &mut Opcode<'_>) -> Result<Space> {
    op.take_map(Space::from_name).ok_or_else(|| op.unsupported())
}

/// Generic addresses are those of a space plus the base of its window.
fn convert_address(decoder: &mut Decoder<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    decoder.expect_operands(op, operands, 2)?;
    let to_space = op.take("to");
    let base = window_base(space(op)?);
    if op.ty()?.bytes() != 8 {
        return Err(op.unsupported());
    }
    let source = decoder.source(Class::Wide, &operands[1])?;
    let d = decoder.result(Class::Wide, &operands[0])?;
    if base == 0 {
        decoder.push_alu(copy(Class::Wide), Move, d, [source, 0, 0]);
        return Ok(());
    }
    let base = decoder.wide_constant(base);
    let alu = if to_space {
        alu!(|a: u64, base: u64| -> u64 { a.wrapping_sub(base) })
    } else {
        alu!(|a: u64, base: u64| -> u64 { a.wrapping_add(base) })
    };
    decoder.push_alu(alu, Move, d, [source, base, 0]);
    Ok(())
}

fn is_space(decoder: &mut Decoder<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    let alu = match space(op)? {
        Space::Shared => alu!(|a: u64| -> bool { window(a) == Window::Shared }),
        Space::Local => alu!(|a: u64| -> bool { window(a) == Window::Local }),
        Space::Param => alu!(|a: u64| -> bool { window(a) == Window::Param }),
        Space::Global | Space::Const => alu!(|a: u64| -> bool { window(a) == Window::Global }),
        Space::Generic => return Err(op.unsupported()),
    };
    decoder.bind(alu, Compare, op, operands)
}

/// Emits a copy between two slots of one class.
pub(super) fn push_copy(decoder: &mut Decoder<'_>, to: Slot, from: Slot) -> Result<()> {
    if to.class != from.class {
        return Err(Error::parse(decoder.line, "a register of another size was expected"));
    }
    decoder.push_alu(copy(to.class), Move, to.index, [from.index, 0, 0]);
    Ok(())
}
