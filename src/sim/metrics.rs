//! Exact counts of what a launch did. They depend on the kernel and its input alone, never on threads or time.

use crate::sim::report::Source;
use serde::Serialize;
use std::collections::BTreeMap;

/// What kind of work an instruction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstructionClass {
    /// Integer and bit arithmetic.
    Integer,
    /// 32-bit floating point.
    Float32,
    /// 64-bit floating point.
    Float64,
    /// 16-bit floating point, packed or not.
    Half,
    /// Reciprocals, roots, exponentials and the like.
    Transcendental,
    /// Conversions between types.
    Convert,
    /// Moves, packing, address-space conversion, parameters.
    Move,
    /// Comparisons and selections.
    Compare,
    /// Branches, exits, calls.
    Control,
    /// Loads and stores of global (or generic) memory.
    Global,
    /// Loads and stores of shared memory.
    Shared,
    /// Loads and stores of local memory.
    Local,
    /// Shuffles, votes, matches, reductions of a warp.
    Warp,
    /// Barriers and fences.
    Barrier,
    /// Atomic operations.
    Atomic,
    /// Asynchronous copies and barrier objects.
    Async,
    /// Matrix operations and their loads.
    Tensor,
}

impl InstructionClass {
    /// The name as in reports.
    pub fn name(self) -> &'static str {
        match self {
            InstructionClass::Integer => "integer",
            InstructionClass::Float32 => "float32",
            InstructionClass::Float64 => "float64",
            InstructionClass::Half => "half",
            InstructionClass::Transcendental => "transcendental",
            InstructionClass::Convert => "convert",
            InstructionClass::Move => "move",
            InstructionClass::Compare => "compare",
            InstructionClass::Control => "control",
            InstructionClass::Global => "global",
            InstructionClass::Shared => "shared",
            InstructionClass::Local => "local",
            InstructionClass::Warp => "warp",
            InstructionClass::Barrier => "barrier",
            InstructionClass::Atomic => "atomic",
            InstructionClass::Async => "async",
            InstructionClass::Tensor => "tensor",
        }
    }
}

/// Traffic of one kind of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Warp-wide requests.
    pub requests: u64,
    /// Bytes that lanes asked for.
    pub bytes: u64,
    /// 32-byte sectors of global memory, or wavefronts of shared memory.
    pub units: u64,
    /// The fewest units that the same bytes could have taken.
    pub ideal_units: u64,
}

impl Traffic {
    pub(crate) fn add(&mut self, bytes: u64, units: u64, ideal_units: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.units += units;
        self.ideal_units += ideal_units;
    }

    /// The same so many times.
    pub(crate) fn add_often(&mut self, times: u64, bytes: u64, units: u64, ideal_units: u64) {
        self.requests += times;
        self.bytes += times * bytes;
        self.units += times * units;
        self.ideal_units += times * ideal_units;
    }

    pub(crate) fn merge(&mut self, other: &Traffic) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.units += other.units;
        self.ideal_units += other.ideal_units;
    }
}

/// Counts of one source line (or PTX line, where there is no line information).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LineCount {
    /// The source line, if the PTX names it.
    pub source: Option<Source>,
    /// The first PTX line that belongs to it.
    pub ptx_line: u32,
    /// Warp instructions.
    pub warp_instructions: u64,
    /// Lane instructions.
    pub lane_instructions: u64,
    /// 32-byte sectors of global memory.
    pub sectors: u64,
    /// Sectors above the fewest that the same bytes could have taken.
    pub excess_sectors: u64,
    /// Wavefronts of shared memory.
    pub wavefronts: u64,
    /// Wavefronts above the fewest that the same bytes could have taken.
    pub bank_conflicts: u64,
}

/// All counts of a launch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Metrics {
    /// Warp instructions by class.
    pub warp_instructions: BTreeMap<InstructionClass, u64>,
    /// Sum over the classes.
    pub warp_instructions_total: u64,
    /// Active lanes, summed over warp instructions.
    pub lane_instructions_total: u64,
    /// Branches where the lanes of a warp parted.
    pub divergent_branches: u64,
    /// Arrivals of warps at block barriers.
    pub barriers: u64,
    /// Reads of global memory.
    pub global_reads: Traffic,
    /// Writes of global memory.
    pub global_writes: Traffic,
    /// Reads of shared memory.
    pub shared_reads: Traffic,
    /// Writes of shared memory.
    pub shared_writes: Traffic,
    /// Per line, in the order of the PTX.
    pub lines: Vec<LineCount>,
}

impl Metrics {
    /// Active lanes per warp instruction, over 32.
    pub fn active_lane_ratio(&self) -> f64 {
        if self.warp_instructions_total == 0 {
            return 1.0;
        }
        self.lane_instructions_total as f64 / (self.warp_instructions_total as f64 * 32.0)
    }
}
