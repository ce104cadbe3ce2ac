//! One global allocation: words that any thread may read and write, and a bit a byte for what was initialised.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What memory holds that nobody wrote: a value that stands out in results.
const POISON: u32 = 0xA5A5_A5A5;

/// Words are relaxed atomics because blocks run in parallel, and a racy kernel must stay a defined Rust program.
#[derive(Debug)]
pub(crate) struct Allocation {
    words: Box<[AtomicU32]>,
    bytes: u64,
    /// One bit a byte; `None` where everything is initialised.
    defined: Option<Box<[AtomicU32]>>,
    live: bool,
    /// Constant memory.
    pub read_only: bool,
}

impl Allocation {
    pub fn new(bytes: u64, init: Option<&[u8]>) -> Self {
        let count = bytes.div_ceil(4) as usize;
        let words = match init {
            Some(data) => data.chunks(4).map(|chunk| AtomicU32::new(little_endian(chunk))).collect(),
            None => (0..count).map(|_| AtomicU32::new(POISON)).collect(),
        };
        let defined = init.is_none().then(|| (0..bytes.div_ceil(32)).map(|_| AtomicU32::new(0)).collect());
        Allocation { words, bytes, defined, live: true, read_only: false }
    }

    pub fn release(&mut self) {
        self.live = false;
        self.words = Box::new([]);
        self.defined = None;
    }

    pub fn is_live(&self) -> bool {
        self.live
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline(always)]
    pub fn words(&self) -> &[AtomicU32] {
        &self.words
    }

    #[inline(always)]
    pub fn load(&self, word: usize) -> u32 {
        self.words[word].load(Relaxed)
    }

    /// Replaces the bits of `mask` in a word, safely beside writers of its other bits.
    #[inline(always)]
    pub fn store_bits(&self, word: usize, value: u32, mask: u32) {
        let cell = &self.words[word];
        if mask == u32::MAX {
            cell.store(value, Relaxed);
        } else {
            let mut old = cell.load(Relaxed);
            while let Err(now) = cell.compare_exchange_weak(old, (old & !mask) | (value & mask), Relaxed, Relaxed) {
                old = now;
            }
        }
    }

    /// Applies a function to a word and returns the old value.
    pub fn update(&self, word: usize, mut change: impl FnMut(u32) -> u32) -> u32 {
        let cell = &self.words[word];
        let mut old = cell.load(Relaxed);
        loop {
            match cell.compare_exchange_weak(old, change(old), Relaxed, Relaxed) {
                Ok(before) => return before,
                Err(now) => old = now,
            }
        }
    }

    /// Whether anything of this allocation can be uninitialised.
    pub fn tracks_definition(&self) -> bool {
        self.defined.is_some()
    }

    /// Marks `bytes` bytes from `offset` as initialised.
    #[inline(always)]
    pub fn define(&self, offset: u64, bytes: u64) {
        let Some(map) = &self.defined else { return };
        for_each_map_word(offset, bytes, |word, bits| {
            let cell = &map[word];
            let old = cell.load(Relaxed);
            if old & bits != bits {
                if bits == u32::MAX {
                    cell.store(bits, Relaxed);
                } else {
                    cell.fetch_or(bits, Relaxed);
                }
            }
        });
    }

    /// Whether all of `bytes` bytes from `offset` were initialised.
    #[inline(always)]
    pub fn is_defined(&self, offset: u64, bytes: u64) -> bool {
        let Some(map) = &self.defined else { return true };
        let mut all = true;
        for_each_map_word(offset, bytes, |word, bits| all &= map[word].load(Relaxed) & bits == bits);
        all
    }

    pub fn copy_out(&self, offset: u64, out: &mut [u8]) {
        for (at, byte) in out.iter_mut().enumerate() {
            let position = offset as usize + at;
            *byte = (self.load(position / 4) >> (position % 4 * 8)) as u8;
        }
    }

    pub fn copy_in(&self, offset: u64, data: &[u8]) {
        for (at, byte) in data.iter().enumerate() {
            let position = offset as usize + at;
            let shift = position % 4 * 8;
            self.store_bits(position / 4, u32::from(*byte) << shift, 0xFF << shift);
        }
        self.define(offset, data.len() as u64);
    }
}

/// Cuts a byte range into the words of a bit map: (word, bits).
#[inline(always)]
pub(crate) fn for_each_map_word(offset: u64, bytes: u64, mut visit: impl FnMut(usize, u32)) {
    let end = offset + bytes;
    let mut at = offset;
    while at < end {
        let word = at / 32;
        let next = ((word + 1) * 32).min(end);
        let count = next - at;
        let bits = if count == 32 { u32::MAX } else { ((1u32 << count) - 1) << (at % 32) };
        visit(word as usize, bits);
        at = next;
    }
}

fn little_endian(chunk: &[u8]) -> u32 {
    chunk.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 32, &[(0, u32::MAX)])]
    #[case(30, 4, &[(0, 0xC000_0000), (1, 3)])]
    #[case(32, 1, &[(1, 1)])]
    #[case(5, 0, &[])]
    fn byte_ranges_become_bits(#[case] offset: u64, #[case] bytes: u64, #[case] expected: &[(usize, u32)]) {
        let mut found = Vec::new();
        for_each_map_word(offset, bytes, |word, bits| found.push((word, bits)));
        assert_eq!(found, expected);
    }

    #[test]
    fn definition_is_kept_to_the_byte() {
        let allocation = Allocation::new(64, None);
        allocation.define(7, 30);
        assert!(allocation.is_defined(7, 30));
        assert!(!allocation.is_defined(6, 2));
        assert!(!allocation.is_defined(36, 2));
    }
}
