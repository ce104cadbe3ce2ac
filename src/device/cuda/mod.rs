//! NVIDIA GPUs, through the driver API loaded at run time.
//!
//! `driver`, `tensor_map`, `scratch`, `cupti/library` and the vendors' libraries (`cublaslt`, `cudnn*`) are the only
//! files with `unsafe`; everything else builds on their safe functions.

mod adapter;
mod arena;
mod choices;
pub mod cublaslt;
mod cublaslt_tile;
mod cudnn;
pub mod cudnn_attention;
pub mod cudnn_conv;
mod cudnn_graph;
pub mod cudnn_rnn;
mod cupti;
mod device;
mod driver;
mod precompile;
mod presence;
mod probe;
mod problem;
mod program;
mod refresh;
mod round_trip;
mod scratch;
mod support;
mod tensor_map;
mod timing;
mod watch;
mod work;

pub use arena::CudaArena;
pub use device::CudaDevice;
pub use precompile::{precompile, precompile_ahead, programs};
pub use presence::find_driver;
pub use probe::{Finding, probe};
