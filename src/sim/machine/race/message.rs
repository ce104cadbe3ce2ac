//! What strong accesses leave at a word for those who see it.

use crate::sim::machine::race::clock::Clock;
use std::collections::HashMap;

/// What was left at one word of global memory.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// For the other warps of a block, and for the blocks of a cluster, by its number.
    pub(super) blocks: HashMap<u64, Clock>,
    pub(super) clusters: HashMap<u64, Clock>,
    /// For everybody else, by block, in clocks since its start.
    pub(super) far: HashMap<u64, Clock>,
}

/// What a strong access does with its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strong {
    /// Sees what stands there.
    Read,
    /// Puts another value there: what was left before is gone.
    Write,
    /// Changes what stands there, seen or unseen: what was left before stays.
    Change { sees: bool },
}

impl Strong {
    pub(super) fn sees(self) -> bool {
        matches!(self, Strong::Read | Strong::Change { sees: true })
    }
}
