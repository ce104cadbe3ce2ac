//! Device memory: allocations with numbers in their addresses, and shared memory of a block.

pub(crate) mod address;
pub(crate) mod allocation;
pub(crate) mod arrangement;
pub(crate) mod bank_conflicts;
pub(crate) mod bundle;
pub(crate) mod pattern;
pub(crate) mod payload;
pub(crate) mod repeats;
pub(crate) mod repeats_global;
pub(crate) mod shared_memory;

use crate::sim::error::{Error, Result};
use crate::sim::machine::heap::Heap;
use crate::sim::machine::memory::address::{FIRST_ALLOCATION, OFFSET_BITS, OFFSET_MASK};
use crate::sim::machine::memory::allocation::Allocation;
use crate::sim::machine::texture::Texture;
use std::collections::HashMap;

/// A device address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pointer(u64);

impl Pointer {
    /// The null pointer.
    pub const NULL: Pointer = Pointer(0);

    pub(crate) fn at(address: u64) -> Pointer {
        Pointer(address)
    }

    /// The address `bytes` further on.
    pub fn offset(self, bytes: u64) -> Pointer {
        Pointer(self.0.wrapping_add(bytes))
    }

    /// The address as a kernel sees it.
    pub fn address(self) -> u64 {
        self.0
    }
}

/// The global memory of the simulated device.
///
/// An allocation keeps its number for ever, so that an address of freed memory is recognised. Bytes of an allocation
/// made without data count as uninitialised until something writes them.
#[derive(Debug, Default)]
pub struct Memory {
    allocations: Vec<Allocation>,
    /// By module and name.
    variables: HashMap<(u64, String), Pointer>,
    /// By their handles.
    pub(super) textures: Vec<Texture>,
    /// Replicas by the address of a multicast object.
    pub(super) multicasts: HashMap<u64, Vec<Pointer>>,
    pub(super) heap: Option<Heap>,
}

impl Memory {
    /// Memory without any allocation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reserves `bytes` bytes, 256-byte aligned as on a device. `init` gives their content; without it they count as
    /// uninitialised.
    ///
    /// # Errors
    /// When `bytes` is above 16 GiB, or `init` has another length.
    pub fn alloc(&mut self, bytes: u64, init: Option<&[u8]>) -> Result<Pointer> {
        if bytes > OFFSET_MASK {
            return Err(Error::Launch(format!(
                "an allocation of {bytes} bytes; the simulator holds up to {OFFSET_MASK} in one"
            )));
        }
        if let Some(data) = init
            && data.len() as u64 != bytes
        {
            return Err(Error::Launch(format!("an allocation of {bytes} bytes with {} bytes of content", data.len())));
        }
        let number = FIRST_ALLOCATION + self.allocations.len() as u64;
        self.allocations.push(Allocation::new(bytes, init));
        Ok(Pointer(number << OFFSET_BITS))
    }

    /// Gives an allocation back; its address stays known as freed.
    ///
    /// # Errors
    /// When `pointer` is not the start of a live allocation.
    pub fn free(&mut self, pointer: Pointer) -> Result<()> {
        let at = self.live(pointer)?;
        if pointer.0 & OFFSET_MASK != 0 {
            return Err(Error::Launch(format!("free of {:#x}, which is not the start of an allocation", pointer.0)));
        }
        self.allocations[at].release();
        Ok(())
    }

    /// Copies memory out.
    ///
    /// # Errors
    /// When the range does not lie inside one live allocation.
    pub fn read(&self, pointer: Pointer, out: &mut [u8]) -> Result<()> {
        let allocation = &self.allocations[self.range(pointer, out.len())?];
        allocation.copy_out(pointer.0 & OFFSET_MASK, out);
        Ok(())
    }

    /// Copies memory in, which makes it initialised.
    ///
    /// # Errors
    /// When the range does not lie inside one live allocation.
    pub fn write(&mut self, pointer: Pointer, data: &[u8]) -> Result<()> {
        let at = self.range(pointer, data.len())?;
        self.allocations[at].copy_in(pointer.0 & OFFSET_MASK, data);
        Ok(())
    }

    /// Fills a whole allocation with `byte` and forgets what was written to it: until something writes its bytes again,
    /// they count as uninitialised.
    ///
    /// # Errors
    /// When `pointer` points into no live allocation.
    pub fn poison(&mut self, pointer: Pointer, byte: u8) -> Result<()> {
        let at = self.live(pointer)?;
        self.allocations[at].poison(byte);
        Ok(())
    }

    /// Makes writes of kernels to an allocation a defect.
    ///
    /// # Errors
    /// When `pointer` points into no live allocation.
    pub fn protect(&mut self, pointer: Pointer) -> Result<()> {
        let at = self.live(pointer)?;
        self.allocations[at].read_only = true;
        Ok(())
    }

    pub(crate) fn variable(&self, module: u64, name: &str) -> Option<Pointer> {
        self.variables.get(&(module, name.to_owned())).copied()
    }

    pub(crate) fn alloc_variable(&mut self, module: u64, name: &str, data: &[u8]) -> Result<Pointer> {
        let pointer = self.alloc(data.len() as u64, Some(data))?;
        self.variables.insert((module, name.to_owned()), pointer);
        Ok(pointer)
    }

    fn live(&self, pointer: Pointer) -> Result<usize> {
        match self.find(pointer.0) {
            Some((at, allocation)) if allocation.is_live() => Ok(at),
            Some(_) => Err(Error::Launch(format!("{:#x} points into freed memory", pointer.0))),
            None => Err(Error::Launch(format!("{:#x} points into no allocation", pointer.0))),
        }
    }

    fn range(&self, pointer: Pointer, bytes: usize) -> Result<usize> {
        let at = self.live(pointer)?;
        let end = (pointer.0 & OFFSET_MASK) + bytes as u64;
        let size = self.allocations[at].bytes();
        if end > size {
            return Err(Error::Launch(format!(
                "{:#x} + {bytes} bytes ends {} bytes past its allocation of {size}",
                pointer.0,
                end - size
            )));
        }
        Ok(at)
    }

    pub(crate) fn find(&self, address: u64) -> Option<(usize, &Allocation)> {
        let at = (address >> OFFSET_BITS).checked_sub(FIRST_ALLOCATION)? as usize;
        self.allocations.get(at).map(|allocation| (at, allocation))
    }

    pub(crate) fn allocations(&self) -> &[Allocation] {
        &self.allocations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_ranges_are_held() {
        let mut memory = Memory::new();
        let a = memory.alloc(7, Some(&[1, 2, 3, 4, 5, 6, 7])).unwrap();
        memory.write(a.offset(3), &[9, 9]).unwrap();
        let mut out = [0; 6];
        memory.read(a.offset(1), &mut out).unwrap();
        assert_eq!(out, [2, 3, 9, 9, 6, 7]);
        assert!(memory.read(a.offset(2), &mut out).is_err());
        assert!(memory.alloc(3, Some(&[0])).is_err());
    }

    #[test]
    fn freed_memory_is_known_as_freed() {
        let mut memory = Memory::new();
        let a = memory.alloc(16, None).unwrap();
        assert!(memory.free(a.offset(4)).is_err());
        memory.free(a).unwrap();
        assert!(memory.free(a).unwrap_err().to_string().contains("freed"));
        assert!(memory.read(Pointer::NULL, &mut [0]).is_err());
    }

    #[test]
    fn poison_is_no_content() {
        let mut memory = Memory::new();
        let a = memory.alloc(11, Some(&[7; 11])).unwrap();
        memory.poison(a, 0xFF).unwrap();
        memory.write(a.offset(3), &[1, 2]).unwrap();
        let mut out = [0; 11];
        memory.read(a, &mut out).unwrap();
        assert_eq!(out, [255, 255, 255, 1, 2, 255, 255, 255, 255, 255, 255]);
        let allocation = &memory.allocations()[0];
        assert!(allocation.is_defined(3, 2) && !allocation.is_defined(2, 2) && !allocation.is_defined(5, 1));
    }
}
