//! Exact counts of what a launch did. They depend on the kernel and its input alone, never on threads or time.

use super::report::Source;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

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

    fn merge(&mut self, other: &Traffic) {
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

/// Counts of one instruction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PcCount {
    /// Lanes that were there and that its guard held back.
    pub idle: u64,
    pub sectors: u64,
    pub excess_sectors: u64,
    pub wavefronts: u64,
    pub bank_conflicts: u64,
}

/// How many more warps and lanes come to an instruction than to the one before it; below zero, fewer. Of a straight
/// stretch of code only the ends have to be counted.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    warps: i64,
    lanes: i64,
}

/// The counts that a worker keeps while it runs blocks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    /// One more than there are instructions: the last may be the end of a stretch.
    changes: Vec<Change>,
    pub by_pc: Vec<PcCount>,
    pub divergent_branches: u64,
    pub barriers: u64,
    pub global_reads: Traffic,
    pub global_writes: Traffic,
    pub shared_reads: Traffic,
    pub shared_writes: Traffic,
}

impl Counters {
    pub fn new(instructions: usize) -> Self {
        Counters {
            changes: vec![Change::default(); instructions + 1],
            by_pc: vec![PcCount::default(); instructions],
            ..Counters::default()
        }
    }

    /// Counts a warp that ran straight through these instructions with so many lanes.
    #[inline(always)]
    pub fn ran(&mut self, instructions: Range<u32>, lanes: u32) {
        let lanes = i64::from(lanes);
        let first = &mut self.changes[instructions.start as usize];
        *first = Change { warps: first.warps + 1, lanes: first.lanes + lanes };
        let behind = &mut self.changes[instructions.end as usize];
        *behind = Change { warps: behind.warps - 1, lanes: behind.lanes - lanes };
    }

    /// The warps and lanes that came to each instruction.
    pub fn visits(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.changes.iter().scan(Change::default(), |here, change| {
            *here = Change { warps: here.warps + change.warps, lanes: here.lanes + change.lanes };
            Some((here.warps.unsigned_abs(), here.lanes.unsigned_abs()))
        })
    }

    pub fn merge(&mut self, other: &Counters) {
        for (mine, theirs) in self.changes.iter_mut().zip(&other.changes) {
            mine.warps += theirs.warps;
            mine.lanes += theirs.lanes;
        }
        for (mine, theirs) in self.by_pc.iter_mut().zip(&other.by_pc) {
            mine.idle += theirs.idle;
            mine.sectors += theirs.sectors;
            mine.excess_sectors += theirs.excess_sectors;
            mine.wavefronts += theirs.wavefronts;
            mine.bank_conflicts += theirs.bank_conflicts;
        }
        self.divergent_branches += other.divergent_branches;
        self.barriers += other.barriers;
        self.global_reads.merge(&other.global_reads);
        self.global_writes.merge(&other.global_writes);
        self.shared_reads.merge(&other.shared_reads);
        self.shared_writes.merge(&other.shared_writes);
    }

    /// Sums up by class and by line.
    pub fn finish(&self, program: &super::program::Program) -> Metrics {
        let mut metrics = Metrics {
            divergent_branches: self.divergent_branches,
            barriers: self.barriers,
            global_reads: self.global_reads,
            global_writes: self.global_writes,
            shared_reads: self.shared_reads,
            shared_writes: self.shared_writes,
            ..Metrics::default()
        };
        let mut lines: Vec<LineCount> = Vec::new();
        let mut line_of = std::collections::HashMap::new();
        for ((count, (warps, lanes)), origin) in self.by_pc.iter().zip(self.visits()).zip(&program.origins) {
            if warps == 0 || origin.is_step {
                continue;
            }
            let lanes = lanes - count.idle;
            *metrics.warp_instructions.entry(origin.class).or_default() += warps;
            metrics.warp_instructions_total += warps;
            metrics.lane_instructions_total += lanes;
            let key = (origin.source, if origin.source.is_some() { 0 } else { origin.ptx_line });
            let at = *line_of.entry(key).or_insert_with(|| {
                lines.push(LineCount {
                    source: program.source(origin),
                    ptx_line: origin.ptx_line,
                    warp_instructions: 0,
                    lane_instructions: 0,
                    sectors: 0,
                    excess_sectors: 0,
                    wavefronts: 0,
                    bank_conflicts: 0,
                });
                lines.len() - 1
            });
            let line: &mut LineCount = &mut lines[at];
            line.warp_instructions += warps;
            line.lane_instructions += lanes;
            line.sectors += count.sectors;
            line.excess_sectors += count.excess_sectors;
            line.wavefronts += count.wavefronts;
            line.bank_conflicts += count.bank_conflicts;
        }
        metrics.lines = lines;
        metrics
    }
}
