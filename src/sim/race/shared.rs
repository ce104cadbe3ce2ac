//! Races in the shared memory of a block.
//!
//! Precise cells cost more than the accesses that they watch, so accesses first go to a list, and 128-byte segments
//! keep the latest clock of a read and of a write. Only when a segment shows an access that the floor does not order
//! are the listed ones entered into the cells and the new one checked against them.

use super::cell::{Cell, Entry};
use super::flight::{Calm, Reader, is_object, reader_in_the_way};
use super::{Clock, WarpClock};
use crate::sim::exec::Context;
use crate::sim::lanes::LANES;
use crate::sim::memory::global::Kind;
use crate::sim::memory::pattern::Pattern;
use crate::sim::memory::shared;
use crate::sim::program::Bundle;
use crate::sim::ptx::types::Scope;
use crate::sim::report::Check;
use std::collections::HashMap;

pub(super) const SEGMENT_SHIFT: u32 = 7;
/// Listed accesses before they are entered into the cells anyway.
const MAX_LISTED: usize = 4096;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Segment {
    pub write: u32,
    pub read: u32,
    /// The latest write that asynchronous operations do not see without a fence.
    pub ordinary_write: u32,
    /// Lane copies whose target lies here and that nobody waited for.
    pub in_flight: u32,
}

/// An access that was seen to conflict with nothing.
#[derive(Debug, Clone)]
struct Listed {
    offset: [u32; LANES],
    mask: u32,
    bytes: u32,
    clock: u32,
    warp: u32,
    pc: u32,
    write: bool,
    /// The loads of this bundle, whose first one has those offsets.
    bundle: Option<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct BlockRaces {
    /// The highest clock of any warp of the block.
    pub top: u32,
    pub(super) segments: Vec<Segment>,
    pub(super) cells: Vec<Cell>,
    listed: Vec<Listed>,
    pub(super) latest: Segment,
    /// Asynchronous operations that read, or have read since the last barrier of the block.
    pub(super) readers: Vec<Reader>,
    pub(super) calm: Calm,
    /// What atomic operations on a shared word have passed on.
    pub(super) published: HashMap<u64, Clock>,
    /// Ordinary writes that a proxy fence has shown to asynchronous operations.
    shown_to_async: Clock,
    /// Whether the kernel has asynchronous operations that read shared memory.
    has_async_readers: bool,
    base: u32,
}

impl BlockRaces {
    /// Prepares for a new block; gives a clock that everything before is ordered by. Clocks go on rising from block to
    /// block, so that the tables need no clearing.
    pub fn restart(&mut self, enabled: bool, bytes: u32, has_async_readers: bool) -> u32 {
        self.has_async_readers = has_async_readers;
        if enabled && self.cells.is_empty() {
            self.cells = vec![Cell::default(); bytes.div_ceil(4) as usize];
            self.segments = vec![Segment::default(); (bytes as usize).div_ceil(1 << SEGMENT_SHIFT)];
        }
        if self.top > Entry::CLOCK_LIMIT / 2 {
            self.cells.fill(Cell::default());
            self.segments.fill(Segment::default());
            self.top = 0;
        }
        if self.latest.in_flight > 0 {
            // The block before ended with copies that nobody waited for.
            self.cells.fill(Cell::default());
            self.segments.fill(Segment::default());
        }
        self.listed.clear();
        self.calm.disturb();
        self.latest = Segment::default();
        self.published.clear();
        self.top + 1
    }

    /// Sets the clock that everything before is ordered by.
    pub fn begin(&mut self, base: u32) {
        self.top = base;
        self.base = base;
        self.readers.clear();
        self.shown_to_async = Clock::default();
    }

    /// A proxy fence shows asynchronous operations the writes that are known.
    pub fn show_async(&mut self, known: &Clock) {
        self.shown_to_async.join(known);
    }

    /// Whether ordinary writes of this block went to the segments.
    pub(super) fn has_ordinary_writes(&self, segments: std::ops::Range<usize>) -> bool {
        self.segments[segments].iter().any(|segment| segment.ordinary_write > self.base)
    }

    /// Whether asynchronous operations may not see a write.
    pub(super) fn is_hidden_from_async(&self, write: Entry) -> bool {
        write.clock() > self.base
            && !write.is_flying()
            && !is_object(write)
            && !self.shown_to_async.covers(write.warp(), write.clock(), write.lane())
    }

    /// The clock at the start of the block.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// A barrier of the whole block: all before is ordered before all after.
    pub fn everything_met(&mut self) -> Clock {
        if self.has_async_readers {
            self.enter_listed_writes();
        }
        self.listed.clear();
        self.readers.retain(|reader| reader.is_flying());
        Clock::everything_until(self.top)
    }

    /// Whether the floor orders every write (and for a writer every read) in the segments that the access touches.
    #[inline(always)]
    fn quiet(&self, pattern: &Pattern, floor: u32, write: bool) -> bool {
        let calm =
            |segment: &Segment| segment.in_flight == 0 && segment.write <= floor && !(write && segment.read > floor);
        if calm(&self.latest) {
            return true;
        }
        if pattern.contiguous || pattern.uniform {
            let first = (pattern.lowest >> SEGMENT_SHIFT) as usize;
            let last = ((pattern.highest + u64::from(pattern.bytes) - 1) >> SEGMENT_SHIFT) as usize;
            self.segments[first..=last].iter().all(calm)
        } else {
            pattern.address.iter().all(|address| calm(&self.segments[(address >> SEGMENT_SHIFT) as usize]))
        }
    }

    #[inline(always)]
    fn note(&mut self, pattern: &Pattern, clock: u32, write: bool) {
        let raise = |segment: &mut Segment| {
            if write {
                segment.write = segment.write.max(clock);
                segment.ordinary_write = segment.write;
            } else {
                segment.read = segment.read.max(clock);
            }
        };
        raise(&mut self.latest);
        if write {
            self.calm.disturb();
        }
        if pattern.contiguous || pattern.uniform {
            let first = (pattern.lowest >> SEGMENT_SHIFT) as usize;
            let last = ((pattern.highest + u64::from(pattern.bytes) - 1) >> SEGMENT_SHIFT) as usize;
            self.segments[first..=last].iter_mut().for_each(raise);
        } else {
            for address in &pattern.address {
                raise(&mut self.segments[(address >> SEGMENT_SHIFT) as usize]);
            }
        }
    }

    /// Remembers the reads of a bundle by a whole warp within `span`, each lane of the first one `relative` to `first`;
    /// `false` if they have to be looked at precisely.
    #[inline(always)]
    pub fn list_bundle(
        &mut self,
        clock: &WarpClock,
        bundle: u32,
        relative: &[u32; LANES],
        first: u32,
        span: std::ops::Range<u64>,
    ) -> bool {
        let floor = clock.floor();
        let calm = |segment: &Segment| segment.in_flight == 0 && segment.write <= floor;
        let touched =
            &mut self.segments[(span.start >> SEGMENT_SHIFT) as usize..=((span.end - 1) >> SEGMENT_SHIFT) as usize];
        if self.listed.len() >= MAX_LISTED || !(calm(&self.latest) || touched.iter().all(calm)) {
            return false;
        }
        for segment in touched.iter_mut().chain([&mut self.latest]) {
            segment.read = segment.read.max(clock.own);
        }
        self.listed.push(Listed {
            offset: relative.map(|relative| first.wrapping_add(relative)),
            mask: u32::MAX,
            bytes: 0,
            clock: clock.own,
            warp: clock.id,
            pc: 0,
            write: false,
            bundle: Some(bundle),
        });
        true
    }

    /// Enters the listed writes into the cells: who wrote last is asked even where a barrier stands between.
    fn enter_listed_writes(&mut self) {
        for listed in self.listed.iter().filter(|listed| listed.write) {
            for lane in crate::sim::memory::pattern::lanes(listed.mask) {
                for (at, bytes) in words(u64::from(listed.offset[lane]), listed.bytes) {
                    let entry = Entry::new(listed.clock, listed.warp, lane as u32, bytes, None, listed.pc);
                    self.cells[at].record_write(entry);
                }
            }
        }
    }

    /// Enters the listed accesses into the cells.
    pub(super) fn enter_listed(&mut self, clock: &WarpClock, bundles: &[Bundle]) {
        for listed in std::mem::take(&mut self.listed) {
            let Some(bundle) = listed.bundle.and_then(|bundle| bundles.get(bundle as usize)) else {
                self.enter(&listed, clock);
                continue;
            };
            for member in &bundle.members {
                let offset = listed.offset.map(|offset| offset.wrapping_add_signed(member.ahead));
                self.enter(&Listed { offset, bytes: bundle.bytes, pc: member.pc, ..listed }, clock);
            }
        }
    }

    fn enter(&mut self, listed: &Listed, clock: &WarpClock) {
        for lane in crate::sim::memory::pattern::lanes(listed.mask) {
            for (at, bytes) in words(u64::from(listed.offset[lane]), listed.bytes) {
                let entry = Entry::new(listed.clock, listed.warp, lane as u32, bytes, None, listed.pc);
                if listed.write {
                    self.cells[at].record_write(entry);
                } else {
                    self.cells[at].record_read(entry, clock);
                }
            }
        }
    }
}

/// The cells that a range touches, and which of their bytes.
#[inline(always)]
pub(super) fn words(offset: u64, bytes: u32) -> impl Iterator<Item = (usize, u32)> {
    let first = (offset / 4) as usize;
    let part = if bytes < 4 { ((1u32 << bytes) - 1) << (offset % 4) } else { 0xF };
    (0..bytes.div_ceil(4) as usize).map(move |word| (first + word, part))
}

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
        if simple && races.listed.len() < MAX_LISTED && races.quiet(pattern, clock.floor(), write) {
            races.listed.push(Listed {
                offset: pattern.address.map(|address| address as u32),
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
        races.enter_listed(&self.warp.race, &self.grid.program.bundles);
        let by_every_lane = pattern.uniform && pattern.mask == self.warp.members & !self.warp.exited;
        let mut conflict = None;
        let mut conflicts = 0u64;
        for lane in pattern.lanes() {
            for (word, (at, bytes)) in words(pattern.address[lane], pattern.bytes).enumerate() {
                let clock = &self.warp.race;
                let now = Entry::new(clock.own, clock.id, lane as u32, bytes, strong, self.pc);
                let cell = &mut races.cells[at];
                let found = if kind == Kind::Read {
                    let found = cell.conflict_of_read(now, clock);
                    cell.record_read(now, clock);
                    found
                } else {
                    let row = values.and_then(|rows| rows.get(word));
                    let stored =
                        |other: Entry| row.is_some_and(|row| stores_the_same(other, now, pattern, row, memory[at]));
                    let found = cell.conflict_of_write(now, clock, stored);
                    cell.record_write(if by_every_lane { now.by_every_lane() } else { now });
                    found
                        .or_else(|| reader_in_the_way(&races.readers, pattern.address[lane], pattern.bytes, now, clock))
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
            races.enter_listed(&ctx.warp.race, &ctx.grid.program.bundles);
            races.calm.disturb();
            let clock = &ctx.warp.race;
            let mut conflict = None;
            let mut conflicts = 0;
            for lane in pattern.lanes() {
                for (at, bytes) in words(pattern.address[lane], pattern.bytes) {
                    let now = Entry::new(clock.own, clock.id, lane as u32, bytes, None, ctx.pc);
                    let cell = &mut races.cells[at];
                    if begins {
                        if let Some(other) = cell.conflict_of_write(now, clock, |_| false) {
                            conflicts += 1;
                            conflict.get_or_insert((lane, other));
                        }
                        cell.record_write(Entry::flying(clock.id, lane as u32, bytes, ctx.pc));
                    } else {
                        cell.record_write(now);
                    }
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
