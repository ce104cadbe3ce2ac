//! Moves: plain, packing and unpacking, addresses of variables, changes of address space.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::lanes::{Alu, alu};
use crate::sim::ir::program::{Instr, Program};
use crate::sim::isa::load_store::window_base;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::address::{Window, window};
use crate::sim::machine::registers::{Class, LANES, Slot};
use crate::sim::metrics::InstructionClass::{Compare, Move};
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::special::Special;
use crate::sim::ptx::types::{Space, Type};

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let operands = &instruction.operands;
    match op.name {
        "mov" => {
            emitter.expect_operands(op, operands, 2)?;
            mov(emitter, op, operands)?;
        }
        "cvta" => convert_address(emitter, op, operands)?,
        "isspacep" => is_space(emitter, op, operands)?,
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

fn mov(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    if op.ty()? == Type::B128 {
        return both_halves(emitter, op, operands);
    }
    let class = match op.ty()? {
        Type::Pred => Class::Pred,
        ty if ty.bytes() == 8 => Class::Wide,
        ty if ty.bytes() <= 4 => Class::Word,
        _ => return Err(op.unsupported()),
    };
    match (&operands[0], &operands[1]) {
        (Operand::Vector(parts), source) => unpack(emitter, op, class, parts, source),
        (target, Operand::Vector(parts)) => pack(emitter, op, class, target, parts),
        (
            target,
            Operand::Special(special @ (Special::Clock | Special::ClockHi | Special::Clock64 | Special::Globaltimer)),
        ) => {
            let d = emitter.result(class, target)?;
            // Time makes results depend on the order of blocks.
            emitter.push_plain(
                clock,
                Move,
                [d, u32::from(class == Class::Wide), u32::from(*special == Special::ClockHi), 0, 0],
            );
            Ok(())
        }
        _ => emitter.bind(copy(class), Move, op, operands),
    }
}

/// A move of 128 bits, between registers or from or into a pair: the halves are read before either is written.
fn both_halves(emitter: &mut Emitter<'_>, op: &Opcode<'_>, operands: &[Operand]) -> Result<()> {
    let (Operand::Vector(targets), Operand::Vector(sources)) = (&operands[0], &operands[1]) else {
        return Err(op.unsupported());
    };
    let ([low, high], [from_low, from_high]) = (targets.as_slice(), sources.as_slice()) else {
        return Err(op.unsupported());
    };
    let kept = emitter.temporary(Class::Wide);
    let from_high = emitter.source(Class::Wide, from_high)?;
    emitter.push_alu(copy(Class::Wide), Move, kept.index, [from_high, 0, 0]);
    for (target, source) in [(low, emitter.source(Class::Wide, from_low)?), (high, kept.index)] {
        let d = emitter.result(Class::Wide, target)?;
        emitter.push_alu(copy(Class::Wide), Move, d, [source, 0, 0]);
    }
    Ok(())
}

/// The count of instructions of the block stands in for time.
fn clock(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
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
fn pack(emitter: &mut Emitter<'_>, op: &Opcode<'_>, class: Class, target: &Operand, parts: &[Operand]) -> Result<()> {
    let d = emitter.result(class, target)?;
    match (class, parts) {
        (Class::Word, [a, b]) => {
            let sources = [emitter.source(Class::Word, a)?, emitter.source(Class::Word, b)?, 0];
            emitter.push_alu(alu!(|a: u16, b: u16| -> u32 { u32::from(a) | u32::from(b) << 16 }), Move, d, sources);
        }
        (Class::Word, [_, _, _, _]) => {
            let low = join_bytes(emitter, &parts[..2])?;
            let high = join_bytes(emitter, &parts[2..])?;
            emitter.push_alu(
                alu!(|a: u16, b: u16| -> u32 { u32::from(a) | u32::from(b) << 16 }),
                Move,
                d,
                [low, high, 0],
            );
        }
        (Class::Wide, [a, b]) => {
            let sources = [emitter.source(Class::Word, a)?, emitter.source(Class::Word, b)?, 0];
            emitter.push_alu(alu!(|a: u32, b: u32| -> u64 { u64::from(a) | u64::from(b) << 32 }), Move, d, sources);
        }
        (Class::Wide, [a, b, c, e]) => {
            let join = alu!(|a: u16, b: u16| -> u32 { u32::from(a) | u32::from(b) << 16 });
            let (low, high) = (emitter.temporary(Class::Word).index, emitter.temporary(Class::Word).index);
            let sources = [emitter.source(Class::Word, a)?, emitter.source(Class::Word, b)?, 0];
            emitter.push_alu(join, Move, low, sources);
            let sources = [emitter.source(Class::Word, c)?, emitter.source(Class::Word, e)?, 0];
            emitter.push_alu(join, Move, high, sources);
            emitter.push_alu(
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

fn join_bytes(emitter: &mut Emitter<'_>, parts: &[Operand]) -> Result<u32> {
    let joined = emitter.temporary(Class::Word).index;
    let sources = [emitter.source(Class::Word, &parts[0])?, emitter.source(Class::Word, &parts[1])?, 0];
    emitter.push_alu(alu!(|a: u8, b: u8| -> u16 { u16::from(a) | u16::from(b) << 8 }), Move, joined, sources);
    Ok(joined)
}

/// `mov.b32 {a, b}, s`. The source may share a row with no part: rows of results and sources of one instruction differ.
fn unpack(emitter: &mut Emitter<'_>, op: &Opcode<'_>, class: Class, parts: &[Operand], source: &Operand) -> Result<()> {
    let s = emitter.source(class, source)?;
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
            let d = emitter.result(Class::Word, part)?;
            emitter.push_alu(*piece, Move, d, [s, 0, 0]);
        }
    }
    Ok(())
}

/// The space that the modifiers name.
fn space(op: &mut Opcode<'_>) -> Result<Space> {
    op.take_map(Space::from_name).ok_or_else(|| op.unsupported())
}

/// Generic addresses are those of a space plus the base of its window.
fn convert_address(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    emitter.expect_operands(op, operands, 2)?;
    let to_space = op.take("to");
    let base = window_base(space(op)?);
    if op.ty()?.bytes() != 8 {
        return Err(op.unsupported());
    }
    let source = emitter.source(Class::Wide, &operands[1])?;
    let d = emitter.result(Class::Wide, &operands[0])?;
    if base == 0 {
        emitter.push_alu(copy(Class::Wide), Move, d, [source, 0, 0]);
        return Ok(());
    }
    let base = emitter.wide_constant(base);
    let alu = if to_space {
        alu!(|a: u64, base: u64| -> u64 { a.wrapping_sub(base) })
    } else {
        alu!(|a: u64, base: u64| -> u64 { a.wrapping_add(base) })
    };
    emitter.push_alu(alu, Move, d, [source, base, 0]);
    Ok(())
}

fn is_space(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    let alu = match space(op)? {
        Space::Shared => alu!(|a: u64| -> bool { window(a) == Window::Shared }),
        Space::Local => alu!(|a: u64| -> bool { window(a) == Window::Local }),
        Space::Param => alu!(|a: u64| -> bool { window(a) == Window::Param }),
        Space::Global | Space::Const => alu!(|a: u64| -> bool { window(a) == Window::Global }),
        Space::Generic => return Err(op.unsupported()),
    };
    emitter.bind(alu, Compare, op, operands)
}

/// Emits a copy between two slots of one class.
pub(super) fn push_copy(emitter: &mut Emitter<'_>, to: Slot, from: Slot) -> Result<()> {
    if to.class != from.class {
        return Err(Error::parse(emitter.line, "a register of another size was expected"));
    }
    emitter.push_alu(copy(to.class), Move, to.index, [from.index, 0, 0]);
    Ok(())
}
