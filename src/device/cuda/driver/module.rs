//! Loaded machine code, and its entries.
#![expect(unsafe_code, reason = "the C interface of the CUDA driver")]

use super::{Context, Error, Result, check, has};
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};
use std::ffi::CString;
use std::sync::Arc;

/// Loaded machine code.
pub struct Module {
    pub(super) module: sys::CUmodule,
    pub(super) context: Context,
}

// SAFETY: module handles may be used from any thread that has the context current.
unsafe impl Send for Module {}
// SAFETY: as above; the driver locks internally.
unsafe impl Sync for Module {}

impl Module {
    /// Looks up an entry.
    pub fn function(&self, entry: &str) -> Result<Function> {
        let name = CString::new(entry).map_err(|_| Error(CUresult::CUDA_ERROR_NOT_FOUND))?;
        // SAFETY: the module is alive.
        let function = unsafe { result::module::get_function(self.module, name) }?;
        Ok(Function { function, parameter_sizes: parameter_sizes(function).map(Arc::from) })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.frees() {
            // SAFETY: loaded once, unloaded once; its functions are used only while it is borrowed.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

/// The size of each parameter in bytes, or `None` where the driver cannot tell (before 12.4).
fn parameter_sizes(function: sys::CUfunction) -> Option<Vec<usize>> {
    if !has("cuFuncGetParamInfo") {
        return None;
    }
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is alive; past the last parameter the call answers an error.
        let result = unsafe { sys::cuFuncGetParamInfo(function, sizes.len(), &mut offset, &mut size) };
        if result != CUresult::CUDA_SUCCESS {
            return Some(sizes);
        }
        sizes.push(size);
    }
}

/// An entry of a module, valid while the module is.
#[derive(Clone)]
pub struct Function {
    pub(super) function: sys::CUfunction,
    parameter_sizes: Option<Arc<[usize]>>,
}

// SAFETY: function handles may be used from any thread that has the context current.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    /// The size of each parameter in bytes, or `None` where the driver cannot tell (before 12.4).
    pub fn parameter_sizes(&self) -> Option<&[usize]> {
        self.parameter_sizes.as_deref()
    }

    /// The largest block that its registers allow.
    pub fn max_threads(&self) -> Result<usize> {
        self.attribute(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
    }

    /// Blocks that a multiprocessor has room for at once.
    pub(super) fn blocks_at_once(&self, threads: usize, shared_bytes: usize) -> Result<usize> {
        let mut blocks = 0;
        // SAFETY: the function is alive, and the number is written before the call returns.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.function, threads as i32, shared_bytes)
        };
        check(result)?;
        Ok(usize::try_from(blocks).unwrap_or(0))
    }

    /// Allows `bytes` of dynamic shared memory at least, and clusters of any size. What an earlier launch was allowed stays
    /// allowed: it may come again.
    pub fn allow(&self, bytes: usize, cluster: usize) -> Result<()> {
        const BYTES: sys::CUfunction_attribute =
            sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        if self.attribute(BYTES)? < bytes {
            self.set_attribute(BYTES, bytes)?;
        }
        if cluster > 8 {
            self.set_attribute(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
        }
        Ok(())
    }

    fn attribute(&self, attribute: sys::CUfunction_attribute) -> Result<usize> {
        // SAFETY: the function is alive.
        Ok(unsafe { result::function::get_function_attribute(self.function, attribute) }? as usize)
    }

    fn set_attribute(&self, attribute: sys::CUfunction_attribute, value: usize) -> Result<()> {
        // SAFETY: the function is alive.
        unsafe { result::function::set_function_attribute(self.function, attribute, value as i32) }?;
        Ok(())
    }
}
