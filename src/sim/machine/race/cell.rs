//! The accesses that are remembered for four bytes of shared memory, packed into one number each.

use crate::sim::machine::race::clock::WarpClock;
use crate::sim::machine::race::who::Who;
use crate::sim::ptx::types::Scope;

/// Who accessed what and when. Zero is nobody.
///
/// Bits, from above: clock 24, warp of the cluster 10, lanes 6, bytes 4, strength 2, pc 18.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Entry(u64);

/// The clock of what is in flight: after everything.
const FLYING: u32 = (1 << 24) - 1;
const MAX_PC: u32 = (1 << 18) - 1;
/// In place of a cell's last write where the word is split: no entry has all bits.
const SPLIT: Entry = Entry(u64::MAX);

/// Strength: 0 for a plain access, else 1 + the scope.
#[inline(always)]
pub(super) fn strength(strong: Option<Scope>) -> u64 {
    strong.map_or(0, |scope| 1 + scope as u64)
}

impl Entry {
    pub const CLOCK_LIMIT: u32 = 1 << 24;

    #[inline(always)]
    pub fn new(clock: u32, warp: u32, lane: u32, bytes: u32, strong: Option<Scope>, pc: u32) -> Self {
        Entry(
            u64::from(clock) << 40
                | u64::from(warp) << 30
                | u64::from(lane) << 24
                | u64::from(bytes) << 20
                | strength(strong) << 18
                | u64::from(pc.min(MAX_PC)),
        )
    }

    /// The target of a copy in flight: nobody may touch it.
    pub fn flying(warp: u32, lane: u32, bytes: u32, pc: u32) -> Self {
        Entry::new(FLYING, warp, lane, bytes, None, pc)
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

    #[inline(always)]
    fn who(self) -> Who {
        Who::from_bits(self.0 >> 24)
    }

    /// The lane, or `None` for several.
    #[inline(always)]
    pub fn lane(self) -> Option<u32> {
        self.who().only()
    }

    #[inline(always)]
    pub fn bytes(self) -> u32 {
        (self.0 >> 20) as u32 & 0xF
    }

    #[inline(always)]
    fn strength(self) -> u64 {
        self.0 >> 18 & 3
    }

    pub fn is_strong(self) -> bool {
        self.strength() != 0
    }

    pub fn pc(self) -> u32 {
        self.0 as u32 & MAX_PC
    }

    #[inline(always)]
    fn with(self, who: Who, bytes: u32) -> Entry {
        Entry(self.0 & !(0x3FF << 20) | who.bits() << 24 | u64::from(bytes) << 20)
    }

    /// The same write by every living lane, all with one value.
    pub fn by_every_lane(self) -> Entry {
        self.with(Who::every(), self.bytes())
    }

    /// The same of all four bytes.
    pub fn whole(self) -> Entry {
        self.with(self.who(), 0xF)
    }

    /// What it says of one of the bytes.
    fn of_byte(self, byte: u32) -> Entry {
        if self.bytes() >> byte & 1 == 0 { Entry::default() } else { self.with(self.who().of_byte(byte), 0xF) }
    }

    /// Whether both are strong, each within the scope of the other.
    #[inline(always)]
    fn is_morally_strong_with(self, now: Entry) -> bool {
        let (mine, theirs) = (self.strength(), now.strength());
        // The 32 warps of a block have numbers that follow each other.
        mine != 0
            && theirs != 0
            && (self.warp() / 32 == now.warp() / 32 || mine.min(theirs) > strength(Some(Scope::Block)))
    }

    /// Whether this earlier access and `now` touch the same bytes without an order between them.
    #[inline(always)]
    fn conflicts(self, now: Entry, clock: &WarpClock, is_write: bool) -> bool {
        // The common case first: everything up to the floor is ordered, and nobody has clock 0.
        if self.clock() <= clock.floor() {
            return false;
        }
        if self.bytes() & now.bytes() == 0 || self.is_morally_strong_with(now) {
            return false;
        }
        if self.is_flying() {
            return true;
        }
        if self.who().is_of_parts() {
            return self.conflicts_in_parts(now, clock, is_write);
        }
        self.is_unordered(self.lane(), now, clock, is_write)
    }

    #[cold]
    #[inline(never)]
    fn conflicts_in_parts(self, now: Entry, clock: &WarpClock, is_write: bool) -> bool {
        self.who().any_owner(self.bytes() & now.bytes(), |lane| self.is_unordered(lane, now, clock, is_write))
    }

    /// Whether what that lane of it did, or `None` for several, is neither known to `now` nor its own.
    #[inline(always)]
    fn is_unordered(self, before: Option<u32>, now: Entry, clock: &WarpClock, is_write: bool) -> bool {
        if self.warp() != now.warp() {
            return !clock.knows(self.warp(), self.clock(), before);
        }
        !clock.have_met(self.clock(), before, now.lane())
            && self.who().is_another(before, now.lane(), is_write)
            && !clock.knows(self.warp(), self.clock(), before)
    }

    /// Whether both belong to one instruction between two meetings.
    pub fn is_of_instruction(self, now: Entry) -> bool {
        (self.clock(), self.warp(), self.pc()) == (now.clock(), now.warp(), now.pc())
    }

    /// Joins what lanes of one warp did at one time, where nothing is lost.
    #[inline(always)]
    fn joined(self, now: Entry) -> Option<Entry> {
        if (self.clock(), self.warp(), self.strength()) != (now.clock(), now.warp(), now.strength()) {
            return None;
        }
        let who = self.who().joined(self.bytes(), now.who(), now.bytes())?;
        Some(now.with(who, self.bytes() | now.bytes()))
    }

    /// Whether `later` says all that this one does: the same lanes did the same again.
    fn is_repeated_by(self, later: Entry) -> bool {
        (self.warp(), self.who(), self.strength()) == (later.warp(), later.who(), later.strength())
            && self.bytes() & !later.bytes() == 0
            && self.clock() <= later.clock()
    }
}

/// The last plain and the last strong write, and up to two unordered reads of four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cell {
    write: Entry,
    strong: Entry,
    reads: [Entry; 2],
}

impl Cell {
    /// The last plain write.
    pub fn last_write(&self) -> Entry {
        self.write
    }

    /// The earlier access that a read conflicts with.
    #[inline(always)]
    pub fn conflict_of_read(&self, now: Entry, clock: &WarpClock) -> Option<Entry> {
        // The common case first, with few instructions: all of it lies before what orders everything.
        if self.write.clock().max(self.strong.clock()) <= clock.floor() {
            return None;
        }
        if self.write.conflicts(now, clock, false) {
            return Some(self.write);
        }
        self.strong.conflicts(now, clock, false).then_some(self.strong)
    }

    /// The earlier access that a write conflicts with. `same` tells whether it stores what an earlier write left there,
    /// which does no harm.
    #[inline(always)]
    pub fn conflict_of_write(&self, now: Entry, clock: &WarpClock, same: impl Fn(Entry) -> bool) -> Option<Entry> {
        for write in [self.write, self.strong] {
            if write.clock() > clock.floor() && write.conflicts(now, clock, true) && !same(write) {
                return Some(write);
            }
        }
        self.reads.into_iter().find(|read| read.clock() > clock.floor() && read.conflicts(now, clock, true))
    }

    /// `false`, and nothing done, where it would forget who read a part of the word.
    #[inline(always)]
    pub fn record_read(&mut self, now: Entry, clock: &WarpClock) -> bool {
        let floor = clock.floor();
        let [first, second] = self.reads;
        let (kept, lost) = if let Some(joined) = first.joined(now) {
            ([joined, second], Entry::default())
        } else if first.clock() <= floor || (first.warp() == now.warp() && first.lane() == now.lane()) {
            ([now, second], first)
        } else if let Some(joined) = second.joined(now) {
            ([first, joined], Entry::default())
        } else if first.warp() == now.warp() && second.clock() > floor && second.warp() != now.warp() {
            // Of two warps one read each is kept.
            ([now, second], first)
        } else {
            ([now, first], second)
        };
        if lost.bytes() & !now.bytes() == 0 || lost.clock() <= floor {
            self.reads = kept;
            return true;
        }
        self.record_read_of_part(now, kept, lost, floor)
    }

    fn record_read_of_part(&mut self, now: Entry, kept: [Entry; 2], lost: Entry, floor: u32) -> bool {
        let [first, second] = self.reads;
        let reads = if second.clock() <= floor {
            [now, first]
        } else if lost.is_repeated_by(kept[1]) {
            kept
        } else {
            return false;
        };
        self.reads = reads;
        true
    }

    /// `false`, and nothing done, where it would forget who wrote a part of the word that not everybody knows of.
    #[inline(always)]
    pub fn record_write(&mut self, now: Entry, floor: u32) -> bool {
        let last = if now.is_strong() { &mut self.strong } else { &mut self.write };
        let joined = if last.is_of_instruction(now) { last.joined(now) } else { None };
        if joined.is_none() && last.bytes() & !now.bytes() != 0 && last.clock() > floor {
            return false;
        }
        *last = joined.unwrap_or(now);
        true
    }

    /// The same of a plain write of the whole word, which forgets nothing.
    #[inline(always)]
    pub fn record_whole_write(&mut self, now: Entry) {
        if self.is_split() {
            *self = Cell::default();
        }
        let joined = if self.write.is_of_instruction(now) { self.write.joined(now) } else { None };
        self.write = joined.unwrap_or(now);
    }

    /// Whether the cells of the bytes tell in place of this one.
    #[inline(always)]
    pub fn is_split(&self) -> bool {
        self.write == SPLIT
    }

    /// The cell of a split word, which keeps the latest clock.
    pub fn split(&self) -> Cell {
        let entries = [self.write, self.strong, self.reads[0], self.reads[1]];
        let latest = entries.into_iter().max_by_key(|entry| entry.clock()).unwrap_or_default();
        Cell { write: SPLIT, strong: latest, reads: [Entry::default(); 2] }
    }

    /// Of a split word: whether everything in it is ordered before what knows of that floor.
    pub fn is_over(&self, floor: u32) -> bool {
        self.strong.clock() <= floor
    }

    /// Of a split word: one of its bytes is accessed.
    pub fn note(&mut self, now: Entry) {
        if now.clock() > self.strong.clock() {
            self.strong = now;
        }
    }

    /// The cell of one byte.
    pub fn of_byte(&self, byte: u32) -> Cell {
        Cell {
            write: self.write.of_byte(byte),
            strong: self.strong.of_byte(byte),
            reads: self.reads.map(|read| read.of_byte(byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn clock(id: u32) -> WarpClock {
        let mut clock = WarpClock::default();
        clock.restart(0, id);
        clock
    }

    #[test]
    fn fields_come_back() {
        let entry = Entry::new(0xABCDEF, 513, 31, 0b0110, Some(Scope::Device), 70_000);
        assert_eq!(
            (entry.clock(), entry.warp(), entry.lane(), entry.bytes(), entry.strength(), entry.pc()),
            (0xABCDEF, 513, Some(31), 6, 3, 70_000)
        );
    }

    #[test]
    fn other_halves_of_a_word_do_not_conflict() {
        let mut cell = Cell::default();
        cell.record_write(Entry::new(1, 0, 0, 0b0011, None, 0), 0);
        cell.record_write(Entry::new(1, 0, 1, 0b1100, None, 0), 0);
        assert!(cell.conflict_of_read(Entry::new(1, 1, 0, 0b0001, None, 5), &clock(1)).is_some());
        let mut half = Cell::default();
        half.record_write(Entry::new(1, 0, 0, 0b0011, None, 0), 0);
        assert!(half.conflict_of_write(Entry::new(1, 1, 0, 0b1100, None, 5), &clock(1), |_| false).is_none());
    }

    #[test]
    fn both_of_two_readers_are_kept() {
        let mut cell = Cell::default();
        cell.record_read(Entry::new(1, 0, 0, 15, None, 0), &clock(0));
        cell.record_read(Entry::new(1, 1, 0, 15, None, 0), &clock(1));
        cell.record_read(Entry::new(2, 1, 3, 15, None, 7), &clock(1));
        assert_eq!(cell.reads.map(Entry::warp), [1, 0]);
        let found = cell.conflict_of_write(Entry::new(1, 0, 0, 15, None, 5), &clock(0), |_| false).unwrap();
        assert_eq!(found.warp(), 1);
    }

    #[test]
    fn each_of_several_lanes_that_read_a_word_is_remembered() {
        let mut cell = Cell::default();
        let warp = clock(0);
        for lane in 0..32 {
            cell.record_read(Entry::new(warp.own, 0, lane, 15, None, 3), &warp);
        }
        for lane in [0, 31] {
            let now = Entry::new(warp.own, 0, lane, 15, None, 4);
            assert!(cell.conflict_of_write(now, &warp, |_| false).is_some());
        }
    }

    #[test]
    fn lanes_of_a_warp_need_a_meeting_between() {
        let mut cell = Cell::default();
        let mut warp = clock(0);
        cell.record_write(Entry::new(warp.own, 0, 3, 15, None, 0), 0);
        warp.show(Scope::Device, 1 << 3);
        assert!(cell.conflict_of_read(Entry::new(warp.own, 0, 4, 15, None, 1), &warp).is_some(), "a fence is none");
        assert!(cell.conflict_of_read(Entry::new(warp.own, 0, 3, 15, None, 1), &warp).is_none());
        warp.advance();
        assert!(cell.conflict_of_read(Entry::new(warp.own, 0, 4, 15, None, 1), &warp).is_none());
    }

    #[rstest]
    #[case::of_the_block(Scope::Block, 1, false)]
    #[case::of_another_block(Scope::Block, 33, true)]
    #[case::of_the_cluster(Scope::Cluster, 33, false)]
    fn atomics_conflict_with_plain_accesses_and_beyond_their_scope(
        #[case] scope: Scope,
        #[case] warp: u32,
        #[case] conflicts: bool,
    ) {
        let mut cell = Cell::default();
        cell.record_write(Entry::new(1, 0, 0, 15, Some(scope), 0), 0);
        let now = Entry::new(1, warp, 0, 15, Some(Scope::Device), 1);
        assert_eq!(cell.conflict_of_write(now, &clock(warp), |_| false).is_some(), conflicts);
        assert!(cell.conflict_of_read(Entry::new(1, warp, 0, 15, None, 1), &clock(warp)).is_some());
    }

    #[test]
    fn an_atomic_operation_does_not_hide_the_plain_write_before_it() {
        let mut cell = Cell::default();
        cell.record_write(Entry::new(1, 0, 0, 15, None, 0), 0);
        cell.record_write(Entry::new(1, 0, 0, 15, Some(Scope::Device), 1), 0);
        let now = Entry::new(1, 1, 0, 15, Some(Scope::Device), 1);
        assert!(cell.conflict_of_write(now, &clock(1), |_| false).is_some());
    }
}
