//! The floating-point formats of 8 bits.

use crate::sim::isa::rounding::{E4M3, E5M2, Format, Mode, f16_to_f32, round_to};

/// Rounds into a format of 8 bits, overflow to the largest finite number.
fn to_small(x: f32, format: Format, mantissa_bits: u32, bias: i32, nan: u8, max: u8) -> u8 {
    if x.is_nan() {
        return nan;
    }
    let sign = ((x.to_bits() >> 24) & 0x80) as u8;
    let rounded = round_to(f64::from(x.abs()), format, Mode::Nearest);
    if !rounded.is_finite() {
        return sign | max;
    }
    let quantum = f64::from_bits(((1023 + 1 - bias - mantissa_bits as i32) as u64) << 52);
    if rounded < quantum * f64::from(1u32 << mantissa_bits) {
        return sign | (rounded / quantum) as u8;
    }
    let bits = rounded.to_bits();
    let exponent = (bits >> 52) as i32 - 1023 + bias;
    let mantissa = (bits >> (52 - mantissa_bits)) as u8 & ((1 << mantissa_bits) - 1);
    sign | (exponent as u8) << mantissa_bits | mantissa
}

pub(super) fn to_e4m3(x: f32) -> u8 {
    to_small(x, E4M3, 3, 7, 0x7F, 0x7E)
}

pub(super) fn to_e5m2(x: f32) -> u8 {
    to_small(x, E5M2, 2, 15, 0x7F, 0x7B)
}

pub(super) fn from_e4m3(bits: u8) -> f32 {
    let magnitude = bits & 0x7F;
    if magnitude == 0x7F {
        return f32::NAN;
    }
    let (exponent, mantissa) = (i32::from(magnitude >> 3), f32::from(magnitude & 7));
    let value = if exponent == 0 { mantissa * 2f32.powi(-9) } else { (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7) };
    if bits & 0x80 != 0 { -value } else { value }
}

/// The upper byte of a half: one format is a prefix of the other.
pub(super) fn from_e5m2(bits: u8) -> f32 {
    f16_to_f32(u16::from(bits) << 8)
}
