//! Barrier objects: the state that is kept beside the memory, by the address of each.

use crate::sim::machine::race::clock::Clock;
use crate::sim::machine::race::flight::Range;
use std::collections::BTreeMap;

/// One object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Object {
    /// Arrivals of a phase.
    pub count: u32,
    /// Arrivals that the running phase still needs.
    pub pending: u32,
    /// Bytes announced and not yet there; copies may be faster than their announcement.
    pub bytes: i64,
    /// Phases completed.
    pub phase: u64,
    pub clock: Clock,
    pub released: Clock,
    /// Copies that arrived and that nobody has seen: phase, target, instruction.
    pub arrived: Vec<(u64, Range, u32)>,
    /// Where bytes were last announced: instruction and thread of the block.
    pub announced: Option<(u32, u32)>,
    /// Whether a fence after it was made shows it to asynchronous copies.
    pub shown_to_async: bool,
}

impl Object {
    /// Ends the phase if nothing is missing.
    pub fn settle(&mut self) -> bool {
        if self.pending != 0 || self.bytes != 0 {
            return false;
        }
        self.pending = self.count;
        self.phase += 1;
        self.released.join(&std::mem::take(&mut self.clock));
        true
    }
}

/// Where a token holds the arrivals that its phase was short of; the phase itself lies below.
pub(crate) const PENDING_SHIFT: u32 = 40;

pub(crate) const PHASE: u64 = (1 << PENDING_SHIFT) - 1;

/// What an arrival gives: the state before it.
pub(crate) fn token(object: &Object) -> u64 {
    (object.phase & PHASE) | u64::from(object.pending) << PENDING_SHIFT
}

/// The objects of a block by their offset in its shared memory.
#[derive(Debug, Default)]
pub(crate) struct BarrierObjects {
    pub objects: BTreeMap<u32, Object>,
}

impl BarrierObjects {
    pub fn clear(&mut self) {
        self.objects.clear();
    }

    /// Bytes that were announced and never came: (instruction, thread, bytes).
    pub fn unfinished(&self) -> impl Iterator<Item = (u32, u32, i64)> {
        self.objects.values().filter_map(|object| {
            object.announced.filter(|_| object.bytes > 0).map(|(pc, thread)| (pc, thread, object.bytes))
        })
    }

    /// Copies that arrived and that nobody has waited for: their instructions.
    pub fn unseen(&self) -> impl Iterator<Item = u32> {
        self.objects.values().flat_map(|object| object.arrived.iter().map(|(_, _, pc)| *pc))
    }

    /// A fence: copies issued from now on may arrive at the objects made so far.
    pub fn show_async(&mut self) {
        self.objects.values_mut().for_each(|object| object.shown_to_async = true);
    }

    /// Whether a copy must not arrive at an object for want of a fence; told once.
    pub fn is_hidden_from_async(&mut self, offset: u32) -> bool {
        self.objects.get_mut(&offset).is_some_and(|object| !std::mem::replace(&mut object.shown_to_async, true))
    }

    /// A copy has arrived; `false` if there is no such object.
    pub fn bytes_arrive(&mut self, offset: u32, range: Range, pc: u32) -> bool {
        let Some(object) = self.objects.get_mut(&offset) else { return false };
        object.bytes -= i64::from(range.bytes);
        object.arrived.push((object.phase, range, pc));
        object.settle();
        true
    }

    /// The same for a store of a warp that passes on `clock`, what it did before.
    pub fn released_bytes_arrive(&mut self, offset: u32, range: Range, pc: u32, clock: &Clock) -> bool {
        if let Some(object) = self.objects.get_mut(&offset) {
            object.clock.join(clock);
        }
        self.bytes_arrive(offset, range, pc)
    }

    /// Bytes were reported by a thread; `clock` is what it passes on.
    pub fn complete_bytes(&mut self, offset: u32, bytes: u32, clock: &Clock) -> bool {
        let Some(object) = self.objects.get_mut(&offset) else { return false };
        object.bytes -= i64::from(bytes);
        object.clock.join(clock);
        object.settle();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_needs_its_arrivals_and_its_bytes() {
        let mut object = Object { count: 2, pending: 2, ..Object::default() };
        object.pending -= 1;
        object.bytes += 64;
        assert!(!object.settle());
        object.pending -= 1;
        assert!(!object.settle());
        object.bytes -= 64;
        assert!(object.settle());
        assert_eq!((object.phase, object.pending), (1, 2));
    }
}
