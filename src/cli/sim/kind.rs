//! The element types of kernel arguments: their names, sizes, and values in writing.

use crate::sim::Element;
use half::{bf16, f16};
use serde::Serialize;

/// The types of elements and scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    F16,
    Bf16,
    F32,
    F64,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
}

impl Kind {
    /// With the spelling of the command line and the code of NumPy, which has none for bf16.
    const ALL: [(Kind, &'static str, &'static str); 12] = [
        (Kind::F16, "f16", "<f2"),
        (Kind::Bf16, "bf16", "<u2"),
        (Kind::F32, "f32", "<f4"),
        (Kind::F64, "f64", "<f8"),
        (Kind::I8, "i8", "|i1"),
        (Kind::U8, "u8", "|u1"),
        (Kind::I16, "i16", "<i2"),
        (Kind::U16, "u16", "<u2"),
        (Kind::I32, "i32", "<i4"),
        (Kind::U32, "u32", "<u4"),
        (Kind::I64, "i64", "<i8"),
        (Kind::U64, "u64", "<u8"),
    ];

    /// From the spelling of the command line.
    pub fn parse(text: &str) -> Result<Self, String> {
        Kind::ALL.iter().find(|(_, name, _)| *name == text).map(|(kind, ..)| *kind).ok_or_else(|| {
            let names: Vec<_> = Kind::ALL.iter().map(|(_, name, _)| *name).collect();
            format!("`{text}` is no type; use one of {}", names.join(", "))
        })
    }

    /// The spelling of the command line.
    pub fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, _)| name)
    }

    /// What NumPy calls it.
    pub fn code(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, ..)| *kind == self).map_or("", |(.., code)| code)
    }

    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Kind::I8 | Kind::U8 => 1,
            Kind::F16 | Kind::Bf16 | Kind::I16 | Kind::U16 => 2,
            Kind::F32 | Kind::I32 | Kind::U32 => 4,
            Kind::F64 | Kind::I64 | Kind::U64 => 8,
        }
    }

    /// What it is to a tensor map, which has no signed integers below 32 bits.
    pub fn element(self) -> Element {
        match self {
            Kind::I8 | Kind::U8 => Element::U8,
            Kind::I16 | Kind::U16 => Element::U16,
            Kind::I32 => Element::S32,
            Kind::U32 => Element::U32,
            Kind::I64 => Element::S64,
            Kind::U64 => Element::U64,
            Kind::F16 => Element::F16,
            Kind::Bf16 => Element::Bf16,
            Kind::F32 => Element::F32,
            Kind::F64 => Element::F64,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Kind::F16 | Kind::Bf16 | Kind::F32 | Kind::F64)
    }

    /// A value as it lies in memory.
    pub fn encode(self, text: &str) -> Result<Vec<u8>, String> {
        let wrong = || format!("`{text}` is no value of this type");
        if self.is_float() {
            let value: f64 = text.parse().map_err(|_| wrong())?;
            return Ok(self.float(value));
        }
        let value: i128 = match text.strip_prefix("0x") {
            Some(digits) => i128::from_str_radix(digits, 16).map_err(|_| wrong())?,
            None => text.parse().map_err(|_| wrong())?,
        };
        let bits = 8 * self.bytes();
        let signed = matches!(self, Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64);
        let range = if signed { -(1i128 << (bits - 1))..1i128 << (bits - 1) } else { 0..1i128 << bits };
        if !range.contains(&value) {
            return Err(format!("{text} does not fit into {bits} bits"));
        }
        Ok(value.to_le_bytes()[..self.bytes() as usize].to_vec())
    }

    /// A number as it lies in memory, rounded to the type.
    pub fn float(self, value: f64) -> Vec<u8> {
        match self {
            Kind::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
            Kind::Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
            Kind::F64 => value.to_le_bytes().to_vec(),
            _ => (value as f32).to_le_bytes().to_vec(),
        }
    }

    /// An element in writing.
    pub fn show(self, bytes: &[u8]) -> String {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        let spare = 64 - 8 * self.bytes() as u32;
        match self {
            Kind::F16 => f16::from_bits(bits as u16).to_string(),
            Kind::Bf16 => bf16::from_bits(bits as u16).to_string(),
            Kind::F32 => f32::from_bits(bits as u32).to_string(),
            Kind::F64 => f64::from_bits(bits).to_string(),
            Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => (((bits << spare) as i64) >> spare).to_string(),
            _ => bits.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_do_not_fit_are_refused() {
        let kind = |name| Kind::parse(name).unwrap();
        assert_eq!(kind("i8").encode("-128").unwrap(), [0x80]);
        assert!(kind("i8").encode("128").is_err());
        assert_eq!(kind("u32").encode("0xffffffff").unwrap(), [0xFF; 4]);
        assert!(kind("u32").encode("-1").is_err());
        assert!(kind("i32").encode("1.5").is_err());
        assert_eq!(kind("bf16").encode("1").unwrap(), [0x80, 0x3F]);
        assert!(Kind::parse("f8").unwrap_err().contains("bf16"));
    }

    #[test]
    fn elements_are_shown_with_their_sign() {
        assert_eq!(Kind::I16.show(&[0xFF, 0xFF]), "-1");
        assert_eq!(Kind::U16.show(&[0xFF, 0xFF]), "65535");
        assert_eq!(Kind::F16.show(&[0, 0x3E]), "1.5");
    }
}
