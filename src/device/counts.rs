//! What a device counted of a case: exact numbers, the same on every machine.

use crate::toolchain::resources::Resources;
use serde::{Deserialize, Serialize};

/// Traffic of one kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes that threads asked for.
    pub bytes: u64,
    /// 32-byte sectors of global memory, wavefronts of shared memory.
    pub units: u64,
    /// The fewest units that the same requests could have taken.
    pub ideal_units: u64,
}

/// The counts of all launches of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// What made the code, `NVRTC 13.0`; empty for PTX that was given.
    pub compiler: String,
    /// For which architecture.
    pub arch: String,
    /// Warp instructions by class, in the order of the classes.
    pub instructions: Vec<(String, u64)>,
    /// Lanes of those that did nothing.
    pub idle_lanes: u64,
    /// Branches where the lanes of a warp parted.
    pub divergent_branches: u64,
    /// Arrivals of warps at barriers.
    pub barriers: u64,
    /// Reads of global memory.
    pub global_reads: Traffic,
    /// Writes of global memory.
    pub global_writes: Traffic,
    /// Reads of shared memory.
    pub shared_reads: Traffic,
    /// Writes of shared memory.
    pub shared_writes: Traffic,
    /// What the entries take of a multiprocessor, where it is known.
    pub entries: Vec<Taken>,
}

/// What a launch of an entry takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// As `ptxas` says.
    pub resources: Resources,
    /// Warps that a multiprocessor holds at once.
    pub resident_warps: usize,
}

/// Warps of a block of `threads` that a multiprocessor of compute capability 9.0 holds at once: limited by registers,
/// shared memory, warps and blocks.
pub fn resident_warps(resources: &Resources, threads: usize, dynamic_shared_bytes: usize) -> usize {
    const WARPS: usize = 64;
    const BLOCKS: usize = 32;
    const REGISTERS: usize = 1 << 16;
    const SHARED_BYTES: usize = 228 << 10;
    /// Of each block, for the system.
    const RESERVED_SHARED_BYTES: usize = 1 << 10;
    /// Registers come in such portions a warp, shared memory in such portions a block.
    const REGISTER_PORTION: usize = 256;
    const SHARED_PORTION: usize = 128;
    let warps = threads.div_ceil(32).max(1);
    let registers = (32 * resources.registers).next_multiple_of(REGISTER_PORTION).max(REGISTER_PORTION);
    let shared = resources.shared_bytes + dynamic_shared_bytes + RESERVED_SHARED_BYTES;
    let blocks =
        [BLOCKS, WARPS / warps, REGISTERS / registers / warps, SHARED_BYTES / shared.next_multiple_of(SHARED_PORTION)];
    warps * blocks.into_iter().min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::warps(32, 256, 0, 0, 64)]
    #[case::registers(64, 256, 0, 0, 32)]
    #[case::registers_in_portions(33, 256, 0, 0, 48)]
    #[case::blocks(16, 32, 0, 0, 32)]
    #[case::shared(32, 256, 48 << 10, 0, 32)]
    #[case::dynamic_shared(32, 256, 0, 200 << 10, 8)]
    #[case::not_at_all(255, 1024, 0, 0, 0)]
    fn occupancy(
        #[case] registers: usize,
        #[case] threads: usize,
        #[case] shared_bytes: usize,
        #[case] dynamic: usize,
        #[case] expected: usize,
    ) {
        let resources = Resources { registers, shared_bytes, ..Resources::default() };
        assert_eq!(resident_warps(&resources, threads, dynamic), expected);
    }
}
