//! Products of warp groups that nobody has waited for.

use crate::sim::machine::race::flight::Range;

/// Rows of the left factor that a warp multiplies.
pub(crate) const ROWS: usize = 16;
/// The longest sum of one instruction, in elements.
pub(crate) const MAX_K: usize = 32;

/// A product whose group nobody has waited for.
#[derive(Debug, Clone)]
pub(crate) struct PendingProduct {
    pub pc: u32,
    pub product: u32,
    pub group: u32,
    pub ranges: Vec<Range>,
    /// Descriptors, rows from registers and the accumulation flag as they were at the start.
    pub start: Start,
}

#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub a: u64,
    pub b: u64,
    pub rows: Option<Box<[[f32; MAX_K]; ROWS]>>,
    pub accumulates: bool,
}

/// When a warp has passed its last `wgmma.fence`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    #[default]
    Never,
    BeforeTheLastProduct,
    SinceTheLastProduct,
}

/// The products of a warp in flight.
#[derive(Debug, Default)]
pub(crate) struct ProductQueue {
    pub pending: Vec<PendingProduct>,
    pub closed: u32,
    pub fence: Fence,
}

impl ProductQueue {
    pub fn clear(&mut self) {
        self.pending.clear();
        self.closed = 0;
        self.fence = Fence::Never;
    }
}
