//! Gates GPU operator kernels under `cargo test`: correctness against f64 references, properties over random shapes,
//! perf regressions against reviewed baselines, one summary JSON.
//!
//! A `tests/gate.rs` with `harness = false` declares operators and their candidates, and runs them:
//!
//! ```no_run
//! use kernelgate::prelude::*;
//!
//! shape! { struct Vector { n: 1..=1 << 20 } }
//!
//! fn main() -> ExitCode {
//!     let op = Op::<Vector>::new("square")
//!         .input("x", |s| [s.n])
//!         .output("y", |s| [s.n])
//!         .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = x * x));
//!     let cpu = Cpu::new::<f32>(|_, x, y| y.slice(0).iter_mut().zip(x.slice(0)).for_each(|(y, x): (&mut f32, &f32)| *y = x * x));
//!     gate!(op).dtypes([F32]).candidate("cpu", cpu).run()
//! }
//! ```
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
