//! What orders accesses: lanes that meet, fences, barriers.

use crate::sim::machine::context::Context;
use crate::sim::machine::race::clock::Clock;
use crate::sim::ptx::types::Scope;

impl Context<'_> {
    /// The lanes of the warp have met in a `.sync` operation, or passed on what they did.
    #[inline(always)]
    pub fn meet(&mut self) {
        self.warp.race.advance();
        self.note_clock();
    }

    /// The same of some of them.
    #[inline(always)]
    pub fn meet_of(&mut self, mask: u32) {
        if mask | !self.warp.alive() == u32::MAX {
            self.meet();
        } else {
            self.warp.race.advance_of(mask);
            self.note_clock();
        }
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

    /// A fence by some lanes.
    pub fn fence(&mut self, scope: Scope, mask: u32) {
        if self.grid.options.checks.races {
            self.warp.race.acquire(scope);
            let mask = mask | !self.warp.alive();
            self.warp.race.show(scope, mask);
            self.note_clock();
        }
    }

    /// A fence between the proxies that ordinary and asynchronous accesses go through.
    pub fn fence_proxy(&mut self, mask: u32) {
        self.block().objects.show_async();
        if self.grid.options.checks.races {
            let known = self.warp.race.publish();
            self.blocks.iter_mut().for_each(|block| block.races.show_async(&known));
        }
        self.fence(Scope::Block, mask);
    }

    /// `.acquire`: the accesses that follow stay behind.
    pub fn acquire(&mut self, scope: Scope) {
        self.warp.race.acquire(scope);
    }

    /// `.release`: the accesses before are done.
    pub fn release(&mut self, scope: Scope, mask: u32) {
        self.fence(scope, mask);
    }

    /// A barrier passes on what the warp knows and what its fences have shown; the barrier of a whole block passes on
    /// everything up to now.
    #[inline]
    pub fn arrive(&mut self, barrier: u32) {
        if self.grid.options.checks.races {
            let barrier = &mut self.blocks[self.me].barriers[barrier as usize];
            self.warp.race.publish_to(&mut barrier.clock);
            barrier.shown.join(&self.warp.race.shown);
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
