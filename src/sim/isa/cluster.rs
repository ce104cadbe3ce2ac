//! Addresses in the shared memory of the blocks of a cluster: `mapa`, `getctarank`.

use crate::sim::error::Result;
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::lanes::alu;
use crate::sim::machine::memory::address::{SHARED_RANK_SHIFT, SHARED_WINDOW};
use crate::sim::machine::registers::Class;
use crate::sim::metrics::InstructionClass::Move;
use crate::sim::ptx::ast::Instruction;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::special::Special;

const OFFSET: u32 = (1 << SHARED_RANK_SHIFT) - 1;

pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    let operands = &instruction.operands;
    match op.name {
        "mapa" => {
            let named = op.take("shared::cluster");
            let alu = match (op.ty()?.bytes(), named) {
                (4, true) => alu!(|a: u32, rank: u32| -> u32 { of_rank(a, rank) }),
                (8, true) => alu!(|a: u64, rank: u32| -> u64 { u64::from(of_rank(a as u32, rank)) }),
                (8, false) => alu!(|a: u64, rank: u32| -> u64 { SHARED_WINDOW + u64::from(of_rank(a as u32, rank)) }),
                _ => return Err(op.unsupported()),
            };
            emitter.bind(alu, Move, op, operands)?;
        }
        "getctarank" => {
            op.take("shared::cluster");
            emitter.expect_operands(op, operands, 2)?;
            let class = if op.ty()?.bytes() == 8 { Class::Wide } else { Class::Word };
            let address = emitter.source(class, &operands[1])?;
            let own = emitter.special(Special::ClusterCtarank).index;
            let d = emitter.result(Class::Word, &operands[0])?;
            let alu = match class {
                Class::Wide => alu!(|a: u64, own: u32| -> u32 { rank_of(a as u32, own) }),
                _ => alu!(|a: u32, own: u32| -> u32 { rank_of(a, own) }),
            };
            emitter.push_alu(alu, Move, d, [address, own, 0]);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

#[inline(always)]
fn of_rank(address: u32, rank: u32) -> u32 {
    (address & OFFSET) | (rank.wrapping_add(1) << SHARED_RANK_SHIFT)
}

/// Without a rank in the address it is the own block's.
#[inline(always)]
fn rank_of(address: u32, own: u32) -> u32 {
    match address >> SHARED_RANK_SHIFT {
        0 => own,
        rank => rank - 1,
    }
}
