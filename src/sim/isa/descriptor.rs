//! Matrix descriptors: where the factors of warp-group products lie in shared memory.

use crate::sim::machine::tensor_map::Swizzle;
use std::ops::Range;

/// A matrix descriptor, taken apart. All are bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptor {
    start: u32,
    leading: u32,
    stride: u32,
    /// Of a row of the swizzled pattern.
    pitch: u32,
    swizzle: Swizzle,
}

impl Descriptor {
    pub fn new(bits: u64) -> Self {
        let field = |shift: u32| (bits >> shift & 0x3FFF) as u32 * 16;
        let (swizzle, pitch) = match bits >> 62 {
            0 => (Swizzle::None, 16),
            1 => (Swizzle::Bytes128, 128),
            2 => (Swizzle::Bytes64, 64),
            _ => (Swizzle::Bytes32, 32),
        };
        Descriptor { start: field(0), leading: field(16), stride: field(32), pitch, swizzle }
    }

    /// The units of 16 bytes that hold rows (along m or n), each by its two parts along k.
    #[inline(always)]
    pub fn along_k(self, rows: Range<u32>) -> Vec<u32> {
        let step = if self.swizzle == Swizzle::None { self.leading } else { 16 };
        let mut units = vec![0; 2 * rows.len()];
        for (row, parts) in rows.zip(units.as_chunks_mut::<2>().0) {
            let first = self.start + row / 8 * self.stride + row % 8 * self.pitch;
            for (part, unit) in parts.iter_mut().enumerate() {
                *unit = self.swizzle.apply(u64::from(first + part as u32 * step)) as u32;
            }
        }
        units
    }

    /// The units of 16 bytes that hold eight neighbours along m or n, for parts of eight, each by all of k.
    #[inline(always)]
    pub fn across(self, parts: Range<u32>, k: usize) -> Vec<u32> {
        let mut units = vec![0; parts.len() * k];
        for (part, units) in parts.zip(units.chunks_exact_mut(k)) {
            let (first, step) = if self.swizzle == Swizzle::None {
                (self.start + part * self.stride, self.leading)
            } else {
                let in_row = self.pitch / 16;
                (self.start + part % in_row * 16 + part / in_row * self.leading, self.stride)
            };
            for (k, unit) in units.iter_mut().enumerate() {
                let offset = k as u32 % 8 * self.pitch + k as u32 / 8 * step;
                *unit = self.swizzle.apply(u64::from(first + offset)) as u32;
            }
        }
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_finds_rows_in_the_swizzled_pattern() {
        let bits = (0x400u64 >> 4) | (1024u64 >> 4) << 32 | 1 << 62;
        let descriptor = Descriptor::new(bits);
        assert_eq!(descriptor.along_k(0..2), [0x400, 0x410, 0x400 + 128 + 16, 0x400 + 128]);
        assert_eq!(descriptor.along_k(9..10), [0x400 + 1024 + 128 + 16, 0x400 + 1024 + 128]);
        assert_eq!(descriptor.across(1..2, 16)[9], 0x400 + 1024 + 128);
    }

    #[test]
    fn a_descriptor_without_swizzle_steps_by_its_offsets() {
        let bits = (256u64 >> 4) << 16 | (128u64 >> 4) << 32;
        let descriptor = Descriptor::new(bits);
        assert_eq!(descriptor.along_k(9..10), [128 + 16, 128 + 16 + 256]);
        assert_eq!(descriptor.across(2..3, 16)[9], 2 * 128 + 16 + 256);
    }

    #[test]
    fn parts_beyond_a_row_of_the_pattern_come_from_the_next_block() {
        let bits = (512u64 >> 4) << 16 | (128u64 >> 4) << 32 | 3 << 62;
        let units = Descriptor::new(bits).across(0..3, 8);
        assert_eq!((units[0], units[8], units[16]), (0, 16, 512));
        // Row 4 of 32 bytes lies 128 bytes on, where two units change places.
        assert_eq!((units[4], units[12]), (128 + 16, 128));
    }
}
