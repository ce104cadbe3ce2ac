//! Bulk copies under way.

use crate::sim::machine::reduction::Reduction;
use crate::sim::machine::registers::LANES;
use crate::sim::machine::tensor_map::{Swizzle, Unit};

/// A copy of one lane.
#[derive(Debug, Clone)]
pub(crate) struct Flight {
    pub pc: u32,
    pub warp: u32,
    pub lane: usize,
    pub units: Vec<Unit>,
    pub element_bytes: u32,
    pub swizzle: Swizzle,
    pub far_is_shared: bool,
    /// Block and offset in shared memory; several for a multicast.
    pub targets: Vec<(usize, u32)>,
    /// Block and offset of the object of each target.
    pub objects: Vec<(usize, u32)>,
    pub bytes: u32,
    /// Group of the lane, for copies out of shared memory.
    pub group: u32,
    pub reduction: Option<Reduction>,
}

/// The copies of a warp out of shared memory.
#[derive(Debug, Default)]
pub(crate) struct BulkQueue {
    pub pending: Vec<Flight>,
    pub closed: [u32; LANES],
}

impl BulkQueue {
    pub fn clear(&mut self) {
        self.pending.clear();
        self.closed = [0; LANES];
    }
}
