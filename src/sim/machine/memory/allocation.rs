//! One global allocation: words that any thread may read and write, and a bit a byte for what was initialised.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

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
            Some(data) => {
                let (whole, rest) = data.as_chunks::<4>();
                let last = (!rest.is_empty()).then(|| little_endian(rest));
                whole.iter().map(|bytes| u32::from_le_bytes(*bytes)).chain(last).map(AtomicU32::new).collect()
            }
            None => (0..count).map(|_| AtomicU32::new(POISON)).collect(),
        };
        let defined = init.is_none().then(|| nothing_defined(bytes));
        Allocation { words, bytes, defined, live: true, read_only: false }
    }

    pub fn release(&mut self) {
        self.live = false;
        self.words = Box::new([]);
        self.defined = None;
    }

    /// Fills everything with `byte`, which then counts as written by nobody.
    pub fn poison(&mut self, byte: u8) {
        let word = u32::from_le_bytes([byte; 4]);
        self.words.iter_mut().for_each(|cell| *cell.get_mut() = word);
        match &mut self.defined {
            Some(map) => map.iter_mut().for_each(|cell| *cell.get_mut() = 0),
            None => self.defined = Some(nothing_defined(self.bytes)),
        }
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
        if offset.is_multiple_of(4) && out.len().is_multiple_of(4) {
            let words = &self.words[(offset / 4) as usize..];
            for (bytes, word) in out.chunks_exact_mut(4).zip(words) {
                bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
            }
            return;
        }
        for (word, part) in pieces(offset, out.len()) {
            let bytes = self.load(word).to_le_bytes();
            let first = (offset as usize + part.start) % 4;
            out[part.clone()].copy_from_slice(&bytes[first..first + part.len()]);
        }
    }

    pub fn copy_in(&self, offset: u64, data: &[u8]) {
        for (word, part) in pieces(offset, data.len()) {
            let shift = (offset as usize + part.start) % 4 * 8;
            let mask = u32::MAX >> (32 - 8 * part.len()) << shift;
            self.store_bits(word, little_endian(&data[part]) << shift, mask);
        }
        self.define(offset, data.len() as u64);
    }
}

/// Cuts a byte range into the words of a bit map: (word, bits).
#[inline(always)]
pub(crate) fn for_each_map_word(offset: u64, bytes: u64, mut visit: impl FnMut(usize, u32)) {
    if bytes == 0 {
        return;
    }
    let last_byte = offset + bytes - 1;
    let (first, last) = ((offset / 32) as usize, (last_byte / 32) as usize);
    let (from, until) = (u32::MAX << (offset % 32), u32::MAX >> (31 - last_byte % 32));
    if first == last {
        return visit(first, from & until);
    }
    visit(first, from);
    (first + 1..last).for_each(|word| visit(word, u32::MAX));
    visit(last, until);
}

/// Cuts `len` bytes from `offset` at the words of memory: (word, part of the bytes).
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let offset = offset as usize;
    let words = if len == 0 { 0..0 } else { offset / 4..(offset + len).div_ceil(4) };
    words.map(move |word| (word, (word * 4).max(offset) - offset..(word * 4 + 4).min(offset + len) - offset))
}

fn little_endian(chunk: &[u8]) -> u32 {
    chunk.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// A map of as many bytes: zeros from the system, which cost nothing until they are touched.
fn nothing_defined(bytes: u64) -> Box<[AtomicU32]> {
    vec![0u32; bytes.div_ceil(32) as usize].into_iter().map(AtomicU32::new).collect()
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

    #[rstest]
    #[case(0, 8)]
    #[case(3, 6)]
    #[case(5, 1)]
    #[case(7, 0)]
    fn bytes_are_copied_at_any_offset(#[case] offset: u64, #[case] len: usize) {
        let allocation = Allocation::new(16, Some(&[9; 16]));
        let data: Vec<u8> = (1..=len as u8).collect();
        allocation.copy_in(offset, &data);
        let mut expected = [9; 16];
        expected[offset as usize..][..len].copy_from_slice(&data);
        let mut out = [0; 16];
        allocation.copy_out(0, &mut out);
        assert_eq!(out, expected);
        let mut part = vec![0; len];
        allocation.copy_out(offset, &mut part);
        assert_eq!(part, data);
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
