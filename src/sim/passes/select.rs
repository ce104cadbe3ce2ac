//! A handler for each instruction, by the families of `isa`.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::program::Exec;
use crate::sim::isa;
use crate::sim::machine::registers::{Class, Guard};
use crate::sim::metrics::InstructionClass;
use crate::sim::passes::registers::for_each_register;
use crate::sim::ptx::ast::Instruction;
use crate::sim::ptx::opcode::Opcode;

/// Emits the whole body; gives the first instruction of each statement, and of the end.
pub(super) fn select(emitter: &mut Emitter<'_>) -> Result<Vec<u32>> {
    let body = emitter.body;
    let mut starts = Vec::with_capacity(body.instructions.len() + 1);
    let mut labelled = vec![false; body.instructions.len() + 1];
    body.labels.iter().for_each(|at| labelled[*at] = true);
    for (instruction, labelled) in body.instructions.iter().zip(labelled) {
        if labelled {
            emitter.bundles.close();
        }
        starts.push(emitter.code.len() as u32);
        statement(emitter, instruction)?;
    }
    starts.push(emitter.code.len() as u32);
    emitter.guard = Guard::ALWAYS;
    emitter.push(Exec::Exit, InstructionClass::Control, [0; 5], None);
    Ok(starts)
}

fn statement(emitter: &mut Emitter<'_>, instruction: &Instruction) -> Result<()> {
    emitter.line = instruction.line;
    emitter.guard = match instruction.guard {
        None => Guard::ALWAYS,
        Some((register, negated)) => {
            let slot = emitter.register(register)?;
            if slot.class != Class::Pred {
                return Err(Error::parse(emitter.line, "a guard must be a predicate"));
            }
            Guard::new(slot.index, negated)
        }
    };
    let mut opcode = Opcode::new(&instruction.opcode, instruction.line);
    let (before, accesses) = (emitter.code.len(), emitter.accesses.len());
    isa::emit(emitter, &mut opcode, instruction)?;
    opcode.finish()?;
    let is_load = instruction.name() == "ld" && emitter.accesses[accesses..].iter().all(|access| !access.ordering);
    keep_bundles(emitter, instruction, before, is_load);
    for (at, origin) in emitter.origins[before..].iter_mut().enumerate() {
        origin.source = instruction.source;
        origin.is_step = at > 0;
    }
    Ok(())
}

/// Bundles stay open behind operations on registers and loads, as long as those leave the base alone.
fn keep_bundles(emitter: &mut Emitter<'_>, instruction: &Instruction, before: usize, is_load: bool) {
    if !is_load && emitter.code[before..].iter().any(|instr| !matches!(instr.exec, Exec::Alu(_))) {
        return emitter.bundles.close();
    }
    for_each_register(instruction, |register, write| {
        if write && let Some(Some(slot)) = emitter.slots.get(register) {
            emitter.bundles.forget(*slot);
        }
    });
}
