//! The state of a warp: registers, the places its lanes are at, and which of them runs next.

use crate::sim::machine::registers::{Registers, Row};

/// Why lanes stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Until these lanes stand at the same instruction; then it runs again.
    Lanes { members: u32, is_barrier: bool },
    /// Until the barrier has moved on from this generation; then the next instruction runs.
    Barrier { id: u32, generation: u64 },
    /// Until the cluster barrier has moved on; then the next instruction runs.
    Cluster { generation: u64 },
    /// Until something happened in the cluster after this count of events; then the instruction runs again.
    Event { seen: u64 },
}

/// Lanes that are at one instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Split {
    pub pc: u32,
    pub mask: u32,
    pub wait: Option<Wait>,
}

/// What runs now: where, which lanes, and the instruction before which the warp has to be looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub pc: u32,
    pub mask: u32,
    pub stop: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Warp {
    pub registers: Registers,
    pub local: Vec<Row<u32>>,
    /// Rows of it that this block may have written.
    pub local_written: usize,
    /// Number in the block.
    pub index: u32,
    /// Lanes that exist (the last warp of a block may have fewer than 32).
    pub members: u32,
    pub exited: u32,
    pub splits: Vec<Split>,
    /// Filled by a handler that returns `Outcome::Scatter`.
    pub scattered: Vec<Split>,
    pub back_edges: u64,
    /// The last barrier object test that failed: instruction and events of the block until then.
    pub polled: Option<(u32, u64)>,
    /// Generation of the cluster barrier at the last arrival.
    pub cluster_generation: u64,
    /// Lanes that spin must let others of the warp run: set to take another split than the lowest.
    pub rotate: bool,
    /// Lanes whose approximate result, or the upper half of it, is one that no error moves.
    pub fixed: [u32; 2],
    pub race: crate::sim::machine::race::clock::WarpClock,
    pub copies: crate::sim::machine::copy_queue::CopyQueue,
    pub products: crate::sim::machine::product_queue::ProductQueue,
    pub bulk: crate::sim::machine::bulk_queue::BulkQueue,
}

impl Warp {
    /// Lanes that have not exited.
    pub fn alive(&self) -> u32 {
        self.members & !self.exited
    }

    /// Lanes that wait for others of the warp look again: some have exited, and nobody waits for those.
    pub fn forget_waits_for_lanes(&mut self) {
        for split in &mut self.splits {
            if matches!(split.wait, Some(Wait::Lanes { .. })) {
                split.wait = None;
            }
        }
    }

    /// Starts at the first instruction.
    pub fn restart(&mut self, members: u32) {
        self.members = members;
        self.exited = !members;
        self.splits.clear();
        self.scattered.clear();
        self.splits.push(Split { pc: 0, mask: members, wait: None });
        self.back_edges = 0;
        self.rotate = false;
        self.polled = None;
        self.copies.clear();
        self.bulk.clear();
        self.products.clear();
    }

    /// Takes the split that runs next out of the list: the lowest instruction first, so that lanes meet again after a
    /// branch.
    pub fn next_turn(&mut self) -> Option<Turn> {
        if let [Split { pc, mask, wait: None }] = *self.splits {
            self.splits.clear();
            self.rotate = false;
            return Some(Turn { pc, mask, stop: u32::MAX });
        }
        self.merge();
        let mut ready = self.splits.iter().enumerate().filter(|(_, split)| split.wait.is_none()).map(|(at, _)| at);
        let first = ready.next()?;
        let chosen = if std::mem::take(&mut self.rotate) { ready.next().unwrap_or(first) } else { first };
        let split = self.splits.remove(chosen);
        let stop = self.splits.iter().map(|other| other.pc).filter(|pc| *pc > split.pc).min().unwrap_or(u32::MAX);
        Some(Turn { pc: split.pc, mask: split.mask, stop })
    }

    /// Joins lanes that are at the same instruction. Lanes that wait for others there are woken by arrivals.
    fn merge(&mut self) {
        if self.splits.len() < 2 {
            return;
        }
        self.splits.sort_unstable_by_key(|split| (split.pc, split.wait.is_some()));
        let mut merged: Vec<Split> = Vec::with_capacity(self.splits.len());
        for split in self.splits.drain(..) {
            match merged.last_mut() {
                Some(last) if last.pc == split.pc && joins(last.wait) && joins(split.wait) => {
                    last.mask |= split.mask;
                    last.wait = None;
                }
                _ => merged.push(split),
            }
        }
        self.splits = merged;
    }
}

/// Whether lanes in that state can be joined by others at the same instruction.
fn joins(wait: Option<Wait>) -> bool {
    matches!(wait, None | Some(Wait::Lanes { .. } | Wait::Event { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pc: u32, mask: u32, wait: Option<Wait>) -> Split {
        Split { pc, mask, wait }
    }

    fn warp(splits: Vec<Split>) -> Warp {
        Warp { splits, ..Warp::default() }
    }

    #[test]
    fn lanes_meet_at_the_same_instruction() {
        let mut warp = warp(vec![split(9, 1, None), split(4, 2, None), split(9, 4, None)]);
        assert_eq!(warp.next_turn(), Some(Turn { pc: 4, mask: 2, stop: 9 }));
        assert_eq!(warp.next_turn(), Some(Turn { pc: 9, mask: 5, stop: u32::MAX }));
        assert_eq!(warp.next_turn(), None);
    }

    #[test]
    fn an_arrival_wakes_lanes_that_wait_for_others() {
        let wait = Some(Wait::Lanes { members: 3, is_barrier: false });
        let mut warp = warp(vec![split(7, 1, wait)]);
        assert_eq!(warp.next_turn(), None);
        warp.splits.push(split(7, 2, None));
        assert_eq!(warp.next_turn(), Some(Turn { pc: 7, mask: 3, stop: u32::MAX }));
    }

    #[test]
    fn rotation_lets_the_other_lanes_run() {
        let mut warp = warp(vec![split(1, 1, None), split(8, 2, None)]);
        warp.rotate = true;
        assert_eq!(warp.next_turn(), Some(Turn { pc: 8, mask: 2, stop: u32::MAX }));
        assert_eq!(warp.next_turn(), Some(Turn { pc: 1, mask: 1, stop: u32::MAX }));
    }
}
