//! `cp.async`: copies from global to shared memory that a thread starts now and waits for later.
//!
//! In early mode the data moves at the start, in late mode at the wait. In both the target counts as in flight in
//! between: whoever touches it then is reported.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::lanes::alu;
use crate::sim::ir::program::{AddressOperand, Instr, Program};
use crate::sim::isa::load_store::addresses;
use crate::sim::machine::access::{global, shared};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::copy_queue::PendingCopy;
use crate::sim::machine::memory::pattern::{Pattern, lanes};
use crate::sim::machine::memory::payload::Payload;
use crate::sim::machine::registers::{Class, LANES};
use crate::sim::metrics::InstructionClass::Async;
use crate::sim::options::Completion;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::tier::tiers;

/// One decoded copy.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    target: AddressOperand,
    source: AddressOperand,
    bytes: u32,
    /// Bytes that are read; the rest of the target becomes zero.
    source_bytes: Option<u32>,
}

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if op.name != "cp" || !op.has("async") || op.has("bulk") || op.has("mbarrier") {
        return Ok(false);
    }
    op.take("async");
    let operands = &instruction.operands;
    if op.take("commit_group") {
        emitter.push_plain(close_group, Async, [0; 5]);
    } else if op.take("wait_group") {
        let Some(Operand::Integer(count)) = operands.first() else {
            return Err(Error::parse(op.line, "`cp.async.wait_group` takes a number of groups"));
        };
        emitter.push_plain(wait_group, Async, [0, 0, 0, 0, (*count).min(u64::from(u32::MAX)) as u32]);
    } else if op.take("wait_all") {
        emitter.push_plain(wait_all, Async, [0; 5]);
    } else {
        start(emitter, op, operands)?;
    }
    Ok(true)
}

/// `!p`, or a register that is one.
fn is_predicate(emitter: &Emitter<'_>, operand: &Operand) -> bool {
    matches!(operand, Operand::Not(_)) || emitter.any_register(operand).is_ok_and(|slot| slot.class == Class::Pred)
}

fn start(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, operands: &[Operand]) -> Result<()> {
    if !op.take("ca") && !op.take("cg") {
        return Err(op.unsupported());
    }
    if !(op.take("shared") || op.take("shared::cta")) || !op.take("global") {
        return Err(op.unsupported());
    }
    let has_policy = op.take("L2::cache_hint");
    op.ignore(|modifier| modifier.starts_with("L2::"));
    // The policy comes last.
    let operands = &operands[..operands.len().saturating_sub(usize::from(has_policy))];
    let Some(Operand::Integer(bytes @ (4 | 8 | 16))) = operands.get(2) else { return Err(op.unsupported()) };
    let source_bytes = match operands.get(3) {
        None => None,
        Some(operand @ (Operand::Register(_) | Operand::Not(_))) if is_predicate(emitter, operand) => {
            let ignored = emitter.source(Class::Pred, operand)?;
            let read = emitter.temporary(Class::Word).index;
            // More than the whole is the whole.
            let choose = alu!(|ignored: bool| -> u32 { if ignored { 0 } else { 16 } });
            emitter.push_alu(choose, Async, read, [ignored, 0, 0]);
            Some(read)
        }
        Some(operand) => Some(emitter.source(Class::Word, operand)?),
    };
    let copy = Copy {
        target: emitter.address_operand(&operands[0])?,
        source: emitter.address_operand(&operands[1])?,
        bytes: *bytes as u32,
        source_bytes,
    };
    let x = emitter.detail(copy);
    emitter.push_action(
        tiers!(issue: fn(c: &mut Context<'_>, p: &Program, i: &Instr, m: u32) -> Outcome),
        Async,
        [0, 0, 0, 0, x],
    );
    Ok(())
}

#[inline(always)]
fn issue(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let copy = program.detail::<Copy>(instr.x);
    let registers = &ctx.warp.registers;
    let read = match copy.source_bytes {
        Some(slot) => registers.word(slot).map(|bytes| bytes.min(copy.bytes)),
        None => [copy.bytes; LANES],
    };
    let pending = PendingCopy {
        pc: ctx.pc,
        mask,
        target: addresses(registers, &copy.target),
        source: addresses(registers, &copy.source),
        read,
        bytes: copy.bytes,
        group: ctx.warp.copies.closed,
    };
    ctx.begin_flight(&Pattern::new(pending.target, mask, pending.bytes));
    if ctx.grid.options.completion == Completion::Early {
        transfer(ctx, &pending, mask);
    }
    ctx.warp.copies.pending.push(pending);
    Outcome::Next
}

fn close_group(ctx: &mut Context<'_>, _: &Program, _: &Instr, mask: u32) -> Outcome {
    for lane in lanes(mask) {
        ctx.warp.copies.closed[lane] += 1;
    }
    Outcome::Next
}

fn wait_group(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    let due = ctx.warp.copies.closed.map(|closed| closed.saturating_sub(instr.x));
    finish(ctx, mask, &due);
    Outcome::Next
}

fn wait_all(ctx: &mut Context<'_>, _: &Program, _: &Instr, mask: u32) -> Outcome {
    finish_all(ctx, mask);
    Outcome::Next
}

/// Lands all copies of the lanes.
pub(super) fn finish_all(ctx: &mut Context<'_>, mask: u32) {
    finish(ctx, mask, &[u32::MAX; LANES]);
}

/// Lands those copies of the lanes whose group is below the one that each lane names.
fn finish(ctx: &mut Context<'_>, mask: u32, due: &[u32; LANES]) {
    let here = ctx.pc;
    for mut pending in std::mem::take(&mut ctx.warp.copies.pending) {
        let landing = lanes(mask & pending.mask)
            .filter(|&lane| pending.group[lane] < due[lane])
            .fold(0, |set, lane| set | 1 << lane);
        if landing != 0 {
            ctx.pc = pending.pc;
            ctx.end_flight(&Pattern::new(pending.target, landing, pending.bytes));
            if ctx.grid.options.completion == Completion::Late {
                transfer(ctx, &pending, landing);
            }
            pending.mask &= !landing;
        }
        if pending.mask != 0 {
            ctx.warp.copies.pending.push(pending);
        }
    }
    ctx.pc = here;
}

#[inline(always)]
fn transfer(ctx: &mut Context<'_>, copy: &PendingCopy, mask: u32) {
    match copy.bytes {
        4 => transfer_words::<1>(ctx, copy, mask),
        8 => transfer_words::<2>(ctx, copy, mask),
        _ => transfer_words::<4>(ctx, copy, mask),
    }
}

#[inline(always)]
fn transfer_words<const W: usize>(ctx: &mut Context<'_>, copy: &PendingCopy, mask: u32) {
    let full = lanes(mask).filter(|&lane| copy.read[lane] == copy.bytes).fold(0, |set, lane| set | 1 << lane);
    let mut data: Payload<W> = [[0; LANES]; W];
    if full != 0 {
        data = global::read(ctx, &Pattern::new(copy.source, full, copy.bytes), None);
    }
    for lane in lanes(mask & !full) {
        for row in &mut data {
            row[lane] = 0;
        }
        for at in 0..copy.read[lane] {
            let address = [copy.source[lane].wrapping_add(u64::from(at)); LANES];
            let byte: Payload<1> = global::read(ctx, &Pattern::new(address, 1 << lane, 1), None);
            data[at as usize / 4][lane] |= byte[0][lane] << (at % 4 * 8);
        }
    }
    shared::write_untracked(ctx, &Pattern::new(copy.target, mask, copy.bytes), &data);
}
