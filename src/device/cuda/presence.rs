//! Whether there is a driver that sees a GPU.

use super::driver;

/// The driver's version, or why there is none.
pub fn find_driver() -> Result<String, String> {
    if !driver::is_present() {
        return Err("the CUDA driver (libcuda.so.1) is not installed; without an NVIDIA GPU none is needed".into());
    }
    let version = driver::driver_version().map_err(|e| format!("the CUDA driver does not answer: {e}"))?;
    match driver::device_count() {
        Ok(0) => Err("the CUDA driver sees no GPU".into()),
        Ok(_) => Ok(format!("CUDA {}.{}", version / 1000, version % 1000 / 10)),
        Err(e) => Err(format!("the CUDA driver sees no GPU: {e}")),
    }
}
