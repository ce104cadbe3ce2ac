//! The copies of `cp.async` that nobody has waited for.

use crate::sim::machine::registers::LANES;

/// A copy that some lanes have not waited for.
#[derive(Debug, Clone)]
pub(crate) struct PendingCopy {
    pub pc: u32,
    /// Lanes whose copy is in flight.
    pub mask: u32,
    pub target: [u64; LANES],
    pub source: [u64; LANES],
    pub read: [u32; LANES],
    pub bytes: u32,
    /// The group of each lane that it belongs to.
    pub group: [u32; LANES],
}

/// The copies of a warp, in the order of their start.
#[derive(Debug, Default)]
pub(crate) struct CopyQueue {
    pub pending: Vec<PendingCopy>,
    /// Groups that each lane has closed.
    pub closed: [u32; LANES],
}

impl CopyQueue {
    pub fn clear(&mut self) {
        self.pending.clear();
        self.closed = [0; LANES];
    }
}
