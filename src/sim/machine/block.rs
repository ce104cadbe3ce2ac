//! The state that the warps of a block share: shared memory, barriers, events.

use crate::sim::machine::bulk_queue::Flight;
use crate::sim::machine::memory::pattern::lanes;
use crate::sim::machine::memory::shared_memory::SharedMemory;
use crate::sim::machine::race::clock::{Clock, Shown};
use crate::sim::machine::race::shared::BlockRaces;

/// Barriers of a block.
pub(crate) const BARRIERS: usize = 16;

/// One of the numbered barriers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Barrier {
    /// Threads that have arrived in this generation.
    pub arrived: u32,
    /// Threads that the barrier waits for; `None` is all of the block.
    pub expected: Option<u32>,
    pub generation: u64,
    /// Sum, or, and of the predicates of `bar.red`, being gathered and of the last generation.
    pub gathered: Reduction,
    pub result: Reduction,
    /// What the arrived warps knew; joined by those that leave.
    pub clock: Clock,
    pub released_clock: Clock,
    /// What their fences have shown, likewise.
    pub shown: Shown,
    pub released_shown: Shown,
}

/// What `bar.red` makes of the predicates of all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub count: u32,
    pub all: bool,
    pub any: bool,
}

impl Default for Reduction {
    fn default() -> Self {
        Reduction { count: 0, all: true, any: false }
    }
}

impl Barrier {
    /// Lets those who have arrived go on, with what all of them knew.
    fn open(&mut self) {
        self.arrived = 0;
        self.expected = None;
        self.generation += 1;
        self.result = std::mem::take(&mut self.gathered);
        // The memory of the clock before serves the next generation.
        std::mem::swap(&mut self.released_clock, &mut self.clock);
        self.clock.forget();
        self.released_shown = std::mem::take(&mut self.shown);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Block {
    /// Number in the grid.
    pub linear: u64,
    pub index: [u32; 3],
    pub shared: SharedMemory,
    pub barriers: Vec<Barrier>,
    /// The barriers where somebody has arrived, a bit each.
    pub gathering: u32,
    /// Threads that have not exited.
    pub alive: u32,
    /// Whether this is the only block of its cluster: nobody else reaches its shared memory.
    pub alone: bool,
    /// Rises whenever something happens that a polling warp may wait for.
    pub events: u64,
    /// Instructions of the block so far, which stand in for a clock.
    pub instructions: u64,
    /// Lives in the first block of a cluster.
    pub cluster_barrier: Barrier,
    pub races: BlockRaces,
    /// Copies into shared memory that were issued here and have not moved their data yet.
    pub in_flight: Vec<Flight>,
    pub objects: crate::sim::machine::barrier_objects::BarrierObjects,
}

impl Block {
    pub fn restart(&mut self, linear: u64, index: [u32; 3], threads: u32) {
        self.linear = linear;
        self.index = index;
        self.shared.reset();
        self.barriers.clear();
        self.barriers.resize(BARRIERS, Barrier::default());
        self.gathering = 0;
        self.cluster_barrier = Barrier::default();
        self.alive = threads;
        self.events = 0;
        self.instructions = 0;
        self.objects.clear();
        self.in_flight.clear();
    }

    /// Threads arrive at a barrier.
    pub fn arrive(&mut self, id: u32, threads: u32) -> &mut Barrier {
        self.gathering |= 1 << id;
        let barrier = &mut self.barriers[id as usize];
        barrier.arrived += threads;
        barrier
    }

    /// Opens every barrier whose threads are all there. Exited threads are not waited for.
    pub fn open_barriers(&mut self) -> bool {
        let mut opened = false;
        for id in lanes(self.gathering) {
            let barrier = &mut self.barriers[id];
            let whole_block = barrier.expected.is_none_or(|expected| expected >= self.alive);
            let expected = barrier.expected.unwrap_or(self.alive);
            if barrier.arrived >= expected {
                self.gathering &= !(1 << id);
                barrier.open();
                if whole_block && self.alone {
                    barrier.released_clock.learn_everything_until(self.races.everything_met());
                }
                opened = true;
            }
        }
        opened
    }
}

/// Opens the barrier of a cluster when all its living threads have arrived.
pub(crate) fn open_cluster_barrier(blocks: &mut [Block]) -> bool {
    if blocks[0].cluster_barrier.arrived == 0 {
        return false;
    }
    let alive: u32 = blocks.iter().map(|block| block.alive).sum();
    let barrier = &mut blocks[0].cluster_barrier;
    let opens = barrier.arrived >= alive;
    if opens {
        barrier.open();
    }
    opens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_opens_when_the_living_have_arrived() {
        let mut block = Block::default();
        block.restart(0, [0; 3], 64);
        block.arrive(1, 32);
        assert!(!block.open_barriers());
        block.alive = 32;
        assert!(block.open_barriers());
        assert_eq!(block.barriers[1].generation, 1);
        assert!(!block.open_barriers());
    }
}
