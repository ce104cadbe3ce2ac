//! cuDNN, loaded at run time: its handle, and what all its descriptors have in common.
#![expect(unsafe_code, reason = "the C interface of cuDNN")]

use crate::core::dtype::DType;
use crate::toolchain::toolkit;
use cudarc::cudnn::sys::{self, cudnnDataType_t as Type, cudnnStatus_t as Status};
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// An error of the library as text, with what it says of it.
pub(super) fn check(status: Status, what: &str) -> Result<(), String> {
    if status == Status::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    let mut said = [0u8; 512];
    // SAFETY: the library gave a status, so it is present; it writes a text with its end into the room it is told of.
    unsafe { sys::cudnnGetLastErrorString(said.as_mut_ptr().cast(), said.len()) };
    let said = CStr::from_bytes_until_nul(&said).map(CStr::to_string_lossy).unwrap_or_default();
    Err(format!("cuDNN, {what}: {status:?} {}", said.trim()).trim_end().to_owned())
}

/// The library's name of a type.
pub(super) fn element(dtype: DType) -> Result<Type, String> {
    match dtype {
        DType::F32 => Ok(Type::CUDNN_DATA_FLOAT),
        DType::F16 => Ok(Type::CUDNN_DATA_HALF),
        DType::BF16 => Ok(Type::CUDNN_DATA_BFLOAT16),
        other => Err(format!("cuDNN computes nothing in {other} here")),
    }
}

/// The version of the library that was found, `9.14.0`.
pub(super) fn version() -> String {
    // SAFETY: a library that was opened has it; it takes nothing.
    let version = unsafe { sys::cudnnGetVersion() };
    format!("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)
}

/// A handle of the library, alive as long as the process.
pub(super) struct Handle(pub sys::cudnnHandle_t);

// SAFETY: the library's documentation allows a handle on any thread, one at a time; the mutex around it sees to that.
unsafe impl Send for Handle {}

/// The handle for work on `stream` (0 is the default stream). The context is current.
///
/// # Errors
/// Why there is no library, and what to install.
pub(super) fn handle(stream: u64) -> Result<MutexGuard<'static, Handle>, String> {
    static HANDLE: OnceLock<Result<Mutex<Handle>, String>> = OnceLock::new();
    let handle = HANDLE.get_or_init(|| open().map(Mutex::new)).as_ref().map_err(Clone::clone)?;
    let handle = handle.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the handle is alive and the stream belongs to the current context.
    check(unsafe { sys::cudnnSetStream(handle.0, stream as sys::cudaStream_t) }, "setting the stream")?;
    Ok(handle)
}

/// Opens the library, from the loader's path or from a toolkit.
fn open() -> Result<Handle, String> {
    // SAFETY: only tries to open the library.
    if !unsafe { sys::is_culib_present() } {
        toolkit::bring_in(&["libcudnn.so.9"]);
    }
    // SAFETY: as above.
    if !unsafe { sys::is_culib_present() } {
        return Err("there is no libcudnn: install cuDNN (the wheel `nvidia-cudnn-cu13`) and name its folder in \
                    LD_LIBRARY_PATH, or the folder beside it that holds CUDA in KERNELGATE_CUDA_HOME"
            .to_owned());
    }
    let mut handle = std::ptr::null_mut();
    // SAFETY: the library is present, the pointer valid for the call; the handle is kept for good.
    check(unsafe { sys::cudnnCreate(&mut handle) }, "opening it")?;
    Ok(Handle(handle))
}
