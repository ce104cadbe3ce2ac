//! `wmma`: matrices of 16 x 16 elements between memory and a warp, and their products.
//!
//! PTX leaves open which lane holds which element. Here they lie as two `mma.m16n8k16` side by side want them: four pairs
//! of neighbours a lane, `outer` 8 x half + lane / 4, `inner` 8 x half + 2 (lane % 4), where outer are the rows of a and
//! of sums and the columns of b. What hardware keeps twice (factors in f16) is kept twice here too.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{AddressOperand, Instr, Program};
use crate::sim::isa::matrix::{push_product, results, sources, whole_warp};
use crate::sim::isa::moves::push_copy;
use crate::sim::isa::warp_tile_memory::{Part, matrix_start, read, write};
use crate::sim::isa::warp_tile_shapes;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::registers::{Class, LANES, Slot};
use crate::sim::metrics::InstructionClass::Tensor;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::{Space, Type};

/// Rows and columns.
const EXTENT: u32 = 16;
/// Pairs of neighbours that a lane holds.
const PAIRS: usize = 4;

/// A decoded load or store of a matrix.
#[derive(Debug, Clone)]
pub(crate) struct MatrixAccess {
    address: AddressOperand,
    space: Space,
    part: Part,
    /// Bytes of an element.
    bytes: u32,
    /// Whether neighbours of a lane are neighbours in memory.
    is_along: bool,
    /// Elements from a row (or column) to the next.
    pitch: u32,
    slots: Vec<u32>,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if op.name != "wmma" {
        return Ok(false);
    }
    if !(op.take("sync") && op.take("aligned")) {
        return Err(op.unsupported());
    }
    match (op.take("load"), op.take("store"), op.take("mma")) {
        (true, false, false) => access(emitter, op, &instruction.operands, true)?,
        (false, true, false) => access(emitter, op, &instruction.operands, false)?,
        (false, false, true) => multiply(emitter, op, &instruction.operands)?,
        _ => return Err(op.unsupported()),
    }
    Ok(true)
}

/// Whether it is about 16 x 16 elements of 16 bits, and sums of them: the shape comes off then.
fn is_square(op: &mut Opcode<'_>) -> bool {
    let of_halves = op.types.iter().all(|ty| matches!(ty, Type::F16 | Type::Bf16 | Type::F32));
    let of_integers = op.parts().any(|part| matches!(part, "u8" | "s8" | "s32"));
    of_halves && !of_integers && op.take("m16n16k16")
}

/// Registers of a matrix in a type.
fn registers(op: &Opcode<'_>, part: Part, ty: Type) -> Result<usize> {
    Ok(match (part, ty) {
        (Part::A | Part::B, Type::F16) => 2 * PAIRS,
        (Part::A | Part::B, Type::Bf16) | (Part::Sums, Type::F16) => PAIRS,
        (Part::Sums, Type::F32) => 2 * PAIRS,
        _ => return Err(op.unsupported()),
    })
}

fn access(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand], loads: bool) -> Result<()> {
    let part = op.take_map(|modifier| match modifier {
        "a" if loads => Some(Part::A),
        "b" if loads => Some(Part::B),
        "c" if loads => Some(Part::Sums),
        "d" if !loads => Some(Part::Sums),
        _ => None,
    });
    let is_row = op.take_map(|modifier| match modifier {
        "row" => Some(true),
        "col" => Some(false),
        _ => None,
    });
    let space = op.take_map(Space::from_name).unwrap_or(Space::Generic);
    let (Some(part), Some(is_row)) = (part, is_row) else { return Err(op.unsupported()) };
    if !is_square(op) {
        return warp_tile_shapes::access(emitter, op, operands, (part, is_row, space), loads);
    }
    let [ty] = op.types.as_slice() else { return Err(op.unsupported()) };
    let (place, fragment, stride) = match (operands, loads) {
        ([fragment, place, rest @ ..], true) => (place, fragment, rest.first()),
        ([place, fragment, rest @ ..], false) => (place, fragment, rest.first()),
        _ => return Err(Error::parse(op.line, "`wmma` takes an address and a fragment")),
    };
    let count = registers(op, part, *ty)?;
    let slots = if loads { results(emitter, fragment, count)? } else { sources(emitter, fragment, count)? };
    let pitch = match stride {
        Some(stride) => emitter.source(Class::Word, stride)?,
        None => emitter.word_constant(EXTENT),
    };
    let address = emitter.address_operand(place)?;
    let is_along = is_row != (part == Part::B);
    let x = emitter.detail(MatrixAccess { address, space, part, bytes: ty.bytes(), is_along, pitch, slots });
    emitter.push_plain(if loads { load } else { store }, Tensor, [0, 0, 0, 0, x]);
    Ok(())
}

/// The product of 16 columns is two of 8. The first must not overwrite what the second reads.
fn multiply(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    if !is_square(op) {
        return warp_tile_shapes::multiply(emitter, op, operands);
    }
    // Which way they lay in memory does not matter any more.
    op.ignore(|modifier| matches!(modifier, "row" | "col"));
    let (factor, d, c) = match *op.types.as_slice() {
        [d, c] => (Type::F16, d, c),
        [d, a, b, c] if a == b => (a, d, c),
        _ => return Err(op.unsupported()),
    };
    let [to, a, b, from] = operands else { return Err(Error::parse(op.line, "`wmma.mma` takes four operands")) };
    let a = sources(emitter, a, registers(op, Part::A, factor)?)?;
    let b = sources(emitter, b, registers(op, Part::B, factor)?)?;
    let from = sources(emitter, from, registers(op, Part::Sums, c)?)?;
    let to = results(emitter, to, registers(op, Part::Sums, d)?)?;
    let (left, right) = to.split_at(to.len() / 2);
    let (from_left, from_right) = from.split_at(from.len() / 2);
    let between: Vec<Slot> = left.iter().map(|_| emitter.temporary(Class::Word)).collect();
    let first = between.iter().map(|slot| slot.index).collect();
    push_product(emitter, op, [d, factor, c], [first, a[..4].into(), b[..2].into(), from_left.into()])?;
    push_product(emitter, op, [d, factor, c], [right.into(), a[..4].into(), b[2..4].into(), from_right.into()])?;
    for (to, from) in left.iter().zip(between) {
        push_copy(emitter, Slot { class: Class::Word, index: *to }, from)?;
    }
    Ok(())
}

/// Outer and inner coordinate of the first of a pair.
fn place(part: Part, pair: usize, lane: usize) -> (u64, u64) {
    let (low, high) = (pair as u64 % 2 * 8, pair as u64 / 2 * 8);
    let (outer, inner) = if part == Part::B { (high, low) } else { (low, high) };
    (outer + lane as u64 / 4, inner + lane as u64 % 4 * 2)
}

/// Where the lanes find the elements of a pair: `None` where the matrix may not lie there.
fn pair_addresses(ctx: &mut Context<'_>, matrix: &MatrixAccess) -> Option<[[[u64; LANES]; 2]; PAIRS]> {
    let bytes = u64::from(matrix.bytes);
    let (base, pitch) = matrix_start(ctx, &matrix.address, matrix.pitch, 8 * matrix.bytes)?;
    Some(std::array::from_fn(|pair| {
        std::array::from_fn(|half| {
            std::array::from_fn(|lane| {
                let (outer, inner) = place(matrix.part, pair, lane);
                let inner = inner + half as u64;
                let (row, column) = if matrix.is_along { (outer, inner) } else { (inner, outer) };
                base.wrapping_add(row.wrapping_mul(pitch)).wrapping_add(column * bytes)
            })
        })
    }))
}

fn load(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let matrix = program.detail::<MatrixAccess>(instr.x);
    let Some(all) = pair_addresses(ctx, matrix) else { return Outcome::Next };
    for (pair, [first, second]) in all.into_iter().enumerate() {
        let [low, high] = if matrix.is_along {
            let [low, high] = read(ctx, matrix.space, first, 2 * matrix.bytes);
            if matrix.bytes == 4 { [low, high] } else { [low.map(|word| word & 0xFFFF), low.map(|word| word >> 16)] }
        } else {
            [first, second].map(|address| read(ctx, matrix.space, address, matrix.bytes)[0])
        };
        let registers = &mut ctx.warp.registers;
        if matrix.bytes == 4 {
            registers.set_word(matrix.slots[2 * pair], &low, u32::MAX);
            registers.set_word(matrix.slots[2 * pair + 1], &high, u32::MAX);
        } else {
            let packed = std::array::from_fn(|lane| low[lane] | high[lane] << 16);
            for slot in matrix.slots.iter().skip(pair).step_by(PAIRS) {
                registers.set_word(*slot, &packed, u32::MAX);
            }
        }
    }
    ctx.meet();
    Outcome::Next
}

fn store(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let matrix = program.detail::<MatrixAccess>(instr.x);
    let Some(all) = pair_addresses(ctx, matrix) else { return Outcome::Next };
    for (pair, [first, second]) in all.into_iter().enumerate() {
        let word = |at: usize| *ctx.warp.registers.word(matrix.slots[at]);
        let (low, high) = if matrix.bytes == 4 {
            (word(2 * pair), word(2 * pair + 1))
        } else {
            (word(pair).map(|word| word & 0xFFFF), word(pair).map(|word| word >> 16))
        };
        if !matrix.is_along {
            write(ctx, matrix.space, first, matrix.bytes, &[low, [0; LANES]]);
            write(ctx, matrix.space, second, matrix.bytes, &[high, [0; LANES]]);
        } else if matrix.bytes == 4 {
            write(ctx, matrix.space, first, 8, &[low, high]);
        } else {
            write(ctx, matrix.space, first, 4, &[std::array::from_fn(|lane| low[lane] | high[lane] << 16), [0; LANES]]);
        }
    }
    ctx.meet();
    Outcome::Next
}
