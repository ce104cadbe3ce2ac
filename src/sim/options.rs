//! How a launch is carried out: which checks, which schedule, which of the allowed results.

/// Which of the optional checks run. Bounds, alignment, freed memory and deadlocks are always held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks {
    /// Reads of memory that nothing has written.
    pub initialised: bool,
    /// Races in shared and global memory, and missing warp synchronisation.
    pub races: bool,
    /// Among races: whoever sees a flag needs a fence (or `.acquire`) before it relies on what the flag stands for.
    /// Off unless asked for: the hardware of today keeps that order where a branch depends on the flag.
    pub acquire: bool,
}

impl Checks {
    /// Everything but what is asked for by itself.
    pub const ALL: Checks = Checks { initialised: true, races: true, acquire: false };
    /// Only what memory safety needs.
    pub const NONE: Checks = Checks { initialised: false, races: false, acquire: false };
}

/// In which order the warps of a block take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarpOrder {
    /// By number.
    Ascending,
    /// By number, the last one first.
    Descending,
    /// Drawn from the seed at each turn.
    Seeded,
}

/// When an asynchronous copy moves its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// When it is issued.
    Early,
    /// When something waits for it.
    Late,
}

/// In which order a tensor-core operation adds up its products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accumulation {
    /// By k.
    Ascending,
    /// In an order drawn from the seed.
    Shuffled,
}

/// The modes of one launch. A right kernel gives a right result in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Optional checks.
    pub checks: Checks,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// Turns of the warps.
    pub warp_order: WarpOrder,
    /// Asynchronous copies.
    pub completion: Completion,
    /// Sums of tensor-core operations.
    pub accumulation: Accumulation,
    /// Adds a seeded error, within the documented bound, to every approximate operation.
    pub adversarial_approximations: bool,
    /// Work that a block (or cluster) may do before it counts as an endless loop: about the number of warp instructions
    /// in its loops, where memory accesses, barriers and turns of warps count several times.
    pub work_budget: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            checks: Checks::ALL,
            seed: 0,
            warp_order: WarpOrder::Ascending,
            completion: Completion::Early,
            accumulation: Accumulation::Ascending,
            adversarial_approximations: false,
            work_budget: 30_000_000,
        }
    }
}
