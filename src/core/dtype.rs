//! Run-time element types: sizes, rounding, spacing of values.

use super::narrow::{b8, e4m3, e5m2};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The element type of a tensor, chosen at run time.
/// ```
/// use kernelgate::prelude::*;
/// assert_eq!((BF16.size(), BF16.name()), (2, "bf16"));
/// assert_eq!("e4m3".parse(), Ok(DType::E4M3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// Signed 32-bit integers: indices.
    I32,
    /// 8-bit floats with 4 exponent and 3 mantissa bits, without infinities; what is too large becomes the largest value.
    E4M3,
    /// 8-bit floats with 5 exponent and 2 mantissa bits; what is too large becomes the largest finite value.
    E5M2,
    /// Unsigned bytes.
    U8,
    /// Signed bytes.
    I8,
    /// Signed 64-bit integers. References and comparisons are in f64: values are exact up to 2⁵³.
    I64,
    /// Truth values, a byte each: 0 or 1.
    Bool,
}

/// The largest magnitude up to which every whole number is an f64.
const EXACT_IN_F64: f64 = (1u64 << 53) as f64;

impl DType {
    /// The floating-point types a gate runs by default.
    pub const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

    /// All types.
    pub const ALL: [DType; 10] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::E4M3,
        DType::E5M2,
        DType::I64,
        DType::I32,
        DType::I8,
        DType::U8,
        DType::Bool,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::E4M3 | DType::E5M2 | DType::U8 | DType::I8 | DType::Bool => 1,
        }
    }

    /// The spelling of the command line and of trial names.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::E4M3 => "e4m3",
            DType::E5M2 => "e5m2",
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::I64 => "i64",
            DType::Bool => "bool",
        }
    }

    /// Explicit significand bits, and the exponent of the smallest normal number.
    const fn format(self) -> (i32, i32) {
        match self {
            DType::F32 => (23, -126),
            DType::F16 => (10, -14),
            DType::BF16 => (7, -126),
            DType::E4M3 => (3, -6),
            DType::E5M2 => (2, -14),
            DType::I32 | DType::U8 | DType::I8 | DType::I64 | DType::Bool => (0, 0),
        }
    }

    /// Whether its values are whole numbers, which a kernel gets exactly or wrong.
    pub const fn is_integer(self) -> bool {
        matches!(self, DType::I32 | DType::U8 | DType::I8 | DType::I64 | DType::Bool)
    }

    /// Whether what is too large is stored as the largest finite value, as the conversions to 8-bit floats do (PTX knows
    /// them with `.satfinite` alone).
    pub const fn saturates(self) -> bool {
        matches!(self, DType::E4M3 | DType::E5M2)
    }

    /// The largest finite value.
    pub const fn max_finite(self) -> f64 {
        match self {
            DType::F32 => f32::MAX as f64,
            DType::F16 => 65504.0,
            DType::BF16 => 3.3895313892515355e38,
            DType::E4M3 => 448.0,
            DType::E5M2 => 57344.0,
            DType::I32 => i32::MAX as f64,
            DType::U8 => u8::MAX as f64,
            DType::I8 => i8::MAX as f64,
            DType::I64 => EXACT_IN_F64,
            DType::Bool => 1.0,
        }
    }

    /// The smallest value of an integer type; that of a floating-point type is the largest with the other sign.
    pub const fn min_finite(self) -> f64 {
        match self {
            DType::I32 => i32::MIN as f64,
            DType::I8 => i8::MIN as f64,
            DType::U8 | DType::Bool => 0.0,
            _ => -self.max_finite(),
        }
    }

    /// The smallest positive normal value.
    pub fn min_normal(self) -> f64 {
        2f64.powi(self.format().1)
    }

    /// `value` rounded to the nearest representable one (ties to even; past the range: ±inf, or the largest value of a type
    /// that [saturates](DType::saturates)).
    pub fn round(self, value: f64) -> f64 {
        match self {
            DType::F32 => value as f32 as f64,
            DType::F16 | DType::BF16 | DType::E4M3 | DType::E5M2 => self.round_narrow(value),
            DType::Bool => f64::from(u8::from(value != 0.0)),
            DType::I32 | DType::U8 | DType::I8 | DType::I64 => {
                value.round().clamp(self.min_finite(), self.max_finite())
            }
        }
    }

    /// One rounding straight from f64: by way of f32 a tie could round twice.
    fn round_narrow(self, value: f64) -> f64 {
        if value.is_nan() || value == 0.0 || (value.is_infinite() && !self.saturates()) {
            return value;
        }
        if self.saturates() && value.abs() >= self.max_finite() {
            return self.max_finite().copysign(value);
        }
        if value.abs() > 2.0 * self.max_finite() {
            return f64::INFINITY.copysign(value);
        }
        // What is added leaves no bit below the spacing in an f64; the sum rounds to nearest even.
        let large = self.ulp(value) * ROUNDING;
        let rounded = ((value + large) - large).abs();
        if rounded > self.max_finite() { f64::INFINITY.copysign(value) } else { rounded.copysign(value) }
    }

    /// The distance between neighbouring values of this type at `value`; at least the smallest denormal,
    /// at most the spacing below the largest finite value. Zero for NaN never happens: NaN gives NaN. Integers are 1 apart.
    ///
    /// ```
    /// use kernelgate::prelude::*;
    /// assert_eq!(F32.ulp(1.0), f32::EPSILON as f64);
    /// assert_eq!(F16.ulp(1.0), 2f64.powi(-10));
    /// ```
    pub fn ulp(self, value: f64) -> f64 {
        if value.is_nan() {
            return f64::NAN;
        }
        if self.is_integer() {
            return 1.0;
        }
        let (bits, min_exponent) = self.format();
        let magnitude = value.abs().min(self.max_finite());
        let exponent = if magnitude == 0.0 { min_exponent } else { exponent_of(magnitude) };
        power_of_two(exponent.max(min_exponent) - bits)
    }
}

/// 1.5 · 2^52: neighbouring f64 around it are 1 apart, on both sides.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

/// 2^exponent for normal exponents, without a call: comparisons ask for it once an element.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// floor(log2(x)) of a positive finite x, exactly.
fn exponent_of(x: f64) -> i32 {
    let biased = ((x.to_bits() >> 52) & 0x7ff) as i32;
    if biased == 0 { -1023 } else { biased - 1023 }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no [`DType`].
/// ```
/// use kernelgate::prelude::*;
/// let half: Result<DType, UnknownDType> = "half".parse();
/// assert!(half.is_err_and(|error| error.to_string().contains("f16")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDType(String);

impl fmt::Display for UnknownDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [others @ .., last] = DType::ALL.map(DType::name);
        write!(f, "unknown dtype `{}`; use {} or {last}", self.0, others.join(", "))
    }
}

impl std::error::Error for UnknownDType {}

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(text: &str) -> Result<Self, UnknownDType> {
        DType::ALL.into_iter().find(|d| d.name() == text).ok_or_else(|| UnknownDType(text.into()))
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that stands for one [`DType`].
/// ```
/// use kernelgate::prelude::*;
///
/// /// A loop for every float type.
/// fn twice<T: Element>(inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
///     let pairs = outputs.slice::<T>(0).iter_mut().zip(inputs.slice::<T>(0));
///     pairs.for_each(|(y, x)| *y = T::from_f64(2.0 * x.to_f64()));
/// }
/// assert_eq!(<bf16 as Element>::DTYPE, BF16);
/// ```
pub trait Element: bytemuck::Pod + Send + Sync + fmt::Debug + sealed::Sealed + 'static {
    /// The run-time name of this type.
    const DTYPE: DType;
    /// Exact; of an `i64` up to 2⁵³.
    fn to_f64(self) -> f64;
    /// To nearest, ties to even.
    fn from_f64(value: f64) -> Self;
}

macro_rules! element {
    ($ty:ty, $dtype:ident, $to:expr, $from:expr) => {
        impl sealed::Sealed for $ty {}
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
            fn to_f64(self) -> f64 {
                ($to)(self)
            }
            fn from_f64(value: f64) -> Self {
                ($from)(value)
            }
        }
    };
}

element!(f32, F32, f64::from, |v| v as f32);
element!(f16, F16, f16::to_f64, |v| f16::from_f64(DType::F16.round(v)));
element!(bf16, BF16, bf16::to_f64, |v| bf16::from_f64(DType::BF16.round(v)));
element!(i32, I32, f64::from, |v: f64| v.round() as i32);
element!(e4m3, E4M3, e4m3::to_f64, |v| e4m3::from_f64(DType::E4M3.round(v)));
element!(e5m2, E5M2, e5m2::to_f64, |v| e5m2::from_f64(DType::E5M2.round(v)));
element!(u8, U8, f64::from, |v: f64| v.round() as u8);
element!(i8, I8, f64::from, |v: f64| v.round() as i8);
element!(i64, I64, |v: i64| v as f64, |v: f64| v.round() as i64);
element!(b8, Bool, b8::to_f64, |v: f64| b8::from(v != 0.0));

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(DType::F16, 1.0 + 2f64.powi(-11), 1.0)] // a tie goes to even
    #[case(DType::F16, 1.0 + 2f64.powi(-11) + 2f64.powi(-40), 1.0 + 2f64.powi(-10))] // by way of f32 this would tie
    #[case(DType::F16, 65519.9, 65504.0)]
    #[case(DType::F16, 65520.0, f64::INFINITY)]
    #[case(DType::F16, 2f64.powi(-25), 0.0)]
    #[case(DType::F16, 1.5 * 2f64.powi(-24), 2f64.powi(-23))]
    #[case(DType::BF16, 1.0 + 2f64.powi(-8), 1.0)]
    #[case(DType::BF16, 3.4e38, f64::INFINITY)]
    #[case(DType::F32, 1e39, f64::INFINITY)]
    #[case(DType::E4M3, 1e3, 448.0)] // no infinity
    #[case(DType::E4M3, 1.0625, 1.0)] // a tie goes to even
    #[case(DType::E5M2, f64::INFINITY, 57344.0)]
    #[case(DType::I8, 3.5, 4.0)]
    #[case(DType::I64, 1e17, 9007199254740992.0)]
    fn rounds_once(#[case] dtype: DType, #[case] value: f64, #[case] expected: f64) {
        assert_eq!(dtype.round(value), expected);
        assert_eq!(dtype.round(-value), -expected);
    }

    #[test]
    fn every_f16_is_its_own_rounding() {
        for bits in 0..=u16::MAX {
            let value = f16::from_bits(bits).to_f64();
            if value.is_finite() {
                assert_eq!(DType::F16.round(value).to_bits(), value.to_bits(), "{value:e}");
                assert_eq!(f16::from_f64(value).to_bits(), bits);
            }
        }
    }

    #[rstest]
    #[case(DType::F32, 0.0, 2f64.powi(-149))]
    #[case(DType::F32, 3.0, 2f64.powi(-22))]
    #[case(DType::BF16, 1.0, 2f64.powi(-7))]
    #[case(DType::F16, 1e9, 32.0)]
    #[case(DType::F16, f64::INFINITY, 32.0)]
    #[case(DType::I32, 1e9, 1.0)]
    #[case(DType::E4M3, 448.0, 32.0)]
    #[case(DType::E4M3, 0.001, 2f64.powi(-9))]
    #[case(DType::E5M2, 1.0, 0.25)]
    #[case(DType::Bool, 1.0, 1.0)]
    fn spacing(#[case] dtype: DType, #[case] value: f64, #[case] expected: f64) {
        assert_eq!(dtype.ulp(value), expected);
    }

    #[test]
    fn names_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>(), Ok(dtype));
        }
        assert!("half".parse::<DType>().unwrap_err().to_string().contains("f16"));
    }
}
