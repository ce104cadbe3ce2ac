//! Calls under one name added up: a part of a run.

use super::knowledge::{Facts, Knowledge};
use super::record::Part;
use crate::core::stats::{quantile_sorted, sorted};
use std::collections::BTreeMap;

/// Sums of calls under one name.
#[derive(Default)]
pub struct Sum {
    /// Idle time before them, µs.
    pub idle_us: f64,
    /// Kernels that they are made of.
    pub kernels: usize,
    times: Vec<f64>,
    bytes: f64,
    flops: f64,
    memory_us: f64,
    pipe_us: f64,
    floor_us: f64,
    levels: BTreeMap<String, f64>,
    /// A call of it, for its class.
    facts: Option<Facts>,
    /// Whether another call was of other work.
    is_mixed: bool,
}

impl Sum {
    /// Adds a call of so many kernels.
    pub fn add(&mut self, us: f64, kernels: usize, facts: Option<&Facts>) {
        self.times.push(us);
        self.kernels += kernels;
        let Some(facts) = facts else { return };
        self.bytes += facts.features.bytes();
        self.flops += facts.features.flops;
        self.memory_us += facts.memory_us;
        self.pipe_us += facts.pipe_us;
        self.floor_us += facts.floor_us();
        *self.levels.entry(facts.level.to_string()).or_default() += us;
        let first = self.facts.get_or_insert_with(|| facts.clone());
        self.is_mixed |= (first.shape != facts.shape) || first.features.flops != facts.features.flops;
    }

    /// What a call takes: the median of those of one work, whose first in a batch also waits for the batch to begin; of several
    /// works the mean.
    fn typical_us(&self, sorted: &[f64]) -> f64 {
        if self.is_mixed { sorted.iter().sum::<f64>() / sorted.len() as f64 } else { quantile_sorted(sorted, 0.5) }
    }

    /// All of it as a part of `runs` runs that took `all_us` together.
    pub fn part(self, name: String, runs: f64, all_us: f64, knowledge: &Knowledge<'_>) -> Part {
        let total: f64 = self.times.iter().sum();
        let times = sorted(&self.times);
        let calls = times.len() as f64;
        let typical_us = self.typical_us(&times);
        // The class of the whole: its typical call, as if all were alike.
        let bound = self.facts.and_then(|mut facts| {
            (facts.memory_us, facts.pipe_us) = (self.memory_us / calls, self.pipe_us / calls);
            facts.features.flops = self.flops / calls;
            knowledge.bound(typical_us, &facts)
        });
        let level = self.levels.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(level, _)| level);
        let calibrated = knowledge.limits.is_some();
        Part {
            name,
            shape: String::new(),
            within: String::new(),
            calls: calls / runs,
            kernels: Some(self.kernels as f64 / runs),
            total_us: total / runs,
            share: total / all_us,
            mean_us: total / calls,
            p50_us: quantile_sorted(&times, 0.5),
            p95_us: quantile_sorted(&times, 0.95),
            idle_us: None,
            bytes: self.bytes / runs,
            flops: self.flops / runs,
            of_ceiling: (calibrated && self.floor_us > 0.0).then(|| self.floor_us / calls / typical_us),
            bound,
            level: level.filter(|_| calibrated).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_batch_waits_for_it_and_is_not_typical() {
        let mut sum = Sum::default();
        [900.0, 30.0, 31.0, 32.0].iter().for_each(|&us| sum.add(us, 1, None));
        let times = sorted(&sum.times);
        assert_eq!(sum.typical_us(&times), 31.5);
        sum.is_mixed = true;
        assert_eq!(sum.typical_us(&times), 248.25);
    }
}
