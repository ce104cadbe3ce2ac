//! The accesses that are remembered for four bytes of memory, packed into one number each.

use super::WarpClock;

/// Who accessed what and when. Zero is nobody.
///
/// Bits, from above: clock 24, warp of the cluster 10, lane 6 (32 = several lanes of one instruction), bytes 4, atomic
/// 1, pc 19.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Entry(u64);

/// The lane number that stands for several lanes.
const SEVERAL: u32 = 32;
/// The clock of what is in flight: after everything.
const FLYING: u32 = (1 << 24) - 1;
const MAX_PC: u32 = (1 << 19) - 1;

impl Entry {
    pub const CLOCK_LIMIT: u32 = 1 << 24;

    #[inline(always)]
    pub fn new(clock: u32, warp: u32, lane: u32, bytes: u32, atomic: bool, pc: u32) -> Self {
        Entry(
            u64::from(clock) << 40
                | u64::from(warp) << 30
                | u64::from(lane) << 24
                | u64::from(bytes) << 20
                | u64::from(atomic) << 19
                | u64::from(pc.min(MAX_PC)),
        )
    }

    /// The target of a copy in flight: nobody may touch it.
    pub fn flying(warp: u32, lane: u32, bytes: u32, pc: u32) -> Self {
        Entry::new(FLYING, warp, lane, bytes, false, pc)
    }

    pub fn is_flying(self) -> bool {
        self.clock() == FLYING
    }

    #[inline(always)]
    pub fn clock(self) -> u32 {
        (self.0 >> 40) as u32
    }

    #[inline(always)]
    pub fn warp(self) -> u32 {
        (self.0 >> 30) as u32 & 0x3FF
    }

    /// The lane, or `None` for several.
    pub fn lane(self) -> Option<u32> {
        let lane = (self.0 >> 24) as u32 & 0x3F;
        (lane != SEVERAL).then_some(lane)
    }

    #[inline(always)]
    pub fn bytes(self) -> u32 {
        (self.0 >> 20) as u32 & 0xF
    }

    pub fn atomic(self) -> bool {
        self.0 >> 19 & 1 != 0
    }

    pub fn pc(self) -> u32 {
        self.0 as u32 & MAX_PC
    }

    /// Whether this earlier access and `now` touch the same bytes without an order between them.
    #[inline(always)]
    fn conflicts(self, now: Entry, clock: &WarpClock) -> bool {
        // The common case first: everything up to the floor is ordered, and nobody has clock 0.
        if self.clock() <= clock.floor() {
            return false;
        }
        if self.bytes() & now.bytes() == 0 || (self.atomic() && now.atomic()) {
            return false;
        }
        if self.is_flying() {
            return true;
        }
        if self.warp() != now.warp() {
            return !clock.knows(self.warp(), self.clock(), self.lane());
        }
        match (self.lane(), now.lane()) {
            (Some(a), Some(b)) => a != b && self.clock() >= now.clock(),
            // Of several lanes of the running instruction, one at least is another.
            _ => self.is_of_instruction(now),
        }
    }

    /// Whether both belong to one execution of one instruction.
    pub fn is_of_instruction(self, now: Entry) -> bool {
        (self.clock(), self.warp(), self.pc()) == (now.clock(), now.warp(), now.pc())
    }

    /// Joins entries of neighbouring lanes of one instruction.
    fn joined(self, now: Entry) -> Option<Entry> {
        if !self.is_of_instruction(now) || self.atomic() != now.atomic() {
            return None;
        }
        let lane = if self.lane() == now.lane() { self.lane().unwrap_or(SEVERAL) } else { SEVERAL };
        Some(Entry::new(now.clock(), now.warp(), lane, self.bytes() | now.bytes(), now.atomic(), now.pc()))
    }
}

/// The last write and up to two unordered reads of four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cell {
    write: Entry,
    reads: [Entry; 2],
}

impl Cell {
    /// The last write.
    pub fn last_write(&self) -> Entry {
        self.write
    }

    /// The earlier access that a read conflicts with.
    #[inline(always)]
    pub fn conflict_of_read(&self, now: Entry, clock: &WarpClock) -> Option<Entry> {
        self.write.conflicts(now, clock).then_some(self.write)
    }

    /// The earlier access that a write conflicts with. `same` tells whether it stores what an earlier write left there,
    /// which does no harm.
    #[inline(always)]
    pub fn conflict_of_write(&self, now: Entry, clock: &WarpClock, same: impl Fn(Entry) -> bool) -> Option<Entry> {
        if self.write.conflicts(now, clock) && !same(self.write) {
            return Some(self.write);
        }
        self.reads.into_iter().find(|entry| entry.conflicts(now, clock))
    }

    #[inline(always)]
    pub fn record_read(&mut self, now: Entry, clock: &WarpClock) {
        let first = self.reads[0];
        if let Some(joined) = first.joined(now) {
            self.reads[0] = joined;
        } else if first.clock() <= clock.floor() || (first.warp() == now.warp() && first.lane() == now.lane()) {
            self.reads[0] = now;
        } else if let Some(joined) = self.reads[1].joined(now) {
            self.reads[1] = joined;
        } else {
            self.reads[1] = now;
        }
    }

    #[inline(always)]
    pub fn record_write(&mut self, now: Entry) {
        self.write = self.write.joined(now).unwrap_or(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(id: u32) -> WarpClock {
        let mut clock = WarpClock::default();
        clock.restart(0, id);
        clock
    }

    #[test]
    fn fields_come_back() {
        let entry = Entry::new(0xABCDEF, 513, 31, 0b0110, true, 70_000);
        assert_eq!(
            (entry.clock(), entry.warp(), entry.lane(), entry.bytes(), entry.atomic(), entry.pc()),
            (0xABCDEF, 513, Some(31), 6, true, 70_000)
        );
    }

    #[test]
    fn other_halves_of_a_word_do_not_conflict() {
        let mut cell = Cell::default();
        cell.record_write(Entry::new(1, 0, 0, 0b0011, false, 0));
        cell.record_write(Entry::new(1, 0, 1, 0b1100, false, 0));
        assert!(cell.conflict_of_read(Entry::new(1, 1, 0, 0b0001, false, 5), &clock(1)).is_some());
        let mut half = Cell::default();
        half.record_write(Entry::new(1, 0, 0, 0b0011, false, 0));
        assert!(half.conflict_of_write(Entry::new(1, 1, 0, 0b1100, false, 5), &clock(1), |_| false).is_none());
    }

    #[test]
    fn both_of_two_readers_are_kept() {
        let mut cell = Cell::default();
        cell.record_read(Entry::new(1, 0, 0, 15, false, 0), &clock(0));
        cell.record_read(Entry::new(1, 1, 0, 15, false, 0), &clock(1));
        let found = cell.conflict_of_write(Entry::new(1, 1, 0, 15, false, 5), &clock(1), |_| false).unwrap();
        assert_eq!(found.warp(), 0);
    }

    #[test]
    fn lanes_of_a_warp_need_a_meeting_between() {
        let mut cell = Cell::default();
        let mut warp = clock(0);
        cell.record_write(Entry::new(warp.own, 0, 3, 15, false, 0));
        assert!(cell.conflict_of_read(Entry::new(warp.own, 0, 4, 15, false, 1), &warp).is_some());
        assert!(cell.conflict_of_read(Entry::new(warp.own, 0, 3, 15, false, 1), &warp).is_none());
        warp.advance();
        assert!(cell.conflict_of_read(Entry::new(warp.own, 0, 4, 15, false, 1), &warp).is_none());
    }

    #[test]
    fn atomics_conflict_with_plain_accesses_only() {
        let mut cell = Cell::default();
        cell.record_write(Entry::new(1, 0, 0, 15, true, 0));
        assert!(cell.conflict_of_write(Entry::new(1, 1, 0, 15, true, 1), &clock(1), |_| false).is_none());
        assert!(cell.conflict_of_read(Entry::new(1, 1, 0, 15, false, 1), &clock(1)).is_some());
    }
}
