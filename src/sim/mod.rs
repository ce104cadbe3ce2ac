//! Executes PTX on the CPU and watches what the kernel does.
//!
//! It knows PTX and memory, nothing of the gate. [`Module::parse`] makes text a tree (`ptx`), the first [`launch`] of an
//! entry makes the tree an array of instructions (`passes`, into `ir`) with a handler for 32 lanes each (`isa`), and that
//! array runs for every warp of the grid (`run`, on a `machine`). Every access to memory passes checks: bounds, alignment,
//! initialisation, races. What they find is in the [`Report`], with exact counts of the work done.
//!
//! ```
//! use kernelgate::sim::{Launch, Memory, Module, Options, launch};
//!
//! let module = Module::parse(
//!     ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry number(.param .u64 out) {
//!          .reg .b32 %r<2>; .reg .b64 %rd<4>;
//!          ld.param.u64 %rd1, [out];
//!          mov.u32 %r1, %tid.x;
//!          mul.wide.u32 %rd2, %r1, 4;
//!          add.s64 %rd3, %rd1, %rd2;
//!          st.global.u32 [%rd3], %r1;
//!          ret;
//!      }",
//! )?;
//! let mut memory = Memory::new();
//! let out = memory.alloc(4 * 31, None)?;
//! let report = launch(&module, &Launch::new("number", 1, 32).arg(out), &mut memory, &Options::default())?;
//! // 32 threads, room for 31 words: the last thread writes past the end.
//! assert_eq!(report.findings[0].check.name(), "out-of-bounds");
//! assert_eq!(report.findings[0].place.thread, [31, 0, 0]);
//! # Ok::<(), kernelgate::sim::Error>(())
//! ```
//!
//! # What is modelled, and what is not
//!
//! Values are those of IEEE 754 where PTX asks for them, bit for bit. Approximate operations are within one unit in the
//! last place, or, in the adversarial mode, anywhere within their documented bounds. Sums of matrix operations run over
//! k in single precision, with fused multiply-adds: hardware may differ in the last bits. Time, caches, weak-memory
//! reordering beyond the race checks, and what `ptxas` does are not modelled. Where the order of blocks can matter they run
//! one after the other; a block that polls global memory in vain leaves off until the others have run, so that a
//! barrier of the whole grid opens. Module variables live as long as
//! the memory in which their module was first launched. Opcodes that are not modelled give
//! [`Error::Unsupported`].

#![expect(clippy::needless_range_loop, reason = "a lane indexes several rows at once")]

mod error;
mod ir;
mod isa;
mod machine;
mod metrics;
mod names;
mod options;
mod passes;
mod ptx;
mod report;
mod rng;
mod run;
#[cfg(test)]
mod tests;
mod tier;

pub use error::Error;
pub use machine::memory::{Memory, Pointer};
pub use machine::tensor_map::{Element, Im2col, Swizzle, TensorMap};
pub use machine::texture::{AddressMode, ChannelKind, Channels, Filter, Texture};
pub use metrics::{InstructionClass, LineCount, Metrics, Traffic};
pub use names::{is_called, is_named, source_name};
pub use options::{Accumulation, Checks, Completion, Options, WarpOrder};
pub use report::{Check, Finding, Place, Report, Source};
pub use run::{Arg, Dim, Launch, Module, launch};
