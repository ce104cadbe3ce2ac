//! Executes PTX on the CPU and watches what the kernel does.
//!
//! The room knows PTX and memory, nothing of the gate. Text becomes a tree ([`ptx`](Module::parse)), the tree an array of instructions
//! with a handler for 32 lanes each, and [`launch`] runs that array for every warp of a grid. Every access to memory passes checks:
//! bounds, alignment, initialisation, races. What they find is in the [`Report`], with exact counts of the work done.

#![expect(clippy::needless_range_loop, reason = "a lane indexes several rows at once")]

mod decode;
mod error;
mod exec;
mod lanes;
mod memory;
mod metrics;
mod module;
mod ops;
mod options;
mod printf;
mod program;
mod ptx;
mod race;
mod report;
mod rng;
mod tensor_map;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use exec::{Arg, Dim, Launch, launch};
pub use memory::{Memory, Pointer};
pub use metrics::{InstructionClass, LineCount, Metrics, Traffic};
pub use module::Module;
pub use options::{Accumulation, Checks, Completion, Options, WarpOrder};
pub use report::{Check, Finding, Place, Report, Source};
pub use tensor_map::{Swizzle, TensorMap};
