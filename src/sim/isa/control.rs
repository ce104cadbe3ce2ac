//! Where lanes go: branches, exits, traps, hints without effect.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::functions::THROUGH_A_POINTER;
use crate::sim::ir::program::{Exec, Instr, Program};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::pattern::lanes;
use crate::sim::machine::registers::Class;
use crate::sim::machine::warp::Split;
use crate::sim::metrics::InstructionClass::Control;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::report::Check;

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    match op.name {
        "bra" => {
            op.take("uni");
            let [Operand::Label(label)] = instruction.operands.as_slice() else {
                return Err(Error::parse(op.line, "a branch takes one label"));
            };
            emitter.push(Exec::Branch, Control, [0, 0, 0, 0, *label], None);
        }
        "brx" if op.has(THROUGH_A_POINTER) => through_a_pointer(emitter, op, instruction)?,
        "brx" => {
            op.take("idx");
            op.take("uni");
            let [index, Operand::TargetList(list)] = instruction.operands.as_slice() else {
                return Err(Error::parse(op.line, "an indexed branch takes an index and a list of labels"));
            };
            let a = emitter.source(Class::Word, index)?;
            emitter.push_plain(indexed_branch, Control, [0, a, 0, 0, *list]);
        }
        "ret" | "exit" => {
            op.take("uni");
            emitter.push(Exec::Exit, Control, [0; 5], None);
        }
        "trap" => emitter.push_plain(trap, Control, [0; 5]),
        "nanosleep" | "brkpt" | "pmevent" | "setmaxnreg" | "griddepcontrol" => {
            op.ignore(|_| true);
            emitter.push_plain(nothing, Control, [0; 5]);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn through_a_pointer(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<()> {
    op.take(THROUGH_A_POINTER);
    let [pointer, Operand::TargetList(list), Operand::Vector(addresses)] = instruction.operands.as_slice() else {
        return Err(op.unsupported());
    };
    let a = emitter.source(Class::Wide, pointer)?;
    let callees = addresses.iter().filter_map(|address| match address {
        Operand::Integer(address) => Some(*address),
        _ => None,
    });
    emitter.callees.push(callees.collect());
    emitter.push_plain(enter_function, Control, [0, a, 0, emitter.callees.len() as u32 - 1, *list]);
    Ok(())
}

/// A hint about time or resources, which the simulator does not have; it gives other warps a turn.
fn nothing(_: &mut Context<'_>, _: &Program, _: &Instr, _: u32) -> Outcome {
    Outcome::Yield
}

fn trap(ctx: &mut Context<'_>, _: &Program, _: &Instr, mask: u32) -> Outcome {
    ctx.report(Check::Trap, mask.trailing_zeros() as usize, None, "the kernel executed `trap`".to_owned());
    Outcome::Abort
}

fn indexed_branch(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let targets = &program.targets[instr.x as usize];
    let index = *ctx.warp.registers.word(instr.a);
    for lane in lanes(mask) {
        let Some(&pc) = targets.get(index[lane] as usize) else {
            let message = format!("indexed branch to entry {} of {}", index[lane], targets.len());
            ctx.report(Check::Trap, lane, None, message);
            return Outcome::Abort;
        };
        send(ctx, lane, pc);
    }
    Outcome::Scatter
}

/// Where a call through a pointer leads each lane.
fn enter_function(ctx: &mut Context<'_>, program: &Program, instr: &Instr, mask: u32) -> Outcome {
    let (callees, targets) = (&program.callees[instr.c as usize], &program.targets[instr.x as usize]);
    let pointer = *ctx.warp.registers.wide(instr.a);
    for lane in lanes(mask) {
        let callee = callees.iter().position(|address| *address == pointer[lane]);
        let Some(&pc) = callee.and_then(|at| targets.get(at)) else {
            let message = match program.functions.get(&pointer[lane]) {
                Some(name) => format!(
                    "call through a pointer to `{name}`, which is not among the targets of this call or does not fit its prototype: call it with the parameters and results that it has"
                ),
                None => "call through a pointer that holds no address of a device function: set it by `mov` from the name of one, or from a table of them".to_owned(),
            };
            ctx.report(Check::Trap, lane, Some(pointer[lane]), message);
            return Outcome::Abort;
        };
        send(ctx, lane, pc);
    }
    Outcome::Scatter
}

fn send(ctx: &mut Context<'_>, lane: usize, pc: u32) {
    if pc <= ctx.pc {
        ctx.warp.back_edges += 1;
        ctx.log.work += u64::from(ctx.pc - pc);
    }
    match ctx.warp.scattered.iter_mut().find(|split| split.pc == pc) {
        Some(split) => split.mask |= 1 << lane,
        None => ctx.warp.scattered.push(Split { pc, mask: 1 << lane, wait: None }),
    }
}
