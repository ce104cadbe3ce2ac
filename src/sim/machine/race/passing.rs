//! What strong accesses pass on: a release leaves what fences have shown at its word, and who sees the word learns it,
//! as far as the scopes of both reach.

use crate::sim::machine::context::Context;
use crate::sim::machine::race::clock::{Clock, Shown};
use crate::sim::machine::race::message::{Message, Strong};
use crate::sim::ptx::types::Scope;
use std::sync::PoisonError;

impl Context<'_> {
    /// A strong access to shared memory carries knowledge from those before to those after.
    pub fn pass_on_shared(&mut self, block: usize, offset: u64, scope: Scope, what: Strong) {
        let needed = if block == self.me { Scope::Block } else { Scope::Cluster };
        if !self.grid.options.checks.races || scope < needed {
            return;
        }
        let needs_fence = self.grid.options.checks.acquire;
        let warp = &mut self.warp.race;
        let published = &mut self.blocks[block].races.published;
        if published.is_empty() && (what == Strong::Read || warp.shown.at(needed).is_none()) {
            return;
        }
        if what.sees()
            && let Some(passed) = published.get(&offset)
        {
            if needs_fence { warp.see_behind_fence(needed, passed) } else { warp.see(passed) }
        }
        if what == Strong::Write {
            published.remove(&offset);
        }
        if what != Strong::Read
            && let Some(shown) = warp.shown.at(needed)
        {
            published.entry(offset).or_default().join(shown);
        }
    }

    /// The same for global memory, where an access of `bytes` bytes stands for its word.
    pub fn pass_on_global(&mut self, address: u64, bytes: u32, scope: Scope, what: Strong) {
        // Where blocks run in parallel, none of them sees what another one did.
        if !self.grid.options.checks.races || !self.grid.in_order {
            return;
        }
        let grid = self.grid;
        let (block, cluster) = (self.blocks[self.me].linear, self.blocks[0].linear);
        let mut all = grid.races.passed.lock().unwrap_or_else(PoisonError::into_inner);
        if what.sees()
            && let Some(message) = all.get(&(address & !3))
        {
            self.see(message, scope, block, cluster);
        }
        if what == Strong::Read {
            return;
        }
        let shown = &self.warp.race.shown;
        // Another part of the word may be another flag, which still says what it said.
        if what == Strong::Write && bytes >= 4 {
            all.remove(&(address & !3));
        }
        if shown.at(Scope::Block).is_some() {
            self.leave(all.entry(address & !3).or_default(), shown, scope, block, cluster);
        }
    }

    fn see(&mut self, message: &Message, scope: Scope, block: u64, cluster: u64) {
        let needs_fence = self.grid.options.checks.acquire;
        let warp = &mut self.warp.race;
        let mut learn = |needed: Scope, clock: &Clock| {
            if needs_fence { warp.see_behind_fence(needed, clock) } else { warp.see(clock) }
        };
        if let Some(clock) = message.blocks.get(&block) {
            learn(Scope::Block, clock);
        }
        if let Some(clock) = message.clusters.get(&cluster).filter(|_| scope >= Scope::Cluster) {
            learn(Scope::Cluster, clock);
        }
        if scope == Scope::Device {
            let own = |other: u64| self.blocks.iter().any(|block| block.linear == other);
            let mut far = Clock::default();
            message.far.iter().filter(|(other, _)| !own(**other)).for_each(|(other, clock)| {
                far.learn_of_block(*other, clock);
            });
            if far != Clock::default() {
                learn(Scope::Device, &far);
            }
        }
    }

    fn leave(&self, message: &mut Message, shown: &Shown, scope: Scope, block: u64, cluster: u64) {
        if let Some(clock) = shown.at(Scope::Block) {
            message.blocks.entry(block).or_default().join(clock);
        }
        if let Some(clock) = shown.at(Scope::Cluster).filter(|_| scope >= Scope::Cluster) {
            message.clusters.entry(cluster).or_default().join(clock);
        }
        if let Some(clock) = shown.at(Scope::Device).filter(|_| scope == Scope::Device) {
            for (rank, block) in self.blocks.iter().enumerate() {
                let since = clock.since(block.races.base(), rank as u32 * 32);
                message.far.entry(block.linear).or_default().join(&since);
            }
            for (other, clock) in clock.far() {
                message.far.entry(other).or_default().join(clock);
            }
        }
    }
}
