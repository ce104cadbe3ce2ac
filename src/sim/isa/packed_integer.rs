//! Two 16-bit integers in a register, and integers packed with saturation.

use crate::sim::error::Result;
use crate::sim::ir::emitter::Emitter;
use crate::sim::ir::lanes::{Alu, alu};
use crate::sim::metrics::InstructionClass;
use crate::sim::ptx::ast::Instruction;
use crate::sim::ptx::opcode::Opcode;

pub(super) fn lookup(op: &mut Opcode<'_>) -> Option<(Alu, InstructionClass)> {
    let signed = op.take("s16x2");
    if !signed && !op.take("u16x2") {
        return None;
    }
    let rectifies = op.take("relu");
    let alu = match (op.name, signed, rectifies) {
        ("add", _, false) => alu!(|a: u32, b: u32| -> u32 { halves(a, b, u16::wrapping_add) }),
        ("min", false, false) => alu!(|a: u32, b: u32| -> u32 { halves(a, b, Ord::min) }),
        ("max", false, false) => alu!(|a: u32, b: u32| -> u32 { halves(a, b, Ord::max) }),
        ("min", true, false) => alu!(|a: u32, b: u32| -> u32 { signed_halves(a, b, Ord::min) }),
        ("max", true, false) => alu!(|a: u32, b: u32| -> u32 { signed_halves(a, b, Ord::max) }),
        ("min", true, true) => alu!(|a: u32, b: u32| -> u32 { signed_halves(a, b, |a, b| a.min(b).max(0)) }),
        ("max", true, true) => alu!(|a: u32, b: u32| -> u32 { signed_halves(a, b, |a, b| a.max(b).max(0)) }),
        _ => return None,
    };
    Some((alu, InstructionClass::Integer))
}

#[inline(always)]
fn halves(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

#[inline(always)]
fn signed_halves(a: u32, b: u32, f: impl Fn(i16, i16) -> i16) -> u32 {
    halves(a, b, |a, b| f(a as i16, b as i16) as u16)
}

/// `cvt.pack.sat`: the second source lowest, the first above it, and the third, if there is one, above both.
pub(super) fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, instruction: &Instruction) -> Result<bool> {
    if op.name != "cvt" || !op.has("pack") {
        return Ok(false);
    }
    let saturates = op.take("pack") && op.take("sat");
    // The widest names are types of their own, the narrow ones are not.
    const NARROW: [&str; 4] = ["u4", "s4", "u2", "s2"];
    let narrow = op.take_map(|modifier| NARROW.into_iter().find(|name| *name == modifier));
    let types: Vec<String> = op.types.iter().map(ToString::to_string).collect();
    let types: Vec<&str> = types.iter().map(|name| name.trim_start_matches('.')).collect();
    let (to, rest) = match (narrow, types.as_slice()) {
        (Some(to), rest) => (to, rest),
        (None, [to, rest @ ..]) => (*to, rest),
        _ => return Err(op.unsupported()),
    };
    macro_rules! pack {
        ($min:expr, $max:expr, $bits:expr) => {
            match rest {
                ["s32"] => alu!(|a: i32, b: i32| -> u32 { pack(a, b, $min, $max, $bits) }),
                _ => alu!(|a: i32, b: i32, c: u32| -> u32 {
                    // Twice 16 bits leave no room for more.
                    pack(a, b, $min, $max, $bits) | c.checked_shl(2 * $bits).unwrap_or(0)
                }),
            }
        };
    }
    if !saturates || !matches!(rest, ["s32"] | ["s32", "b32"]) {
        return Err(op.unsupported());
    }
    let alu = match to {
        "u16" => pack!(0, 65_535, 16),
        "s16" => pack!(-32_768, 32_767, 16),
        "u8" => pack!(0, 255, 8),
        "s8" => pack!(-128, 127, 8),
        "u4" => pack!(0, 15, 4),
        "s4" => pack!(-8, 7, 4),
        "u2" => pack!(0, 3, 2),
        "s2" => pack!(-2, 1, 2),
        _ => return Err(op.unsupported()),
    };
    emitter.bind(alu, InstructionClass::Convert, op, &instruction.operands)?;
    Ok(true)
}

#[inline(always)]
fn pack(a: i32, b: i32, min: i32, max: i32, bits: u32) -> u32 {
    let full = (1u32 << bits) - 1;
    let field = |x: i32| x.clamp(min, max) as u32 & full;
    field(a) << bits | field(b)
}
