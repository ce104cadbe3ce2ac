//! The product by cuBLASLt, as the vendor's candidate.

use super::Product;
use crate::core::candidate::{CudaHost, Declare};
use crate::device::cuda::cublaslt::{self, Gemm};

fn gemm(s: &Product) -> Gemm {
    Gemm::new(s.m, s.n, s.k)
}

/// Skipped where the library is absent. Its algorithm may not be the one of the last process, so it has no bits to keep.
pub fn cublaslt() -> CudaHost<Product> {
    CudaHost::new(|s: &Product, call| cublaslt::enqueue(gemm(s), call))
        .prepare(|s, dtype| cublaslt::prepare(gemm(s), dtype))
        .describe(|s, dtype| cublaslt::describe(gemm(s), dtype))
        .workspace(|s| cublaslt::workspace_bytes(gemm(s)))
        .nondeterministic()
}
