//! Host code that enqueues GPU work, as a device calls it.

use super::kernel::BytesFn;
use crate::core::dtype::DType;
use crate::core::work::Work;
use std::sync::Arc;

/// What host code that enqueues GPU work is given: everything must go on the stream, and nothing may wait.
///
/// Only the device of a case makes one, and nobody changes it: the functions that hand its addresses to a library rely on
/// their being those of the buffers.
/// ```
/// use kernelgate::prelude::*;
///
/// /// The pointers of y = f(x), as a launcher in C takes them.
/// fn pointers(call: &Enqueue) -> [*mut std::ffi::c_void; 2] {
///     [call.inputs()[0], call.outputs()[0]].map(|address| address as *mut std::ffi::c_void)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Enqueue {
    pub(crate) stream: u64,
    pub(crate) inputs: Vec<u64>,
    pub(crate) outputs: Vec<u64>,
    pub(crate) workspace: u64,
    pub(crate) dtype: DType,
}

impl Enqueue {
    /// The `CUstream`; the context is current.
    pub fn stream(&self) -> u64 {
        self.stream
    }

    /// Device addresses of the inputs.
    pub fn inputs(&self) -> &[u64] {
        &self.inputs
    }

    /// Device addresses of the outputs.
    pub fn outputs(&self) -> &[u64] {
        &self.outputs
    }

    /// Device address of the workspace, 0 for none.
    pub fn workspace(&self) -> u64 {
        self.workspace
    }

    /// The dtype of the case.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
}

pub(super) type EnqueueFn = Arc<dyn Fn(&[usize], &Enqueue) -> Result<(), String> + Send + Sync>;
pub(super) type PrepareFn = Arc<dyn Fn(&[usize], DType) -> Result<(), String> + Send + Sync>;
pub(super) type DescribeFn = Arc<dyn Fn(&[usize], DType) -> Option<String> + Send + Sync>;
pub(super) type WorkFn = Arc<dyn Fn(&[usize], DType, &str) -> Option<Work> + Send + Sync>;

/// Host code that enqueues GPU work, with its scratch space.
#[derive(Clone)]
pub struct EnqueueBody {
    pub(super) function: EnqueueFn,
    pub(super) prepare: PrepareFn,
    pub(super) describe: Option<DescribeFn>,
    pub(super) propose: DescribeFn,
    pub(super) work: WorkFn,
    pub(super) workspace_bytes: BytesFn,
}

impl EnqueueBody {
    /// What it does for a case that it was prepared for, where it can say.
    pub fn describe(&self, point: &[usize], dtype: DType) -> Option<String> {
        self.describe.as_ref()?(point, dtype)
    }

    /// The same before any run, where it can say: it may ask a library, which it opens for it.
    pub fn propose(&self, point: &[usize], dtype: DType) -> Option<String> {
        (self.propose)(point, dtype)
    }

    /// The tiles that it works off, by what it said of itself: [`EnqueueBody::describe`], [`EnqueueBody::propose`].
    pub fn work(&self, point: &[usize], dtype: DType, said: &str) -> Option<Work> {
        (self.work)(point, dtype, said)
    }

    /// Does what must be done before the first launch of a case.
    ///
    /// # Errors
    /// Why the case cannot run here.
    pub fn prepare(&self, point: &[usize], dtype: DType) -> Result<(), String> {
        (self.prepare)(point, dtype)
    }

    /// Enqueues the work of a case.
    ///
    /// # Errors
    /// What the library said.
    pub fn call(&self, point: &[usize], call: &Enqueue) -> Result<(), String> {
        (self.function)(point, call)
    }
}
