//! The product by cuBLASLt, as the vendor's candidate.

use super::Product;
use crate::core::candidate::CudaHost;
use crate::device::cuda::cublaslt::Gemm;
use crate::ops::family::cublaslt::by_cublaslt;

/// One launch.
pub fn cublaslt() -> CudaHost<Product> {
    by_cublaslt(|s: &Product| Ok(Gemm::new(s.m, s.n, s.k)))
}
