//! The words that a warp moves, between its lanes and an allocation.

use crate::sim::machine::memory::address::OFFSET_MASK;
use crate::sim::machine::memory::allocation::Allocation;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::registers::LANES;

/// The words of all lanes: `data[word][lane]`. Accesses below 4 bytes use the low bits of word 0.
pub(crate) type Payload<const W: usize> = [[u32; LANES]; W];

/// What an access does, for the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Atomic,
}

pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Atomic => "atomic operation",
    }
}

#[inline(always)]
pub(crate) fn gather<const W: usize>(words: &[std::sync::atomic::AtomicU32], pattern: &Pattern, data: &mut Payload<W>) {
    use std::sync::atomic::Ordering::Relaxed;
    let start = ((pattern.lowest & OFFSET_MASK) / 4) as usize;
    if pattern.bytes < 4 {
        for lane in pattern.lanes() {
            let offset = (pattern.address[lane] & OFFSET_MASK) as usize;
            data[0][lane] = sub_word(words[offset / 4].load(Relaxed), offset, pattern.bytes);
        }
    } else if pattern.contiguous && pattern.mask == u32::MAX {
        let source = &words[start..start + LANES * W];
        for lane in 0..LANES {
            for word in 0..W {
                data[word][lane] = source[lane * W + word].load(Relaxed);
            }
        }
    } else if pattern.uniform {
        for word in 0..W {
            let value = words[start + word].load(Relaxed);
            data[word] = [value; LANES];
        }
    } else {
        // Inactive lanes repeat a valid address: no need to skip them.
        for lane in 0..LANES {
            let at = ((pattern.address[lane] & OFFSET_MASK) / 4) as usize;
            let source = &words[at..at + W];
            for word in 0..W {
                data[word][lane] = source[word].load(Relaxed);
            }
        }
    }
}

/// The byte or half word at `offset` inside its word.
#[inline(always)]
pub(crate) fn sub_word(word: u32, offset: usize, bytes: u32) -> u32 {
    let value = word >> (offset % 4 * 8);
    if bytes == 1 { value & 0xFF } else { value & 0xFFFF }
}

#[inline(always)]
pub(crate) fn define(allocation: &Allocation, pattern: &Pattern) {
    let bytes = u64::from(pattern.bytes);
    if pattern.contiguous || pattern.uniform {
        allocation.define(pattern.lowest & OFFSET_MASK, pattern.highest - pattern.lowest + bytes);
    } else {
        for lane in pattern.lanes() {
            allocation.define(pattern.address[lane] & OFFSET_MASK, bytes);
        }
    }
}

#[inline(always)]
pub(crate) fn scatter<const W: usize>(allocation: &Allocation, pattern: &Pattern, data: &Payload<W>) {
    if pattern.bytes < 4 {
        scatter_sub_words(allocation, pattern, &data[0]);
    } else if pattern.contiguous && pattern.mask == u32::MAX {
        use std::sync::atomic::Ordering::Relaxed;
        let start = ((pattern.lowest & OFFSET_MASK) / 4) as usize;
        let target = &allocation.words()[start..start + LANES * W];
        for lane in 0..LANES {
            for word in 0..W {
                target[lane * W + word].store(data[word][lane], Relaxed);
            }
        }
    } else {
        for lane in pattern.lanes() {
            let at = ((pattern.address[lane] & OFFSET_MASK) / 4) as usize;
            for word in 0..W {
                allocation.store_bits(at + word, data[word][lane], u32::MAX);
            }
        }
    }
}

/// Neighbouring half words of one warp are joined, so that most of them need no compare-and-swap.
#[inline(always)]
fn scatter_sub_words(allocation: &Allocation, pattern: &Pattern, data: &[u32; LANES]) {
    let full = if pattern.bytes == 1 { 0xFF } else { 0xFFFF };
    let (mut word, mut value, mut mask) = (usize::MAX, 0, 0);
    for lane in pattern.lanes() {
        let offset = (pattern.address[lane] & OFFSET_MASK) as usize;
        let shift = offset % 4 * 8;
        if offset / 4 != word {
            if mask != 0 {
                allocation.store_bits(word, value, mask);
            }
            (word, value, mask) = (offset / 4, 0, 0);
        }
        value = (value & !(full << shift)) | (data[lane] & full) << shift;
        mask |= full << shift;
    }
    if mask != 0 {
        allocation.store_bits(word, value, mask);
    }
}
