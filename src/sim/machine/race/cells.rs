//! The cells of a block's shared memory: one a word, and one a byte where a word has been split.
//!
//! An entry tells of parts of a word as long as neighbouring lanes have neighbouring parts. Where a cell would forget who
//! accessed which part, the word is split: its four bytes have cells of their own until a plain write covers all of it, or
//! everything in it lies before a barrier of the whole block. Words that are accessed whole are never split.

use crate::sim::machine::race::cell::{Cell, Entry};
use crate::sim::machine::race::clock::WarpClock;

#[derive(Debug, Default)]
pub(super) struct Cells {
    words: Vec<Cell>,
    /// Four a word; empty until a word is split.
    bytes: Vec<Cell>,
}

/// The bytes of a mask.
pub(super) fn bytes_of(mask: u32) -> impl Iterator<Item = u32> {
    (0..4).filter(move |byte| mask >> byte & 1 != 0)
}

impl Cells {
    pub fn new(words: usize) -> Cells {
        Cells { words: vec![Cell::default(); words], bytes: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub fn forget_all(&mut self) {
        self.words.fill(Cell::default());
    }

    /// The earlier access that a read conflicts with.
    #[inline(always)]
    pub fn conflict_of_read(&self, at: usize, now: Entry, clock: &WarpClock) -> Option<Entry> {
        let cell = &self.words[at];
        if cell.is_split() {
            return self.conflict_in_bytes(at, now, |byte, now| byte.conflict_of_read(now, clock));
        }
        cell.conflict_of_read(now, clock)
    }

    /// The earlier access that a write conflicts with. `same` tells whether it stores what an earlier write left there,
    /// which does no harm.
    #[inline(always)]
    pub fn conflict_of_write(
        &self,
        at: usize,
        now: Entry,
        clock: &WarpClock,
        same: impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        let cell = &self.words[at];
        if cell.is_split() {
            return self.conflict_in_bytes(at, now, |byte, now| byte.conflict_of_write(now, clock, &same));
        }
        cell.conflict_of_write(now, clock, same)
    }

    #[cold]
    fn conflict_in_bytes(
        &self,
        at: usize,
        now: Entry,
        conflict: impl Fn(&Cell, Entry) -> Option<Entry>,
    ) -> Option<Entry> {
        bytes_of(now.bytes()).find_map(|byte| conflict(&self.bytes[4 * at + byte as usize], now.whole()))
    }

    #[inline(always)]
    pub fn record_read(&mut self, at: usize, now: Entry, clock: &WarpClock) {
        let cell = &mut self.words[at];
        if cell.is_split() || !cell.record_read(now, clock) {
            self.record_in_bytes(at, now, clock.floor(), |cell, now| cell.record_read(now, clock));
        }
    }

    /// Everything up to `floor` is known to everybody.
    #[inline(always)]
    pub fn record_write(&mut self, at: usize, now: Entry, floor: u32) {
        let cell = &mut self.words[at];
        if now.bytes() == 0xF && !now.is_strong() {
            cell.record_whole_write(now);
        } else if cell.is_split() || !cell.record_write(now, floor) {
            self.record_in_bytes(at, now, floor, |cell, now| cell.record_write(now, floor));
        }
    }

    #[cold]
    fn record_in_bytes(&mut self, at: usize, now: Entry, floor: u32, record: impl Fn(&mut Cell, Entry) -> bool) {
        let word = &mut self.words[at];
        if word.is_split() && word.is_over(floor) {
            *word = Cell::default();
            if record(word, now) {
                return;
            }
        }
        if !word.is_split() {
            if self.bytes.is_empty() {
                self.bytes = vec![Cell::default(); 4 * self.words.len()];
            }
            let word = &mut self.words[at];
            (0..4).for_each(|byte| self.bytes[4 * at + byte] = word.of_byte(byte as u32));
            *word = word.split();
        }
        self.words[at].note(now);
        for byte in bytes_of(now.bytes()) {
            record(&mut self.bytes[4 * at + byte as usize], now.whole());
        }
    }

    /// The last plain writes to a word.
    pub fn last_writes(&self, at: usize) -> impl Iterator<Item = Entry> {
        let of_bytes = if self.words[at].is_split() { &self.bytes[4 * at..4 * at + 4] } else { &[] };
        let of_word = if of_bytes.is_empty() { &self.words[at..=at] } else { &[] };
        of_word.iter().chain(of_bytes).map(Cell::last_write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::ptx::types::Scope;
    use rstest::rstest;

    const LOW: u32 = 0b0011;
    const HIGH: u32 = 0b1100;

    fn warp(id: u32) -> WarpClock {
        let mut clock = WarpClock::default();
        clock.restart(0, id);
        clock
    }

    fn by(clock: &WarpClock, lane: u32, bytes: u32, pc: u32) -> Entry {
        Entry::new(clock.own, clock.id, lane, bytes, None, pc)
    }

    fn is_racy_write(cells: &Cells, now: Entry, clock: &WarpClock) -> bool {
        cells.conflict_of_write(0, now, clock, |_| false).is_some()
    }

    #[test]
    fn lanes_that_read_each_others_parts_are_remembered() {
        let clock = warp(0);
        let mut cells = Cells::new(1);
        for lane in 0..4 {
            cells.record_read(0, by(&clock, lane, 1 << (3 - lane), 5), &clock);
        }
        assert!(cells.words[0].is_split());
        for lane in 0..4 {
            assert!(is_racy_write(&cells, by(&clock, lane, 1 << lane, 6), &clock), "what another one read");
            assert!(!is_racy_write(&cells, by(&clock, lane, 1 << (3 - lane), 6), &clock), "what it read itself");
        }
    }

    #[rstest]
    #[case::halves(2)]
    #[case::bytes(1)]
    fn own_parts_and_whole_words_split_nothing(#[case] bytes: u32) {
        let clock = warp(0);
        let mut cells = Cells::new(1);
        let part = (1 << bytes) - 1;
        for pc in 0..3 {
            for lane in 0..4 / bytes {
                let now = by(&clock, lane, part << (lane * bytes), pc);
                assert!(cells.conflict_of_read(0, now, &clock).is_none() && !is_racy_write(&cells, now, &clock));
                cells.record_read(0, now, &clock);
            }
        }
        for lane in 0..32 {
            cells.record_read(0, by(&clock, lane, 0xF, 4), &clock);
            cells.record_read(0, by(&warp(lane), 3, 0xF, 5), &warp(lane));
        }
        assert!(cells.bytes.is_empty());
    }

    #[test]
    fn a_write_of_one_half_hides_none_of_the_other() {
        let (zero, one, two) = (warp(0), warp(1), warp(2));
        let mut cells = Cells::new(1);
        cells.record_write(0, by(&zero, 0, LOW, 1), 0);
        cells.record_write(0, by(&one, 0, HIGH, 2), 0);
        assert_eq!(cells.conflict_of_read(0, by(&two, 0, LOW, 3), &two).map(Entry::warp), Some(0));
        assert_eq!(cells.conflict_of_read(0, by(&two, 0, HIGH, 3), &two).map(Entry::warp), Some(1));
        assert!(cells.conflict_of_read(0, by(&one, 0, HIGH, 3), &one).is_none());
        assert_eq!(cells.last_writes(0).map(Entry::warp).collect::<Vec<_>>(), [0, 0, 1, 1]);
    }

    #[test]
    fn a_word_is_whole_again_behind_a_write_of_all_of_it_and_behind_a_barrier() {
        let (mut zero, mut one) = (warp(0), warp(1));
        let split = |cells: &mut Cells, zero: &WarpClock, one: &WarpClock| {
            cells.record_write(0, by(zero, 0, LOW, 1), zero.floor());
            cells.record_write(0, by(one, 0, HIGH, 2), one.floor());
            assert!(cells.words[0].is_split());
        };
        let mut cells = Cells::new(1);
        split(&mut cells, &zero, &one);
        let strong = Entry::new(one.own, 1, 0, 0xF, Some(Scope::Block), 3);
        cells.record_write(0, strong, one.floor());
        assert!(cells.words[0].is_split(), "an atomic operation hides no plain write");
        cells.record_write(0, by(&one, 0, 0xF, 3), one.floor());
        assert!(!cells.words[0].is_split());
        assert_eq!(cells.conflict_of_read(0, by(&zero, 0, LOW, 4), &zero).map(Entry::warp), Some(1));
        split(&mut cells, &zero, &one);
        let all = crate::sim::machine::race::clock::Clock::everything_until(zero.own.max(one.own));
        zero.join(&all);
        one.join(&all);
        let now = by(&one, 0, LOW, 5);
        assert!(cells.conflict_of_read(0, now, &one).is_none());
        cells.record_read(0, now, &one);
        assert!(!cells.words[0].is_split());
        assert!(is_racy_write(&cells, by(&zero, 0, LOW, 6), &zero));
    }

    /// Halves that two lanes wrote, of which one has passed on what it did.
    #[test]
    fn of_a_pair_each_passes_on_its_own_half() {
        let (zero, mut one) = (warp(0), warp(1));
        let mut cells = Cells::new(1);
        cells.record_write(0, by(&zero, 0, LOW, 1), 0);
        cells.record_write(0, by(&zero, 1, HIGH, 1), 0);
        one.join(&zero.publish_of(1));
        assert!(cells.conflict_of_read(0, by(&one, 0, LOW, 2), &one).is_none());
        assert!(cells.conflict_of_read(0, by(&one, 0, HIGH, 2), &one).is_some());
        assert!(cells.conflict_of_read(0, by(&one, 0, 0xF, 2), &one).is_some());
    }
}
