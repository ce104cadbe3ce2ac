//! `ldmatrix`, `stmatrix` and `movmatrix`: 8x8 tiles of 16-bit elements between shared memory and the fragments of a
//! warp.

use crate::sim::error::Result;
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::{AddressOperand, Instr, Program};
use crate::sim::isa::load_store::{addresses, by_space};
use crate::sim::isa::matrix::{results, sources, whole_warp};
use crate::sim::machine::access::shared;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::memory::payload::Payload;
use crate::sim::machine::registers::LANES;
use crate::sim::metrics::InstructionClass::Tensor;
use crate::sim::ptx::ast::Instruction;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::{Space, Type};
use crate::sim::report::Check;
use crate::sim::tier::tiers;

/// A decoded load or store of tiles.
#[derive(Debug, Clone)]
pub(crate) struct TileAccess {
    address: AddressOperand,
    space: Space,
    transposed: bool,
    /// A slot a tile.
    slots: Vec<u32>,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let loads = match op.name {
        "ldmatrix" => true,
        "stmatrix" => false,
        "movmatrix" => {
            op.ignore(|modifier| matches!(modifier, "sync" | "aligned" | "m8n8" | "trans"));
            emitter.expect_operands(op, &instruction.operands, 2)?;
            let a = sources(emitter, &instruction.operands[1], 1)?[0];
            let d = results(emitter, &instruction.operands[0], 1)?[0];
            emitter.push_plain(transpose, Tensor, [d, a, 0, 0, 0]);
            return Ok(true);
        }
        _ => return Ok(false),
    };
    let known = op.take("sync") && op.take("aligned") && op.take("m8n8") && op.ty()? == Type::B16;
    let count =
        op.take_map(|modifier| ["x1", "x2", "x4"].iter().position(|name| *name == modifier)).map(|power| 1 << power);
    let (Some(count), true) = (count, known) else { return Err(op.unsupported()) };
    let transposed = op.take("trans");
    let space = op.take_map(Space::from_name).unwrap_or(Space::Generic);
    emitter.expect_operands(op, &instruction.operands, 2)?;
    let (address, fragment) = if loads { (1, 0) } else { (0, 1) };
    let address = emitter.address_operand(&instruction.operands[address])?;
    let fragment = &instruction.operands[fragment];
    let slots = if loads { results(emitter, fragment, count)? } else { sources(emitter, fragment, count)? };
    let x = emitter.detail(TileAccess { address, space, transposed, slots });
    let handler = if loads {
        tiers!(load: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome)
    } else {
        tiers!(store: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome)
    };
    emitter.push_action(handler, Tensor, [0, 0, 0, 0, x]);
    Ok(true)
}

/// The row addresses: lane 8·t + r gives row r of tile t.
#[inline(always)]
fn rows(ctx: &mut Context<'_>, tile: &TileAccess) -> Option<Pattern> {
    let givers = ((1u64 << (8 * tile.slots.len())) - 1) as u32;
    let pattern = Pattern::new(addresses(&ctx.warp.registers, &tile.address), givers, 16);
    let mut found = None;
    by_space(pattern, tile.space, |space, pattern| {
        if space == Space::Shared {
            found = Some(*pattern);
        }
    });
    if found.is_none() {
        let message = "the rows of a tile must lie in shared memory".to_owned();
        ctx.report(Check::OutOfBounds, 0, Some(pattern.lowest), message);
    }
    found
}

/// Which half word of which row a lane holds: `part` is 0 or 1. In transposed tiles rows and columns change places.
#[inline(always)]
fn element(lane: usize, part: usize, transposed: bool) -> (usize, usize) {
    let (row, column) = (lane / 4, lane % 4 * 2 + part);
    if transposed { (column, row) } else { (row, column) }
}

#[inline(always)]
fn load(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let tile = program.detail::<TileAccess>(instr.x);
    let Some(pattern) = rows(ctx, tile) else { return Outcome::Next };
    let data: Payload<4> = shared::read(ctx, &pattern, None);
    for (number, &slot) in tile.slots.iter().enumerate() {
        let mut fragment = [0; LANES];
        for (lane, word) in fragment.iter_mut().enumerate() {
            *word = if tile.transposed {
                // Two rows of one column.
                let (row, column) = (number * 8 + lane % 4 * 2, lane / 4);
                let halves = &data[column / 2];
                let shift = column % 2 * 16;
                halves[row] >> shift & 0xFFFF | (halves[row + 1] >> shift) << 16
            } else {
                data[lane % 4][number * 8 + lane / 4]
            };
        }
        ctx.warp.registers.set_word(slot, &fragment, u32::MAX);
    }
    ctx.meet();
    Outcome::Next
}

#[inline(always)]
fn store(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let tile = program.detail::<TileAccess>(instr.x);
    let Some(pattern) = rows(ctx, tile) else { return Outcome::Next };
    let mut data: Payload<4> = [[0; LANES]; 4];
    for (number, &slot) in tile.slots.iter().enumerate() {
        let fragment = *ctx.warp.registers.word(slot);
        for lane in 0..LANES {
            for part in 0..2 {
                let (row, column) = element(lane, part, tile.transposed);
                data[column / 2][number * 8 + row] |= (fragment[lane] >> (16 * part) & 0xFFFF) << (column % 2 * 16);
            }
        }
    }
    shared::write(ctx, &pattern, &data, None);
    ctx.meet();
    Outcome::Next
}

fn transpose(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    if let Some(outcome) = whole_warp(ctx, mask) {
        return outcome;
    }
    let source = *ctx.warp.registers.word(instr.a);
    let half = |row: usize, column: usize| source[row * 4 + column / 2] >> (column % 2 * 16) & 0xFFFF;
    let result = std::array::from_fn(|lane| half(lane % 4 * 2, lane / 4) | half(lane % 4 * 2 + 1, lane / 4) << 16);
    ctx.warp.registers.set_word(instr.d, &result, u32::MAX);
    ctx.meet();
    Outcome::Next
}
