//! What decides where lanes go: a flow backwards from branches and barriers through registers, blind to branches.

use crate::sim::ir::program::Steering;
use crate::sim::machine::registers::{Class, Slot};
use crate::sim::passes::registers::for_each_register;
use crate::sim::ptx::ast::{Body, Instruction, Operand};
use crate::sim::ptx::special::Special;

/// `slots` are those of the registers, `starts` where the instructions begin in the decoded code.
pub(super) fn steering(body: &Body, slots: &[Option<Slot>], starts: &[u32]) -> Steering {
    let decides = deciding_registers(body);
    let mut out = Steering::default();
    for (slot, _) in slots.iter().zip(&decides).filter(|(_, decides)| **decides) {
        let Some(slot) = slot else { continue };
        match slot.class {
            Class::Word => out.words.push(slot.index),
            Class::Wide => out.wides.push(slot.index),
            Class::Pred => out.preds.push(slot.index),
        }
    }
    for rows in [&mut out.words, &mut out.wides, &mut out.preds] {
        rows.sort_unstable();
        rows.dedup();
    }
    for (instruction, &start) in body.instructions.iter().zip(starts) {
        let name = instruction.name();
        let mut feeds = false;
        for_each_register(instruction, |register, write| feeds |= write && decides[register]);
        let loads = matches!(
            name,
            "ld" | "ldu" | "ldmatrix" | "wmma" | "atom" | "mbarrier" | "multimem" | "tex" | "tld4" | "suld"
        );
        if feeds && loads {
            let elsewhere = ["shared", "shared::cta", "local", "param", "const"];
            let is_global = !instruction.opcode.split('.').any(|part| elsewhere.contains(&part));
            out.loads.push((start, is_global));
        }
        if matches!(name, "st" | "cp" | "stmatrix" | "wmma" | "mbarrier" | "multimem" | "sust" | "call") {
            out.stores.push(start);
        }
        out.hidden |= feeds && depends_on_what_no_register_holds(instruction);
    }
    out
}

fn deciding_registers(body: &Body) -> Vec<bool> {
    let mut decides = vec![false; body.registers.len()];
    for instruction in &body.instructions {
        if matches!(instruction.name(), "bra" | "brx" | "ret" | "exit" | "trap" | "bar" | "barrier" | "mbarrier") {
            for_each_register(instruction, |register, write| decides[register] |= !write);
        }
    }
    let mut changed = true;
    while changed {
        changed = false;
        for instruction in body.instructions.iter().rev() {
            let mut feeds = false;
            for_each_register(instruction, |register, write| feeds |= write && decides[register]);
            if feeds {
                for_each_register(instruction, |register, write| {
                    changed |= !write && !decides[register];
                    decides[register] |= !write;
                });
            }
        }
    }
    decides
}

/// Clocks, and the flag that sums with carry leave behind.
fn depends_on_what_no_register_holds(instruction: &Instruction) -> bool {
    let is_clock = |operand: &Operand| {
        matches!(operand, Operand::Special(Special::Clock | Special::ClockHi | Special::Clock64 | Special::Globaltimer))
    };
    matches!(instruction.name(), "addc" | "subc" | "madc") || instruction.operands.iter().any(is_clock)
}
