//! Rounding to any of the formats in any of the modes, once; and the small formats' bits.

use crate::sim::ir::lanes::Lane;
use crate::sim::machine::registers::{Class, LANES, Registers};

/// The IEEE rounding directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Nearest,
    Zero,
    Down,
    Up,
}

impl Mode {
    /// The mode that a modifier names: `rn`, `rz`, `rm`, `rp`.
    pub fn from_name(name: &str) -> Option<Mode> {
        Some(match name {
            "rn" => Mode::Nearest,
            "rz" => Mode::Zero,
            "rm" => Mode::Down,
            "rp" => Mode::Up,
            _ => return None,
        })
    }
}

/// The NaN that every operation of 32 bits gives.
pub(crate) const NAN32: f32 = f32::from_bits(0x7FFF_FFFF);
pub(crate) const NAN16: u16 = 0x7FFF;

/// On bits, because a compiler may take one NaN for another: behind a root it does where `is_nan` is asked.
#[inline(always)]
pub(crate) fn canonical(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7FFF_FFFF > 0x7F80_0000 { 0x7FFF_FFFF } else { bits })
}

/// A result of 32 bits that may be any NaN: its row is looked at as a whole, since few have one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnyNan(pub f32);

impl Lane for AnyNan {
    const CLASS: Class = Class::Word;
    type Source<'a> = &'a [u32; LANES];
    type Result = [u32; LANES];

    #[inline(always)]
    fn source(registers: &Registers, slot: u32) -> &[u32; LANES] {
        registers.word(slot)
    }
    #[inline(always)]
    fn get(source: &&[u32; LANES], lane: usize) -> Self {
        AnyNan(f32::from_bits(source[lane]))
    }
    #[inline(always)]
    fn empty() -> Self::Result {
        [0; LANES]
    }
    #[inline(always)]
    fn put(result: &mut Self::Result, lane: usize, value: Self) {
        result[lane] = value.0.to_bits();
    }
    #[inline(always)]
    fn commit(registers: &mut Registers, slot: u32, result: &Self::Result, mask: u32) {
        registers.set_word(slot, result, mask);
        if has_nan(result) {
            make_canonical(registers, slot, mask);
        }
    }
}

#[inline(always)]
fn has_nan(row: &[u32; LANES]) -> bool {
    // Two at a time, which is one comparison.
    let (low, high) = row.split_at(LANES / 2);
    let mut found = 0;
    for (low, high) in low.iter().zip(high) {
        found |= u32::from(f32::from_bits(*low).is_nan() | f32::from_bits(*high).is_nan());
    }
    found != 0
}

#[cold]
fn make_canonical(registers: &mut Registers, slot: u32, mask: u32) {
    let row = registers.word(slot).map(|bits| canonical(f32::from_bits(bits)).to_bits());
    registers.set_word(slot, &row, mask);
}

/// Subnormal numbers become zero of the same sign.
#[inline(always)]
pub(crate) fn flush(x: f32) -> f32 {
    let bits = x.to_bits();
    if bits & 0x7F80_0000 == 0 { f32::from_bits(bits & 0x8000_0000) } else { x }
}

/// Into [0, 1]; NaN becomes 0.
#[inline(always)]
pub(crate) fn saturate(x: f32) -> f32 {
    if x > 0.0 { if x < 1.0 { x } else { 1.0 } } else { 0.0 }
}

#[inline(always)]
pub(crate) fn saturate64(x: f64) -> f64 {
    if x > 0.0 { if x < 1.0 { x } else { 1.0 } } else { 0.0 }
}

#[inline(always)]
pub(crate) fn to_integral(x: f64, mode: Mode) -> f64 {
    match mode {
        Mode::Nearest => x.round_ties_even(),
        Mode::Zero => x.trunc(),
        Mode::Down => x.floor(),
        Mode::Up => x.ceil(),
    }
}

/// A binary format: bits of precision with the hidden one, exponent of the smallest normal number, largest finite
/// number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    precision: i32,
    min_exponent: i32,
    max: f64,
}

pub(crate) const F16: Format = Format { precision: 11, min_exponent: -14, max: 65_504.0 };
pub(crate) const BF16: Format = Format { precision: 8, min_exponent: -126, max: 3.389_531_389_251_535_5e38 };
pub(crate) const F32: Format = Format { precision: 24, min_exponent: -126, max: f32::MAX as f64 };
pub(crate) const E4M3: Format = Format { precision: 4, min_exponent: -6, max: 448.0 };
pub(crate) const E5M2: Format = Format { precision: 3, min_exponent: -14, max: 57_344.0 };

#[inline(always)]
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Rounds once; the result is a number of the format, still as f64.
#[inline(always)]
pub(crate) fn round_to(x: f64, format: Format, mode: Mode) -> f64 {
    if !x.is_finite() || x == 0.0 {
        return x;
    }
    let exponent = ((x.to_bits() >> 52) as i32 & 0x7FF) - 1023;
    let quantum = exponent.max(format.min_exponent) - (format.precision - 1);
    // Both products are exact: powers of two, and the scaled number stays far from the ends of f64.
    let rounded = to_integral(x * power_of_two(-quantum), mode) * power_of_two(quantum);
    if rounded.abs() <= format.max {
        return if rounded == 0.0 { 0f64.copysign(x) } else { rounded };
    }
    let to_infinity = match mode {
        Mode::Nearest => true,
        Mode::Zero => false,
        Mode::Down => x < 0.0,
        Mode::Up => x > 0.0,
    };
    if to_infinity { f64::INFINITY.copysign(x) } else { format.max.copysign(x) }
}

/// The sum of two numbers, rounded to odd: a later rounding to fewer bits gives what one rounding of the exact sum
/// would.
#[inline(always)]
pub(crate) fn sum_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    if error == 0.0 || !sum.is_finite() || sum.to_bits() & 1 != 0 {
        return sum;
    }
    let outwards = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if outwards { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// `a·b + c` where `a·b` is exact in f64 (up to 26 bits each), rounded to odd.
#[inline(always)]
pub(crate) fn fma_to_odd(a: f64, b: f64, c: f64) -> f64 {
    sum_to_odd(a * b, c)
}

/// The exact value of a half.
#[inline(always)]
pub(crate) fn f16_to_f32(half: u16) -> f32 {
    let magnitude = u32::from(half & 0x7FFF) << 13;
    // Multiplying moves the exponent from the bias of 16 bits to that of 32, and makes subnormals normal.
    let scaled = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000);
    let bits = if magnitude >= 0x0F80_0000 { scaled.to_bits() | 0x7F80_0000 } else { scaled.to_bits() };
    let value = f32::from_bits(bits | u32::from(half & 0x8000) << 16);
    canonical(value)
}

/// The nearest half, ties to even.
#[inline(always)]
pub(crate) fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7FFF_FFFF;
    // Adding 0.5 leaves the quantum of subnormal halves as the last bit, rounded by the hardware.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3F00_0000);
    let normal = (magnitude.wrapping_add(0xFFF + (magnitude >> 13 & 1)) >> 13).wrapping_sub(112 << 10).min(0x7C00);
    let half = if magnitude < 0x3880_0000 { subnormal } else { normal };
    let half = if magnitude > 0x7F80_0000 { return NAN16 } else { half };
    (half | bits >> 16 & 0x8000) as u16
}

#[inline(always)]
pub(crate) fn bf16_to_f32(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// The nearest bf16, ties to even.
#[inline(always)]
pub(crate) fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if bits & 0x7FFF_FFFF > 0x7F80_0000 { NAN16 } else { (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16 }
}

/// From f64 in one rounding.
#[inline(always)]
pub(crate) fn f64_to_f16(x: f64, mode: Mode) -> u16 {
    if x.is_nan() { NAN16 } else { f32_to_f16(round_to(x, F16, mode) as f32) }
}

#[inline(always)]
pub(crate) fn f64_to_bf16(x: f64, mode: Mode) -> u16 {
    if x.is_nan() { NAN16 } else { ((round_to(x, BF16, mode) as f32).to_bits() >> 16) as u16 }
}

#[inline(always)]
pub(crate) fn f64_to_f32(x: f64, mode: Mode) -> f32 {
    if x.is_nan() { NAN32 } else { round_to(x, F32, mode) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn halves_agree_with_the_half_crate_everywhere() {
        for bits in 0..=u16::MAX {
            let (mine, theirs) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            assert!(mine.to_bits() == theirs.to_bits() || mine.is_nan() && theirs.is_nan(), "{bits:#x}");
            if !mine.is_nan() {
                assert_eq!(f32_to_f16(mine), bits);
                assert_eq!(f64_to_f16(f64::from(mine), Mode::Zero), bits);
            }
        }
    }

    #[test]
    fn roundings_agree_with_the_half_crate_and_with_each_other() {
        let mut rng = crate::sim::rng::Rng::new(1);
        for _ in 0..200_000 {
            let x = f32::from_bits(rng.next() as u32);
            if x.is_nan() {
                continue;
            }
            assert_eq!(f32_to_f16(x), half::f16::from_f32(x).to_bits(), "{x:e}");
            assert_eq!(f32_to_bf16(x), half::bf16::from_f32(x).to_bits(), "{x:e}");
            assert_eq!(f64_to_f16(f64::from(x), Mode::Nearest), f32_to_f16(x), "{x:e}");
            assert_eq!(f64_to_bf16(f64::from(x), Mode::Nearest), f32_to_bf16(x), "{x:e}");
            let y = f64::from_bits(rng.next());
            if !y.is_nan() {
                assert_eq!(f64_to_f32(y, Mode::Nearest).to_bits(), (y as f32).to_bits(), "{y:e}");
            }
        }
    }

    #[rstest]
    #[case(1.0 + 1e-12, Mode::Up, 1.0 + f32::EPSILON)]
    #[case(1.0 + 1e-12, Mode::Down, 1.0)]
    #[case(-1.0 - 1e-12, Mode::Zero, -1.0)]
    #[case(1e300, Mode::Zero, f32::MAX)]
    #[case(1e300, Mode::Nearest, f32::INFINITY)]
    #[case(-1e300, Mode::Up, f32::MIN)]
    #[case(1e-300, Mode::Up, f32::from_bits(1))]
    #[case(-1e-300, Mode::Nearest, -0.0)]
    fn directions(#[case] x: f64, #[case] mode: Mode, #[case] expected: f32) {
        assert_eq!(f64_to_f32(x, mode).to_bits(), expected.to_bits());
    }

    #[test]
    fn a_sum_to_odd_does_not_round_twice() {
        // A tie of f16 plus a grain that f64 cannot hold beside it.
        let tie = 2049.0;
        assert_eq!(f64_to_f16(sum_to_odd(tie, 1e-300), Mode::Nearest), f32_to_f16(2050.0));
        assert_eq!(f64_to_f16(sum_to_odd(tie, -1e-300), Mode::Nearest), f32_to_f16(2048.0));
    }
}
