//! The PTX simulator as a device of the gate: CUDA candidates run on any machine, under checks that hardware lacks.

mod arena;
mod device;
mod explain;
mod modes;
mod problem;
mod program;
#[cfg(test)]
mod tests;

pub use arena::SimArena;
pub use device::SimDevice;
