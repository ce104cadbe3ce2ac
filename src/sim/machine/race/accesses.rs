//! The last accesses to global memory: an entry a word, and one a byte where a word has been split.
//!
//! As in shared memory, a word is split where its entries would forget who accessed which part of it, until a plain write
//! covers all of it. Words that are accessed whole are never split.

use crate::sim::machine::race::cells::bytes_of;
use crate::sim::machine::race::entry::{Entry, kept_reads, kept_write};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// In place of the last write to a word that is split: no entry has all bits.
const SPLIT: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Accesses {
    /// By plain accesses.
    pub writes: Vec<AtomicU64>,
    /// By strong ones. Empty where the kernel has none.
    strong: Vec<AtomicU64>,
    /// Empty where the kernel does not read.
    reads: [Vec<AtomicU64>; 2],
    /// Those of the bytes, four a word. Made when the first word is split.
    bytes: OnceLock<Box<Accesses>>,
}

impl Accesses {
    pub fn new(cells: usize, has_reads: bool, has_strong: bool) -> Accesses {
        // Zeros from the system, which cost nothing until they are touched.
        let zeros = |is_kept: bool| {
            vec![0u64; if is_kept { cells } else { 0 }].into_iter().map(AtomicU64::new).collect::<Vec<_>>()
        };
        Accesses {
            writes: zeros(true),
            strong: zeros(has_strong),
            reads: [zeros(has_reads), zeros(has_reads)],
            bytes: OnceLock::new(),
        }
    }

    pub fn has_reads(&self) -> bool {
        !self.reads[0].is_empty()
    }

    pub fn has_strong(&self) -> bool {
        !self.strong.is_empty()
    }

    /// The earlier access that this one conflicts with. `is_harmless` tells whether it stores what an earlier plain write
    /// left.
    #[inline(always)]
    pub fn conflict(
        &self,
        at: usize,
        now: Entry,
        is_write: bool,
        unordered: impl Fn(Entry, Entry) -> bool,
        is_harmless: impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        let write = Entry(self.writes[at].load(Relaxed));
        if write.0 == SPLIT {
            return self.conflict_in_bytes(at, now, is_write, &unordered, &is_harmless);
        }
        // The cheap question first: most entries are empty.
        let conflicts = |entry: Entry| entry.bytes() & now.bytes() != 0 && unordered(entry, now);
        if conflicts(write) && !is_harmless(write) {
            return Some(write);
        }
        if let Some(strong) = self.strong.get(at).map(|cell| Entry(cell.load(Relaxed)))
            && conflicts(strong)
        {
            return Some(strong);
        }
        if !is_write || !self.has_reads() {
            return None;
        }
        self.reads.iter().map(|reads| Entry(reads[at].load(Relaxed))).find(|read| conflicts(*read))
    }

    #[cold]
    fn conflict_in_bytes(
        &self,
        at: usize,
        now: Entry,
        is_write: bool,
        unordered: &dyn Fn(Entry, Entry) -> bool,
        is_harmless: &dyn Fn(Entry) -> bool,
    ) -> Option<Entry> {
        let (bytes, now) = (self.bytes.get()?, (now.bytes(), now.with_bytes(0xF)));
        bytes_of(now.0).find_map(|byte| bytes.conflict(4 * at + byte as usize, now.1, is_write, unordered, is_harmless))
    }

    #[inline(always)]
    pub fn record_read(&self, at: usize, now: Entry) {
        if !self.has_reads() {
            return;
        }
        let [first, second] = self.reads.each_ref().map(|reads| Entry(reads[at].load(Relaxed)));
        let kept = kept_reads([first, second], now).filter(|_| self.writes[at].load(Relaxed) != SPLIT);
        let Some(kept) = kept else {
            return self.split(at, now, |bytes, at, now| bytes.record_read(at, now));
        };
        self.reads[0][at].store(kept[0].0, Relaxed);
        if kept[1] != second {
            self.reads[1][at].store(kept[1].0, Relaxed);
        }
    }

    #[inline(always)]
    pub fn record_write(&self, at: usize, now: Entry) {
        let write = self.writes[at].load(Relaxed);
        if write == SPLIT {
            return self.write_split(at, now);
        }
        let (column, last) =
            if now.strength() == 0 { (&self.writes, write) } else { (&self.strong, self.strong[at].load(Relaxed)) };
        match kept_write(Entry(last), now) {
            Some(kept) => column[at].store(kept.0, Relaxed),
            None => self.split(at, now, |bytes, at, now| bytes.record_write(at, now)),
        }
    }

    #[cold]
    fn write_split(&self, at: usize, now: Entry) {
        if now.bytes() == 0xF && now.strength() == 0 {
            self.writes[at].store(now.0, Relaxed);
        } else {
            self.split(at, now, |bytes, at, now| bytes.record_write(at, now));
        }
    }

    /// Records an access in the bytes of a word, which is split if it is not yet.
    #[cold]
    fn split(&self, at: usize, now: Entry, record: fn(&Accesses, usize, Entry)) {
        let make = || Box::new(Accesses::new(4 * self.writes.len(), self.has_reads(), self.has_strong()));
        let bytes = self.bytes.get_or_init(make);
        if self.writes[at].load(Relaxed) != SPLIT {
            for (column, of_bytes) in self.columns().zip(bytes.columns()).filter(|(column, _)| !column.is_empty()) {
                let entry = Entry(column[at].swap(0, Relaxed));
                (0..4).for_each(|byte| of_bytes[4 * at + byte].store(entry.of_byte(byte as u32).0, Relaxed));
            }
            self.writes[at].store(SPLIT, Relaxed);
        }
        for byte in bytes_of(now.bytes()) {
            record(bytes, 4 * at + byte as usize, now.with_bytes(0xF));
        }
    }

    fn columns(&self) -> impl Iterator<Item = &Vec<AtomicU64>> {
        [&self.writes, &self.strong].into_iter().chain(&self.reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: u32 = 0b0011;
    const HIGH: u32 = 0b1100;

    fn by(warp: u32, lane: u32, bytes: u32, pc: u32) -> Entry {
        Entry::new(0, warp, lane, bytes, None, 1, pc)
    }

    /// Whether another thread than `now` is found, as if nothing were ordered.
    fn finds(accesses: &Accesses, now: Entry, is_write: bool) -> bool {
        let unordered = |other: Entry, now: Entry| {
            let is_own = |lane| (other.block(), other.warp(), lane) == (now.block(), now.warp(), now.lane());
            let both = other.bytes() & now.bytes();
            other.0 != 0 && both != 0 && other.who().any_owner(both, |lane| !is_own(lane))
        };
        accesses.conflict(0, now, is_write, unordered, |_| false).is_some()
    }

    #[test]
    fn lanes_that_read_each_others_parts_are_remembered() {
        let accesses = Accesses::new(1, true, false);
        (0..4).for_each(|lane| accesses.record_read(0, by(0, lane, 1 << (3 - lane), 5)));
        assert_eq!(accesses.writes[0].load(Relaxed), SPLIT);
        for lane in 0..4 {
            assert!(finds(&accesses, by(0, lane, 1 << lane, 6), true), "what another one read");
            assert!(!finds(&accesses, by(0, lane, 1 << (3 - lane), 6), true), "what it read itself");
        }
    }

    #[test]
    fn own_parts_and_whole_words_split_nothing() {
        let accesses = Accesses::new(1, true, false);
        for pc in 0..3 {
            for lane in 0..2 {
                let now = by(0, lane, LOW << (2 * lane), pc);
                accesses.record_read(0, now);
                assert!(!finds(&accesses, now, true));
            }
        }
        for (warp, lane) in (0..32).zip((0..32).rev()) {
            accesses.record_read(0, by(warp, lane, 0xF, 7));
            accesses.record_read(0, by(3, lane, 0xF, 8));
            accesses.record_write(0, by(warp, lane, 0xF, 9));
        }
        assert!(accesses.bytes.get().is_none());
    }

    #[test]
    fn a_write_of_one_half_hides_none_of_the_other() {
        let accesses = Accesses::new(1, false, true);
        accesses.record_write(0, by(0, 0, LOW, 1));
        accesses.record_write(0, by(1, 0, HIGH, 2));
        for (warp, bytes, is_found) in [(0, LOW, false), (0, HIGH, true), (1, LOW, true), (1, HIGH, false)] {
            assert_eq!(finds(&accesses, by(warp, 0, bytes, 3), false), is_found);
        }
        accesses.record_write(0, by(2, 0, 0xF, 4));
        assert!(!finds(&accesses, by(2, 0, 0xF, 5), false), "a write of the whole word tells of all of it");
        assert!(finds(&accesses, by(0, 0, LOW, 5), false));
    }
}
