//! Asynchronous copies and matrix operations as they start and as somebody has waited for them.

use crate::sim::machine::context::Context;
use crate::sim::machine::memory::payload::Kind;
use crate::sim::machine::race::cell::Entry;
use crate::sim::machine::race::clock::Clock;
use crate::sim::machine::race::flight::{Range, Reader, object_id, reader_in_the_way};
use crate::sim::report::Check;

impl Context<'_> {
    /// A copy into the range starts.
    pub fn begin_writing(&mut self, range: Range, lane: u32) {
        if !self.grid.options.checks.races {
            return;
        }
        let (clock, pc) = (&self.warp.race, self.pc);
        let races = &mut self.blocks[range.block].races;
        races.enter_listed(range.span(), clock, self.grid.bundles);
        races.calm.disturb();
        let now = Entry::new(clock.own, clock.id, lane, 0xF, None, pc);
        let mut conflict = reader_in_the_way(&races.readers, u64::from(range.offset), range.bytes, clock);
        let mut conflicts = u64::from(conflict.is_some());
        for at in range.words() {
            if let Some(other) = races.cells.conflict_of_write(at, now, clock, |_| false) {
                conflicts += 1;
                conflict.get_or_insert(other);
            }
            races.cells.record_write(at, Entry::flying(clock.id, lane, 0xF, pc), clock.floor());
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
            range.words().for_each(|at| races.cells.record_write(at, entry, 0));
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
            races.enter_listed(range.span(), clock, self.grid.bundles);
            let now = Entry::new(clock.own, clock.id, lane, 0xF, None, pc);
            // Writers of matrices move 16 bytes at least: one word in four shows them all.
            for at in range.words().step_by(4) {
                // Lanes of the same warp have met: the operation is one of the whole warp.
                if let Some(other) = races.cells.conflict_of_read(at, now, clock)
                    && (other.is_flying() || other.warp() != now.warp())
                {
                    conflicts += 1;
                    conflict.get_or_insert(other);
                } else if may_hide
                    && let Some(write) = races.cells.last_writes(at).find(|write| races.is_hidden_from_async(*write))
                {
                    hidden.get_or_insert(write);
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
