//! What strong accesses pass on: a release leaves what fences have shown at its word, and who sees the word learns it,
//! as far as the scopes of both reach.

use super::clock::{Clock, Shown};
use crate::sim::exec::Context;
use crate::sim::ptx::types::Scope;
use std::collections::HashMap;
use std::sync::PoisonError;

/// What was left at one word of global memory.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// For the other warps of a block, and for the blocks of a cluster, by its number.
    blocks: HashMap<u64, Clock>,
    clusters: HashMap<u64, Clock>,
    /// For everybody else, by block, in clocks since its start.
    far: HashMap<u64, Clock>,
}

/// What a strong access does with its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strong {
    /// Sees what stands there.
    Read,
    /// Puts another value there: what was left before is gone.
    Write,
    /// Changes what stands there, seen or unseen: what was left before stays.
    Change { sees: bool },
}

impl Strong {
    fn sees(self) -> bool {
        matches!(self, Strong::Read | Strong::Change { sees: true })
    }
}

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

    /// The same for global memory.
    pub fn pass_on_global(&mut self, address: u64, scope: Scope, what: Strong) {
        // Where blocks run in parallel, none of them sees what another one did.
        if !self.grid.options.checks.races || !self.grid.program.in_order {
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
        if what == Strong::Write {
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
