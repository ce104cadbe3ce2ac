//! An access to four bytes of global memory, packed into one number.

use crate::sim::machine::race::cell::strength;
use crate::sim::machine::race::who::Who;
use crate::sim::ptx::types::Scope;

/// An access packed into a number; 0 is nobody.
///
/// Bits, from above: block + 1 in 23, warp 5, lanes 6, bytes 4, strength 2, clock since the start of the block 12, pc 12.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(pub u64);

pub(super) const MAX_CLOCK: u32 = 0xFFF;
pub(super) const MAX_PC: u32 = 0xFFF;
/// The bits of a block's number that an entry keeps.
pub(super) const BLOCK_BITS: u64 = 0x7F_FFFF;

impl Entry {
    #[inline(always)]
    pub fn new(block: u64, warp: u32, lane: u32, bytes: u32, strong: Option<Scope>, clock: u32, pc: u32) -> Self {
        Entry(
            ((block + 1) & BLOCK_BITS) << 41
                | u64::from(warp) << 36
                | u64::from(lane) << 30
                | u64::from(bytes) << 26
                | strength(strong) << 24
                | u64::from(clock.min(MAX_CLOCK)) << 12
                | u64::from(pc.min(MAX_PC)),
        )
    }

    /// Number of the block, as far as its bits go.
    #[inline(always)]
    pub fn block(self) -> u64 {
        (self.0 >> 41).wrapping_sub(1) & BLOCK_BITS
    }

    #[inline(always)]
    pub fn warp(self) -> u32 {
        (self.0 >> 36) as u32 & 0x1F
    }

    #[inline(always)]
    pub fn who(self) -> Who {
        Who::from_bits(self.0 >> 30)
    }

    /// The lane, or `None` for several.
    #[inline(always)]
    pub fn lane(self) -> Option<u32> {
        self.who().only()
    }

    #[inline(always)]
    pub fn bytes(self) -> u32 {
        (self.0 >> 26) as u32 & 0xF
    }

    #[inline(always)]
    pub fn strength(self) -> u64 {
        self.0 >> 24 & 3
    }

    #[inline(always)]
    pub fn clock(self) -> u32 {
        (self.0 >> 12) as u32 & MAX_CLOCK
    }

    pub fn pc(self) -> u32 {
        self.0 as u32 & MAX_PC
    }

    #[inline(always)]
    fn with(self, who: Who, bytes: u32) -> Entry {
        Entry(self.0 & !(0x3FF << 26) | who.bits() << 30 | u64::from(bytes) << 26)
    }

    pub fn with_lane(self, lane: u32) -> Entry {
        self.with(Who::lane(lane), self.bytes())
    }

    pub fn with_bytes(self, bytes: u32) -> Entry {
        Entry(self.0 & !(0xF << 26) | u64::from(bytes) << 26)
    }

    /// The same write by every living lane, all with one value.
    pub fn by_every_lane(self) -> Entry {
        self.with(Who::every(), self.bytes())
    }

    /// Everything but lane and bytes.
    #[inline(always)]
    pub fn instruction(self) -> u64 {
        self.0 & !(0x3FF << 26)
    }

    /// Everything but lane, bytes and pc: one warp between two changes of its clock.
    #[inline(always)]
    pub fn time(self) -> u64 {
        self.instruction() & !u64::from(MAX_PC)
    }

    /// What it says of one of the bytes.
    pub fn of_byte(self, byte: u32) -> Entry {
        if self.bytes() >> byte & 1 == 0 { Entry(0) } else { self.with(self.who().of_byte(byte), 0xF) }
    }

    /// Joined with what another lane did at the same time, where nothing is lost by it.
    #[inline(always)]
    fn joined(self, now: Entry) -> Option<Entry> {
        let who = self.who().joined(self.bytes(), now.who(), now.bytes())?;
        Some(now.with(who, self.bytes() | now.bytes()))
    }

    #[inline(always)]
    fn joined_read(self, now: Entry) -> Option<Entry> {
        if self.0 == 0 || self.time() != now.time() { None } else { self.joined(now) }
    }

    /// Whether `later` says all that this one does: the same lanes did the same again.
    fn is_repeated_by(self, later: Entry) -> bool {
        (self.block(), self.warp(), self.who()) == (later.block(), later.warp(), later.who())
            && self.strength() == later.strength()
            && self.bytes() & !later.bytes() == 0
            && self.clock() <= later.clock()
    }
}

/// What is kept of the last write when another comes; `None` if it cannot be told in one entry who wrote which part.
#[inline(always)]
pub(super) fn kept_write(last: Entry, now: Entry) -> Option<Entry> {
    let is_covered = last.bytes() & !now.bytes() == 0;
    if last.0 == 0 || (is_covered && now.who() == Who::every()) {
        return Some(now);
    }
    let joined = if last.instruction() == now.instruction() { last.joined(now) } else { None };
    joined.or(is_covered.then_some(now))
}

/// The two reads that are kept when another comes: the last one, and beside it one of another block as long as there is
/// any, else of another warp or lane. `None` if that would forget who read a part of the word.
#[inline(always)]
pub(super) fn kept_reads([first, second]: [Entry; 2], now: Entry) -> Option<[Entry; 2]> {
    if first.0 == 0 {
        return Some([now, second]);
    }
    if let Some(joined) = first.joined_read(now) {
        return Some([joined, second]);
    }
    let same_warp = (first.block(), first.warp()) == (now.block(), now.warp());
    let (kept, lost) = if same_warp && first.lane() == now.lane() {
        (second, first)
    } else if let Some(joined) = second.joined_read(now) {
        return Some([joined, first]);
    } else {
        let keeps_second = second.0 != 0 && first.block() == now.block() && second.block() != now.block();
        if keeps_second { (second, first) } else { (first, second) }
    };
    if lost.bytes() & !now.bytes() == 0 || lost.is_repeated_by(kept) {
        Some([now, kept])
    } else {
        // Where there is room for both.
        (second.0 == 0).then_some([now, first])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(block: u64, warp: u32, lane: u32) -> Entry {
        Entry::new(block, warp, lane, 0xF, None, 1, 9)
    }

    #[test]
    fn fields_come_back() {
        let entry = Entry::new(0x7F_FF00, 31, 30, 0b1001, Some(Scope::Cluster), 77, 4000);
        assert_eq!((entry.block(), entry.warp(), entry.lane(), entry.bytes()), (0x7F_FF00, 31, Some(30), 0b1001));
        assert_eq!((entry.strength(), entry.clock(), entry.pc()), (2, 77, 4000));
        assert_eq!(entry.by_every_lane().lane(), None);
    }

    #[test]
    fn lanes_of_one_instruction_are_joined() {
        let low = Entry::new(3, 0, 4, 0b0011, None, 1, 9);
        let joined = kept_write(low, Entry::new(3, 0, 5, 0b1100, None, 1, 9)).unwrap();
        assert_eq!((joined.lane(), joined.bytes()), (None, 0xF));
        assert_eq!(kept_write(low, Entry::new(3, 1, 5, 0b1100, None, 1, 9)), None, "another warp wrote the other half");
        let word = Entry::new(3, 1, 5, 0xF, None, 1, 9);
        assert_eq!(kept_write(low, word), Some(word));
    }

    /// Whatever the order in which blocks come, a read of another block is among the two.
    #[test]
    fn a_read_of_another_block_is_kept() {
        let nobody = [Entry(0); 2];
        for order in [[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]] {
            let reads = order
                .into_iter()
                .zip(0..)
                .fold(nobody, |reads, (block, warp)| kept_reads(reads, read(block, warp, 0)).unwrap());
            for block in [0, 1] {
                assert!(reads.iter().any(|kept| kept.block() != block), "{order:?}");
            }
        }
    }

    #[test]
    fn lanes_that_read_by_several_instructions_are_one_entry() {
        let reads = [3, 4]
            .into_iter()
            .fold([Entry(0); 2], |reads, lane| kept_reads(reads, Entry::new(0, 0, lane, 0xF, None, 1, lane)).unwrap());
        assert_eq!((reads[0].lane(), reads[1].0), (None, 0));
        assert!(reads[0].who().any_owner(0xF, |before| before != Some(3)));
    }
}
