//! Gates GPU operator kernels under `cargo test`: correctness against f64 references, properties over random shapes,
//! perf regressions against reviewed baselines, one summary JSON.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod baseline;
pub mod calibrate;
pub mod check;
#[cfg(feature = "cli")]
pub mod cli;
pub mod core;
pub mod device;
pub mod harness;
pub mod measure;
#[cfg(feature = "models")]
pub mod models;
#[cfg(feature = "catalogue")]
pub mod ops;
pub mod predict;
pub mod prelude;
pub mod profile;
pub mod protocol;
pub mod report;
pub mod sim;
