//! What was measured of each work: the subject of the rules.

use crate::core::stats::median;
use crate::device::trace::{Shape, Timeline, Work, WorkId};
use crate::profile::analysis::Run;
use crate::profile::knowledge::Facts;
use crate::profile::parts::Known;
use crate::toolchain::resources::Resources;
use std::collections::BTreeMap;

/// A work with its times.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its number.
    pub id: WorkId,
    /// What is computed, and by whom.
    pub work: Work,
    /// What is known of it.
    pub facts: Facts,
    /// Calls a run.
    pub calls: f64,
    /// Time a call, µs: the median, which knows nothing of what a scheduler took.
    pub us: f64,
    /// How its largest kernel was launched, where a device says so.
    pub shape: Option<Shape>,
    /// What the simulator counted of it.
    pub sectors: Option<Sectors>,
}

/// Sectors of global memory that were moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sectors {
    /// Over the fewest that the same requests could have taken.
    pub of_ideal: f64,
}

impl Seen {
    /// `softmax::naive rows=8,cols=16`.
    pub fn place(&self) -> String {
        format!("{}::{} {}", self.work.operator, self.work.candidate, self.facts.shape)
    }

    /// The share of its time that the ceilings allow.
    pub fn of_ceiling(&self) -> f64 {
        self.facts.floor_us() / self.us
    }

    /// Whether its data is found in a cache.
    pub fn is_hot(&self) -> bool {
        self.facts.level != crate::calibrate::Level::Dram
    }

    /// Registers and shared memory of its kernel.
    pub fn resources(&self) -> Option<Resources> {
        let shape = self.shape?;
        let (registers, shared_bytes) = (shape.registers as usize, shape.shared_bytes as usize);
        (registers > 0).then(|| Resources { registers, shared_bytes, ..Resources::default() })
    }
}

/// What was seen in some runs, of every work that is known.
pub fn seen(timeline: &Timeline, runs: &[Run<'_>], known: &Known) -> Vec<Seen> {
    let mut all: BTreeMap<WorkId, (Vec<f64>, Option<Shape>)> = BTreeMap::new();
    for call in runs.iter().flat_map(|run| &run.calls) {
        let Some(work) = call.work else { continue };
        let (times, shape) = all.entry(work).or_default();
        times.push(call.us);
        let longest = call.events.iter().filter(|event| event.shape.is_some()).max_by_key(|e| e.end_ns - e.start_ns);
        *shape = shape.or(longest.and_then(|event| event.shape.as_deref().copied()));
    }
    let of = |(id, (times, shape)): (WorkId, (Vec<f64>, Option<Shape>))| {
        let facts = known.get(&id)?.clone();
        let work = timeline.works[id.0 as usize].clone();
        let calls = times.len() as f64 / runs.len() as f64;
        Some(Seen { id, work, facts, calls, us: median(&times), shape, sectors: None })
    };
    all.into_iter().filter_map(of).collect()
}
