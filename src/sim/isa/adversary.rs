//! Seeded errors on approximate operations, up to the bounds that the PTX manual states. What its tables of special
//! values fix stays: zeros, infinities and NaN by the result, the others by the operand.

use crate::sim::error::Result;
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::lanes::Alu;
use crate::sim::ir::program::{Instr, Program};
use crate::sim::machine::context::{Context, Outcome};
use crate::sim::machine::memory::pattern::lanes;
use crate::sim::machine::registers::{Class, LANES};
use crate::sim::metrics::InstructionClass::Transcendental;
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

/// Operands whose result is neither zero nor infinite, but fixed all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fixed {
    /// Zeros and subnormal numbers: the result is 1.
    Tiny,
    /// Infinities: the result is 1 or -1.
    Infinite,
}

impl Fixed {
    /// `ex2` and `cos` of nothing, `tanh` of everything.
    fn of(name: &str) -> Option<Fixed> {
        match name {
            "ex2" | "cos" => Some(Fixed::Tiny),
            "tanh" => Some(Fixed::Infinite),
            _ => None,
        }
    }

    /// Whether a number with such exponent bits is one of them.
    fn holds(self, bits: u32, exponent: u32, mantissa: u32) -> bool {
        match self {
            Fixed::Tiny => bits & exponent == 0,
            Fixed::Infinite => bits & exponent == exponent && bits & mantissa == 0,
        }
    }
}

/// Exponent and mantissa bits of the formats of 32 and 16 bits.
fn fields(ty: Type) -> (u32, u32) {
    match ty {
        Type::F16 | Type::F16x2 => (0x7C00, 0x03FF),
        Type::Bf16 | Type::Bf16x2 => (0x7F80, 0x007F),
        _ => (0x7F80_0000, 0x007F_FFFF),
    }
}

/// Emits the step that looks at the operand, before the result may take its place.
pub(super) fn emit_before(emitter: &mut Emitter<'_>, op: &Opcode<'_>, operands: &[Operand], alu: &Alu) -> Result<()> {
    let (ty, Some(fixed), Some(operand)) = (op.ty()?, Fixed::of(op.name), operands.get(1)) else {
        emitter.push_plain(forget_fixed, Transcendental, [0; 5]);
        return Ok(());
    };
    let (exponent, mantissa) = fields(ty);
    let a = emitter.source(alu.sources[0], operand)?;
    let is_pair = u32::from(matches!(ty, Type::F16x2 | Type::Bf16x2));
    let tiny = u32::from(fixed == Fixed::Tiny) | is_pair << 1;
    emitter.push_plain(find_fixed, Transcendental, [tiny, a, exponent, mantissa, 0]);
    Ok(())
}

fn forget_fixed(ctx: &mut Context<'_>, _: &Program, _: &Instr, _: u32) -> Outcome {
    ctx.warp.fixed = [0; 2];
    Outcome::Next
}

/// Notes the lanes whose result is fixed; of pairs those of each half.
fn find_fixed(ctx: &mut Context<'_>, _: &Program, instr: &Instr, _: u32) -> Outcome {
    let fixed = if instr.d & 1 != 0 { Fixed::Tiny } else { Fixed::Infinite };
    let row = ctx.warp.registers.word(instr.a);
    let of = |shift: u32| {
        (0..LANES).fold(0, |mask, lane| mask | u32::from(fixed.holds(row[lane] >> shift, instr.b, instr.c)) << lane)
    };
    ctx.warp.fixed = [of(0), if instr.d & 2 != 0 { of(16) } else { 0 }];
    Outcome::Next
}

/// Emits the step that moves the result of the operation just emitted.
pub(super) fn emit(emitter: &mut Emitter<'_>, op: &Opcode<'_>, target: &Operand, class: Class) -> Result<()> {
    let ty = op.ty()?;
    let bound = bound_ulps(op, ty);
    let d = emitter.result(class, target)?;
    match ty {
        Type::F32 => emitter.push_plain(move_words, Transcendental, [d, bound, 0, 0, 0]),
        // With `.ftz` the lower half of the result is zero.
        Type::F64 => {
            let coarse = if op.all_of(&["ftz"]) { 32 } else { 0 };
            emitter.push_plain(move_wides, Transcendental, [d, bound, coarse, 0, 0]);
        }
        // The small formats round more coarsely than any of these errors; their own last place is the bound.
        Type::F16x2 | Type::Bf16x2 => emitter.push_plain(move_pairs, Transcendental, [d, 1, 0, 0, 0]),
        _ => emitter.push_plain(move_halves, Transcendental, [d, 1, 0, 0, 0]),
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

fn move_words(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    let mut row = *ctx.warp.registers.word(instr.d);
    for lane in lanes(mask & !ctx.warp.fixed[0]) {
        row[lane] = moved_word(row[lane], places(ctx, lane, u64::from(row[lane]), instr.a));
    }
    ctx.warp.registers.set_word(instr.d, &row, mask);
    Outcome::Next
}

fn move_wides(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    let mut row = *ctx.warp.registers.wide(instr.d);
    for lane in lanes(mask) {
        let places = places(ctx, lane, row[lane], instr.a) << instr.b;
        row[lane] = moved(row[lane], places, 1 << 52, 0x7FEF_FFFF_FFFF_FFFF, u64::MAX >> 1);
    }
    ctx.warp.registers.set_wide(instr.d, &row, mask);
    Outcome::Next
}

fn move_halves(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    let mut row = *ctx.warp.registers.word(instr.d);
    for lane in lanes(mask & !ctx.warp.fixed[0]) {
        row[lane] = moved_half(row[lane] & 0xFFFF, places(ctx, lane, u64::from(row[lane]), instr.a));
    }
    ctx.warp.registers.set_word(instr.d, &row, mask);
    Outcome::Next
}

fn move_pairs(ctx: &mut Context<'_>, _: &Program, instr: &Instr, mask: u32) -> Outcome {
    let mut row = *ctx.warp.registers.word(instr.d);
    for lane in lanes(mask) {
        let places = places(ctx, lane, u64::from(row[lane]), instr.a);
        let [low, high] = ctx.warp.fixed.map(|fixed| i64::from(fixed >> lane & 1 == 0));
        row[lane] = moved_half(row[lane] & 0xFFFF, low * places) | moved_half(row[lane] >> 16, -high * places) << 16;
    }
    ctx.warp.registers.set_word(instr.d, &row, mask);
    Outcome::Next
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("ex2.approx.ftz.f32", 0, 0x3F80_0000)]
    #[case("ex2.approx.f32", 0x8000_0000, 0x3F80_0000)]
    #[case("cos.approx.f32", 0x8000_0000, 0x3F80_0000)]
    #[case("tanh.approx.f32", 0x7F80_0000, 0x3F80_0000)]
    #[case("tanh.approx.f32", 0xFF80_0000, 0xBF80_0000)]
    #[case("tanh.approx.f16x2", 0xFC00_7C00, 0xBC00_3C00)]
    #[case("ex2.approx.f16x2", 0x8000_0000, 0x3C00_3C00)]
    #[case("ex2.approx.ftz.bf16x2", 0x8000_0000, 0x3F80_3F80)]
    #[case("rcp.approx.ftz.f32", 0x8000_0000, 0xFF80_0000)]
    #[case("rsqrt.approx.f32", 0x7F80_0000, 0)]
    #[case("sqrt.approx.f32", 0x8000_0000, 0x8000_0000)]
    #[case("sin.approx.f32", 0x8000_0000, 0x8000_0000)]
    #[case("lg2.approx.f32", 0, 0xFF80_0000)]
    fn what_the_manual_fixes_stays(#[case] opcode: &str, #[case] input: u32, #[case] expected: u32) {
        let text = format!(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u32 x) {{ .reg .b32 %r<3>; .reg .b64 %rd<2>; ld.param.u64 %rd0, [out]; ld.param.u32 %r0, [x]; {opcode} %r0, %r0; st.global.u32 [%rd0], %r0; ret; }}"
        );
        let module = crate::sim::Module::parse(&text).unwrap();
        for seed in 1..40 {
            let mut memory = crate::sim::machine::memory::Memory::new();
            let out = memory.alloc(4, None).unwrap();
            let call = crate::sim::Launch::new("k", 1, 1).arg(out).arg(input);
            let options = crate::sim::options::Options {
                adversarial_approximations: true,
                seed,
                ..crate::sim::options::Options::default()
            };
            crate::sim::launch(&module, &call, &mut memory, &options).unwrap();
            let mut bytes = [0; 4];
            memory.read(out, &mut bytes).unwrap();
            assert_eq!(u32::from_le_bytes(bytes), expected, "seed {seed}");
        }
    }

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
