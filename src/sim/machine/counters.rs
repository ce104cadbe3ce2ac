//! The counts that a worker keeps while it runs blocks.

use crate::sim::machine::grid::Origins;
use crate::sim::metrics::{LineCount, Metrics, Traffic};
use std::ops::Range;

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
    pub fn finish(&self, origins: &Origins) -> Metrics {
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
        for ((count, (warps, lanes)), origin) in self.by_pc.iter().zip(self.visits()).zip(&origins.each) {
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
                    source: origins.source(origin),
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
