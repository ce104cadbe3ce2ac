//! The operations, one family a file: which opcodes there are, and what each does to a lane, a warp or memory.

mod adversary;
mod approximate;
mod async_store;
mod atomic;
mod barrier;
pub(super) mod barrier_object;
mod bits;
pub(super) mod bulk;
mod bundled_load;
mod call;
mod carry;
mod cluster;
mod compare;
mod control;
mod convert;
mod convert_narrow;
mod copy_async;
mod descriptor;
mod double_product;
mod exact64;
mod float32;
mod float64;
mod group_factors;
mod group_matrix;
mod half;
mod integer;
mod integer_product;
mod launch_control;
mod load_store;
mod matrix;
mod matrix_memory;
mod memory;
mod moves;
mod multimem;
mod packed_integer;
mod plain_load;
mod printf;
mod quad_pair_product;
mod rounding;
mod small_formats;
mod sparse_product;
mod sum_fragment;
mod surface;
mod texture;
mod tile_product;
mod video;
mod warp;
mod warp_tile;
mod warp_tile_memory;
mod warp_tile_shapes;

use crate::sim::error::Result;
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::lanes::Alu;
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::ast::Instruction;
use crate::sim::ptx::opcode::Opcode;

/// A family that maps an opcode to one lane-wise operation.
type Lookup = fn(&mut Opcode<'_>) -> Option<(Alu, InstructionClass)>;

const LANE_WISE: &[Lookup] = &[
    integer::lookup,
    packed_integer::lookup,
    bits::lookup,
    float32::lookup,
    float64::lookup,
    half::lookup,
    approximate::lookup,
    convert::lookup,
];

/// A family that emits its instructions itself; `false` if the opcode is none of its.
type Family = fn(&mut Emitter<'_>, &mut Opcode<'_>, &Instruction) -> Result<bool>;

const FAMILIES: &[Family] = &[
    moves::emit,
    async_store::emit,
    launch_control::emit,
    memory::emit,
    control::emit,
    compare::emit,
    carry::emit,
    packed_integer::emit,
    video::emit,
    warp::emit,
    barrier::emit,
    atomic::emit,
    call::emit,
    cluster::emit,
    sparse_product::emit,
    integer_product::emit,
    quad_pair_product::emit,
    double_product::emit,
    matrix::emit,
    group_matrix::emit,
    matrix_memory::emit,
    warp_tile::emit,
    copy_async::emit,
    bulk::emit,
    texture::emit,
    surface::emit,
    multimem::emit,
    barrier_object::emit,
];

/// Emits what carries an instruction out, or fails with `Unsupported`.
pub(crate) fn emit(emitter: &mut Emitter<'_>, opcode: &mut Opcode<'_>, instruction: &Instruction) -> Result<()> {
    for family in FAMILIES {
        if family(emitter, opcode, instruction)? {
            return Ok(());
        }
    }
    let (alu, class) = lane_wise(opcode)?;
    let moves = class == InstructionClass::Transcendental && emitter.adversarial;
    if moves {
        adversary::emit_before(emitter, opcode, &instruction.operands, &alu)?;
    }
    emitter.bind(alu, class, opcode, &instruction.operands)?;
    if moves {
        adversary::emit(emitter, opcode, &instruction.operands[0], alu.result)?;
    }
    Ok(())
}

/// The lane-wise operation that an opcode stands for, or `Unsupported`.
pub(super) fn lane_wise(opcode: &mut Opcode<'_>) -> Result<(Alu, InstructionClass)> {
    for lookup in LANE_WISE {
        let mut attempt = opcode.clone();
        if let Some(found) = lookup(&mut attempt) {
            attempt.finish()?;
            *opcode = attempt;
            return Ok(found);
        }
    }
    Err(opcode.unsupported())
}
