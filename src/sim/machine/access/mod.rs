//! Accesses of a warp to memory, under all checks.

mod faults;
pub(crate) mod global;
pub(crate) mod local;
pub(crate) mod shared;
pub(crate) mod wavefronts;
