//! Matrix descriptors: where the factors of warp-group products lie in shared memory.

use crate::sim::tensor_map::Swizzle;

/// A matrix descriptor, taken apart. Offsets are in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Descriptor {
    start: u64,
    leading: u64,
    stride: u64,
    swizzle: Swizzle,
}

impl Descriptor {
    pub fn new(bits: u64) -> Self {
        let field = |shift: u32| (bits >> shift & 0x3FFF) << 4;
        let swizzle = [Swizzle::None, Swizzle::Bytes128, Swizzle::Bytes64, Swizzle::Bytes32][(bits >> 62) as usize];
        Descriptor { start: field(0), leading: field(16), stride: field(32), swizzle }
    }

    /// Bytes of a row of the swizzled pattern.
    fn pitch(self) -> u64 {
        match self.swizzle {
            Swizzle::None => 16,
            Swizzle::Bytes32 => 32,
            Swizzle::Bytes64 => 64,
            Swizzle::Bytes128 => 128,
        }
    }

    /// The 16 bytes that hold row `row` (along m or n) and the `part`-th 16 bytes along k.
    pub fn along_k(self, row: u64, part: u64) -> u64 {
        let step = if self.swizzle == Swizzle::None { self.leading } else { 16 };
        self.swizzle.apply(self.start + row / 8 * self.stride + row % 8 * self.pitch() + part * step)
    }

    /// The 16 bytes that hold eight neighbours along m or n, from `8·part`, at `k`.
    pub fn across(self, part: u64, k: u64) -> u64 {
        let offset = if self.swizzle == Swizzle::None {
            part * self.stride + k % 8 * 16 + k / 8 * self.leading
        } else {
            let parts = self.pitch() / 16;
            part % parts * 16 + part / parts * self.leading + k % 8 * self.pitch() + k / 8 * self.stride
        };
        self.swizzle.apply(self.start + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_finds_rows_in_the_swizzled_pattern() {
        let bits = (0x400u64 >> 4) | (1024u64 >> 4) << 32 | 1 << 62;
        let descriptor = Descriptor::new(bits);
        assert_eq!(descriptor.along_k(0, 0), 0x400);
        assert_eq!(descriptor.along_k(1, 0), 0x400 + 128 + 16);
        assert_eq!(descriptor.along_k(9, 1), 0x400 + 1024 + 128);
        assert_eq!(descriptor.across(1, 9), 0x400 + 1024 + 128);
    }

    #[test]
    fn a_descriptor_without_swizzle_steps_by_its_offsets() {
        let bits = (256u64 >> 4) << 16 | (128u64 >> 4) << 32;
        let descriptor = Descriptor::new(bits);
        assert_eq!(descriptor.along_k(9, 1), 128 + 16 + 256);
        assert_eq!(descriptor.across(2, 9), 2 * 128 + 16 + 256);
    }
}
