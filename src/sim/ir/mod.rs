//! What is carried out: programs of instructions with handlers, and what emits them.

pub(crate) mod assignment;
pub(crate) mod bundles;
pub(crate) mod constants;
pub(crate) mod emitter;
pub(crate) mod functions;
pub(crate) mod lanes;
pub(crate) mod layout;
mod operands;
pub(crate) mod program;
