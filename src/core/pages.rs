//! Memory whose place makes no difference: aligned as a GPU's is and, where it is large, in huge pages.
//!
//! Small pages lie anywhere in physical memory. The second-level cache is indexed by that, so that as many bytes may fit
//! into it in one process and evict each other in the next; a huge page lies evenly in it, in every process.

use memmap2::MmapMut;
use std::fmt;
use std::ops::Range;

/// Bytes of a huge page of x86-64 and, with small pages of 4 KiB, of AArch64.
const HUGE: usize = 2 << 20;

/// All memory begins at a multiple of so many bytes, as a GPU's does.
pub const ALIGNMENT: usize = 256;

/// From how many bytes on memory lies in huge pages.
const LARGE: usize = 256 << 10;

/// Bytes, zeros at first.
pub struct Pages {
    memory: Memory,
    /// Where in memory they are.
    range: Range<usize>,
}

enum Memory {
    Heap(Vec<u8>),
    Mapped(MmapMut),
}

impl Pages {
    /// So many bytes.
    pub fn new(len: usize) -> Self {
        let mapped = (len >= LARGE).then(|| huge(len)).flatten();
        let (memory, alignment) = match mapped {
            Some(mapped) => (Memory::Mapped(mapped), HUGE),
            None if len == 0 => (Memory::Heap(Vec::new()), ALIGNMENT),
            None => (Memory::Heap(vec![0; len + ALIGNMENT]), ALIGNMENT),
        };
        let address = match &memory {
            Memory::Heap(heap) => heap.as_ptr() as usize,
            Memory::Mapped(mapped) => mapped.as_ptr() as usize,
        };
        let start = if len == 0 { 0 } else { address.next_multiple_of(alignment) - address };
        Pages { memory, range: start..start + len }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.memory {
            Memory::Heap(heap) => &heap[self.range.clone()],
            Memory::Mapped(mapped) => &mapped[self.range.clone()],
        }
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Heap(heap) => &mut heap[self.range.clone()],
            Memory::Mapped(mapped) => &mut mapped[self.range.clone()],
        }
    }
}

impl Default for Pages {
    fn default() -> Self {
        Pages::new(0)
    }
}

impl Clone for Pages {
    fn clone(&self) -> Self {
        let mut copy = Pages::new(self.range.len());
        copy.as_mut_slice().copy_from_slice(self.as_slice());
        copy
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pages({} bytes)", self.range.len())
    }
}

/// Memory that holds so many bytes from the start of a huge page on. A system without huge pages gives small ones.
fn huge(len: usize) -> Option<MmapMut> {
    let mapped = MmapMut::map_anon(len.next_multiple_of(HUGE) + HUGE).ok()?;
    #[cfg(target_os = "linux")]
    let _ = mapped.advise(memmap2::Advice::HugePage);
    Some(mapped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 1)]
    #[case(1, ALIGNMENT)]
    #[case(LARGE - 1, ALIGNMENT)]
    #[case(LARGE, HUGE)]
    #[case(HUGE + 1, HUGE)]
    fn memory_is_zeroed_and_aligned(#[case] len: usize, #[case] alignment: usize) {
        let mut pages = Pages::new(len);
        assert_eq!(pages.as_slice().len(), len);
        assert!(pages.as_slice().iter().all(|byte| *byte == 0));
        assert_eq!(pages.as_slice().as_ptr() as usize % alignment, 0);
        pages.as_mut_slice().fill(7);
        assert!(pages.clone().as_slice().iter().all(|byte| *byte == 7));
    }
}
