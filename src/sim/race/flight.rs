//! Asynchronous copies and matrix operations as accesses of their own: what is in flight belongs to nobody until
//! someone has waited.
//!
//! Bytes that a copy writes carry an entry that conflicts with everything. When a thread has seen the copy's barrier
//! object complete, the entry becomes that of the object, a pseudo-warp with a clock that waiting teaches. Ranges that
//! are read in flight are few and long, so they are kept as ranges.

use super::cell::{Cell, Entry};
use super::shared::{BlockRaces, SEGMENT_SHIFT};
use super::{Clock, WarpClock};
use crate::sim::exec::Context;
use crate::sim::memory::global::Kind;
use crate::sim::report::Check;

/// Bytes in the shared memory of a block of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub block: usize,
    pub offset: u32,
    pub bytes: u32,
}

impl Range {
    fn overlaps(&self, offset: u64, bytes: u32) -> bool {
        u64::from(self.offset) < offset + u64::from(bytes) && offset < u64::from(self.offset) + u64::from(self.bytes)
    }

    fn contains(&self, other: &Range) -> bool {
        self.block == other.block
            && self.offset <= other.offset
            && other.offset + other.bytes <= self.offset + self.bytes
    }

    fn words(&self) -> std::ops::Range<usize> {
        self.offset as usize / 4..(self.offset + self.bytes).div_ceil(4) as usize
    }

    fn segments(&self) -> std::ops::Range<usize> {
        (self.offset >> SEGMENT_SHIFT) as usize..((self.offset + self.bytes).div_ceil(1 << SEGMENT_SHIFT)) as usize
    }
}

/// An asynchronous operation that reads, or has read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    range: Range,
    entry: Entry,
}

impl Reader {
    pub fn is_flying(&self) -> bool {
        self.entry.is_flying()
    }

    /// The entry, if a write to these bytes conflicts with it.
    fn in_the_way(&self, offset: u64, bytes: u32, now: Entry, clock: &WarpClock) -> bool {
        let own = self.entry.warp() == now.warp() && !self.is_flying();
        let unknown = self.is_flying() || !clock.knows(self.entry.warp(), self.entry.clock(), self.entry.lane());
        !own && unknown && self.range.overlaps(offset, bytes)
    }
}

/// The asynchronous reader that a write conflicts with.
pub(super) fn reader_in_the_way(
    readers: &[Reader],
    offset: u64,
    bytes: u32,
    now: Entry,
    clock: &WarpClock,
) -> Option<Entry> {
    readers.iter().find(|reader| reader.in_the_way(offset, bytes, now, clock)).map(|reader| reader.entry)
}

/// Where asynchronous reads in one turn of a warp have met nothing, since the last write: products of one tile read
/// nearly the same.
#[derive(Debug, Default)]
pub(super) struct Calm {
    turn: u64,
    ranges: Vec<Range>,
}

impl Calm {
    fn covers(&self, turn: u64, range: &Range) -> bool {
        self.turn == turn && self.ranges.iter().any(|known| known.contains(range))
    }

    fn add(&mut self, turn: u64, range: Range) {
        if self.turn != turn {
            *self = Calm { turn, ranges: Vec::new() };
        }
        self.ranges.push(range);
    }

    /// Something is written.
    #[inline(always)]
    pub fn disturb(&mut self) {
        self.ranges.clear();
    }
}

/// The first number of the pseudo-warps that stand for barrier objects.
const FIRST_OBJECT: u32 = 512;

/// Whether an entry belongs to a barrier object.
pub(super) fn is_object(entry: Entry) -> bool {
    entry.warp() >= FIRST_OBJECT
}

/// The pseudo-warp of the object at an offset; objects far apart may share one, which hides races only.
fn object_id(offset: u32) -> u32 {
    FIRST_OBJECT + (offset >> 3) % 128
}

impl BlockRaces {
    fn note_reader(&mut self, reader: Reader) {
        let same = |known: &&mut Reader| known.range == reader.range && known.entry.warp() == reader.entry.warp();
        match self.readers.iter_mut().find(same) {
            Some(known) => *known = reader,
            None => self.readers.push(reader),
        }
    }

    fn change_in_flight(&mut self, range: Range, begins: bool) {
        let step = |count: &mut u32| *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        step(&mut self.latest.in_flight);
        self.segments[range.segments()].iter_mut().for_each(|segment| step(&mut segment.in_flight));
    }
}

impl Context<'_> {
    /// A copy into the range starts.
    pub fn begin_writing(&mut self, range: Range, lane: u32) {
        if !self.grid.options.checks.races {
            return;
        }
        let (clock, pc) = (&self.warp.race, self.pc);
        let races = &mut self.blocks[range.block].races;
        races.enter_listed(clock, &self.grid.program.bundles);
        races.calm.disturb();
        let now = Entry::new(clock.own, clock.id, lane, 0xF, None, pc);
        let mut conflict = reader_in_the_way(&races.readers, u64::from(range.offset), range.bytes, now, clock);
        let mut conflicts = u64::from(conflict.is_some());
        for cell in &mut races.cells[range.words()] {
            if let Some(other) = cell.conflict_of_write(now, clock, |_| false) {
                conflicts += 1;
                conflict.get_or_insert(other);
            }
            cell.record_write(Entry::flying(clock.id, lane, 0xF, pc));
        }
        races.change_in_flight(range, true);
        if let Some(other) = conflict {
            self.report_shared_race(range.block, lane as usize, u64::from(range.offset), Kind::Write, other, conflicts);
        }
    }

    /// Somebody has seen that the copy is there: from now on it is an access of the object, known to those who wait for
    /// it.
    pub fn observe_writing(&mut self, range: Range, object: u32, pc: u32) -> Clock {
        let mut learnt = Clock::default();
        if self.grid.options.checks.races {
            let races = &mut self.blocks[range.block].races;
            races.top += 1;
            races.calm.disturb();
            let entry = Entry::new(races.top, object_id(object), 0, 0xF, None, pc);
            races.cells[range.words()].iter_mut().for_each(|cell: &mut Cell| cell.record_write(entry));
            races.change_in_flight(range, false);
            let top = races.top;
            for segment in races.segments[range.segments()].iter_mut().chain([&mut races.latest]) {
                segment.write = segment.write.max(top);
            }
            learnt.learn(object_id(object), top);
        }
        learnt
    }

    /// An asynchronous operation starts to read the range.
    pub fn begin_reading(&mut self, range: Range, lane: u32) {
        if !self.grid.options.checks.races {
            return;
        }
        let (clock, pc) = (&self.warp.race, self.pc);
        let races = &mut self.blocks[range.block].races;
        let floor = clock.floor();
        let quiet =
            races.segments[range.segments()].iter().all(|segment| segment.write <= floor && segment.in_flight == 0);
        let may_hide = races.has_ordinary_writes(range.segments());
        let mut hidden = None;
        let mut conflict = None;
        let mut conflicts = 0;
        let turn = self.log.repeats.turn();
        if (!quiet || may_hide) && !races.calm.covers(turn, &range) {
            races.enter_listed(clock, &self.grid.program.bundles);
            let now = Entry::new(clock.own, clock.id, lane, 0xF, None, pc);
            // Writers of matrices move 16 bytes at least: one word in four shows them all.
            for cell in races.cells[range.words()].iter().step_by(4) {
                // Lanes of the same warp have met: the operation is one of the whole warp.
                if let Some(other) = cell.conflict_of_read(now, clock)
                    && (other.is_flying() || other.warp() != now.warp())
                {
                    conflicts += 1;
                    conflict.get_or_insert(other);
                } else if may_hide && races.is_hidden_from_async(cell.last_write()) {
                    hidden.get_or_insert(cell.last_write());
                }
            }
            if conflict.is_none() && hidden.is_none() {
                races.calm.add(turn, range);
            }
        }
        races.note_reader(Reader { range, entry: Entry::flying(clock.id, lane, 0xF, pc) });
        races.change_in_flight(range, true);
        if let Some(other) = conflict {
            self.report_shared_race(range.block, lane as usize, u64::from(range.offset), Kind::Read, other, conflicts);
        }
        if let Some(write) = hidden {
            self.report_hidden_write(range, lane as usize, write);
        }
    }

    /// Ordinary stores and asynchronous operations go to memory by different ways (proxies).
    #[cold]
    fn report_hidden_write(&mut self, range: Range, lane: usize, write: Entry) {
        let linear = self.blocks.get(write.warp() as usize / 32).map_or(0, |block| block.linear);
        let thread = write.warp() % 32 * 32 + write.lane().unwrap_or(0);
        let other = self.grid.place(linear, thread, Some(write.pc()));
        let message = "an asynchronous operation reads shared memory that an ordinary store wrote, and no \
                       fence.proxy.async stands between"
            .to_owned();
        self.report_pair(Check::AsyncCopy, lane, Some(u64::from(range.offset)), message, Some(other));
    }

    /// The warp has waited for the operation.
    pub fn end_reading(&mut self, range: Range, lane: u32) {
        if self.grid.options.checks.races {
            let (clock, pc) = (&self.warp.race, self.pc);
            let races = &mut self.blocks[range.block].races;
            races.note_reader(Reader { range, entry: Entry::new(clock.own, clock.id, lane, 0xF, None, pc) });
            races.change_in_flight(range, false);
            let own = clock.own;
            for segment in races.segments[range.segments()].iter_mut().chain([&mut races.latest]) {
                segment.read = segment.read.max(own);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_know_their_words_and_segments() {
        let range = Range { block: 0, offset: 120, bytes: 16 };
        assert_eq!((range.words(), range.segments()), (30..34, 0..2));
        assert!(range.overlaps(135, 1) && !range.overlaps(136, 4) && range.overlaps(100, 32));
    }

    #[test]
    fn what_lay_calm_is_looked_at_again_in_another_turn_and_behind_a_write() {
        let mut calm = Calm::default();
        let (wide, part) = (Range { block: 0, offset: 0, bytes: 64 }, Range { block: 0, offset: 16, bytes: 48 });
        calm.add(3, wide);
        assert!(calm.covers(3, &wide) && calm.covers(3, &part));
        assert!(!calm.covers(4, &part) && !calm.covers(3, &Range { block: 1, ..part }));
        assert!(!calm.covers(3, &Range { bytes: 49, ..part }));
        calm.disturb();
        assert!(!calm.covers(3, &part));
    }

    #[test]
    fn a_reader_is_in_the_way_until_it_is_known() {
        let mut races = BlockRaces::default();
        let (mut writer, mut reader) = (WarpClock::default(), WarpClock::default());
        writer.restart(10, 0);
        reader.restart(10, 1);
        let range = Range { block: 0, offset: 0, bytes: 64 };
        races.note_reader(Reader { range, entry: Entry::flying(1, 0, 0xF, 5) });
        let now = Entry::new(writer.own, 0, 0, 0xF, None, 9);
        assert!(reader_in_the_way(&races.readers, 32, 4, now, &writer).is_some());
        assert!(reader_in_the_way(&races.readers, 64, 4, now, &writer).is_none());
        races.note_reader(Reader { range, entry: Entry::new(reader.own, 1, 0, 0xF, None, 5) });
        assert!(reader_in_the_way(&races.readers, 32, 4, now, &writer).is_some());
        writer.join(&reader.publish());
        assert!(reader_in_the_way(&races.readers, 32, 4, now, &writer).is_none());
    }
}
