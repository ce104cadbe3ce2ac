//! The harness, its summary and its command from outside: processes are started, their output is read.

mod accept;
mod calibration;
mod hostile;
mod runners;
mod runs;
mod schema;
mod streams;
mod support;

#[cfg(feature = "cli")]
mod ab;
#[cfg(feature = "cli")]
mod command;
#[cfg(feature = "cli")]
mod llm;
#[cfg(feature = "cli")]
mod peers;
#[cfg(feature = "cli")]
mod predict;
#[cfg(feature = "cli")]
mod profile;
#[cfg(feature = "cli")]
mod protocol;
mod user;
#[cfg(feature = "cli")]
mod workloads;
