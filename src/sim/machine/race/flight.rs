//! Asynchronous copies and matrix operations as accesses of their own: what is in flight belongs to nobody until
//! someone has waited.
//!
//! Bytes that a copy writes carry an entry that conflicts with everything. When a thread has seen the copy's barrier
//! object complete, the entry becomes that of the object, a pseudo-warp with a clock that waiting teaches. Ranges that
//! are read in flight are few and long, so they are kept as ranges.

use crate::sim::machine::race::cell::Entry;
use crate::sim::machine::race::clock::WarpClock;
use crate::sim::machine::race::shared::{BlockRaces, SEGMENT_SHIFT};

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

    pub(super) fn words(&self) -> std::ops::Range<usize> {
        self.offset as usize / 4..(self.offset + self.bytes).div_ceil(4) as usize
    }

    /// From its first byte to the one behind its last.
    pub(super) fn span(&self) -> (u64, u64) {
        (u64::from(self.offset), u64::from(self.offset + self.bytes))
    }

    pub(super) fn segments(&self) -> std::ops::Range<usize> {
        (self.offset >> SEGMENT_SHIFT) as usize..((self.offset + self.bytes).div_ceil(1 << SEGMENT_SHIFT)) as usize
    }
}

/// An asynchronous operation that reads, or has read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    pub(super) range: Range,
    pub(super) entry: Entry,
}

impl Reader {
    pub fn is_flying(&self) -> bool {
        self.entry.is_flying()
    }

    /// Whether a write of the warp with that clock to these bytes conflicts with it.
    fn in_the_way(&self, offset: u64, bytes: u32, clock: &WarpClock) -> bool {
        let own = || self.entry.warp() == clock.id && !self.is_flying();
        let unknown = || self.is_flying() || !clock.knows(self.entry.warp(), self.entry.clock(), self.entry.lane());
        self.range.overlaps(offset, bytes) && !own() && unknown()
    }
}

/// The asynchronous reader that a write conflicts with.
pub(super) fn reader_in_the_way(readers: &[Reader], offset: u64, bytes: u32, clock: &WarpClock) -> Option<Entry> {
    readers.iter().find(|reader| reader.in_the_way(offset, bytes, clock)).map(|reader| reader.entry)
}

/// Where asynchronous reads in one turn of a warp have met nothing, since the last write: products of one tile read
/// nearly the same.
#[derive(Debug, Default)]
pub(super) struct Calm {
    turn: u64,
    ranges: Vec<Range>,
}

impl Calm {
    pub(super) fn covers(&self, turn: u64, range: &Range) -> bool {
        self.turn == turn && self.ranges.iter().any(|known| known.contains(range))
    }

    pub(super) fn add(&mut self, turn: u64, range: Range) {
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
pub(super) fn object_id(offset: u32) -> u32 {
    FIRST_OBJECT + (offset >> 3) % 128
}

impl BlockRaces {
    pub(super) fn note_reader(&mut self, reader: Reader) {
        let same = |known: &&mut Reader| known.range == reader.range && known.entry.warp() == reader.entry.warp();
        match self.readers.iter_mut().find(same) {
            Some(known) => *known = reader,
            None => self.readers.push(reader),
        }
    }

    pub(super) fn change_in_flight(&mut self, range: Range, begins: bool) {
        let step = |count: &mut u32| *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        step(&mut self.latest.in_flight);
        self.segments[range.segments()].iter_mut().for_each(|segment| step(&mut segment.in_flight));
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
        assert!(reader_in_the_way(&races.readers, 32, 4, &writer).is_some());
        assert!(reader_in_the_way(&races.readers, 64, 4, &writer).is_none());
        races.note_reader(Reader { range, entry: Entry::new(reader.own, 1, 0, 0xF, None, 5) });
        assert!(reader_in_the_way(&races.readers, 32, 4, &writer).is_some());
        writer.join(&reader.publish());
        assert!(reader_in_the_way(&races.readers, 32, 4, &writer).is_none());
    }
}
