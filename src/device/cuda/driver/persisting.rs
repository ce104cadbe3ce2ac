//! What host code may have asked of the L2: memory set aside in it, and windows of addresses whose lines are to stay there.
#![expect(unsafe_code, reason = "the C interface of the CUDA driver")]

use super::{Context, Result};
use cudarc::driver::sys;

/// Takes back what was set aside in the L2 and the window of the stream, and makes an ordinary line of every one that was to
/// persist.
pub fn forget_persisting(context: &Context) -> Result<()> {
    context.bind()?;
    // SAFETY: plain data; a window of no bytes is none.
    let none: sys::CUstreamAttrValue = unsafe { std::mem::zeroed() };
    // SAFETY: the context is current, the stream alive, and the value outlives the call. Devices without such lines refuse,
    // which leaves nothing to take back.
    unsafe {
        let window = sys::CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
        let _ = sys::cuStreamSetAttribute(context.stream.cu_stream(), window, &none);
        let _ = sys::cuCtxSetLimit(sys::CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0);
        let _ = sys::cuCtxResetPersistingL2Cache();
    }
    Ok(())
}
