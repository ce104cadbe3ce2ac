//! What one worker writes down while it runs blocks: findings, printed text, counts.

use crate::sim::memory::repeat::Repeats;
use crate::sim::memory::repeat_global;
use crate::sim::memory::shared::WavefrontMemo;
use crate::sim::metrics::Counters;
use crate::sim::program::Program;
use crate::sim::report::{Check, Finding, Place};
use std::collections::BTreeMap;

/// A finding with the block that had it first.
#[derive(Debug, Clone)]
struct First {
    block: u64,
    finding: Finding,
}

/// Merged over workers, the result is the same for any number of them.
#[derive(Debug, Default)]
pub(crate) struct Log {
    kernel: String,
    findings: BTreeMap<(u32, Check), First>,
    printed: BTreeMap<u64, String>,
    pub counters: Counters,
    pub wavefronts: WavefrontMemo,
    pub repeats: Repeats,
    pub global_loads: Vec<repeat_global::Known>,
    /// Work of the cluster that runs, against the budget for it.
    pub work: u64,
    /// Atomic operations so far that changed what they found.
    pub changes: u64,
    /// The first block that could not go on: nothing after it counts.
    pub aborted: Option<u64>,
}

impl Log {
    pub fn new(program: &Program) -> Self {
        let instructions = program.code.len();
        Log {
            kernel: program.name.clone(),
            counters: Counters::new(instructions),
            wavefronts: WavefrontMemo::new(instructions),
            repeats: Repeats::new(program.bundles.len()),
            global_loads: vec![Default::default(); program.plain_loads.len()],
            ..Log::default()
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a finding, passed on once")]
    pub fn find(
        &mut self,
        block: u64,
        pc: u32,
        check: Check,
        place: Place,
        address: Option<u64>,
        message: String,
        other: Option<Place>,
    ) {
        if let Some(first) = self.findings.get_mut(&(pc, check)) {
            first.finding.count += 1;
            return;
        }
        let finding = Finding { check, kernel: self.kernel.clone(), place, address, other, message, count: 1 };
        self.findings.insert((pc, check), First { block, finding });
    }

    pub fn print(&mut self, block: u64, text: &str) {
        self.printed.entry(block).or_default().push_str(text);
    }

    /// Adds what was left to be counted at the end.
    pub fn settled(mut self, program: &Program) -> Log {
        self.repeats.settle(&program.bundles, &mut self.counters);
        self
    }

    pub fn merge(mut self, other: Log) -> Log {
        for (key, theirs) in other.findings {
            match self.findings.get_mut(&key) {
                None => {
                    self.findings.insert(key, theirs);
                }
                Some(mine) => {
                    let count = mine.finding.count + theirs.finding.count;
                    if theirs.block < mine.block {
                        *mine = theirs;
                    }
                    mine.finding.count = count;
                }
            }
        }
        for (block, text) in other.printed {
            self.printed.entry(block).or_default().push_str(&text);
        }
        self.aborted = match (self.aborted, other.aborted) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.counters.merge(&other.counters);
        self
    }

    /// Findings and text in the order of blocks, without what comes after the block that stopped the launch.
    pub fn finish(self) -> (Vec<Finding>, String) {
        let last = self.aborted.unwrap_or(u64::MAX);
        let mut found: Vec<_> = self.findings.into_iter().filter(|(_, first)| first.block <= last).collect();
        found.sort_by_key(|((pc, check), first)| (first.block, *pc, *check));
        let findings = found.into_iter().map(|(_, first)| first.finding).collect();
        let printed = self.printed.into_iter().filter(|(block, _)| *block <= last).map(|(_, text)| text).collect();
        (findings, printed)
    }
}
