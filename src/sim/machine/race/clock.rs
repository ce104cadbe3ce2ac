//! Clocks: what warps know of each other's accesses, and what their fences have shown.

use crate::sim::machine::registers::LANES;
use crate::sim::ptx::types::Scope;
use std::collections::HashMap;
use std::sync::Arc;

/// What somebody knows of the clocks of all warps of a cluster, and of those of other clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    /// Every access up to this clock is known.
    pub floor: u32,
    /// By warp of the cluster; missing entries are 0.
    known: Vec<u32>,
    /// What lanes passed on for themselves alone.
    lanes: Vec<Lanes>,
    /// What blocks of other clusters have passed on, in clocks since their start.
    far: Option<Arc<Far>>,
}

/// By number of the block.
pub(crate) type Far = HashMap<u64, Clock>;

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
        if !self.lanes.is_empty() {
            let floor = self.floor;
            self.lanes.retain(|lanes| lanes.until > floor);
        }
        other.lanes.iter().for_each(|lanes| self.learn_of(*lanes));
        self.join_far(other);
    }

    /// Learns only what the other one knows of other clusters.
    fn join_far(&mut self, other: &Clock) {
        match (&mut self.far, &other.far) {
            (_, None) => {}
            (Some(mine), Some(theirs)) if Arc::ptr_eq(mine, theirs) => {}
            (None, Some(theirs)) => self.far = Some(Arc::clone(theirs)),
            (Some(mine), Some(theirs)) => {
                let mine = Arc::make_mut(mine);
                theirs.iter().for_each(|(block, clock)| mine.entry(*block).or_default().join(clock));
            }
        }
    }

    /// Learns what a block of another cluster did.
    pub fn learn_of_block(&mut self, block: u64, clock: &Clock) {
        let far = Arc::make_mut(self.far.get_or_insert_default());
        far.entry(block).or_default().join(clock);
    }

    /// What it knows of other clusters, by block.
    pub fn far(&self) -> impl Iterator<Item = (u64, &Clock)> {
        self.far.iter().flat_map(|far| far.iter().map(|(block, clock)| (*block, clock)))
    }

    /// What it knows of a block of another cluster.
    pub fn of_block(&self, block: u64) -> Option<&Clock> {
        self.far.as_ref()?.get(&block)
    }

    /// Whether an access of a lane is known, or of `None` one of several.
    pub fn covers(&self, warp: u32, clock: u32, lane: Option<u32>) -> bool {
        let of_lane = |lane: u32| {
            self.lanes.iter().any(|one| one.warp == warp && clock <= one.until && one.mask >> lane & 1 != 0)
        };
        clock <= self.floor
            || self.known.get(warp as usize).is_some_and(|known| clock <= *known)
            || lane.is_some_and(of_lane)
    }

    /// The same, counted from `base`, with the warps of one block, the first of which is `first`.
    pub fn since(&self, base: u32, first: u32) -> Clock {
        let known = self.known.iter().skip(first as usize).take(32).map(|clock| clock.saturating_sub(base)).collect();
        let own = self.lanes.iter().filter(|lanes| (first..first + 32).contains(&lanes.warp));
        let lanes =
            own.map(|lanes| Lanes { warp: lanes.warp - first, until: lanes.until.saturating_sub(base), ..*lanes });
        Clock { floor: self.floor.saturating_sub(base), known, lanes: lanes.collect(), far: None }
    }

    pub fn learn(&mut self, warp: u32, clock: u32) {
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

    /// Learns of all accesses of the cluster up to `floor`, which is all that there is to know of it.
    pub fn learn_everything_until(&mut self, floor: u32) {
        self.floor = floor;
        self.known.clear();
        self.lanes.clear();
    }

    /// Knows nothing again.
    pub fn forget(&mut self) {
        self.learn_everything_until(0);
        self.far = None;
    }
}

/// What fences have shown, by the scope of the fence: a fence for the device is one for the block too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown([Option<Arc<Clock>>; Scope::COUNT]);

impl Shown {
    pub fn at(&self, scope: Scope) -> Option<&Arc<Clock>> {
        self.0[scope as usize].as_ref()
    }

    fn add(&mut self, scope: Scope, clock: &Arc<Clock>) {
        match &mut self.0[scope as usize] {
            Some(known) if Arc::ptr_eq(known, clock) => {}
            Some(known) => Arc::make_mut(known).join(clock),
            unknown => *unknown = Some(Arc::clone(clock)),
        }
    }

    pub fn join(&mut self, other: &Shown) {
        for scope in Scope::ALL {
            if let Some(clock) = other.at(scope) {
                self.add(scope, clock);
            }
        }
    }
}

/// Of each lane the clocks up to which it knows what every lane did.
#[derive(Debug, Clone)]
struct Meetings([[u32; LANES]; LANES]);

/// The clock of one warp and what it knows of others.
#[derive(Debug, Clone, Default)]
pub(crate) struct WarpClock {
    /// Number of the warp in its cluster.
    pub id: u32,
    pub own: u32,
    /// The clock when some of its lanes last met: what one of them did since then, the others do not know.
    met: u32,
    /// What lanes have met since all of them did.
    apart: Option<Box<Meetings>>,
    seen: Clock,
    /// A release passes on no more than what fences have shown.
    pub shown: Shown,
    /// What was seen and no fence has acquired yet, with the scope that the fence needs. Empty unless that is checked.
    pending: Vec<(Scope, Clock)>,
}

impl WarpClock {
    pub fn restart(&mut self, base: u32, id: u32) {
        let own = base + 1;
        *self = WarpClock { id, own, met: own, seen: Clock::everything_until(base), ..WarpClock::default() };
    }

    pub fn floor(&self) -> u32 {
        self.seen.floor
    }

    /// Whether an access of another warp of the cluster is ordered before what this one does now.
    pub fn knows(&self, warp: u32, clock: u32, lane: Option<u32>) -> bool {
        self.seen.covers(warp, clock, lane)
    }

    /// The same of an access of another cluster's block, by a clock since the start of that block.
    pub fn knows_of_block(&self, block: u64, warp: u32, clock: u32, lane: Option<u32>) -> bool {
        self.seen.of_block(block).is_some_and(|it| it.covers(warp, clock, lane))
    }

    /// Whether only a fence is missing for it to be known.
    pub fn awaits(&self, warp: u32, clock: u32, lane: Option<u32>) -> bool {
        self.pending.iter().any(|(_, it)| it.covers(warp, clock, lane))
    }

    /// The same of another cluster's block.
    pub fn awaits_of_block(&self, block: u64, warp: u32, clock: u32, lane: Option<u32>) -> bool {
        self.pending.iter().filter_map(|(_, it)| it.of_block(block)).any(|it| it.covers(warp, clock, lane))
    }

    /// Everything that this warp did and knows up to now.
    pub fn publish(&self) -> Clock {
        let mut clock = Clock::default();
        self.publish_to(&mut clock);
        clock
    }

    /// The same, for a clock that knows of others already.
    pub fn publish_to(&self, clock: &mut Clock) {
        clock.join(&self.seen);
        clock.learn(self.id, self.own);
    }

    /// What some lanes did, the others as far as the warp has met since, and what it knows.
    pub fn publish_of(&self, mask: u32) -> Clock {
        if mask == u32::MAX {
            return self.publish();
        }
        let mut clock = self.seen.clone();
        clock.learn(self.id, self.met - 1);
        clock.learn_of(Lanes { warp: self.id, mask, until: self.own });
        clock
    }

    /// Learns what was published at a barrier, where its lanes have met.
    pub fn join(&mut self, other: &Clock) {
        self.seen.join(other);
        self.own = self.own.max(self.seen.floor);
        self.advance();
    }

    /// Learns what an access has seen.
    pub fn see(&mut self, other: &Clock) {
        self.seen.join(other);
    }

    /// Has seen what counts only behind a fence of that scope.
    pub fn see_behind_fence(&mut self, scope: Scope, other: &Clock) {
        match self.pending.iter_mut().find(|(needed, _)| *needed == scope) {
            Some((_, clock)) => clock.join(other),
            None => self.pending.push((scope, other.clone())),
        }
    }

    /// A fence: what was seen before counts from now on.
    pub fn acquire(&mut self, scope: Scope) {
        for (_, clock) in self.pending.extract_if(.., |(needed, _)| *needed <= scope) {
            self.seen.join(&clock);
        }
    }

    /// A fence by some lanes: what they did and know may be passed on to others within its scope.
    pub fn show(&mut self, scope: Scope, mask: u32) {
        let now = Arc::new(self.publish_of(mask));
        for scope in Scope::ALL.into_iter().filter(|within| *within <= scope) {
            self.shown.add(scope, &now);
        }
        self.own += 1;
    }

    /// The lanes of the warp have met: what they did before is ordered before what they do now.
    pub fn advance(&mut self) {
        self.own += 1;
        self.met = self.own;
        self.apart = None;
    }

    /// Some lanes have met: each of them knows what any of them did or knew.
    #[cold]
    pub fn advance_of(&mut self, mask: u32) {
        let before = self.met - 1;
        let Meetings(known) = &mut **self.apart.get_or_insert_with(|| Box::new(Meetings([[before; LANES]; LANES])));
        let members = || (0..LANES).filter(move |lane| mask >> lane & 1 != 0);
        let mut all = [before; LANES];
        for lane in members() {
            all.iter_mut().zip(&known[lane]).for_each(|(all, one)| *all = (*all).max(*one));
        }
        members().for_each(|lane| all[lane] = self.own);
        members().for_each(|lane| known[lane] = all);
        self.own += 1;
        self.met = self.own;
    }

    /// Whether an access of this warp lies before a meeting of the lane that made it with the one that makes another now. Of
    /// several lanes, of which nobody remembers the numbers, any meeting counts.
    #[inline(always)]
    pub fn have_met(&self, clock: u32, before: Option<u32>, now: Option<u32>) -> bool {
        if clock >= self.met {
            return false;
        }
        match (&self.apart, before, now) {
            (Some(apart), Some(before), Some(now)) => clock <= apart.0[now as usize][before as usize],
            _ => true,
        }
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
    fn lanes_know_of_those_that_they_met_and_of_whom_these_met() {
        let mut warp = warp(0);
        let met = |warp: &WarpClock, clock, before, now| warp.have_met(clock, Some(before), Some(now));
        let first = warp.own;
        assert!(!met(&warp, first, 0, 1));
        warp.advance_of(0b0011);
        let second = warp.own;
        assert!(met(&warp, first, 0, 1) && met(&warp, first, 1, 0) && !met(&warp, first, 0, 2));
        assert!(warp.have_met(first, None, Some(2)), "of several lanes nobody remembers the numbers");
        warp.advance_of(0b0110);
        assert!(met(&warp, first, 0, 2), "lane 1 has told it");
        assert!(!met(&warp, second, 0, 2) && !met(&warp, first, 2, 0) && met(&warp, second, 1, 2));
        warp.advance();
        assert!(met(&warp, second, 0, 2) && met(&warp, first, 31, 30));
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
