//! Endless loops that come back to a state they had before: what decides where lanes go is the same again, and no memory
//! that it depends on has changed. No budget needs to run out for them.

use crate::sim::ir::program::Program;
use crate::sim::machine::block::Block;
use crate::sim::machine::log::Log;
use crate::sim::machine::warp::{Wait, Warp};
use crate::sim::run::job::Job;

/// Work of a cluster before it is looked at: most end sooner, and pay nothing.
const FIRST_LOOK: u64 = 4_000_000;
/// Rounds of turns that are compared with the first of a look; then the next look waits until the work has doubled.
const ROUNDS: u32 = 48;

/// What a cluster was like after a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    /// Of places, waits and deciding registers of all warps, and of their barriers.
    hash: u64,
    /// Loads so far that fed deciding registers, and those of them from global memory.
    loads: u64,
    global_loads: u64,
    /// Instructions so far that may have changed memory, other than atomics, and atomics that have.
    stores: u64,
    changes: u64,
}

/// The looks at one cluster.
#[derive(Debug)]
pub(super) struct Watch {
    next_look: u64,
    rounds: u32,
    first: Option<State>,
}

/// A loop that comes back to its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standstill {
    pub polls_global_memory: bool,
}

impl Watch {
    pub fn new() -> Self {
        Watch::from(FIRST_LOOK)
    }

    /// Looks from that work on.
    pub fn from(work: u64) -> Self {
        Watch { next_look: work, rounds: 0, first: None }
    }

    /// To be called after each round of turns.
    pub fn look(&mut self, grid: &Job<'_>, log: &Log, warps: &[Vec<Warp>], blocks: &[Block]) -> Option<Standstill> {
        if log.work < self.next_look || grid.program.steering.hidden {
            return None;
        }
        // A copy that lands may be what is waited for.
        if blocks.iter().any(|block| !block.in_flight.is_empty()) {
            return None;
        }
        let now = state(grid, log, warps, blocks);
        let Some(first) = self.first else {
            self.first = Some(now);
            self.rounds = 0;
            return None;
        };
        if first.hash == now.hash {
            let reads = now.loads != first.loads;
            let polls_global_memory = now.global_loads != first.global_loads;
            let memory_is_still = (now.stores, now.changes) == (first.stores, first.changes);
            let others_may_write = polls_global_memory && grid.blocks_overlap();
            if !reads || (memory_is_still && !others_may_write) {
                return Some(Standstill { polls_global_memory });
            }
        }
        self.rounds += 1;
        if self.rounds == ROUNDS {
            self.first = None;
            self.next_look = log.work.saturating_mul(2);
        }
        None
    }
}

/// What the blocks so far may have changed in memory: where it stays, nobody who polls has anything new to see.
pub(super) fn memory_changes(grid: &Job<'_>, log: &Log) -> u64 {
    let visits: Vec<u64> = log.counters.visits().map(|(warps, _)| warps).collect();
    log.changes + grid.program.steering.stores.iter().map(|pc| visits[*pc as usize]).sum::<u64>()
}

fn state(grid: &Job<'_>, log: &Log, warps: &[Vec<Warp>], blocks: &[Block]) -> State {
    let steering = &grid.program.steering;
    let visits: Vec<u64> = log.counters.visits().map(|(warps, _)| warps).collect();
    let ran = |pc: u32| visits[pc as usize];
    State {
        hash: hash(grid.program, warps, blocks),
        loads: steering.loads.iter().map(|(pc, _)| ran(*pc)).sum(),
        global_loads: steering.loads.iter().filter(|(_, is_global)| *is_global).map(|(pc, _)| ran(*pc)).sum(),
        stores: steering.stores.iter().map(|pc| ran(*pc)).sum(),
        changes: log.changes,
    }
}

fn hash(program: &Program, warps: &[Vec<Warp>], blocks: &[Block]) -> u64 {
    let mut hash = 0u64;
    let mut add = |value: u64| hash = (hash.rotate_left(5) ^ value).wrapping_mul(0x517C_C1B7_2722_0A95);
    for (warps, block) in warps.iter().zip(blocks) {
        for barrier in block.barriers.iter().chain([&block.cluster_barrier]) {
            add(u64::from(barrier.arrived) | u64::from(barrier.expected.unwrap_or(u32::MAX)) << 32);
        }
        for warp in warps {
            add(u64::from(warp.exited));
            for split in &warp.splits {
                add(u64::from(split.pc) << 32 | u64::from(split.mask));
                add(match split.wait {
                    None => 0,
                    Some(Wait::Lanes { members, .. }) => 1 << 32 | u64::from(members),
                    // Generations rise for ever: what counts is whether the barrier has opened.
                    Some(Wait::Barrier { id, generation }) => {
                        2 << 32 | u64::from(block.barriers[id as usize].generation == generation)
                    }
                    Some(Wait::Cluster { generation }) => {
                        3 << 32 | u64::from(blocks[0].cluster_barrier.generation == generation)
                    }
                    Some(Wait::Event { .. }) => 4 << 32,
                });
            }
            let steering = &program.steering;
            steering.words.iter().flat_map(|row| warp.registers.word(*row)).for_each(|value| add(u64::from(*value)));
            steering.wides.iter().flat_map(|row| warp.registers.wide(*row)).for_each(|value| add(*value));
            steering.preds.iter().for_each(|row| add(u64::from(warp.registers.preds[*row as usize])));
        }
    }
    hash
}
