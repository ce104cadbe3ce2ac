//! Happens-before: clocks of warps, what barriers and fences pass on, and the tables of accesses that are checked
//! against them.
//!
//! Each warp has an own clock that rises when it synchronises. An access carries the clock of its warp; it is ordered
//! before another one if the other warp has learnt of that clock through a barrier. `floor` is the cheap case of it:
//! every access of any warp up to there is known, which is what a barrier of the whole block gives.

mod cell;
mod flight;
mod global;
mod shared;

pub(crate) use flight::Range;
pub(crate) use global::GlobalRaces;
pub(crate) use shared::BlockRaces;

use super::exec::Context;

/// What somebody knows of the clocks of all warps of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Every access up to this clock is known.
    pub floor: u32,
    /// By warp of the cluster; missing entries are 0.
    known: Vec<u32>,
    /// What lanes passed on for themselves alone.
    lanes: Vec<Lanes>,
}

/// Lanes of a warp and their accesses up to a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lanes {
    warp: u32,
    mask: u32,
    until: u32,
}

impl Clock {
    pub fn join(&mut self, other: &Clock) {
        self.floor = self.floor.max(other.floor);
        if self.known.len() < other.known.len() {
            self.known.resize(other.known.len(), 0);
        }
        for (mine, theirs) in self.known.iter_mut().zip(&other.known) {
            *mine = (*mine).max(*theirs);
        }
        other.lanes.iter().for_each(|lanes| self.learn_of(*lanes));
    }

    /// Whether an access of a lane is known, or of `None` one of several.
    fn covers(&self, warp: u32, clock: u32, lane: Option<u32>) -> bool {
        let of_lane = |lane: u32| {
            self.lanes.iter().any(|one| one.warp == warp && clock <= one.until && one.mask >> lane & 1 != 0)
        };
        clock <= self.floor
            || self.known.get(warp as usize).is_some_and(|known| clock <= *known)
            || lane.is_some_and(of_lane)
    }

    /// The same, counted from `base`, with the warps of one block, the first of which is `first`.
    fn since(&self, base: u32, first: u32) -> Clock {
        let known = self.known.iter().skip(first as usize).take(32).map(|clock| clock.saturating_sub(base)).collect();
        let own = self.lanes.iter().filter(|lanes| (first..first + 32).contains(&lanes.warp));
        let lanes =
            own.map(|lanes| Lanes { warp: lanes.warp - first, until: lanes.until.saturating_sub(base), ..*lanes });
        Clock { floor: self.floor.saturating_sub(base), known, lanes: lanes.collect() }
    }

    fn learn(&mut self, warp: u32, clock: u32) {
        let at = warp as usize;
        if self.known.len() <= at {
            self.known.resize(at + 1, 0);
        }
        self.known[at] = self.known[at].max(clock);
    }

    fn learn_of(&mut self, lanes: Lanes) {
        if self.covers(lanes.warp, lanes.until, None) {
            return;
        }
        match self.lanes.iter_mut().find(|one| (one.warp, one.mask) == (lanes.warp, lanes.mask)) {
            Some(one) => one.until = one.until.max(lanes.until),
            None => self.lanes.push(lanes),
        }
    }

    /// All accesses up to `floor`, whoever made them.
    pub fn everything_until(floor: u32) -> Clock {
        Clock { floor, ..Clock::default() }
    }
}

/// The clock of one warp and what it knows of others.
#[derive(Debug, Clone, Default)]
pub(crate) struct WarpClock {
    /// Number of the warp in its cluster.
    pub id: u32,
    pub own: u32,
    seen: Clock,
    /// What was known at the last fence: an atomic operation passes on no more than that.
    fenced: Option<Clock>,
}

impl WarpClock {
    pub fn restart(&mut self, base: u32, id: u32) {
        *self = WarpClock { id, own: base + 1, seen: Clock::everything_until(base), fenced: None };
    }

    pub fn floor(&self) -> u32 {
        self.seen.floor
    }

    /// Whether an access of another warp is ordered before what this one does now.
    pub fn knows(&self, warp: u32, clock: u32, lane: Option<u32>) -> bool {
        self.seen.covers(warp, clock, lane)
    }

    /// Everything that this warp did and knows up to now.
    pub fn publish(&self) -> Clock {
        let mut clock = self.seen.clone();
        clock.learn(self.id, self.own);
        clock
    }

    /// What some lanes did, the others as far as the warp has met since, and what it knows.
    fn publish_of(&self, mask: u32) -> Clock {
        if mask == u32::MAX {
            return self.publish();
        }
        let mut clock = self.seen.clone();
        clock.learn(self.id, self.own - 1);
        clock.learn_of(Lanes { warp: self.id, mask, until: self.own });
        clock
    }

    /// Learns what was published.
    pub fn join(&mut self, other: &Clock) {
        self.seen.join(other);
        self.own = self.own.max(self.seen.floor) + 1;
    }

    /// The lanes of the warp have met: what they did before is ordered before what they do now.
    pub fn advance(&mut self) {
        self.own += 1;
    }
}

impl Context<'_> {
    /// The lanes of the warp have met in a `.sync` operation, or passed on what they did.
    #[inline(always)]
    pub fn meet(&mut self) {
        self.warp.race.advance();
        self.note_clock();
    }

    /// What lanes pass on that arrive at a barrier object: what the others did counts only if the lanes have met since.
    pub fn passed_on_by(&self, mask: u32) -> Clock {
        self.warp.race.publish_of(mask | !self.warp.alive())
    }

    pub fn note_clock(&mut self) {
        let own = self.warp.race.own;
        let races = &mut self.blocks[self.me].races;
        races.top = races.top.max(own);
    }

    /// A fence of at least block scope.
    pub fn fence(&mut self) {
        if self.grid.options.checks.races {
            self.warp.race.fenced = Some(self.warp.race.publish());
            self.warp.race.advance();
            self.note_clock();
        }
    }

    /// A fence between the proxies that ordinary and asynchronous accesses go through.
    pub fn fence_proxy(&mut self) {
        self.block().objects.show_async();
        if self.grid.options.checks.races {
            let known = self.warp.race.publish();
            self.blocks.iter_mut().for_each(|block| block.races.show_async(&known));
        }
        self.fence();
    }

    /// An atomic operation on shared memory carries knowledge from those before to those after.
    pub fn pass_on_shared(&mut self, block: usize, offset: u64) {
        if !self.grid.options.checks.races {
            return;
        }
        let races = &mut self.blocks[block].races;
        let passed = races.published.entry(offset).or_default();
        self.warp.race.seen.join(passed);
        if let Some(fenced) = &self.warp.race.fenced {
            passed.join(fenced);
        }
    }

    /// `.acquire`: the accesses that follow stay behind; also an end of the lane-private stretch of code.
    pub fn acquire(&mut self) {
        self.fence();
    }

    /// `.release`: the accesses before are done.
    pub fn release(&mut self) {
        self.fence();
    }

    /// A barrier passes on what the warp knows; the barrier of a whole block passes on everything up to now.
    #[inline]
    pub fn arrive(&mut self, barrier: u32) {
        if self.grid.options.checks.races {
            let clock = self.warp.race.publish();
            self.blocks[self.me].barriers[barrier as usize].clock.join(&clock);
            self.warp.race.advance();
            self.note_clock();
        }
    }

    /// What an ended warp did is known to everyone who meets at a barrier later: its clock counts for the top of the
    /// block already.
    pub fn warp_exits(&mut self) {
        self.note_clock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warp(id: u32) -> WarpClock {
        let mut clock = WarpClock::default();
        clock.restart(10, id);
        clock
    }

    #[test]
    fn a_published_clock_orders_what_came_before_and_nothing_after() {
        let (mut a, mut b) = (warp(0), warp(1));
        let before = a.own;
        let published = a.publish();
        a.advance();
        let after = a.own;
        assert!(!b.knows(0, before, None));
        b.join(&published);
        assert!(b.knows(0, before, None));
        assert!(!b.knows(0, after, None));
    }

    #[test]
    fn knowledge_passes_through_a_third_warp() {
        let (a, mut b, mut c) = (warp(0), warp(1), warp(2));
        b.join(&a.publish());
        c.join(&b.publish());
        assert!(c.knows(0, a.own, None));
    }

    #[test]
    fn lanes_pass_on_what_they_did_themselves_and_what_their_warp_did_before_it_met() {
        let (mut a, mut b) = (warp(0), warp(1));
        let before = a.own;
        a.advance();
        b.join(&a.publish_of(1 << 3));
        assert!(b.knows(0, before, None) && b.knows(0, before, Some(9)));
        assert!(b.knows(0, a.own, Some(3)));
        assert!(!b.knows(0, a.own, Some(9)) && !b.knows(0, a.own, None));
        b.join(&a.publish_of(u32::MAX));
        assert!(b.knows(0, a.own, Some(9)));
    }
}
