//! The layer by cuBLASLt, as the vendor's candidate.

use super::{Activation, Layer};
use crate::core::candidate::{CudaHost, Declare};
use crate::core::tolerance::Tolerance;
use crate::device::cuda::cublaslt::{Epilogue, Gemm};
use crate::ops::family::cublaslt::by_cublaslt;

/// On an H200 (cuBLASLt of CUDA 13.0) its GELU with bias was off by up to 5.6e-6 in f32, which is 0.7 % of a value near 0,
/// by 1.6e-3 in f16 and 1.5e-2 in bf16, and it made NaN of sums of -inf. `peers/torch_peer.py --mode epilogue` times it.
const GELU: &str =
    "cuBLASLt's GELU is an approximation outside of what the operator allows, and NaN where a sum is -inf";

/// The product and what follows it.
///
/// # Errors
/// Where the library has no such epilogue.
fn gemm(s: &Layer) -> Result<Gemm, String> {
    let epilogue = match (s.activation, s.residual) {
        (Activation::None, _) => Epilogue::Bias,
        (Activation::GeluTanh, _) => return Err(GELU.into()),
        (Activation::Silu, _) => return Err("cuBLASLt has no epilogue with SiLU".into()),
    };
    Ok(Gemm { b_along_k: true, epilogue, adds: s.residual, ..Gemm::new(s.m, s.n, s.k) })
}

/// One launch, with what the library can fuse.
pub fn cublaslt() -> CudaHost<Layer> {
    by_cublaslt(gemm).tolerance(
        Tolerance::default().intermediate(1.0).because("cuBLASLt rounds a sum to the dtype before it adds C"),
    )
}
