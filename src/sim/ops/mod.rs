//! The operations, one family a file: which opcodes there are, and what each does to a lane, a warp or memory.

mod adversary;
mod approximate;
pub(crate) mod async_store;
pub(crate) mod atomic;
mod barrier;
pub(crate) mod barrier_object;
mod bits;
pub(crate) mod bulk;
mod call;
mod carry;
mod cluster;
mod compare;
mod control;
mod convert;
mod convert_narrow;
pub(crate) mod copy_async;
mod descriptor;
pub(crate) mod double_product;
mod exact64;
mod float32;
mod float64;
mod group_factors;
pub(crate) mod group_matrix;
mod half;
mod integer;
pub(crate) mod integer_product;
mod launch_control;
pub(crate) mod matrix;
pub(crate) mod matrix_memory;
mod memory;
mod moves;
mod packed_integer;
mod rounding;
mod small_formats;
mod sum_fragment;
mod tile_product;
pub(crate) mod video;
mod warp;
pub(crate) mod warp_tile;
mod warp_tile_memory;
pub(crate) mod warp_tile_shapes;

use super::decode::Decoder;
use super::error::Result;
use super::lanes::Alu;
use super::metrics::InstructionClass;
use super::ptx::ast::Instruction;
use super::ptx::opcode::Opcode;

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
type Family = fn(&mut Decoder<'_>, &mut Opcode<'_>, &Instruction) -> Result<bool>;

const FAMILIES: &[Family] = &[
    moves::decode,
    async_store::decode,
    launch_control::decode,
    memory::decode,
    control::decode,
    compare::decode,
    carry::decode,
    packed_integer::decode,
    video::decode,
    warp::decode,
    barrier::decode,
    atomic::decode,
    call::decode,
    cluster::decode,
    integer_product::decode,
    double_product::decode,
    matrix::decode,
    group_matrix::decode,
    matrix_memory::decode,
    warp_tile::decode,
    copy_async::decode,
    bulk::decode,
    barrier_object::decode,
];

/// Emits what carries an instruction out, or fails with `Unsupported`.
pub(crate) fn decode(decoder: &mut Decoder<'_>, opcode: &mut Opcode<'_>, instruction: &Instruction) -> Result<()> {
    for family in FAMILIES {
        if family(decoder, opcode, instruction)? {
            return Ok(());
        }
    }
    let (alu, class) = lane_wise(opcode)?;
    let moves = class == InstructionClass::Transcendental && decoder.adversarial;
    if moves {
        adversary::decode_before(decoder, opcode, &instruction.operands, &alu)?;
    }
    decoder.bind(alu, class, opcode, &instruction.operands)?;
    if moves {
        adversary::decode(decoder, opcode, &instruction.operands[0], alu.result)?;
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
