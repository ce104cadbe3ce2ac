//! Accesses to global memory, checked against those before them.

use crate::sim::machine::context::Context;
use crate::sim::machine::memory::allocation::Allocation;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::memory::payload::{Kind, Payload, scatter};
use crate::sim::machine::race::entry::{BLOCK_BITS, Entry, MAX_CLOCK, MAX_PC};
use crate::sim::machine::race::global::{STRETCH_WORDS, Table};
use crate::sim::machine::race::shared::words;
use crate::sim::machine::registers::LANES;
use crate::sim::ptx::types::Scope;
use crate::sim::report::Check;
use std::sync::MutexGuard;

impl Context<'_> {
    /// Checks and remembers an access to an allocation. `values` are the words that a write stores. Where other blocks
    /// run at the same time, a write is carried out here, so that whoever finds its entry finds its value: then the
    /// result is `true`.
    #[inline(always)]
    pub fn track_global<const W: usize>(
        &mut self,
        number: usize,
        pattern: &Pattern,
        kind: Kind,
        strong: Option<Scope>,
        values: Option<&Payload<W>>,
    ) -> bool {
        let grid = self.grid;
        match grid.races.tables.get(number) {
            Some(Some(table)) => self.track_table(table, number, pattern, kind, strong, values),
            _ => false,
        }
    }

    fn track_table<const W: usize>(
        &mut self,
        table: &Table,
        number: usize,
        pattern: &Pattern,
        kind: Kind,
        strong: Option<Scope>,
        values: Option<&Payload<W>>,
    ) -> bool {
        let block = self.blocks[self.me].linear;
        let clock = self.warp.race.own - self.blocks[self.me].races.base();
        let allocation = &self.grid.memory.allocations()[number];
        let has_reads = table.words.has_reads();
        let is_write = kind != Kind::Read;
        let is_alone = !self.grid.blocks_overlap();
        let stores = values.filter(|_| !is_alone);
        let entry = |lane| Entry::new(block, self.warp.index, lane, 0xF, strong, clock, self.pc);
        if is_write && !has_reads {
            let store = || stores.into_iter().for_each(|data| scatter(allocation, pattern, data));
            if table.write_first(pattern, is_alone, entry, store) {
                return stores.is_some();
            }
        }
        let by_every_lane = is_write && pattern.uniform && pattern.mask == self.warp.alive();
        let mut held: Option<(usize, MutexGuard<'_, ()>)> = None;
        let mut conflict = None;
        let mut conflicts = 0u64;
        for lane in pattern.lanes() {
            let offset = pattern.address[lane] & crate::sim::machine::memory::address::OFFSET_MASK;
            for (word, (at, bytes)) in words(offset, pattern.bytes).enumerate() {
                let stretch = at / STRETCH_WORDS;
                if !is_alone && held.as_ref().is_none_or(|(other, _)| *other != stretch) {
                    // One at a time, so that no two wait for each other.
                    drop(held.take());
                    held = Some((stretch, table.hold(stretch)));
                }
                table.open_row(at);
                let now = Entry::new(block, self.warp.index, lane as u32, bytes, strong, clock, self.pc);
                let row = values.and_then(|rows| rows.get(word));
                let is_harmless =
                    |write| row.is_some_and(|row| self.stores_the_same(write, now, allocation, at, pattern, row));
                let unordered = |other, now| self.unordered(other, now, is_write);
                let found = table.words.conflict(at, now, is_write, unordered, is_harmless);
                if is_write {
                    table.words.record_write(at, if by_every_lane { now.by_every_lane() } else { now });
                    if let Some(row) = stores.and_then(|rows| rows.get(word)) {
                        let shift = pattern.address[lane] % 4 * 8;
                        let full = u32::MAX >> (32 - 8 * pattern.bytes.min(4));
                        allocation.store_bits(at, (row[lane] & full) << shift, full << shift);
                    }
                } else {
                    table.words.record_read(at, now);
                }
                if let Some(other) = found {
                    conflicts += 1;
                    conflict.get_or_insert((lane, other));
                }
            }
        }
        drop(held);
        if let Some((lane, other)) = conflict {
            self.report_global_race(lane, pattern.address[lane], kind, other, conflicts);
        }
        stores.is_some()
    }

    /// The rank in this cluster of the block that an entry names.
    #[inline(always)]
    fn rank_of(&self, other: Entry) -> Option<usize> {
        self.blocks.iter().position(|block| block.linear & BLOCK_BITS == other.block())
    }

    /// Whether there is no order between the earlier access and this one, which touches some of the same bytes.
    #[inline(always)]
    fn unordered(&self, other: Entry, now: Entry, is_write: bool) -> bool {
        if other.clock() == MAX_CLOCK {
            return false;
        }
        if other.who().is_of_parts() {
            return self.unordered_in_parts(other, now, is_write);
        }
        self.unordered_of(other, other.lane(), now, is_write)
    }

    #[cold]
    #[inline(never)]
    fn unordered_in_parts(&self, other: Entry, now: Entry, is_write: bool) -> bool {
        let of_lane = |lane| self.unordered_of(other, lane, now, is_write);
        other.who().any_owner(other.bytes() & now.bytes(), of_lane)
    }

    /// The same of what that lane of the earlier access did, or `None` for several.
    #[inline(always)]
    fn unordered_of(&self, other: Entry, before: Option<u32>, now: Entry, is_write: bool) -> bool {
        let race = &self.warp.race;
        let clock = other.clock() + self.blocks[self.me].races.base();
        if other.block() == now.block() {
            if other.strength() != 0 && now.strength() != 0 {
                return false;
            }
            if other.warp() == now.warp() {
                return !race.have_met(clock, before, now.lane())
                    && other.who().is_another(before, now.lane(), is_write)
                    && !race.knows(race.id, clock, before);
            }
        }
        // Blocks of one cluster know each other's warps; others only what was passed on.
        let (rank, needed) = match self.rank_of(other) {
            Some(rank) => (Some(rank as u32), Scope::Cluster),
            None => (None, Scope::Device),
        };
        if other.strength().min(now.strength()) >= crate::sim::machine::race::cell::strength(Some(needed)) {
            return false;
        }
        match rank {
            Some(rank) => !race.knows(rank * 32 + other.warp(), clock, before),
            None => !race.knows_of_block(other.block(), other.warp(), other.clock(), before),
        }
    }

    /// Whether a store leaves what an earlier plain one left: then it does not matter which comes last.
    fn stores_the_same(
        &self,
        other: Entry,
        now: Entry,
        allocation: &Allocation,
        at: usize,
        pattern: &Pattern,
        row: &[u32; LANES],
    ) -> bool {
        let lane = now.lane().map_or(0, |lane| lane as usize);
        if other.instruction() == now.instruction() {
            return pattern.stores_the_same(lane, row);
        }
        let before = allocation.load(at);
        let full = u32::MAX >> (32 - 8 * pattern.bytes.min(4));
        (before >> (pattern.address[lane] % 4 * 8)) & full == row[lane] & full
    }

    #[cold]
    fn report_global_race(&mut self, lane: usize, address: u64, kind: Kind, other: Entry, count: u64) {
        let me = self.blocks[self.me].linear;
        let same_warp = other.block() == me & BLOCK_BITS && other.warp() == self.warp.index;
        // The upper bits of a block number beyond those are taken to be those of this block.
        let block = (me & !BLOCK_BITS) | other.block();
        let pc = (other.pc() < MAX_PC).then_some(other.pc());
        let place = self.grid.place(block, other.warp() * 32 + other.lane().unwrap_or(0), pc);
        let what = match kind {
            Kind::Read => "read of global memory that another thread wrote",
            Kind::Write => "write to global memory that another thread accessed",
            Kind::Atomic if other.strength() != 0 => "atomic operation on global memory",
            Kind::Atomic => "atomic operation on global memory that another thread accessed plainly",
        };
        let needs_fence = match self.rank_of(other) {
            Some(rank) => {
                let clock = other.clock() + self.blocks[self.me].races.base();
                self.warp.race.awaits(rank as u32 * 32 + other.warp(), clock, other.lane())
            }
            None => self.warp.race.awaits_of_block(other.block(), other.warp(), other.clock(), other.lane()),
        };
        let (check, missing) = match (same_warp, block == me) {
            _ if needs_fence => (Check::MissingAcquire, "no fence behind the access that saw the flag"),
            _ if kind == Kind::Atomic && other.strength() != 0 => {
                (Check::RaceGlobal, "a scope of one of the two that does not reach the other")
            }
            (true, _) => (Check::MissingSyncwarp, "no synchronisation of the warp between"),
            (_, true) => (Check::RaceGlobal, "no barrier between"),
            _ => (Check::RaceGlobal, "no order between the blocks"),
        };
        self.report_pair(check, lane, Some(address), format!("{what}, with {missing} ({count} words)"), Some(place));
    }
}
