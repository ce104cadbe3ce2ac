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
//!
//! Public are the [`prelude`], [`Gate`], the simulator ([`sim`]) and the types of a run's [`summary`].
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod prelude;
pub mod sim;

pub use harness::{Gate, Project};

/// The types of `summary.json`, for programs that read it: [`Summary`](summary::Summary) is the file, and
/// [`SCHEMA`](summary::SCHEMA) describes it to others.
pub mod summary {
    pub use crate::check::builds::{BuildCase, BuildComparison};
    pub use crate::check::outcome::{Bound, Check, Failure, Metric, Outcome, PeerTiming, Timing, Verdict, Worst};
    pub use crate::core::dtype::DType;
    pub use crate::device::fingerprint::Fingerprint;
    pub use crate::device::{DeviceKind, Heat};
    pub use crate::measure::noise::{Detection, NoiseReport};
    pub use crate::profile::ProfileRun;
    pub use crate::report::SCHEMA;
    pub use crate::report::ceiling::Ceiling;
    pub use crate::report::error::Error;
    pub use crate::report::models::{MemoryParts, ModelRun, Quantiles};
    pub use crate::report::record::Record;
    pub use crate::report::summary::{DeviceEntry, NoiseEntry, Run, Summary, VERSION};
    pub use crate::report::workloads::{Accuracy, Exchange, RunTime, Stage, WorkloadRun};
}

// For this project's own command, tests and examples; it may change without notice.
#[doc(hidden)]
pub mod baseline;
#[doc(hidden)]
pub mod calibrate;
#[doc(hidden)]
pub mod check;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod core;
#[doc(hidden)]
pub mod device;
#[doc(hidden)]
pub mod harness;
#[doc(hidden)]
pub mod measure;
#[cfg(feature = "models")]
#[doc(hidden)]
pub mod models;
#[cfg(feature = "catalogue")]
#[doc(hidden)]
pub mod ops;
#[doc(hidden)]
pub mod predict;
#[doc(hidden)]
pub mod profile;
#[doc(hidden)]
pub mod protocol;
#[doc(hidden)]
pub mod report;
#[doc(hidden)]
pub mod toolchain;
