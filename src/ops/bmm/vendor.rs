//! The batch by cuBLASLt, as the vendor's candidate.

use super::Products;
use crate::core::candidate::{CudaHost, Declare};
use crate::core::distribution::Distribution;
use crate::device::cuda::cublaslt::Gemm;
use crate::ops::family::cublaslt::by_cublaslt;

/// One launch, its items at a stride.
pub fn cublaslt() -> CudaHost<Products> {
    let in_one_go = "cuBLASLt sums k products in f32 in one go, and equal ones all round to the same side";
    let product = by_cublaslt(|s: &Products| {
        let along = Gemm { a_along_k: !s.transposed_a, b_along_k: s.transposed_b, ..Gemm::new(s.m, s.n, s.k) };
        Ok(Gemm { batch: s.batch, ..along })
    });
    product.exclude_distributions(Distribution::ConstantRows, in_one_go)
}
