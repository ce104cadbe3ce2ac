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

/// The architecture to compile for on a GPU, without opening it.
///
/// # Errors
/// What the driver says.
pub fn arch(ordinal: usize) -> Result<String, String> {
    find_driver()?;
    let (major, minor) = driver::capability(ordinal).map_err(|e| format!("GPU {ordinal} does not answer: {e}"))?;
    Ok(arch_of((major, minor)))
}

/// With the features of this very architecture where it has any: `sm_80`, `sm_90a`.
pub fn arch_of((major, minor): (i32, i32)) -> String {
    let suffix = if major >= 9 { "a" } else { "" };
    format!("sm_{major}{minor}{suffix}")
}
