//! `clusterlaunchcontrol`: a cluster asks for the work of one that has not been launched yet.
//!
//! The request may be refused, as it is on a device where all clusters have been launched already. Here it always is: what it
//! writes says so, and the cluster that it could have had runs by itself.

use crate::sim::error::{Error, Result};
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::lanes::alu;
use crate::sim::isa::async_store::{AsyncStore, push};
use crate::sim::machine::registers::{Class, Slot};
use crate::sim::metrics::InstructionClass::Async;
use crate::sim::ptx::ast::{Instruction, Operand};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;

/// An answer that refuses: two halves of 64 bits, of which the lowest bit says whether there is a cluster.
const REFUSED: u64 = 0;

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if op.name != "clusterlaunchcontrol" {
        return Ok(false);
    }
    if op.take("try_cancel") {
        let [target, object] = instruction.operands.as_slice() else {
            return Err(Error::parse(op.line, "`try_cancel` takes an address and a barrier object"));
        };
        if !op.take("async") || !op.take("mbarrier::complete_tx::bytes") || op.types.as_slice() != [Type::B128] {
            return Err(op.unsupported());
        }
        op.ignore(|modifier| modifier == "shared::cta");
        let half = Slot { class: Class::Wide, index: emitter.wide_constant(REFUSED) };
        let (target, object) = (emitter.address_operand(target)?, emitter.address_operand(object)?);
        push(emitter, AsyncStore { target, object, width: 8, values: vec![half; 2], change: None });
        return Ok(true);
    }
    let asks_whether = op.take_map(|modifier| match modifier {
        "is_canceled" => Some(true),
        "get_first_ctaid" | "get_first_ctaid::x" | "get_first_ctaid::y" | "get_first_ctaid::z" => Some(false),
        _ => None,
    });
    let (Some(asks_whether), true) = (asks_whether, op.take("query_cancel")) else { return Err(op.unsupported()) };
    let [result, Operand::Vector(answer)] = instruction.operands.as_slice() else {
        return Err(Error::parse(op.line, "`query_cancel` takes a result and an answer of 128 bits"));
    };
    let low = answer.first().ok_or_else(|| op.unsupported())?;
    let a = emitter.source(Class::Wide, low)?;
    if asks_whether {
        let is_canceled = alu!(|answer: u64| -> bool { answer & 1 != 0 });
        let d = emitter.result(Class::Pred, result)?;
        emitter.push_alu(is_canceled, Async, d, [a, 0, 0]);
        return Ok(true);
    }
    // Without a cluster its coordinates mean nothing.
    op.ignore(|modifier| modifier == "v4");
    let nothing = alu!(|answer: u64| -> u32 { (answer >> 32) as u32 });
    let results = if let Operand::Vector(items) = result { items.as_slice() } else { std::slice::from_ref(result) };
    for item in results.iter().filter(|item| **item != Operand::Sink) {
        let d = emitter.result(Class::Word, item)?;
        emitter.push_alu(nothing, Async, d, [a, 0, 0]);
    }
    Ok(true)
}
