//! What a launch runs on: warps, blocks, memory, and who has accessed it when. It knows no instruction.

pub(crate) mod access;
pub(crate) mod barrier_objects;
pub(crate) mod block;
pub(crate) mod bulk_queue;
pub(crate) mod context;
pub(crate) mod copy_queue;
pub(crate) mod counters;
pub(crate) mod grid;
pub(crate) mod heap;
pub(crate) mod log;
pub(crate) mod memory;
mod multicast;
pub(crate) mod product_queue;
pub(crate) mod race;
pub(crate) mod reduction;
pub(crate) mod registers;
pub(crate) mod tensor_map;
pub(crate) mod texture;
pub(crate) mod warp;
