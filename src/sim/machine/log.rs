//! What one worker writes down while it runs blocks: findings, printed text, counts.

use crate::sim::machine::counters::Counters;
use crate::sim::machine::memory::bank_conflicts::WavefrontMemo;
use crate::sim::machine::memory::bundle::Bundle;
use crate::sim::machine::memory::repeats::Repeats;
use crate::sim::machine::memory::repeats_global::Known;
use crate::sim::report::{Check, Finding, Place};
use std::collections::BTreeMap;

/// A finding as the lowest of its blocks had it, and how often each block did.
#[derive(Debug, Clone)]
struct Found {
    finding: Finding,
    counts: BTreeMap<u64, u64>,
}

impl Found {
    /// The lowest block.
    fn block(&self) -> u64 {
        self.counts.keys().next().copied().unwrap_or(u64::MAX)
    }

    /// Adds the same defect: workers go through their blocks in no order.
    fn merge(&mut self, other: Found) {
        if other.block() < self.block() {
            self.finding = other.finding;
        }
        for (block, count) in other.counts {
            *self.counts.entry(block).or_default() += count;
        }
    }
}

/// Merged over workers, the result is the same for any number of them.
#[derive(Debug, Default)]
pub(crate) struct Log {
    kernel: String,
    findings: BTreeMap<(u32, Check), Found>,
    printed: BTreeMap<u64, String>,
    pub counters: Counters,
    pub wavefronts: WavefrontMemo,
    pub repeats: Repeats,
    pub global_loads: Vec<Known>,
    /// Work of the cluster that runs, against the budget for it.
    pub work: u64,
    /// Atomic operations so far that changed what they found.
    pub changes: u64,
    /// The first block that could not go on: nothing after it counts.
    pub aborted: Option<u64>,
}

impl Log {
    /// For a kernel of so many instructions, bundles of loads and plain loads of global memory.
    pub fn new(kernel: &str, instructions: usize, bundles: usize, global_loads: usize) -> Self {
        Log {
            kernel: kernel.to_owned(),
            counters: Counters::new(instructions),
            wavefronts: WavefrontMemo::new(instructions),
            repeats: Repeats::new(bundles),
            global_loads: vec![Default::default(); global_loads],
            ..Log::default()
        }
    }

    /// Counts a defect that this block or a lower one is known to have; `false` if none is.
    pub fn find_again(&mut self, block: u64, pc: u32, check: Check) -> bool {
        let known = self.findings.get_mut(&(pc, check)).filter(|found| found.block() <= block);
        known.map(|found| *found.counts.entry(block).or_default() += 1).is_some()
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
        if self.find_again(block, pc, check) {
            return;
        }
        let finding = Finding { check, kernel: self.kernel.clone(), place, address, other, message, count: 0 };
        self.add((pc, check), Found { finding, counts: BTreeMap::from([(block, 1)]) });
    }

    fn add(&mut self, key: (u32, Check), found: Found) {
        match self.findings.get_mut(&key) {
            Some(known) => known.merge(found),
            None => {
                self.findings.insert(key, found);
            }
        }
    }

    pub fn print(&mut self, block: u64, text: &str) {
        self.printed.entry(block).or_default().push_str(text);
    }

    /// Adds what was left to be counted at the end.
    pub fn settled(mut self, bundles: &[Bundle]) -> Log {
        self.repeats.settle(bundles, &mut self.counters);
        self
    }

    pub fn merge(mut self, other: Log) -> Log {
        other.findings.into_iter().for_each(|(key, found)| self.add(key, found));
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
        let mut all: Vec<_> = self.findings.into_iter().filter(|(_, found)| found.block() <= last).collect();
        all.sort_by_key(|((pc, check), found)| (found.block(), *pc, *check));
        let counted =
            |found: Found| Finding { count: found.counts.range(..=last).map(|(_, n)| n).sum(), ..found.finding };
        let findings = all.into_iter().map(|(_, found)| counted(found)).collect();
        let printed = self.printed.into_iter().filter(|(block, _)| *block <= last).map(|(_, text)| text).collect();
        (findings, printed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn found_in(blocks: &[u64], aborted: Option<u64>) -> Log {
        let mut log = Log { aborted, ..Log::default() };
        for block in blocks {
            let place = Place { block: [*block as u32, 0, 0], thread: [0; 3], ptx_line: 1, source: None };
            log.find(*block, 7, Check::Deadlock, place, None, format!("block {block}"), None);
        }
        log
    }

    /// A worker that takes over another's rest comes to lower blocks later.
    #[rstest]
    #[case::one_worker(found_in(&[8, 4, 4], Some(4)))]
    #[case::two_workers(found_in(&[8, 9], Some(8)).merge(found_in(&[4, 4], Some(4))))]
    #[case::and_the_other_way_round(found_in(&[6, 4, 4], Some(4)).merge(found_in(&[8, 9], Some(8))))]
    fn a_defect_of_the_block_that_stopped_the_launch_stays(#[case] log: Log) {
        let (findings, _) = log.finish();
        let said: Vec<_> = findings.iter().map(|finding| (finding.message.as_str(), finding.count)).collect();
        assert_eq!(said, [("block 4", 2)]);
    }
}
