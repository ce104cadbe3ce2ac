//! Races in global memory, between blocks and inside one.
//!
//! Blocks are unordered unless one passes something on through a fence and an atomic (or volatile) access that the
//! other one sees. Only allocations that the kernel may write through one of its parameters are watched; of those that
//! it never reads, only the writes.

use crate::sim::machine::memory::Memory;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::race::accesses::Accesses;
use crate::sim::machine::race::entry::Entry;
use crate::sim::machine::race::message::Message;
use crate::sim::machine::registers::LANES;
use crate::sim::options::Options;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The watched allocations of a launch.
#[derive(Debug, Default)]
pub(crate) struct GlobalRaces {
    /// By allocation number, up to the last one that is watched.
    pub(super) tables: Vec<Option<Table>>,
    /// By address of the word that it went through.
    pub(super) passed: Mutex<HashMap<u64, Message>>,
}

/// What a kernel may do with an allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    pub is_written: bool,
    pub is_read: bool,
}

/// The last accesses to each four bytes of an allocation.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) words: Accesses,
    /// Of each row of cells: 0 while nobody has written it; the entry of one instruction that wrote all of it, whose
    /// bytes are then the words of each lane; [`IN_CELLS`]. Empty where the kernel reads.
    pub(super) rows: Vec<AtomicU64>,
    /// Whoever looks at cells and then enters something holds the stretch that they lie in: of two blocks that run at
    /// the same time, one finds what the other entered.
    pub(super) stretches: Vec<Mutex<()>>,
}

/// Words of a row: what a warp stores at once, a word a lane.
const ROW_WORDS: usize = LANES;

/// A row of which the cells tell.
const IN_CELLS: u64 = u64::MAX;

/// Words of a stretch: a warp's access to words that follow each other lies in two at the most.
pub(super) const STRETCH_WORDS: usize = 256;

impl Table {
    fn new(bytes: u64, has_reads: bool, has_strong: bool) -> Self {
        let words = bytes.div_ceil(4) as usize;
        Table {
            words: Accesses::new(words, has_reads, has_strong),
            rows: (0..if has_reads { 0 } else { words.div_ceil(ROW_WORDS) }).map(|_| AtomicU64::new(0)).collect(),
            stretches: (0..words.div_ceil(STRETCH_WORDS)).map(|_| Mutex::new(())).collect(),
        }
    }

    pub(super) fn hold(&self, stretch: usize) -> MutexGuard<'_, ()> {
        self.stretches[stretch].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a write of whole words that follow each other, where nobody has written any of them: most outputs are
    /// written so, once. `store` moves the data before anybody else looks. `false`, and nothing done, where it is another.
    #[inline(always)]
    pub(super) fn write_first(
        &self,
        pattern: &Pattern,
        is_alone: bool,
        entry: impl Fn(u32) -> Entry,
        store: impl FnOnce(),
    ) -> bool {
        if self.words.has_strong() || !pattern.contiguous || pattern.suspect || !pattern.bytes.is_multiple_of(4) {
            return false;
        }
        let words = pattern.bytes as usize / 4;
        let start = (pattern.lowest & crate::sim::machine::memory::address::OFFSET_MASK) as usize / 4;
        let end = start + words * pattern.mask.count_ones() as usize;
        let (first, last) = (start / STRETCH_WORDS, (end - 1) / STRETCH_WORDS);
        // Upwards, so that no two wait for each other.
        let _first = (!is_alone).then(|| self.hold(first));
        let _last = (!is_alone && last != first).then(|| self.hold(last));
        let rows = &self.rows[start / ROW_WORDS..end.div_ceil(ROW_WORDS)];
        if pattern.mask == u32::MAX && start.is_multiple_of(ROW_WORDS) {
            let entered = Table::enter_rows(rows, words as u32, entry);
            if entered {
                store();
            }
            return entered;
        }
        if rows.iter().any(|row| !matches!(row.load(Relaxed), 0 | IN_CELLS)) {
            return false;
        }
        rows.iter().for_each(|row| row.store(IN_CELLS, Relaxed));
        let cells = &self.words.writes[start..end];
        // Without an early end, so that it takes a few wide instructions.
        if cells.iter().fold(0, |any, cell| any | cell.load(Relaxed)) != 0 {
            return false;
        }
        for (lane, cells) in cells.chunks_exact(words).enumerate() {
            cells.iter().for_each(|cell| cell.store(entry(lane as u32).0, Relaxed));
        }
        store();
        true
    }

    /// Enters whole rows that nobody has written: no cell is touched.
    #[inline(always)]
    fn enter_rows(rows: &[AtomicU64], words: u32, entry: impl Fn(u32) -> Entry) -> bool {
        if rows.iter().any(|row| row.load(Relaxed) != 0) {
            return false;
        }
        for (row, first_lane) in rows.iter().zip((0..).step_by(ROW_WORDS / words as usize)) {
            row.store(entry(first_lane).with_bytes(words).0, Relaxed);
        }
        true
    }

    /// Spreads the entry of a whole row over its cells.
    #[inline(always)]
    pub(super) fn open_row(&self, word: usize) {
        let Some(row) = self.rows.get(word / ROW_WORDS) else { return };
        let whole = row.load(Relaxed);
        if whole == IN_CELLS {
            return;
        }
        row.store(IN_CELLS, Relaxed);
        if whole != 0 {
            let (whole, start) = (Entry(whole), word / ROW_WORDS * ROW_WORDS);
            for (at, cell) in self.words.writes[start..start + ROW_WORDS].iter().enumerate() {
                let lane = whole.lane().unwrap_or(0) + at as u32 / whole.bytes();
                cell.store(whole.with_lane(lane).with_bytes(0xF).0, Relaxed);
            }
        }
    }
}

impl GlobalRaces {
    /// `watched` tells of each allocation what the kernel may do with it.
    pub fn new(memory: &Memory, options: &Options, has_strong: bool, watched: impl Fn(usize) -> Watched) -> Self {
        let mut races = GlobalRaces::default();
        if !options.checks.races {
            return races;
        }
        for (number, allocation) in memory.allocations().iter().enumerate() {
            if !allocation.is_live() || allocation.read_only {
                continue;
            }
            let Watched { is_written, is_read } = watched(number);
            if is_written {
                races.tables.resize_with(number + 1, || None);
                races.tables[number] = Some(Table::new(allocation.bytes(), is_read, has_strong));
            }
        }
        races
    }

    /// Whether accesses to an allocation have to be looked at.
    #[inline(always)]
    pub fn watches(&self, allocation: usize) -> bool {
        matches!(self.tables.get(allocation), Some(Some(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn words_that_follow_each_other_are_entered_at_once_where_nobody_wrote() {
        let table = Table::new(4 * 80, false, false);
        let entry = |lane: u32| Entry::new(7, 2, lane, 0xF, None, 3, 5);
        let from = |start: u64, bytes: u32| {
            Pattern::new(std::array::from_fn(|lane| start + lane as u64 * u64::from(bytes)), 0xFF, bytes)
        };
        assert!(table.write_first(&from(16, 8), false, entry, || {}));
        let lanes: Vec<_> = table.words.writes.iter().map(|cell| Entry(cell.load(Relaxed))).collect();
        assert_eq!([4, 5, 18, 19].map(|at| lanes[at].lane()), [Some(0), Some(0), Some(7), Some(7)]);
        assert!(lanes[3].0 == 0 && lanes[20].0 == 0 && lanes[4] == entry(0), "no further");
        assert!(!table.write_first(&from(76, 4), false, entry, || {}), "one of them was written before");
        assert!(!table.write_first(&from(160, 2), false, entry, || {}), "halves of words");
        let apart = Pattern::new(std::array::from_fn(|lane| 160 + 8 * lane as u64), 0xFF, 4);
        assert!(!table.write_first(&apart, false, entry, || {}), "words with gaps");
    }

    #[rstest]
    #[case::a_word_a_lane(1)]
    #[case::two(2)]
    #[case::four(4)]
    fn whole_rows_are_entered_as_such_and_opened_when_another_access_comes(#[case] words: u32) {
        let table = Table::new(4 * 8 * ROW_WORDS as u64, false, false);
        let entry = |lane: u32| Entry::new(7, 2, lane, 0xF, None, 3, 5);
        let from = |start: u64, mask| {
            let lane_bytes = 4 * u64::from(words);
            Pattern::new(std::array::from_fn(|lane| start + lane as u64 * lane_bytes), mask, 4 * words)
        };
        let row_bytes = 4 * ROW_WORDS as u64;
        let all = from(row_bytes, u32::MAX);
        assert!(table.write_first(&all, false, entry, || {}));
        assert!(table.words.writes.iter().all(|cell| cell.load(Relaxed) == 0), "no cell is touched");
        assert!(!table.write_first(&all, false, entry, || {}), "the same rows again");
        assert!(!table.write_first(&from(row_bytes, 1), false, entry, || {}), "a part of them");
        for word in 0..8 * ROW_WORDS {
            table.open_row(word);
        }
        let lanes: Vec<Option<u32>> = table
            .words
            .writes
            .iter()
            .map(|cell| {
                Some(Entry(cell.load(Relaxed))).filter(|entry| entry.0 != 0).map(|found| {
                    assert_eq!(found.bytes(), 0xF);
                    let lane = found.lane().unwrap();
                    assert_eq!(found, entry(lane));
                    lane
                })
            })
            .collect();
        let written = ROW_WORDS..ROW_WORDS * (1 + words as usize);
        let expected = |at: usize| written.contains(&at).then(|| ((at - ROW_WORDS) / words as usize) as u32);
        assert_eq!(lanes, (0..8 * ROW_WORDS).map(expected).collect::<Vec<_>>());
        assert!(!table.write_first(&all, false, entry, || {}), "cells tell of them now");
    }

    /// A write across the border of two stretches, while another block is about to enter one to the second of them.
    #[test]
    fn of_two_writes_at_the_same_time_one_finds_the_other() {
        let table = Table::new(4 * 2 * STRETCH_WORDS as u64, false, false);
        let entry = |lane: u32| Entry::new(1, 0, lane, 0xF, None, 1, 5);
        let address = std::array::from_fn(|lane| 4 * (STRETCH_WORDS - 16 + lane) as u64);
        let pattern = Pattern::new(address, u32::MAX, 4);
        let held = table.hold(1);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| table.write_first(&pattern, false, entry, || {}));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!writer.is_finished(), "it went by whoever holds the stretch");
            table.words.writes[STRETCH_WORDS].store(Entry::new(2, 0, 0, 0xF, None, 1, 5).0, Relaxed);
            drop(held);
            assert!(!writer.join().unwrap(), "it found nothing");
        });
        assert_eq!(table.words.writes[STRETCH_WORDS - 1].load(Relaxed), 0, "it entered something all the same");
    }
}
