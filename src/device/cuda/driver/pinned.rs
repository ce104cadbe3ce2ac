//! Host memory that the device copies to while the host goes on.
#![expect(unsafe_code, reason = "the C interface of the CUDA driver")]

use super::{Buffer, Context, Result, check};
use cudarc::driver::sys;

/// Page-locked host memory.
pub struct Pinned {
    pointer: *mut std::ffi::c_void,
    bytes: usize,
    context: Context,
}

impl Context {
    /// Allocates page-locked host memory.
    pub fn pinned(&self, bytes: usize) -> Result<Pinned> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call; the memory is freed once, on drop.
        check(unsafe { sys::cuMemAllocHost_v2(&mut pointer, bytes.max(1)) })?;
        // SAFETY: so many bytes were just allocated. They are zeroed so that they can be read whatever happens.
        unsafe { std::ptr::write_bytes(pointer.cast::<u8>(), 0, bytes.max(1)) };
        Ok(Pinned { pointer, bytes, context: self.clone() })
    }
}

impl Pinned {
    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes, once the event behind their copy has passed.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: allocated with so many bytes, all of them written at least once.
        unsafe { std::slice::from_raw_parts(self.pointer.cast(), self.bytes) }
    }
}

impl Buffer {
    /// Enqueues a copy of what `to` holds from `offset` on. Who reads `to` waits for an event that is recorded behind.
    pub fn begin_download(&self, offset: usize, to: &mut Pinned) -> Result<()> {
        assert!(offset + to.bytes <= self.bytes, "a download inside the buffer");
        let stream = self.context.stream.cu_stream();
        // SAFETY: both ranges were checked, and pinned memory is freed only after the stream has been waited for.
        check(unsafe { sys::cuMemcpyDtoHAsync_v2(to.pointer, self.pointer + offset as u64, to.bytes, stream) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.frees() {
            let stream = self.context.stream.cu_stream();
            // SAFETY: a copy may still be under way: the stream is alive and waited for, then the memory is freed once.
            let _ = unsafe { (sys::cuStreamSynchronize(stream), sys::cuMemFreeHost(self.pointer)) };
        }
    }
}
