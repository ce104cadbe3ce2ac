//! Seeded errors on approximate operations, up to the bounds that the PTX manual states.

use crate::sim::decode::Decoder;
use crate::sim::error::Result;
use crate::sim::exec::{Context, Outcome};
use crate::sim::lanes::Class;
use crate::sim::memory::pattern::lanes;
use crate::sim::metrics::InstructionClass::Transcendental;
use crate::sim::program::Instr;
use crate::sim::ptx::ast::Operand;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;
use crate::sim::rng::mix;

/// The bound of an operation in units in the last place of its result.
fn bound_ulps(op: &Opcode<'_>, ty: Type) -> u32 {
    match (op.name, ty) {
        // Seen on hardware, over all inputs: 2.10 and 2.05 places for the first two, 1.51 for the third.
        ("div" | "ex2", Type::F32) => 3,
        ("rsqrt", Type::F32) => 2,
        // A relative error of 2^-11 in a format of 24 bits.
        ("tanh", Type::F32) => 1 << 12,
        // Absolute errors of 2^-22 and 2^-20.9; relative to results near 1 these are a few places.
        ("lg2", Type::F32) => 2,
        ("sin" | "cos", Type::F32) => 8,
        _ => 1,
    }
}

/// Emits the step that moves the result of the operation just emitted.
pub(super) fn decode(decoder: &mut Decoder<'_>, op: &Opcode<'_>, target: &Operand, class: Class) -> Result<()> {
    let ty = op.ty()?;
    let bound = bound_ulps(op, ty);
    let d = decoder.result(class, target)?;
    match ty {
        Type::F32 => decoder.push_plain(move_words, Transcendental, [d, bound, 0, 0, 0]),
        Type::F64 => decoder.push_plain(move_wides, Transcendental, [d, bound, 0, 0, 0]),
        // The small formats round more coarsely than any of these errors; their own last place is the bound.
        Type::F16x2 | Type::Bf16x2 => decoder.push_plain(move_pairs, Transcendental, [d, 1, 0, 0, 0]),
        _ => decoder.push_plain(move_halves, Transcendental, [d, 1, 0, 0, 0]),
    }
    Ok(())
}

/// A number of places in [-bound, bound], drawn from the seed, the place in the code, the thread and the value.
fn places(ctx: &Context<'_>, lane: usize, value: u64, bound: u32) -> i64 {
    let thread = ctx.blocks[ctx.me].linear << 10 | u64::from(ctx.warp.index * 32 + lane as u32);
    let draw = mix(ctx.grid.options.seed ^ mix(u64::from(ctx.pc) << 40 ^ thread) ^ mix(value));
    (draw % (2 * u64::from(bound) + 1)) as i64 - i64::from(bound)
}

/// Moves the bits of a number by places, without leaving the finite numbers or crossing zero.
fn moved(bits: u64, places: i64, lowest: u64, highest: u64, magnitude: u64) -> u64 {
    let size = bits & magnitude;
    if size < lowest || size > highest {
        return bits;
    }
    (bits & !magnitude) | size.saturating_add_signed(places).clamp(lowest, highest)
}

/// Subnormal results stay as they are: there the bounds are absolute.
fn moved_word(bits: u32, places: i64) -> u32 {
    moved(u64::from(bits), places, 0x0080_0000, 0x7F7F_FFFF, 0x7FFF_FFFF) as u32
}

/// Both 16-bit formats: one place keeps a number of either finite if it was below the largest.
fn moved_half(bits: u32, places: i64) -> u32 {
    moved(u64::from(bits), places, 0x0400, 0x7BFE, 0x7FFF) as u32
}

fn move_words(ctx: &mut Context<'_>, instr: &Instr, mask: u32) -> Outcome {
    let mut row = *ctx.warp.registers.word(instr.d);
    for lane in lanes(mask) {
        row[lane] = moved_word(row[lane], places(ctx, lane, u64::from(row[lane]), instr.a));
    }
    ctx.warp.registers.set_word(instr.d, &row, mask);
    Outcome::Next
}

fn move_wides(ctx: &mut Context<'_>, instr: &Instr, mask: u32) -> Outcome {
    let mut row = *ctx.warp.registers.wide(instr.d);
    for lane in lanes(mask) {
        let places = places(ctx, lane, row[lane], instr.a);
        row[lane] = moved(row[lane], places, 1 << 52, 0x7FEF_FFFF_FFFF_FFFF, u64::MAX >> 1);
    }
    ctx.warp.registers.set_wide(instr.d, &row, mask);
    Outcome::Next
}

fn move_halves(ctx: &mut Context<'_>, instr: &Instr, mask: u32) -> Outcome {
    let mut row = *ctx.warp.registers.word(instr.d);
    for lane in lanes(mask) {
        row[lane] = moved_half(row[lane] & 0xFFFF, places(ctx, lane, u64::from(row[lane]), instr.a));
    }
    ctx.warp.registers.set_word(instr.d, &row, mask);
    Outcome::Next
}

fn move_pairs(ctx: &mut Context<'_>, instr: &Instr, mask: u32) -> Outcome {
    let mut row = *ctx.warp.registers.word(instr.d);
    for lane in lanes(mask) {
        let places = places(ctx, lane, u64::from(row[lane]), instr.a);
        row[lane] = moved_half(row[lane] & 0xFFFF, places) | moved_half(row[lane] >> 16, -places) << 16;
    }
    ctx.warp.registers.set_word(instr.d, &row, mask);
    Outcome::Next
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0x3F80_0000, 2, 0x3F80_0002)]
    #[case(0xBF80_0000, -1, 0xBF7F_FFFF)]
    #[case(0x7F7F_FFFF, 2, 0x7F7F_FFFF)]
    #[case(0x7F80_0000, 1, 0x7F80_0000)]
    #[case(0x7FFF_FFFF, -1, 0x7FFF_FFFF)]
    #[case(0, 2, 0)]
    #[case(0x0080_0000, -2, 0x0080_0000)]
    fn words_move_within_the_finite(#[case] bits: u32, #[case] places: i64, #[case] expected: u32) {
        assert_eq!(moved_word(bits, places), expected);
    }
}
