//! How vendors' candidates measure what their libraries propose: device memory, and the time of launches.
#![expect(unsafe_code, reason = "the C interface of the CUDA driver")]

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{DriverError, result as driver};

/// Launches that are measured at once, after as many to warm up.
const LAUNCHES: usize = 5;

/// How long some launches on the default stream take.
pub(super) fn milliseconds(launch: impl Fn() -> Result<(), String>) -> Result<f32, String> {
    let cuda = |error: DriverError| format!("measuring algorithms: {:?}", error.0);
    (0..LAUNCHES).try_for_each(|_| launch())?;
    let (begin, end) = (Mark::new().map_err(cuda)?, Mark::new().map_err(cuda)?);
    begin.record().map_err(cuda)?;
    (0..LAUNCHES).try_for_each(|_| launch())?;
    end.record().map_err(cuda)?;
    begin.until(&end).map_err(cuda)
}

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

/// A point in the default stream.
struct Mark(cudarc::driver::sys::CUevent);

impl Mark {
    fn new() -> Result<Self, DriverError> {
        Ok(Mark(driver::event::create(CUevent_flags::CU_EVENT_DEFAULT)?))
    }

    fn record(&self) -> Result<(), DriverError> {
        // SAFETY: the event is alive; null is the default stream.
        unsafe { driver::event::record(self.0, std::ptr::null_mut()) }
    }

    /// Milliseconds to `end`, which is waited for.
    fn until(&self, end: &Mark) -> Result<f32, DriverError> {
        // SAFETY: both events are alive.
        unsafe { driver::event::synchronize(end.0) }?;
        // SAFETY: both have passed.
        unsafe { driver::event::elapsed(self.0, end.0) }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { driver::event::destroy(self.0) };
    }
}
