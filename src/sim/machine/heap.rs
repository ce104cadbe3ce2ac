//! The heap of kernels: what `malloc` gives and `free` takes. It lives as long as the memory, as that of a device does.

use crate::sim::error::Result;
use crate::sim::machine::memory::{Memory, Pointer};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What a device has unless its limit is set.
const BYTES: u64 = 8 << 20;
const ALIGNMENT: u64 = 16;

/// One allocation, of which pieces are given out.
#[derive(Debug)]
pub(crate) struct Heap {
    start: Pointer,
    pieces: Mutex<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    /// Where the next one begins.
    next: u64,
    /// Address and bytes of those that nobody has given back.
    live: BTreeMap<u64, u64>,
}

impl Heap {
    /// The address of a new piece; 0 where none of that size is left.
    pub fn take(&self, bytes: u64) -> u64 {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        if pieces.live.is_empty() {
            pieces.next = 0;
        }
        let (at, end) = (pieces.next, pieces.next.saturating_add(bytes));
        if bytes == 0 || end > BYTES {
            return 0;
        }
        // Nobody has the bytes between two pieces: reads of them are reads of what nothing has written.
        pieces.next = (end + ALIGNMENT).next_multiple_of(ALIGNMENT);
        let address = self.start.address() + at;
        pieces.live.insert(address, bytes);
        address
    }

    /// Takes a piece back; `false` where there is none at that address.
    pub fn give_back(&self, address: u64) -> bool {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).live.remove(&address).is_some()
    }
}

impl Memory {
    /// Makes the heap, before the first launch that uses it.
    pub(crate) fn make_heap(&mut self) -> Result<()> {
        if self.heap.is_none() {
            let start = self.alloc(BYTES, None)?;
            self.heap = Some(Heap { start, pieces: Mutex::default() });
        }
        Ok(())
    }

    pub(crate) fn heap(&self) -> Option<&Heap> {
        self.heap.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_touch_and_come_back() {
        let mut memory = Memory::new();
        memory.make_heap().unwrap();
        let heap = memory.heap().unwrap();
        let (a, b) = (heap.take(5), heap.take(BYTES - 64));
        assert!(a != 0 && b >= a + 5 && b.is_multiple_of(ALIGNMENT), "{a:#x} {b:#x}");
        assert_eq!((heap.take(64), heap.take(0)), (0, 0), "nothing is left");
        assert!(heap.give_back(a) && !heap.give_back(a) && !heap.give_back(b + 1) && heap.give_back(b));
        assert_eq!(heap.take(BYTES), a, "all of it is free again");
    }
}
