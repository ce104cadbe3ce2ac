//! A timeline taken apart: the steps of each run with their times, and the gaps between them.

use crate::device::trace::{Event, Kind, Level, RangeId, Timeline, Track, WorkId};
use std::collections::BTreeMap;

/// Why a device had nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The host asked for the next work too late.
    Launch,
    /// The host waited for the device, and asked afterwards.
    Wait,
    /// The work was asked for in time: what lies between two kernels of a stream.
    Device,
    /// Before the first and behind the last work of a run: inputs, results, whatever follows.
    Host,
}

impl Cause {
    /// In a few words.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Launch => "between launches",
            Cause::Wait => "behind a wait",
            Cause::Device => "on the device",
            Cause::Host => "before and behind the steps",
        }
    }
}

/// A stretch of a run in which the device had nothing to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    /// Why.
    pub cause: Cause,
    /// When it begins, since the recording began.
    pub start_ns: u64,
    /// How long, µs.
    pub us: f64,
    /// The step that it precedes.
    pub before: Option<RangeId>,
    /// Whether kernels that were launched one by one lie on both sides.
    pub is_between_launches: bool,
}

/// One call of a step, or work outside of steps.
#[derive(Clone, Debug)]
pub struct Call<'t> {
    /// The step.
    pub step: Option<RangeId>,
    /// What it computes.
    pub work: Option<WorkId>,
    /// Its kernels, copies and memsets in order.
    pub events: Vec<&'t Event>,
    /// Time in which at least one of them ran, µs.
    pub us: f64,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Run<'t> {
    /// Its range.
    pub id: RangeId,
    /// From its begin to its end, or to that of its last work, µs.
    pub us: f64,
    /// Whether it is a launch of a batch behind its first one: that also waits for the batch to begin.
    pub follows: bool,
    /// Its calls in order.
    pub calls: Vec<Call<'t>>,
    /// Its gaps in order.
    pub gaps: Vec<Gap>,
}

/// The runs of a name.
pub fn runs<'t>(timeline: &'t Timeline, name: &str) -> Vec<Run<'t>> {
    let mut by_run: BTreeMap<RangeId, Vec<&Event>> = timeline.runs(name).map(|id| (id, Vec::new())).collect();
    let mut launched: BTreeMap<u32, &Event> = BTreeMap::new();
    for event in &timeline.events {
        if event.kind == Kind::Call && event.correlation != 0 {
            launched.insert(event.correlation, event);
        }
        let run = event.range.and_then(|id| timeline.around(id, Level::Run));
        if let Some(events) = run.and_then(|run| by_run.get_mut(&run)) {
            events.push(event);
        }
    }
    let of = |(id, events)| batch(one(timeline, id, events, &launched), timeline);
    by_run.into_iter().flat_map(of).collect()
}

/// A run that replays one launch many times, as that many runs: each from its first kernel to the first of the next one.
fn batch<'t>(run: Run<'t>, timeline: &Timeline) -> Vec<Run<'t>> {
    let [call] = &run.calls[..] else { return vec![run] };
    let launches = call.step.map_or(1, |step| timeline.launches(step));
    let each = call.events.len() / launches.max(1);
    if launches < 2 || each == 0 || each * launches != call.events.len() {
        return vec![run];
    }
    let mut parts = call.events.chunks(each).peekable();
    let mut runs = Vec::new();
    while let Some(events) = parts.next() {
        let start_ns = events[0].start_ns;
        let last_ns = events.iter().map(|event| event.end_ns).max().unwrap_or(start_ns);
        let end_ns = parts.peek().map_or(last_ns, |next| next[0].start_ns.max(last_ns));
        let within = |gap: &&Gap| (start_ns..end_ns).contains(&gap.start_ns) && gap.cause != Cause::Host;
        // What was asked for together has no launch between.
        let gaps = run.gaps.iter().filter(within).map(|gap| Gap { cause: Cause::Device, ..*gap }).collect();
        let call = Call { events: events.to_vec(), us: busy_us(events), ..call.clone() };
        runs.push(Run { id: run.id, us: us(start_ns, end_ns), follows: !runs.is_empty(), calls: vec![call], gaps });
    }
    runs
}

fn one<'t>(timeline: &'t Timeline, id: RangeId, mut all: Vec<&'t Event>, launched: &BTreeMap<u32, &Event>) -> Run<'t> {
    let range = timeline.range(id);
    let waits: Vec<&Event> = all.iter().copied().filter(|event| event.kind == Kind::Wait).collect();
    all.retain(|event| event.kind.is_work());
    all.sort_by_key(|event| (event.start_ns, event.end_ns));
    let last = all.iter().map(|event| event.end_ns).max().unwrap_or(range.end_ns);
    let end_ns = range.end_ns.max(last);
    let mut gaps = Vec::new();
    let mut free_ns = range.start_ns;
    for (at, event) in all.iter().enumerate() {
        if event.start_ns > free_ns {
            let cause = if at == 0 { Cause::Host } else { cause(event, free_ns, launched, &waits) };
            let sides = at.checked_sub(1).map(|last| [all[last], *event]);
            let is_between_launches = sides.is_some_and(|sides| sides.iter().all(|event| event.is_launched_alone()));
            let us = us(free_ns, event.start_ns);
            gaps.push(Gap { cause, start_ns: free_ns, us, before: event.range, is_between_launches });
        }
        free_ns = free_ns.max(event.end_ns);
    }
    if end_ns > free_ns {
        let us = us(free_ns, end_ns);
        gaps.push(Gap { cause: Cause::Host, start_ns: free_ns, us, before: None, is_between_launches: false });
    }
    let mut places: BTreeMap<Option<RangeId>, usize> = BTreeMap::new();
    let mut calls: Vec<Call<'t>> = Vec::new();
    for event in all {
        let step = event.range.and_then(|id| timeline.around(id, Level::Step));
        let at = *places.entry(step).or_insert(calls.len());
        if at == calls.len() {
            let work = step.and_then(|id| timeline.work_of(id));
            calls.push(Call { step, work, events: Vec::new(), us: 0.0 });
        }
        calls[at].events.push(event);
    }
    calls.iter_mut().for_each(|call| call.us = busy_us(&call.events));
    Run { id, us: us(range.start_ns, end_ns), follows: false, calls, gaps }
}

/// Why nothing ran between `free_ns` and the beginning of an event.
fn cause(event: &Event, free_ns: u64, launched: &BTreeMap<u32, &Event>, waits: &[&Event]) -> Cause {
    let Some(call) = launched.get(&event.correlation).filter(|_| event.correlation != 0) else {
        // On the host asking is running.
        return if event.track == Track::Stream(0) && launched.is_empty() { Cause::Launch } else { Cause::Device };
    };
    if call.end_ns <= free_ns {
        return Cause::Device;
    }
    let waited = waits.iter().any(|wait| wait.end_ns > free_ns && wait.end_ns <= call.end_ns);
    if waited { Cause::Wait } else { Cause::Launch }
}

fn us(start_ns: u64, end_ns: u64) -> f64 {
    end_ns.saturating_sub(start_ns) as f64 * 1e-3
}

/// The time in which at least one of these, ordered by their begin, ran.
fn busy_us(events: &[&Event]) -> f64 {
    let (mut busy, mut free_ns) = (0, 0);
    for event in events {
        busy += event.end_ns.saturating_sub(event.start_ns.max(free_ns));
        free_ns = free_ns.max(event.end_ns);
    }
    busy as f64 * 1e-3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::samples::{Made, event};

    #[test]
    fn gaps_have_the_cause_that_the_calls_say() {
        let mut made = Made::default();
        let run = made.range(Level::Run, "decode", None, 0, 100_000);
        let step = made.step(run, "add", 1000, 0, 100_000);
        let mut put = |kind, track, from: u64, to: u64, correlation| {
            made.timeline.events.push(event(kind, track, [from * 1000, to * 1000], correlation, Some(step)));
        };
        // Asked for at 5, runs 10 to 20; asked for at 12, runs 22 to 30; asked for at 40, runs 45 to 50, behind a wait;
        // asked for at 60, runs 63 to 70.
        for (asked, from, to, id) in [(5, 10, 20, 1), (12, 22, 30, 2), (40, 45, 50, 3), (60, 63, 70, 4)] {
            put(Kind::Call, Track::Host(0), asked, asked + 1, id);
            put(Kind::Kernel, Track::Stream(1), from, to, id);
        }
        put(Kind::Wait, Track::Host(0), 25, 32, 9);
        let runs = runs(&made.timeline, "decode");
        let gaps: Vec<_> = runs[0].gaps.iter().map(|gap| (gap.cause, gap.us)).collect();
        assert_eq!(
            gaps,
            [
                (Cause::Host, 10.0),
                (Cause::Device, 2.0),
                (Cause::Wait, 15.0),
                (Cause::Launch, 13.0),
                (Cause::Host, 30.0)
            ]
        );
        let between: Vec<_> = runs[0].gaps.iter().map(|gap| gap.is_between_launches).collect();
        assert_eq!(between, [false, true, true, true, false]);
        assert_eq!((runs[0].us, runs[0].calls.len(), runs[0].calls[0].us), (100.0, 1, 30.0));
    }

    /// A run whose only step launches three times.
    fn batch_of_three() -> (Made, RangeId) {
        let mut made = Made::default();
        let run = made.range(Level::Run, "launch", None, 0, 100_000);
        let step = made.step(run, "add", 1000, 0, 100_000);
        made.timeline.works[0].launches = 3;
        (made, step)
    }

    #[test]
    fn a_batch_in_one_graph_is_as_many_runs_as_it_has_launches() {
        let (mut made, step) = batch_of_three();
        for at in 0..6u64 {
            let from = 10_000 + 5_000 * at;
            made.timeline.events.push(event(Kind::Kernel, Track::Stream(7), [from, from + 4_000], 1, Some(step)));
        }
        let found = runs(&made.timeline, "launch");
        let seen: Vec<_> = found.iter().map(|run| (run.us, run.calls[0].us, run.gaps.len(), run.follows)).collect();
        assert_eq!(seen, [(10.0, 8.0, 2, false), (10.0, 8.0, 2, true), (9.0, 8.0, 1, true)]);
        made.timeline.works[0].launches = 4;
        assert_eq!(runs(&made.timeline, "launch").len(), 1, "kernels that do not come out even are told together");
    }

    #[test]
    fn one_event_around_a_batch_is_the_mean_of_its_launches() {
        let (mut made, step) = batch_of_three();
        let around = event(Kind::Kernel, Track::Stream(0), [40_000, 70_001], 0, Some(step));
        made.timeline.events.extend(around.split(made.timeline.launches(step)));
        let found = runs(&made.timeline, "launch");
        let seen: Vec<_> = found.iter().map(|run| (run.us, run.gaps.len(), run.follows)).collect();
        assert_eq!(seen, [(10.0, 0, false), (10.0, 0, true), (10.001, 0, true)]);
    }

    #[test]
    fn overlapping_kernels_are_busy_once() {
        let at = |from, to| event(Kind::Kernel, Track::Stream(1), [from, to], 0, None);
        let (a, b, c) = (at(0, 1000), at(500, 1500), at(2000, 3000));
        assert_eq!(busy_us(&[&a, &b, &c]), 2.5);
    }
}
