//! Device memory of vendors' candidates, for measuring what their libraries propose.
#![expect(unsafe_code, reason = "the C interface of the CUDA driver")]

use cudarc::driver::{DriverError, result as driver};

/// Device memory that is freed on drop.
pub(super) struct Scratch(pub u64);

impl Scratch {
    /// Small values of every float type.
    const BYTE: u8 = 0x3c;

    pub fn of(bytes: usize) -> Result<Self, DriverError> {
        // SAFETY: freed once, on drop.
        let memory = Scratch(unsafe { driver::malloc_sync(bytes.max(1)) }?);
        // SAFETY: the range is the allocation.
        unsafe { driver::memset_d8_sync(memory.0, Self::BYTE, bytes) }?;
        Ok(memory)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: allocated once, freed once; freeing waits for the work on it.
        let _ = unsafe { driver::free_sync(self.0) };
    }
}
