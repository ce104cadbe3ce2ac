//! The harness: trials out of suites, arguments, runs in worker processes, the summary, the exit code.
//! The only user of libtest-mimic.
//!
//! | exit code of a gate | meaning |
//! |---|---|
//! | 0 | no trial failed |
//! | 2 | the arguments or the declarations are wrong, or a filter matches no trial |
//! | 3 | `--unsupervised`: nothing failed, but nobody would have seen the process end early |
//! | 4 | no trial failed, but cases were cut by a time that was asked for |
//! | 101 | a trial failed or did not run, or the log or the summary could not be written |

pub mod arguments;
mod broken;
mod budget;
pub mod command;
pub mod conclusion;
pub mod devices;
pub mod engine;
pub mod executor;
pub mod gate;
pub(crate) mod interrupt;
pub mod lane;
mod ledger;
pub mod plant;
pub mod progress;
pub mod project;
mod quota;
pub mod run;
mod serve;
pub mod terminal;
pub mod trial;
#[cfg(unix)]
pub mod worker;
#[cfg(not(unix))]
#[path = "worker/absent.rs"]
pub mod worker;

pub use gate::{Gate, GateOf};
pub use project::Project;
