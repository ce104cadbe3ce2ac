//! Races in the shared memory of a block.
//!
//! Precise cells cost more than the accesses that they watch, so accesses first go to a list, and 128-byte segments
//! keep the latest clock of a read and of a write. Only when a segment shows an access that the floor does not order
//! are the listed ones entered into the cells and the new one checked against them.

use crate::sim::machine::memory::bundle::Bundle;
use crate::sim::machine::memory::pattern::Pattern;
use crate::sim::machine::race::cell::Entry;
use crate::sim::machine::race::cells::Cells;
use crate::sim::machine::race::clock::{Clock, WarpClock};
use crate::sim::machine::race::flight::{Calm, Reader, is_object};
use crate::sim::machine::registers::LANES;
use std::collections::HashMap;

pub(super) const SEGMENT_SHIFT: u32 = 7;

/// Listed accesses before they are entered into the cells anyway.
pub(super) const MAX_LISTED: usize = 4096;

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
pub(super) struct Listed {
    pub(super) offset: [u32; LANES],
    /// Where the bytes of all lanes lie.
    pub(super) span: (u32, u32),
    pub(super) mask: u32,
    pub(super) bytes: u32,
    pub(super) clock: u32,
    pub(super) warp: u32,
    pub(super) pc: u32,
    pub(super) write: bool,
    /// The loads of this bundle, whose first one has those offsets.
    pub(super) bundle: Option<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct BlockRaces {
    /// The highest clock of any warp of the block.
    pub top: u32,
    pub(super) segments: Vec<Segment>,
    pub(super) cells: Cells,
    listed: Vec<Listed>,
    /// Where the bytes of all that are listed lie.
    listed_span: (u32, u32),
    pub(super) latest: Segment,
    /// Asynchronous operations that read, or have read since the last barrier of the block.
    pub(super) readers: Vec<Reader>,
    pub(super) calm: Calm,
    /// What atomic operations on a shared word have passed on.
    pub(super) published: HashMap<u64, Clock>,
    /// Ordinary writes that a proxy fence has shown to asynchronous operations.
    pub(super) shown_to_async: Clock,
    /// Whether the kernel has asynchronous operations that read shared memory.
    pub(super) has_async_readers: bool,
    pub(super) base: u32,
    /// The clock at the last barrier of the whole block, or at its start.
    met: u32,
}

impl BlockRaces {
    /// Prepares for a new block; gives a clock that everything before is ordered by. Clocks go on rising from block to
    /// block, so that the tables need no clearing.
    pub fn restart(&mut self, enabled: bool, bytes: u32, has_async_readers: bool) -> u32 {
        self.has_async_readers = has_async_readers;
        if enabled && self.cells.is_empty() {
            self.cells = Cells::new(bytes.div_ceil(4) as usize);
            self.segments = vec![Segment::default(); (bytes as usize).div_ceil(1 << SEGMENT_SHIFT)];
        }
        if self.top > Entry::CLOCK_LIMIT / 2 {
            self.cells.forget_all();
            self.segments.fill(Segment::default());
            self.top = 0;
        }
        if self.latest.in_flight > 0 {
            // The block before ended with copies that nobody waited for.
            self.cells.forget_all();
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
        self.met = base;
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

    /// A barrier of the whole block: all before is ordered before all after. Gives the clock up to which that is.
    pub fn everything_met(&mut self) -> u32 {
        if self.has_async_readers {
            self.enter_listed_writes();
        }
        self.listed.clear();
        self.readers.retain(|reader| reader.is_flying());
        self.met = self.top;
        self.top
    }

    /// Whether there is room in the list.
    #[inline(always)]
    pub(super) fn lists(&self) -> bool {
        self.listed.len() < MAX_LISTED
    }

    #[inline(always)]
    pub(super) fn list(&mut self, mut listed: Listed) {
        // Cells are words: what touches one of them keeps its order.
        listed.span = (listed.span.0 & !3, listed.span.1.next_multiple_of(4));
        let (low, high) = self.listed_span;
        self.listed_span =
            if self.listed.is_empty() { listed.span } else { (low.min(listed.span.0), high.max(listed.span.1)) };
        self.listed.push(listed);
    }

    /// Whether the floor orders every write (and for a writer every read) in the segments that the access touches.
    #[inline(always)]
    pub(super) fn quiet(&self, pattern: &Pattern, floor: u32, write: bool) -> bool {
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
    pub(super) fn note(&mut self, pattern: &Pattern, clock: u32, write: bool) {
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
        let lists = self.lists();
        let touched =
            &mut self.segments[(span.start >> SEGMENT_SHIFT) as usize..=((span.end - 1) >> SEGMENT_SHIFT) as usize];
        if !lists || !(calm(&self.latest) || touched.iter().all(calm)) {
            return false;
        }
        for segment in touched.iter_mut().chain([&mut self.latest]) {
            segment.read = segment.read.max(clock.own);
        }
        self.list(Listed {
            offset: relative.map(|relative| first.wrapping_add(relative)),
            span: (span.start as u32, span.end as u32),
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
            for lane in crate::sim::machine::memory::pattern::lanes(listed.mask) {
                for (at, bytes) in words(u64::from(listed.offset[lane]), listed.bytes) {
                    let entry = Entry::new(listed.clock, listed.warp, lane as u32, bytes, None, listed.pc);
                    self.cells.record_write(at, entry, self.met);
                }
            }
        }
    }

    /// Enters the listed accesses that touch a span of bytes into the cells: what is asked of the cells there knows them. The
    /// others stay listed, unless the list is full.
    pub(super) fn enter_listed(&mut self, (start, end): (u64, u64), clock: &WarpClock, bundles: &[Bundle]) {
        let meets = |(low, high): (u32, u32)| u64::from(low) < end && start & !3 < u64::from(high);
        let is_full = !self.lists();
        if self.listed.is_empty() || !(is_full || meets(self.listed_span)) {
            return;
        }
        let entered: Vec<Listed> = self.listed.extract_if(.., |listed| is_full || meets(listed.span)).collect();
        for listed in entered {
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
        for lane in crate::sim::machine::memory::pattern::lanes(listed.mask) {
            for (at, bytes) in words(u64::from(listed.offset[lane]), listed.bytes) {
                let entry = Entry::new(listed.clock, listed.warp, lane as u32, bytes, None, listed.pc);
                if listed.write {
                    self.cells.record_write(at, entry, clock.floor());
                } else {
                    self.cells.record_read(at, entry, clock);
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
