//! Elements of one byte that neither Rust nor the crate `half` has: 8-bit floats and truth values. Their bits are those of
//! CUDA's `__nv_fp8_e4m3`, `__nv_fp8_e5m2` and `bool`.
#![expect(non_camel_case_types, reason = "named like f32 and bf16")]

use half::f16;

/// An 8-bit float with 4 exponent and 3 mantissa bits. There is no infinity, and one NaN of either sign.
/// ```
/// use kernelgate::prelude::*;
/// assert_eq!(e4m3::from_bits(0x38).to_f64(), 1.0);
/// assert_eq!(e4m3::from_bits(0x7e).to_f64(), 448.0); // the largest
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct e4m3(u8);

/// An 8-bit float with 5 exponent and 2 mantissa bits: the upper half of an f16.
/// ```
/// use kernelgate::prelude::*;
/// assert_eq!(e5m2::from_bits(0x3c).to_f64(), 1.0);
/// assert_eq!(e5m2::from_bits(0x7c).to_f64(), f64::INFINITY);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct e5m2(u8);

/// A truth value as a byte, 0 or 1. A Rust `bool` may hold nothing else, and buffers are full of poison before a run.
/// ```
/// use kernelgate::prelude::*;
///
/// /// y[i] = x[i] > 0
/// fn is_positive(inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
///     let pairs = outputs.slice::<b8>(0).iter_mut().zip(inputs.slice::<f32>(0));
///     pairs.for_each(|(y, &x)| *y = b8::from_f64(f64::from(u8::from(x > 0.0))));
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct b8(u8);

impl e4m3 {
    /// The value of these bits.
    pub const fn from_bits(bits: u8) -> Self {
        e4m3(bits)
    }

    /// The bits.
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// Exact.
    pub fn to_f64(self) -> f64 {
        let (exponent, mantissa) = (i32::from(self.0 >> 3 & 15), f64::from(self.0 & 7));
        let magnitude = match (exponent, self.0 & 7) {
            (15, 7) => f64::NAN,
            (0, _) => mantissa * 2f64.powi(-9),
            _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
        };
        if self.0 >> 7 == 1 { -magnitude } else { magnitude }
    }

    /// The bits of a value that this type has.
    pub(super) fn from_f64(value: f64) -> Self {
        let sign = u8::from(value.is_sign_negative()) << 7;
        let magnitude = value.abs();
        if value.is_nan() {
            return e4m3(sign | 0x7f);
        }
        if magnitude < 2f64.powi(-6) {
            return e4m3(sign | (magnitude * 512.0) as u8);
        }
        let exponent = magnitude.log2().floor() as i32;
        let mantissa = ((magnitude / 2f64.powi(exponent) - 1.0) * 8.0) as u8;
        e4m3(sign | ((exponent + 7) as u8) << 3 | mantissa)
    }
}

impl e5m2 {
    /// The value of these bits.
    pub const fn from_bits(bits: u8) -> Self {
        e5m2(bits)
    }

    /// The bits.
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// Exact.
    pub fn to_f64(self) -> f64 {
        f16::from_bits(u16::from(self.0) << 8).to_f64()
    }

    /// The bits of a value that this type has.
    pub(super) fn from_f64(value: f64) -> Self {
        e5m2((f16::from_f64(value).to_bits() >> 8) as u8)
    }
}

impl b8 {
    /// The byte as a number: what a kernel leaves there that is neither 0 nor 1 stays visible.
    pub fn to_f64(self) -> f64 {
        f64::from(self.0)
    }

    /// Whether it is true.
    pub const fn is_true(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for b8 {
    fn from(value: bool) -> Self {
        b8(u8::from(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::{DType, Element};

    #[test]
    fn every_finite_value_is_its_own_rounding() {
        for bits in 0..=u8::MAX {
            let (small, wide) = (e4m3::from_bits(bits), e5m2::from_bits(bits));
            if !small.to_f64().is_nan() {
                assert_eq!(DType::E4M3.round(small.to_f64()).to_bits(), small.to_f64().to_bits(), "{bits:#x}");
                assert_eq!(<e4m3 as Element>::from_f64(small.to_f64()), small);
            }
            if wide.to_f64().is_finite() {
                assert_eq!(DType::E5M2.round(wide.to_f64()).to_bits(), wide.to_f64().to_bits(), "{bits:#x}");
                assert_eq!(<e5m2 as Element>::from_f64(wide.to_f64()), wide);
            }
        }
    }

    #[test]
    fn the_ends_of_the_ranges_are_those_of_the_formats() {
        assert_eq!((e4m3::from_bits(0x7e).to_f64(), e4m3::from_bits(0x01).to_f64()), (448.0, 2f64.powi(-9)));
        assert_eq!((e5m2::from_bits(0x7b).to_f64(), e5m2::from_bits(0x7c).to_f64()), (57344.0, f64::INFINITY));
        assert!(e4m3::from_bits(0xff).to_f64().is_nan() && <e4m3 as Element>::from_f64(f64::NAN).to_f64().is_nan());
        assert!(<e5m2 as Element>::from_f64(f64::NAN).to_f64().is_nan());
    }

    #[test]
    fn a_byte_that_is_no_truth_value_stays_visible() {
        assert_eq!((b8::from(true).to_f64(), b8(2).to_f64()), (1.0, 2.0));
    }
}
