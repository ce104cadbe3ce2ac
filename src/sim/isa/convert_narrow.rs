//! `cvt` into small floats: two in a register, formats of 8 bits, tf32, saturation to finite numbers.

use crate::sim::ir::lanes::{Alu, alu};
use crate::sim::isa::rounding::{Mode, NAN16, canonical, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_bf16, f64_to_f16};
use crate::sim::isa::small_formats::{from_e4m3, to_e4m3, to_e5m2};
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;
use crate::sim::ptx::types::Type::*;

/// Single results of `.satfinite`: past the largest finite number of the format it stands for infinity too.
pub(super) fn finite_half(to: Type, from: Type, mode: Mode, rectifies: bool) -> Option<Alu> {
    Some(match (to, from, mode, rectifies) {
        (F16, F32, Mode::Nearest, false) => alu!(seldom |a: f32| -> u16 { finite16(f32_to_f16(a)) }),
        (F16, F32, Mode::Nearest, true) => alu!(seldom |a: f32| -> u16 { finite16(f32_to_f16(rectify(a))) }),
        (F16, F32, Mode::Zero, false) => {
            alu!(seldom |a: f32| -> u16 { finite16(f64_to_f16(f64::from(a), Mode::Zero)) })
        }
        (F16, F32, Mode::Zero, true) => {
            alu!(seldom |a: f32| -> u16 { finite16(f64_to_f16(f64::from(rectify(a)), Mode::Zero)) })
        }
        (Bf16, F32, Mode::Nearest, false) => alu!(seldom |a: f32| -> u16 { finite_brain(f32_to_bf16(a)) }),
        (Bf16, F32, Mode::Nearest, true) => alu!(seldom |a: f32| -> u16 { finite_brain(f32_to_bf16(rectify(a))) }),
        (Bf16, F32, Mode::Zero, false) => {
            alu!(seldom |a: f32| -> u16 { finite_brain(f64_to_bf16(f64::from(a), Mode::Zero)) })
        }
        (Bf16, F32, Mode::Zero, true) => {
            alu!(seldom |a: f32| -> u16 { finite_brain(f64_to_bf16(f64::from(rectify(a)), Mode::Zero)) })
        }
        _ => return None,
    })
}

#[inline(always)]
fn finite16(half: u16) -> u16 {
    if half & 0x7FFF == 0x7C00 { half - 1 } else { half }
}

#[inline(always)]
fn finite_brain(half: u16) -> u16 {
    if half & 0x7FFF == 0x7F80 { half - 1 } else { half }
}

/// Negative numbers become 0; NaN stays.
#[inline(always)]
pub(super) fn rectify(x: f32) -> f32 {
    if x.is_nan() || x > 0.0 { x } else { 0.0 }
}

/// Two numbers into one register: the first source becomes the upper half.
pub(super) fn packed(op: &mut Opcode<'_>, to: Type, from: Type) -> Option<Alu> {
    let mode = op.take_map(Mode::from_name)?;
    let rectifies = op.take("relu");
    let finite = op.take("satfinite");
    Some(match (to, from, mode, rectifies, finite) {
        (F16x2, F32, Mode::Nearest, false, false) => {
            alu!(|a: f32, b: f32| -> u32 { join(f32_to_f16(a), f32_to_f16(b)) })
        }
        (F16x2, F32, Mode::Nearest, true, false) => {
            alu!(seldom |a: f32, b: f32| -> u32 { join(f32_to_f16(rectify(a)), f32_to_f16(rectify(b))) })
        }
        (F16x2, F32, Mode::Zero, false, false) => {
            alu!(|a: f32, b: f32| -> u32 {
                join(f64_to_f16(f64::from(a), Mode::Zero), f64_to_f16(f64::from(b), Mode::Zero))
            })
        }
        (Bf16x2, F32, Mode::Nearest, false, false) => {
            alu!(|a: f32, b: f32| -> u32 { join(f32_to_bf16(a), f32_to_bf16(b)) })
        }
        (Bf16x2, F32, Mode::Nearest, true, false) => {
            alu!(seldom |a: f32, b: f32| -> u32 { join(f32_to_bf16(rectify(a)), f32_to_bf16(rectify(b))) })
        }
        (Bf16x2, F32, Mode::Zero, false, false) => {
            alu!(|a: f32, b: f32| -> u32 {
                join(f64_to_bf16(f64::from(a), Mode::Zero), f64_to_bf16(f64::from(b), Mode::Zero))
            })
        }
        (F16x2, F32, Mode::Zero, true, false) => {
            alu!(|a: f32, b: f32| -> u32 {
                join(f64_to_f16(f64::from(rectify(a)), Mode::Zero), f64_to_f16(f64::from(rectify(b)), Mode::Zero))
            })
        }
        (Bf16x2, F32, Mode::Zero, true, false) => {
            alu!(|a: f32, b: f32| -> u32 {
                join(f64_to_bf16(f64::from(rectify(a)), Mode::Zero), f64_to_bf16(f64::from(rectify(b)), Mode::Zero))
            })
        }
        (F16x2, F32, Mode::Nearest, false, true) => {
            alu!(seldom |a: f32, b: f32| -> u32 { join(finite16(f32_to_f16(a)), finite16(f32_to_f16(b))) })
        }
        (F16x2, F32, Mode::Nearest, true, true) => {
            alu!(seldom |a: f32, b: f32| -> u32 { join(finite16(f32_to_f16(rectify(a))), finite16(f32_to_f16(rectify(b)))) })
        }
        (Bf16x2, F32, Mode::Nearest, false, true) => {
            alu!(seldom |a: f32, b: f32| -> u32 { join(finite_brain(f32_to_bf16(a)), finite_brain(f32_to_bf16(b))) })
        }
        (Bf16x2, F32, Mode::Nearest, true, true) => {
            alu!(|a: f32, b: f32| -> u32 {
                join(finite_brain(f32_to_bf16(rectify(a))), finite_brain(f32_to_bf16(rectify(b))))
            })
        }
        (E4m3x2, F32, Mode::Nearest, true, true) => {
            alu!(|a: f32, b: f32| -> u16 { join8(to_e4m3(rectify(a)), to_e4m3(rectify(b))) })
        }
        (E5m2x2, F32, Mode::Nearest, true, true) => {
            alu!(|a: f32, b: f32| -> u16 { join8(to_e5m2(rectify(a)), to_e5m2(rectify(b))) })
        }
        (E4m3x2, F16x2, Mode::Nearest, true, true) => {
            alu!(|a: u32| -> u16 {
                join8(to_e4m3(rectify(f16_to_f32((a >> 16) as u16))), to_e4m3(rectify(f16_to_f32(a as u16))))
            })
        }
        (E5m2x2, F16x2, Mode::Nearest, true, true) => {
            alu!(|a: u32| -> u16 {
                join8(to_e5m2(rectify(f16_to_f32((a >> 16) as u16))), to_e5m2(rectify(f16_to_f32(a as u16))))
            })
        }
        (F16x2, E4m3x2, Mode::Nearest, true, false) => {
            alu!(|a: u16| -> u32 {
                join(f32_to_f16(rectify(from_e4m3((a >> 8) as u8))), f32_to_f16(rectify(from_e4m3(a as u8))))
            })
        }
        (F16x2, E5m2x2, Mode::Nearest, true, false) => {
            alu!(|a: u16| -> u32 {
                join(f32_to_f16(rectify(f16_to_f32(a & 0xFF00))), f32_to_f16(rectify(f16_to_f32(a << 8))))
            })
        }
        (E4m3x2, F32, Mode::Nearest, false, true) => alu!(|a: f32, b: f32| -> u16 { join8(to_e4m3(a), to_e4m3(b)) }),
        (E5m2x2, F32, Mode::Nearest, false, true) => alu!(|a: f32, b: f32| -> u16 { join8(to_e5m2(a), to_e5m2(b)) }),
        (F16x2, E4m3x2, Mode::Nearest, false, false) => {
            alu!(|a: u16| -> u32 { join(f32_to_f16(from_e4m3((a >> 8) as u8)), f32_to_f16(from_e4m3(a as u8))) })
        }
        (F16x2, E5m2x2, Mode::Nearest, false, false) => {
            alu!(|a: u16| -> u32 { join(quiet(a & 0xFF00), quiet(a << 8)) })
        }
        (E4m3x2, F16x2, Mode::Nearest, false, true) => {
            alu!(|a: u32| -> u16 { join8(to_e4m3(f16_to_f32((a >> 16) as u16)), to_e4m3(f16_to_f32(a as u16))) })
        }
        (E5m2x2, F16x2, Mode::Nearest, false, true) => {
            alu!(|a: u32| -> u16 { join8(to_e5m2(f16_to_f32((a >> 16) as u16)), to_e5m2(f16_to_f32(a as u16))) })
        }
        _ => return None,
    })
}

#[inline(always)]
fn join(high: u16, low: u16) -> u32 {
    u32::from(high) << 16 | u32::from(low)
}

#[inline(always)]
fn join8(high: u8, low: u8) -> u16 {
    u16::from(high) << 8 | u16::from(low)
}

#[inline(always)]
fn quiet(half: u16) -> u16 {
    if half & 0x7FFF > 0x7C00 { NAN16 } else { half }
}

pub(super) fn to_tf32(op: &mut Opcode<'_>, from: Type) -> Option<Alu> {
    if from != F32 {
        return None;
    }
    let (finite, rectifies) = (op.take("satfinite"), op.take("relu"));
    if op.take("rna") {
        return match (finite, rectifies) {
            (false, false) => Some(alu!(|a: f32| -> u32 { to_tf32_away(a) })),
            (true, false) => Some(alu!(|a: f32| -> u32 { finite_tf32(to_tf32_away(a)) })),
            _ => None,
        };
    }
    if op.take("rn") {
        return Some(match (finite, rectifies) {
            (false, false) => alu!(|a: f32| -> u32 { to_tf32_even(a) }),
            (true, false) => alu!(|a: f32| -> u32 { finite_tf32(to_tf32_even(a)) }),
            (false, true) => alu!(|a: f32| -> u32 { to_tf32_even(rectify(a)) }),
            (true, true) => alu!(|a: f32| -> u32 { finite_tf32(to_tf32_even(rectify(a))) }),
        });
    }
    if !op.take("rz") {
        return None;
    }
    Some(match (finite, rectifies) {
        (false, false) => alu!(|a: f32| -> u32 { to_tf32_short(a) }),
        (true, false) => alu!(|a: f32| -> u32 { finite_tf32(to_tf32_short(a)) }),
        (false, true) => alu!(|a: f32| -> u32 { to_tf32_short(rectify(a)) }),
        (true, true) => alu!(|a: f32| -> u32 { finite_tf32(to_tf32_short(rectify(a))) }),
    })
}

/// Infinity becomes the largest finite number.
#[inline(always)]
fn finite_tf32(bits: u32) -> u32 {
    if bits & 0x7FFF_FFFF == 0x7F80_0000 { bits - 0x2000 } else { bits }
}

/// 10 bits of mantissa, the rest cut off.
#[inline(always)]
fn to_tf32_short(x: f32) -> u32 {
    if x.is_nan() { 0x7FFF_FFFF } else { x.to_bits() & !0x1FFF }
}

/// 10 bits of mantissa, ties away from zero. Of a NaN the upper bits stay, even where that makes it infinite.
#[inline(always)]
fn to_tf32_away(x: f32) -> u32 {
    let bits = x.to_bits();
    let up = if bits & 0x7FFF_FFFF >= 0x7F80_0000 { 0 } else { 0x1000 };
    bits.wrapping_add(up) & !0x1FFF
}

#[inline(always)]
fn to_tf32_even(x: f32) -> u32 {
    let bits = x.to_bits();
    if bits & 0x7FFF_FFFF >= 0x7F80_0000 {
        canonical(x).to_bits()
    } else {
        bits.wrapping_add(0xFFF + (bits >> 13 & 1)) & !0x1FFF
    }
}
