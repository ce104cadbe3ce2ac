//! Where the time of a run goes, what binds each part of it, and what would help.
//!
//! A [timeline](crate::device::trace) of a run is taken apart into parts and gaps; what the device could do at best comes from
//! its calibration, what another candidate would take from the predictor ([`crate::predict`]): there is no second model here.
//!
//! | file | owns |
//! |---|---|
//! | `knowledge` | what is known of a step: cost, ceilings, class, expected times |
//! | `analysis` | runs as calls and gaps, with the cause of each gap |
//! | `parts` | time by operator, kernel, layer and class; idle time |
//! | `memory` | memory over time |
//! | `overhead` | what tracing costs |
//! | `hints` | rules, their gains, and how they are tried |
//! | `chrome` | traces for chrome://tracing and Perfetto |
//! | `child` | a process that is run for no longer than a limit |
//! | `ncu` | hardware counters by Nsight Compute |
//! | `record` | a profile in the summary |
//! | `text` | a profile for people |

pub mod analysis;
mod child;
pub mod chrome;
pub mod hints;
mod knowledge;
mod memory;
pub mod ncu;
mod overhead;
mod parts;
mod record;
#[cfg(test)]
mod samples;
mod text;

pub use child::end_all;
pub use knowledge::{Expected, Facts, Knowledge};
pub use overhead::Pairs;
pub use parts::{Known, known};
pub use record::{Against, Applied, Counted, Counters, Held, Hint, MemoryUse, Part, ProfileRun, Slice, VERSION, merge};
pub use text::{against, counter_table, hint_table, notes, table};

use crate::device::trace::{Kind, Timeline};
use hints::{Idea, Input, Sectors};

/// What was profiled.
#[derive(Clone, Debug)]
pub struct Identity {
    /// What was run.
    pub subject: String,
    /// Which way.
    pub way: String,
    /// The key of the device.
    pub device: String,
    /// The dtype.
    pub dtype: String,
}

/// The runs of one name, as the summary keeps them, with what could be tried.
///
/// # Errors
/// If no run of that name did anything.
pub fn record(
    timeline: &Timeline,
    run: &str,
    pairs: &Pairs,
    knowledge: &Knowledge<'_>,
    identity: &Identity,
) -> Result<(ProfileRun, Vec<Idea>), String> {
    record_with(timeline, run, pairs, knowledge, identity, None)
}

/// The same with what the simulator counted of its kernel.
///
/// # Errors
/// As [`record`].
pub fn record_with(
    timeline: &Timeline,
    run: &str,
    pairs: &Pairs,
    knowledge: &Knowledge<'_>,
    identity: &Identity,
    sectors: Option<Sectors>,
) -> Result<(ProfileRun, Vec<Idea>), String> {
    let runs = analysis::runs(timeline, run);
    if runs.iter().all(|run| run.calls.is_empty()) {
        return Err(format!("{}: nothing was recorded of `{run}`", identity.subject));
    }
    let known = known(timeline, knowledge);
    let parts = parts::Parts::of(timeline, &runs, &known, knowledge);
    let mut seen = hints::seen(timeline, &runs, &known);
    seen.iter_mut().for_each(|seen| seen.sectors = sectors);
    let is_launched = timeline.events.iter().any(|event| event.kind == Kind::Call);
    let input = Input { seen: &seen, runs: &runs, mean_us: parts.mean_us, is_launched, knowledge };
    let ideas = hints::hints(&input);
    let mut notes = timeline.notes.clone();
    if timeline.lost > 0 {
        notes.push(format!("{} records of the device were lost: parts are too small by them", timeline.lost));
    }
    if knowledge.limits.is_none() {
        notes.push("the device is not calibrated (`kernelgate calibrate`): no ceilings, classes or hints".into());
    }
    let record = ProfileRun {
        version: VERSION,
        subject: identity.subject.clone(),
        way: identity.way.clone(),
        run: run.into(),
        device: identity.device.clone(),
        dtype: identity.dtype.clone(),
        source: timeline.source.clone(),
        runs: runs.len(),
        untraced_us: pairs.untraced_us(),
        traced_us: pairs.traced_us(),
        overhead: pairs.overhead(),
        overhead_interval: pairs.overhead_interval(),
        mean_us: parts.mean_us,
        operators: parts.operators,
        kernels: parts.kernels,
        layers: parts.layers,
        classes: parts.classes,
        idle: parts.idle,
        memory: memory::of(timeline, &runs),
        hints: ideas.iter().map(|idea| idea.hint.clone()).collect(),
        against: None,
        counters: None,
        notes,
    };
    Ok((record, ideas))
}
