//! The layer by cuBLASLt, as the vendor's candidate: one launch, with what the library can fuse.

use super::{Activation, Layer};
use crate::core::candidate::{CudaHost, Declare};
use crate::device::cuda::cublaslt::{self, Epilogue, Gemm};

/// The product and what follows it.
///
/// # Errors
/// Where the library has no such epilogue.
fn gemm(s: &Layer) -> Result<Gemm, String> {
    let epilogue = match (s.activation, s.residual) {
        (Activation::None, _) => Epilogue::Bias,
        (Activation::GeluTanh, false) => Epilogue::GeluBias,
        (Activation::GeluTanh, true) => return Err("cuBLASLt adds a residual before the activation, not behind".into()),
        (Activation::Silu, _) => return Err("cuBLASLt has no epilogue with SiLU".into()),
    };
    Ok(Gemm { b_along_k: true, epilogue, adds: s.residual, ..Gemm::new(s.m, s.n, s.k) })
}

/// Skipped where the library is absent. Its algorithm may not be the one of the last process, so it has no bits to keep.
pub fn cublaslt() -> CudaHost<Layer> {
    CudaHost::new(|s: &Layer, call| cublaslt::enqueue(gemm(s)?, call))
        .prepare(|s, dtype| cublaslt::prepare(gemm(s)?, dtype))
        .describe(|s, dtype| cublaslt::describe(gemm(s).ok()?, dtype))
        .workspace(|s| gemm(s).map_or(0, cublaslt::workspace_bytes))
        .nondeterministic()
}
