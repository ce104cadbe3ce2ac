//! Families of operators that share a shape, tensors and cases.

pub mod aligned;
#[cfg(feature = "cuda")]
pub mod cublaslt;
pub mod elementwise;
pub mod pairs;
pub mod rows;
pub mod stretch;
pub mod triton;

/// Operations that a call of exp, erf or tanh is counted as: about the polynomial behind it.
pub const FUNCTION_FLOPS: usize = 10;
