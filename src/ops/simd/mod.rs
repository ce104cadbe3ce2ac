//! The CPU tiers of the catalogue: operators on slices, vectorised and on all threads.
//!
//! Each function takes `f32`, `f16` or `bf16` ([`Lane`]), computes in f32, rounds to nearest even and
//! lets NaN and infinity through as the formula does. Small work stays on the calling thread; larger
//! work is shared out in rayon's pool. The result depends neither on the threads nor on the alignment.
//!
//! Kernels are written once over a vector (`vector`) and compiled for each instruction set: AVX-512,
//! AVX2 with FMA, and plain Rust for every other processor. The widest that the processor has is chosen
//! at the first call (`level`).
//!
//! | file | owns |
//! |---|---|
//! | `vector`, `level` | the abstraction, the choice at run time |
//! | `avx512`, `avx2`, `portable` | its implementations; `x86` is what the first two share |
//! | `lane` | element types, widening and rounding |
//! | `math` | exp, erf, tanh and the activations on vectors |
//! | `run`, `convert`, `transpose`, `threads`, `scratch` | passes over contiguous elements, sharing out, memory |
//! | `elementwise`, `norm`, `softmax`, `embedding`, `fused`, `gemm`, `bmm`, `gemv`, `linear`, `attention`, `attention_cached`, `conv2d`, `max_pool2d`, `lstm` | the operators |

#![expect(unsafe_code, reason = "vector loads and stores, and the instruction sets behind them")]

mod attention;
mod attention_cached;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bmm;
mod conv2d;
mod convert;
mod elementwise;
mod embedding;
mod fused;
mod gemm;
mod gemv;
mod lane;
mod level;
mod linear;
mod lstm;
mod math;
mod max_pool2d;
mod norm;
mod portable;
mod run;
mod scratch;
mod softmax;
#[cfg(test)]
mod sweep;
#[cfg(test)]
mod testing;
mod threads;
mod transpose;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use attention::{AttentionExtents, attention};
pub use attention_cached::{CachedExtents, attention_cached};
pub use bmm::bmm;
pub use conv2d::{ConvolutionExtents, conv2d};
pub use elementwise::{erf, exp, gelu, gelu_tanh, relu, silu, tanh};
pub use embedding::{NoSuchRow, embedding};
pub use fused::{add, add_rmsnorm, rope, row_sums, swiglu};
pub(super) use gemm::SERIAL_BELOW;
pub use gemm::{gemm, shares as gemm_shares};
pub use gemv::gemv;
pub use lane::Lane;
pub use linear::{Elementwise, linear};
pub use lstm::{LayerExtents, lstm_layer};
pub use max_pool2d::{Pooled, PoolingExtents, max_pool2d};
pub use norm::{layernorm, layernorm_gelu, rmsnorm};
pub use softmax::{log_softmax, softmax};
pub use threads::rows_shares;
