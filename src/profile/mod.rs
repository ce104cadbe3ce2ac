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
//! | `sum` | calls under one name added up |
//! | `shapes` | shapes that count up, as one |
//! | `memory` | memory over time |
//! | `overhead` | what tracing costs |
//! | `hints` | rules, their gains, and how they are tried |
//! | `chrome` | traces for chrome://tracing and Perfetto |
//! | `cut` | the last repeat of a recording |
//! | `child` | a process that is run for no longer than a limit |
//! | `ncu` | hardware counters by Nsight Compute |
//! | `record` | a profile in the summary |
//! | `text` | a profile for people |

pub mod analysis;
mod child;
pub mod chrome;
mod cut;
pub mod hints;
mod knowledge;
mod memory;
pub mod ncu;
mod overhead;
mod parts;
mod record;
#[cfg(test)]
mod samples;
mod shapes;
mod sum;
mod text;

pub use child::end_all;
pub use cut::last_repeat;
pub use knowledge::{Expected, Facts, Knowledge};
pub use overhead::{Clock, Pairs};
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
    /// What the times of its runs extend over.
    pub clock: Clock,
}

/// Parts that are further than this from what a clock said are worth a note.
const OFF: f64 = 0.02;

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
/// If no run of that name did anything.
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
    let accounted_us = accounted_us(&runs, identity.clock);
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
        traced_mean_us: accounted_us.map(|_| pairs.traced_mean_us()),
        accounted_us,
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
    Ok((noted(record), ideas))
}

/// What parts and gaps of those runs add up to that a clock timed as well, on average.
fn accounted_us(runs: &[analysis::Run<'_>], clock: Clock) -> Option<f64> {
    let is_timed = |run: &&analysis::Run<'_>| match clock {
        Clock::Run => true,
        Clock::Batch => run.follows,
        Clock::Nothing => false,
    };
    let of = |run: &analysis::Run<'_>| {
        run.calls.iter().map(|call| call.us).sum::<f64>() + run.gaps.iter().map(|gap| gap.us).sum::<f64>()
    };
    let all: Vec<f64> = runs.iter().filter(is_timed).map(of).collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// The record with a note where its parts are not the whole.
fn noted(mut record: ProfileRun) -> ProfileRun {
    if let Some(covered) = record.covered().filter(|covered| (covered - 1.0).abs() > OFF) {
        let share = 100.0 * covered;
        record.notes.push(format!("parts and idle time are {share:.1} % of what a clock said of the traced runs"));
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::trace::{Event, Level, Track};
    use crate::profile::samples::{Made, event, host_knowledge, suites};

    fn recorded(made: &Made, run: &str, traced_us: [f64; 2], clock: Clock) -> ProfileRun {
        let suites = suites();
        let (subject, way, device, dtype) = Default::default();
        let identity = Identity { subject, way, device, dtype, clock };
        let pairs = Pairs(traced_us.map(|us| [90.0, us]).to_vec());
        record(&made.timeline, run, &pairs, &host_knowledge(&suites), &identity).unwrap().0
    }

    #[test]
    fn parts_are_held_against_a_clock_of_their_own() {
        let mut made = Made::default();
        for repeat in 0..2u64 {
            let from = repeat * 1_000_000;
            let run = made.range(Level::Run, "decode", None, from, from + 90_000);
            made.kernel(run, "add", 1000, [from + 5_000, from + 80_000]);
        }
        let is_noted =
            |run: &ProfileRun| run.notes.iter().any(|note| note.starts_with("parts and idle time are 90.0 %"));
        let missing = recorded(&made, "decode", [80.0, 120.0], Clock::Run);
        approx::assert_relative_eq!(missing.covered().unwrap(), 0.9);
        assert!(is_noted(&missing), "{:?}", missing.notes);
        assert!(table(&missing).contains("; parts and idle time are 90.0 % of the traced runs' 100.00 µs\n"));
        let whole = recorded(&made, "decode", [90.0, 91.0], Clock::Run);
        assert!((whole.covered().unwrap() - 1.0).abs() < 0.01 && whole.notes.is_empty(), "{:?}", whole.notes);
        let foreseen = recorded(&made, "decode", [80.0, 120.0], Clock::Nothing);
        assert_eq!((foreseen.covered(), foreseen.traced_mean_us), (None, None));
    }

    #[test]
    fn copies_and_memsets_are_no_launches() {
        let mut made = Made::default();
        let run = made.range(Level::Run, "decode", None, 0, 90_000);
        let step = made.step(run, "add", 1000, 0, 90_000);
        for (kind, range) in [(Kind::Kernel, step), (Kind::Kernel, step), (Kind::Set, step), (Kind::Copy, run)] {
            let from = 10_000 * made.timeline.events.len() as u64;
            made.timeline.events.push(event(kind, Track::Stream(7), [from, from + 9_000], 1, Some(range)));
        }
        assert_eq!(recorded(&made, "decode", [90.0, 90.0], Clock::Run).launches(), 2.0);
    }

    #[test]
    fn the_first_launch_of_a_batch_is_not_what_its_clock_timed() {
        let mut made = Made::default();
        let run = made.range(Level::Run, "launch", None, 0, 10_000);
        let step = made.step(run, "add", 1000, 0, 10_000);
        made.timeline.works[0].launches = 3;
        for [from, to] in [[1_000, 500_000], [500_000, 540_000], [540_000, 580_000]] {
            let kernel = event(Kind::Kernel, Track::Stream(7), [from, to], 1, Some(step));
            made.timeline.events.push(Event { node: 5, ..kernel });
        }
        approx::assert_relative_eq!(recorded(&made, "launch", [40.0, 40.0], Clock::Batch).covered().unwrap(), 1.0);
        made.timeline.works[0].launches = 1;
        assert_eq!(
            recorded(&made, "launch", [40.0, 40.0], Clock::Batch).covered(),
            None,
            "a batch of one begins with it"
        );
    }
}
