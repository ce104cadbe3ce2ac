//! The device functions that a compiler leaves as calls: `vprintf`, `__assertfail`, `malloc` and `free`.

use crate::sim::error::Result;
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::layout::Place;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::isa::printf;
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::address::{OFFSET_MASK, Window, window};
use crate::sim::machine::memory::pattern::lanes;
use crate::sim::metrics::InstructionClass::Control;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::report::Check;

/// Longest text that is read from the device.
const MAX_TEXT_BYTES: usize = 4096;

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if op.name != "call" {
        return Ok(false);
    }
    op.take("uni");
    let operands = &instruction.operands;
    let found = operands.iter().enumerate().find_map(|(at, operand)| match operand {
        Operand::Function(name) => Some((at, name.as_str())),
        _ => None,
    });
    let Some((at, name)) = found else { return Err(op.unsupported()) };
    let unsupported = || crate::sim::error::Error::unsupported(op.line, format!("call {name}"));
    let Some(Operand::Tuple(args)) = operands.get(at + 1) else { return Err(unsupported()) };
    let offsets =
        args.iter().map(|arg| local_offset(emitter, arg)).collect::<Option<Vec<u32>>>().ok_or_else(unsupported)?;
    match (name, offsets.as_slice()) {
        ("vprintf", [format, values]) => {
            let result = match operands.first() {
                Some(Operand::Tuple(results)) if at > 0 => {
                    results.first().and_then(|result| local_offset(emitter, result))
                }
                _ => None,
            };
            emitter.push_plain(print, Control, [0, *format, *values, result.unwrap_or(u32::MAX), 0]);
        }
        ("malloc", [bytes]) => {
            let result = match operands.first() {
                Some(Operand::Tuple(results)) if at > 0 => {
                    results.first().and_then(|result| local_offset(emitter, result))
                }
                _ => None,
            };
            // Whose piece is where depends on the order of blocks.
            emitter.traits.in_order = true;
            emitter.traits.has_heap = true;
            emitter.push_plain(allocate, Control, [0, *bytes, 0, result.unwrap_or(u32::MAX), 0]);
        }
        ("free", [pointer]) => {
            emitter.traits.in_order = true;
            emitter.traits.has_heap = true;
            emitter.push_plain(release, Control, [0, *pointer, 0, 0, 0]);
        }
        ("__assertfail", [message, file, line, function, _]) => {
            emitter.push_plain(assertion, Control, [*function, *message, *file, *line, 0]);
        }
        _ => return Err(unsupported()),
    }
    Ok(true)
}

fn local_offset(emitter: &Emitter<'_>, operand: &Operand) -> Option<u32> {
    match operand {
        Operand::Symbol(symbol, offset) => match emitter.layout.find(*symbol) {
            Place::Local(at) => u32::try_from(i64::from(at) + offset).ok(),
            _ => None,
        },
        _ => None,
    }
}

fn local_word(ctx: &Context<'_>, lane: usize, offset: u32) -> u32 {
    ctx.warp.local.get(offset as usize / 4).map_or(0, |row| row.0[lane])
}

fn local_wide(ctx: &Context<'_>, lane: usize, offset: u32) -> u64 {
    u64::from(local_word(ctx, lane, offset)) | u64::from(local_word(ctx, lane, offset + 4)) << 32
}

/// One byte at a generic address, if there is one. These reads are the run time's, not the kernel's: no check looks at
/// them.
fn byte(ctx: &Context<'_>, lane: usize, address: u64) -> Option<u8> {
    let offset = (address & OFFSET_MASK) as usize;
    match window(address) {
        Window::Local => Some((ctx.warp.local.get(offset / 4)?.0[lane] >> (offset % 4 * 8)) as u8),
        Window::Global => {
            let (_, allocation) = ctx.grid.memory.find(address)?;
            let inside = allocation.is_live() && (offset as u64) < allocation.bytes();
            inside.then(|| (allocation.load(offset / 4) >> (offset % 4 * 8)) as u8)
        }
        _ => None,
    }
}

fn text(ctx: &Context<'_>, lane: usize, address: u64) -> String {
    let bytes: Vec<u8> = (0..MAX_TEXT_BYTES as u64)
        .map_while(|at| byte(ctx, lane, address.wrapping_add(at)).filter(|byte| *byte != 0))
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn print(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    for lane in lanes(mask) {
        let format = text(ctx, lane, local_wide(ctx, lane, instr.a));
        let values = local_wide(ctx, lane, instr.b);
        let read = |offset: u64, bytes: u64| {
            (0..bytes).fold(0, |value, at| {
                value | u64::from(byte(ctx, lane, values.wrapping_add(offset + at)).unwrap_or(0)) << (8 * at)
            })
        };
        let line = printf::format(&format, read, |address| text(ctx, lane, address));
        let block = ctx.block().linear;
        ctx.log.print(block, &line.text);
        ctx.warp.local_written = ctx.warp.local_written.max(instr.c as usize / 4 + 1);
        if let Some(row) = ctx.warp.local.get_mut(instr.c as usize / 4) {
            row.0[lane] = line.values;
        }
    }
    Outcome::Next
}

fn assertion(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    let lane = mask.trailing_zeros() as usize & 31;
    let (message, file, function) = (
        text(ctx, lane, local_wide(ctx, lane, instr.a)),
        text(ctx, lane, local_wide(ctx, lane, instr.b)),
        text(ctx, lane, local_wide(ctx, lane, instr.d)),
    );
    let line = local_word(ctx, lane, instr.c);
    ctx.report(Check::Assert, lane, None, format!("assertion `{message}` failed in {function}, {file}:{line}"));
    Outcome::Abort
}

fn allocate(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    let Some(heap) = ctx.grid.memory.heap() else { return Outcome::Next };
    for lane in lanes(mask) {
        let address = heap.take(local_wide(ctx, lane, instr.a));
        let row = instr.c as usize / 4;
        ctx.warp.local_written = ctx.warp.local_written.max(row.saturating_add(2).min(ctx.warp.local.len()));
        for (word, half) in [address as u32, (address >> 32) as u32].into_iter().enumerate() {
            if let Some(row) = ctx.warp.local.get_mut(row.saturating_add(word)) {
                row.0[lane] = half;
            }
        }
    }
    Outcome::Next
}

fn release(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    for lane in lanes(mask) {
        let address = local_wide(ctx, lane, instr.a);
        let is_taken = |address| ctx.grid.memory.heap().is_some_and(|heap| heap.give_back(address));
        if address != 0 && !is_taken(address) {
            let message = "`free` of an address that `malloc` has not given, or that was given back before".to_owned();
            ctx.report(Check::UseAfterFree, lane, Some(address), message);
        }
    }
    Outcome::Next
}
