//! The PTX simulator as a device of the gate: CUDA candidates run on any machine, under checks that hardware lacks.

mod arch;
mod arena;
mod committed;
mod device;
mod explain;
mod modes;
mod problem;
mod program;
#[cfg(test)]
mod tests;

pub use arch::ARCH;
pub use arena::SimArena;
pub use committed::{Committed, FOLDER};
pub use device::SimDevice;
