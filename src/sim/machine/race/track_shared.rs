//! Accesses to shared memory, checked against those before them.

use crate::sim::machine::access::shared;
use crate::sim::machine::context::Context;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::memory::payload::Kind;
use crate::sim::machine::race::cell::Entry;
use crate::sim::machine::race::flight::{Reader, is_object, reader_in_the_way};
use crate::sim::machine::race::shared::{Listed, SEGMENT_SHIFT, words};
use crate::sim::machine::registers::LANES;
use crate::sim::ptx::types::Scope;
use crate::sim::report::Check;

impl Context<'_> {
    /// Checks and remembers an access to the shared memory of a block of the cluster. `values` are the words that a
    /// write stores.
    #[inline(always)]
    pub fn track_shared(
        &mut self,
        block: usize,
        pattern: &Pattern,
        kind: Kind,
        strong: Option<Scope>,
        values: Option<&[[u32; LANES]]>,
    ) {
        if !self.grid.options.checks.races {
            return;
        }
        let write = kind != Kind::Read;
        let races = &mut self.blocks[block].races;
        let clock = &self.warp.race;
        let simple = strong.is_none() && (!write || increasing(pattern));
        if simple && races.lists() && races.quiet(pattern, clock.floor(), write) {
            races.list(Listed {
                offset: pattern.address.map(|address| address as u32),
                span: (pattern.lowest as u32, pattern.highest as u32 + pattern.bytes),
                mask: pattern.mask,
                bytes: pattern.bytes,
                clock: clock.own,
                warp: clock.id,
                pc: self.pc,
                write,
                bundle: None,
            });
        } else {
            self.track_precisely(block, pattern, kind, strong, values);
        }
        let clock = self.warp.race.own;
        self.blocks[block].races.note(pattern, clock, write);
    }

    fn track_precisely(
        &mut self,
        block: usize,
        pattern: &Pattern,
        kind: Kind,
        strong: Option<Scope>,
        values: Option<&[[u32; LANES]]>,
    ) {
        let state = &mut self.blocks[block];
        let (races, memory) = (&mut state.races, &state.shared.words);
        races.enter_listed(span(pattern), &self.warp.race, self.grid.bundles);
        let by_every_lane = pattern.uniform && pattern.mask == self.warp.members & !self.warp.exited;
        let clock = &self.warp.race;
        // Most stores are far from what asynchronous operations read: that is asked once, and not for each word.
        let (low, high) = span(pattern);
        let is_near = reader_in_the_way(&races.readers, low, (high - low) as u32, clock).is_some();
        let readers: &[Reader] = if is_near { &races.readers } else { &[] };
        let mut conflict = None;
        let mut conflicts = 0u64;
        for lane in pattern.lanes() {
            for (word, (at, bytes)) in words(pattern.address[lane], pattern.bytes).enumerate() {
                let now = Entry::new(clock.own, clock.id, lane as u32, bytes, strong, self.pc);
                let cells = &mut races.cells;
                let found = if kind == Kind::Read {
                    let found = cells.conflict_of_read(at, now, clock);
                    cells.record_read(at, now, clock);
                    found
                } else {
                    let row = values.and_then(|rows| rows.get(word));
                    let stored =
                        |other: Entry| row.is_some_and(|row| stores_the_same(other, now, pattern, row, memory[at]));
                    let found = cells.conflict_of_write(at, now, clock, stored);
                    let entry = if by_every_lane { now.by_every_lane() } else { now };
                    cells.record_write(at, entry, clock.floor());
                    found.or_else(|| reader_in_the_way(readers, pattern.address[lane], pattern.bytes, clock))
                };
                if let Some(other) = found {
                    conflicts += 1;
                    conflict.get_or_insert((lane, other));
                }
            }
        }
        if let Some((lane, other)) = conflict {
            self.report_shared_race(block, lane, pattern.address[lane], kind, other, conflicts);
        }
    }

    /// The lanes start asynchronous copies to these places, which nobody may touch until they land.
    pub fn begin_flight(&mut self, pattern: &Pattern) {
        self.flight(pattern, true);
    }

    /// The lanes have waited: from now on the copies count as their own writes.
    pub fn end_flight(&mut self, pattern: &Pattern) {
        self.flight(pattern, false);
    }

    fn flight(&mut self, pattern: &Pattern, begins: bool) {
        if !self.grid.options.checks.races {
            return;
        }
        shared::for_each_block(self, pattern, Kind::Write, |ctx, block, pattern| {
            let races = &mut ctx.blocks[block].races;
            races.enter_listed(span(pattern), &ctx.warp.race, ctx.grid.bundles);
            races.calm.disturb();
            let clock = &ctx.warp.race;
            let mut conflict = None;
            let mut conflicts = 0;
            for lane in pattern.lanes() {
                for (at, bytes) in words(pattern.address[lane], pattern.bytes) {
                    let now = Entry::new(clock.own, clock.id, lane as u32, bytes, None, ctx.pc);
                    if begins && let Some(other) = races.cells.conflict_of_write(at, now, clock, |_| false) {
                        conflicts += 1;
                        conflict.get_or_insert((lane, other));
                    }
                    let entry = if begins { Entry::flying(clock.id, lane as u32, bytes, ctx.pc) } else { now };
                    races.cells.record_write(at, entry, clock.floor());
                }
                let segment = (pattern.address[lane] >> SEGMENT_SHIFT) as usize;
                for counts in [&mut races.segments[segment], &mut races.latest] {
                    counts.in_flight = if begins { counts.in_flight + 1 } else { counts.in_flight.saturating_sub(1) };
                    counts.write = counts.write.max(clock.own);
                    counts.ordinary_write = counts.write;
                }
            }
            if let Some((lane, other)) = conflict {
                ctx.report_shared_race(block, lane, pattern.address[lane], Kind::Write, other, conflicts);
            }
        });
    }

    #[cold]
    pub(super) fn report_shared_race(
        &mut self,
        block: usize,
        lane: usize,
        offset: u64,
        kind: Kind,
        other: Entry,
        words: u64,
    ) {
        let same_warp = other.warp() == self.warp.race.id;
        // An object stands for whoever issued the copy, whom nobody remembers.
        let (rank, warp) = if is_object(other) { (block as u32, 0) } else { (other.warp() / 32, other.warp() % 32) };
        let linear = self.blocks.get(rank as usize).map_or(0, |block| block.linear);
        let place = self.grid.place(linear, warp * 32 + other.lane().unwrap_or(0), Some(other.pc()));
        let what = match kind {
            Kind::Read => "read of shared memory that another thread wrote",
            Kind::Write => "write to shared memory that another thread accessed",
            Kind::Atomic => "atomic operation on shared memory that another thread accessed plainly",
        };
        let (check, missing) = if other.is_flying() {
            (Check::AsyncCopy, "no wait for the asynchronous operation between")
        } else if is_object(other) {
            (Check::AsyncCopy, "no wait for the barrier object of the copy between")
        } else if self.warp.race.awaits(other.warp(), other.clock(), other.lane()) {
            (Check::MissingAcquire, "no fence behind the access that saw the flag")
        } else if same_warp {
            (Check::MissingSyncwarp, "no synchronisation of the warp between")
        } else {
            (Check::RaceShared, "no barrier between")
        };
        let owner = if block == self.me { "" } else { " of another block of the cluster" };
        self.report_pair(
            check,
            lane,
            Some(offset),
            format!("{what}{owner}, with {missing} ({words} words)"),
            Some(place),
        );
    }
}

/// Where the bytes of all lanes lie.
fn span(pattern: &Pattern) -> (u64, u64) {
    (pattern.lowest, pattern.highest + u64::from(pattern.bytes))
}

/// Whether a store leaves what an earlier plain one left, so that it does not matter which comes last. `row` is the word that
/// each lane stores, `before` the one that stands there.
fn stores_the_same(other: Entry, now: Entry, pattern: &Pattern, row: &[u32; LANES], before: u32) -> bool {
    let Some(lane) = now.lane().map(|lane| lane as usize).filter(|_| !other.is_strong()) else { return false };
    if other.is_of_instruction(now) {
        return pattern.stores_the_same(lane, row);
    }
    let full = u32::MAX >> (32 - 8 * pattern.bytes.min(4));
    (before >> (pattern.address[lane] % 4 * 8)) & full == row[lane] & full
}

/// Whether no two lanes of a store touch the same byte, as far as that can be seen quickly.
#[inline(always)]
fn increasing(pattern: &Pattern) -> bool {
    if pattern.contiguous || pattern.mask.is_power_of_two() {
        return true;
    }
    let bytes = u64::from(pattern.bytes);
    pattern.mask == u32::MAX
        && pattern.address.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]).wrapping_sub(bytes) < 1 << 32)
}
