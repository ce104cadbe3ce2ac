//! Shared memory of one block: words, and a bit a byte for what was written.

use crate::sim::machine::memory::allocation::for_each_map_word;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::memory::payload::Payload;
use crate::sim::machine::registers::LANES;

const POISON: u32 = 0xA5A5_A5A5;

/// The shared memory of a block.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    pub words: Vec<u32>,
    pub bytes: u32,
    pub defined: Vec<u32>,
}

impl SharedMemory {
    pub fn new(bytes: u32) -> Self {
        let words = vec![POISON; bytes.div_ceil(4) as usize];
        SharedMemory { words, bytes, defined: vec![0; bytes.div_ceil(32) as usize] }
    }

    /// As a new block finds it: nothing of the block before may show, or results would depend on the schedule.
    pub fn reset(&mut self) {
        self.words.fill(POISON);
        self.defined.fill(0);
    }

    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    #[inline(always)]
    pub fn define(&mut self, offset: u64, bytes: u64) {
        if (offset | bytes).is_multiple_of(32) {
            return self.defined[offset as usize / 32..][..bytes as usize / 32].fill(u32::MAX);
        }
        for_each_map_word(offset, bytes, |word, bits| self.defined[word] |= bits);
    }

    #[inline(always)]
    pub fn is_defined(&self, offset: u64, bytes: u64) -> bool {
        let mut all = true;
        for_each_map_word(offset, bytes, |word, bits| all &= self.defined[word] & bits == bits);
        all
    }

    /// Stores the lanes of a pattern that was checked.
    #[inline(always)]
    pub fn store<const W: usize>(&mut self, pattern: &Pattern, data: &Payload<W>) {
        let bytes = u64::from(pattern.bytes);
        if pattern.contiguous {
            self.define(pattern.lowest, pattern.highest - pattern.lowest + bytes);
        } else {
            for lane in pattern.lanes() {
                self.define(pattern.address[lane], bytes);
            }
        }
        if pattern.contiguous && pattern.mask == u32::MAX && pattern.bytes >= 4 {
            let start = (pattern.lowest / 4) as usize;
            let target = &mut self.words[start..start + LANES * W];
            for lane in 0..LANES {
                for word in 0..W {
                    target[lane * W + word] = data[word][lane];
                }
            }
            return;
        }
        for lane in pattern.lanes() {
            let offset = pattern.address[lane] as usize;
            match pattern.bytes {
                1 => self.write_byte(offset, data[0][lane] as u8),
                2 => {
                    self.write_byte(offset, data[0][lane] as u8);
                    self.write_byte(offset + 1, (data[0][lane] >> 8) as u8);
                }
                _ => {
                    let target = &mut self.words[offset / 4..offset / 4 + W];
                    for word in 0..W {
                        target[word] = data[word][lane];
                    }
                }
            }
        }
    }

    pub fn write_byte(&mut self, offset: usize, value: u8) {
        let shift = offset % 4 * 8;
        let word = &mut self.words[offset / 4];
        *word = (*word & !(0xFF << shift)) | u32::from(value) << shift;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_forgets_what_was_written() {
        let mut shared = SharedMemory::new(40);
        shared.write_byte(33, 7);
        shared.define(33, 1);
        assert!(shared.is_defined(33, 1) && shared.words[8] >> 8 & 0xFF == 7);
        shared.reset();
        assert!(!shared.is_defined(33, 1));
    }
}
