//! From CUDA C++ to code: what goes into the compiler, NVRTC, the kernel cache, the PTX that a project keeps, and what
//! `ptxas` says of it. Nothing here needs a GPU.
//!
//! `nvrtc` and `toolkit` are the only files with `unsafe`.

#[cfg(feature = "cuda")]
mod artifact;
#[cfg(feature = "cuda")]
pub mod cache;
pub mod code;
pub mod committed;
#[cfg(feature = "cuda")]
mod compile;
#[cfg(feature = "cuda")]
mod compile_ptx;
mod disk;
mod error;
#[cfg(feature = "cuda")]
pub mod nvrtc;
pub mod ptx;
pub mod recipe;
pub mod resources;
mod standard;
#[cfg(feature = "cuda")]
pub mod toolkit;

#[cfg(feature = "cuda")]
pub use artifact::Artifact;
#[cfg(feature = "cuda")]
pub use compile::{can_include, compile, compile_afresh, compile_instances, is_cached};
#[cfg(feature = "cuda")]
pub use compile_ptx::{compile_ptx, compile_ptx_afresh};
pub use error::Error;
pub use recipe::Target;
