//! Carrying a program out: modules, launches, the turns of clusters and warps.

mod cluster;
mod in_turn;
mod interpreter;
mod job;
mod launch;
mod module;
mod setup;
mod shared;
mod shares;
mod standstill;

pub use launch::{Arg, Dim, Launch, launch};
pub use module::Module;
