//! The batch by cuBLASLt, as the vendor's candidate: one launch, its items at a stride.

use super::Products;
use crate::core::candidate::{CudaHost, Declare};
use crate::device::cuda::cublaslt::{self, Gemm};

fn gemm(s: &Products) -> Gemm {
    let along = Gemm { a_along_k: !s.transposed_a, b_along_k: s.transposed_b, ..Gemm::new(s.m, s.n, s.k) };
    Gemm { batch: s.batch, ..along }
}

/// Skipped where the library is absent. Its algorithm may not be the one of the last process, so it has no bits to keep.
pub fn cublaslt() -> CudaHost<Products> {
    CudaHost::new(|s: &Products, call| cublaslt::enqueue(gemm(s), call))
        .prepare(|s, dtype| cublaslt::prepare(gemm(s), dtype))
        .describe(|s, dtype| cublaslt::describe(gemm(s), dtype))
        .workspace(|s| cublaslt::workspace_bytes(gemm(s)))
        .nondeterministic()
}
