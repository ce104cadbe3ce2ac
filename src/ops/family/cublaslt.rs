//! Products by cuBLASLt, as the vendor's candidates of the operators that are one.

use crate::core::candidate::{CudaHost, Declare};
use crate::core::shape::Shape;
use crate::device::cuda::cublaslt::{self, Gemm};

/// The candidate that does what `gemm` describes; where that gives a reason, the library declines.
///
/// Skipped where the library is absent. Its algorithm may not be the one of the last process, so it has no bits to keep.
pub fn by_cublaslt<S: Shape>(gemm: fn(&S) -> Result<Gemm, String>) -> CudaHost<S> {
    CudaHost::new(move |s: &S, call| cublaslt::enqueue(gemm(s)?, call))
        .prepare(move |s, dtype| cublaslt::prepare(gemm(s)?, dtype))
        .describe(move |s, dtype| cublaslt::describe(gemm(s).ok()?, dtype))
        .propose(move |s, dtype| cublaslt::propose(gemm(s).ok()?, dtype))
        .shares(move |s, dtype, said| cublaslt::work(gemm(s).ok()?, dtype, said))
        .workspace(move |s| gemm(s).map_or(0, cublaslt::workspace_bytes))
        .nondeterministic()
}
