//! The simulator from outside: its command, and the evidence for what it claims.

mod buffers;
mod catalogue;
mod command;
mod coverage;
mod equivalence;
mod equivalent;
mod evidence;
mod fuzz;
mod hangs;
mod hardware;
mod mutants;
mod mutation;
mod races;
mod right;
mod speed;
mod subject;
mod textures;
