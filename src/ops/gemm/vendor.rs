//! The product by cuBLASLt, as the vendor's candidate.

use super::Product;
use crate::core::candidate::{CudaHost, Declare};
use crate::device::cuda::cublaslt::{self, Epilogue, Gemm};

fn gemm(s: &Product) -> Gemm {
    Gemm { m: s.m, n: s.n, k: s.k, b_along_k: false, epilogue: Epilogue::None, adds: false }
}

/// Skipped where the library is absent. Its algorithm may not be the one of the last process, so it has no bits to keep.
pub fn cublaslt() -> CudaHost<Product> {
    CudaHost::new(|s: &Product, call| cublaslt::enqueue(gemm(s), call))
        .prepare(|s, dtype| cublaslt::prepare(gemm(s), dtype))
        .describe(|s, dtype| cublaslt::describe(gemm(s), dtype))
        .workspace(|s| cublaslt::workspace_bytes(gemm(s)))
        .nondeterministic()
}
