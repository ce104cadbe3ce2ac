//! The parts of a run: time by operator, by kernel, by layer, by class; and idle time by cause.

use super::analysis::{Call, Run};
use super::knowledge::{Facts, Knowledge};
use super::record::{Part, Slice};
use super::shapes::merged;
use super::sum::Sum;
use crate::device::trace::{Event, Kind, Level, Timeline, WorkId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The parts of the runs of one name.
pub struct Parts {
    /// By operator.
    pub operators: Vec<Part>,
    /// By operator, candidate and shape, or by kernel; behind a step of several kernels these, as parts of it.
    pub kernels: Vec<Part>,
    /// By layer, in the order of the model.
    pub layers: Vec<Slice>,
    /// By what binds it.
    pub classes: Vec<Slice>,
    /// Gaps by cause.
    pub idle: Vec<Slice>,
    /// The mean time of a run, µs.
    pub mean_us: f64,
}

/// What is known of the works of a timeline.
pub type Known = HashMap<WorkId, Facts>;

/// Looks every work up once.
pub fn known(timeline: &Timeline, knowledge: &Knowledge<'_>) -> Known {
    let works = timeline.works.iter().enumerate();
    works.filter_map(|(at, work)| Some((WorkId(at as u32), knowledge.facts(work)?))).collect()
}

/// A row of the table of kernels.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    name: String,
    shape: String,
    /// The kernel, where the row is one of several of a step.
    inner: String,
}

impl Parts {
    /// Takes the runs of one name apart.
    pub fn of(timeline: &Timeline, runs: &[Run<'_>], known: &Known, knowledge: &Knowledge<'_>) -> Parts {
        let (count, all_us) = (runs.len().max(1) as f64, runs.iter().map(|run| run.us).sum::<f64>());
        let mut operators = BTreeMap::<String, Sum>::new();
        let mut pieces = Vec::new();
        let mut layers: BTreeMap<String, (usize, usize, f64)> = BTreeMap::new();
        let mut classes: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        let mut idle: BTreeMap<&'static str, (usize, f64)> = BTreeMap::new();
        let mut seen = 0;
        for run in runs {
            for call in &run.calls {
                seen += 1;
                let facts = call.work.and_then(|work| known.get(&work));
                operators.entry(operator(timeline, call)).or_default().add(call.us, kernels(&call.events), facts);
                pieces.extend(pieces_of(timeline, call, facts));
                let layer = call.step.and_then(|id| timeline.around(id, Level::Layer));
                if let Some(layer) = layer {
                    let name = timeline.texts.text(timeline.range(layer).name).to_owned();
                    let entry = layers.entry(name).or_insert((seen, 0, 0.0));
                    (entry.1, entry.2) = (entry.1 + 1, entry.2 + call.us);
                }
                let entry = classes.entry(class(call, facts, knowledge)).or_default();
                (entry.0, entry.1) = (entry.0 + 1, entry.1 + call.us);
            }
            for gap in &run.gaps {
                let entry = idle.entry(gap.cause.name()).or_default();
                (entry.0, entry.1) = (entry.0 + 1, entry.1 + gap.us);
                let step = gap.before.and_then(|id| timeline.around(id, Level::Step));
                if let Some(call) = run.calls.iter().find(|call| step.is_some() && call.step == step) {
                    operators.entry(operator(timeline, call)).or_default().idle_us += gap.us;
                }
            }
        }
        let slice = |name: String, times: usize, us: f64| Slice {
            name,
            count: times as f64 / count,
            us: us / count,
            share: us / all_us,
        };
        let gaps = idle.values().fold((0, 0.0), |(n, us), (times, more)| (n + times, us + more));
        if gaps.0 > 0 {
            classes.insert("idle".into(), gaps);
        }
        let mut layers: Vec<_> = layers.into_iter().collect();
        layers.sort_by_key(|(_, (first, ..))| *first);
        let operator = |(name, sum): (String, Sum)| {
            let idle_us = Some(sum.idle_us / count);
            Part { idle_us, ..sum.part(name, count, all_us, knowledge) }
        };
        let mut parts = Parts {
            operators: operators.into_iter().map(operator).collect(),
            kernels: rows(pieces, |name, sum| sum.part(name, count, all_us, knowledge)),
            layers: layers.into_iter().map(|(name, (_, times, us))| slice(name, times, us)).collect(),
            classes: classes.into_iter().map(|(name, (times, us))| slice(name, times, us)).collect(),
            idle: idle.into_iter().map(|(name, (times, us))| slice(name.into(), times, us)).collect(),
            mean_us: all_us / count,
        };
        parts.operators.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
        parts.classes.sort_by(|a, b| b.us.total_cmp(&a.us));
        parts.idle.sort_by(|a, b| b.us.total_cmp(&a.us));
        parts
    }
}

fn operator(timeline: &Timeline, call: &Call<'_>) -> String {
    match call.work {
        Some(work) => timeline.works[work.0 as usize].operator.clone(),
        None => call.events.first().map_or_else(String::new, |event| match event.kind {
            Kind::Kernel | Kind::Graph => "outside of steps".into(),
            kind => kind.name().into(),
        }),
    }
}

/// How many of these are kernels, or graphs of kernels that are not told apart.
fn kernels(events: &[&Event]) -> usize {
    events.iter().filter(|event| matches!(event.kind, Kind::Kernel | Kind::Graph)).count()
}

/// A call, or a kernel of one.
struct Piece<'f> {
    row: Row,
    us: f64,
    kernels: usize,
    facts: Option<&'f Facts>,
}

/// What a call is made of: itself, and where several functions computed it also its kernels, of which only times are known.
fn pieces_of<'f>(timeline: &Timeline, call: &Call<'_>, facts: Option<&'f Facts>) -> Vec<Piece<'f>> {
    let shape = facts.map_or_else(String::new, |facts| facts.shape.clone());
    let named = |event: &Event| timeline.texts.text(event.name);
    let row = |name: &str, inner: String| Row { name: name.into(), shape: shape.clone(), inner };
    let whole =
        |name: &str| Piece { row: row(name, String::new()), us: call.us, kernels: kernels(&call.events), facts };
    let Some(work) = call.work.map(|work| &timeline.works[work.0 as usize]) else {
        let each = |event: &&Event| Piece {
            row: row(named(event), String::new()),
            us: event.us(),
            kernels: kernels(&[*event]),
            facts: None,
        };
        return call.events.iter().map(each).collect();
    };
    let step = format!("{}::{}", work.operator, work.candidate);
    match &call.events[..] {
        [event] if named(event) == work.operator => vec![whole(&step)],
        [event] => vec![whole(&format!("{step} {}", named(event)))],
        events => {
            let inner = |event: &&Event| Piece {
                row: row(&step, format!("{step} {}", named(event))),
                us: event.us(),
                kernels: kernels(&[*event]),
                facts: None,
            };
            std::iter::once(whole(&step)).chain(events.iter().map(inner)).collect()
        }
    }
}

/// The table of kernels, the longest first, each kernel of a step behind that.
fn rows(pieces: Vec<Piece<'_>>, part: impl Fn(String, Sum) -> Part) -> Vec<Part> {
    let mut shapes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Piece { row, .. } in &pieces {
        if !shapes.get(&row.name).is_some_and(|known| known.contains(&row.shape)) {
            shapes.entry(row.name.clone()).or_default().insert(row.shape.clone());
        }
    }
    let merged: BTreeMap<&str, HashMap<&str, String>> =
        shapes.iter().map(|(name, all)| (name.as_str(), merged(all.iter().map(String::as_str)))).collect();
    let mut steps: BTreeMap<(String, String), (Sum, BTreeMap<String, Sum>)> = BTreeMap::new();
    for Piece { row, us, kernels, facts } in pieces {
        let shape = merged[row.name.as_str()][row.shape.as_str()].clone();
        let (whole, inner) = steps.entry((row.name, shape)).or_default();
        let sum = if row.inner.is_empty() { whole } else { inner.entry(row.inner).or_default() };
        sum.add(us, kernels, facts);
    }
    let mut all: Vec<Vec<Part>> = Vec::new();
    for ((name, shape), (whole, inner)) in steps {
        let inner = inner.into_iter().map(|(kernel, sum)| Part { within: name.clone(), ..part(kernel, sum) });
        let mut inner: Vec<Part> = inner.collect();
        inner.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
        inner.insert(0, part(name, whole));
        inner.iter_mut().for_each(|part| part.shape.clone_from(&shape));
        all.push(inner);
    }
    all.sort_by(|a, b| b[0].total_us.total_cmp(&a[0].total_us));
    all.into_iter().flatten().collect()
}

fn class(call: &Call<'_>, facts: Option<&Facts>, knowledge: &Knowledge<'_>) -> String {
    use crate::check::outcome::Bound;
    let Some(facts) = facts else { return "not attributed".into() };
    match knowledge.bound(call.us, facts) {
        Some(Bound::Memory) => format!("memory ({})", facts.level),
        Some(bound) => bound.name().into(),
        None => "not calibrated".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::trace::Track;
    use crate::profile::analysis;
    use crate::profile::samples::{Made, event, host_knowledge, suites};

    #[test]
    fn parts_and_idle_time_are_the_whole() {
        let mut made = Made::default();
        for repeat in 0..4u64 {
            let run = made.range(Level::Run, "decode", None, repeat * 1_000_000, repeat * 1_000_000 + 100_000);
            let layer = made.range(Level::Layer, "layer 0", Some(run), repeat * 1_000_000, repeat * 1_000_000 + 90_000);
            for (i, (operator, n)) in [("add", 1000), ("relu", 1000), ("add", 2000)].into_iter().enumerate() {
                let from = repeat * 1_000_000 + 5_000 + 25_000 * i as u64;
                made.kernel(layer, operator, n, [from, from + 20_000]);
            }
        }
        let suites = suites();
        let knowledge = host_knowledge(&suites);
        let runs = analysis::runs(&made.timeline, "decode");
        let known = known(&made.timeline, &knowledge);
        let parts = Parts::of(&made.timeline, &runs, &known, &knowledge);
        approx::assert_relative_eq!(parts.mean_us, 100.0);
        let sums = [
            parts.operators.iter().map(|part| part.share).sum::<f64>()
                + parts.idle.iter().map(|s| s.share).sum::<f64>(),
            parts.kernels.iter().map(|part| part.share).sum::<f64>() + parts.idle.iter().map(|s| s.share).sum::<f64>(),
            parts.classes.iter().map(|slice| slice.share).sum(),
        ];
        sums.iter().for_each(|sum| approx::assert_relative_eq!(*sum, 1.0, epsilon = 1e-9));
        let add = &parts.operators[0];
        assert_eq!((add.name.as_str(), add.calls, add.total_us, add.p50_us), ("add", 2.0, 40.0, 20.0));
        // An addition reads two and writes one.
        assert_eq!(add.bytes, 3.0 * 4.0 * 3000.0);
        assert_eq!(parts.kernels.iter().filter(|part| part.name == "add::tiled").count(), 2, "a part a shape");
        assert_eq!((parts.layers.len(), parts.layers[0].us, parts.layers[0].count), (1, 60.0, 3.0));
        assert!(add.bound.is_some() && add.of_ceiling.unwrap() > 0.0 && !add.level.is_empty());
    }

    /// A step of two kernels and a memset, over eight pasts.
    fn decoded() -> Made {
        let mut made = Made::default();
        for past in 0..8u64 {
            let from = past * 1_000_000;
            let run = made.range(Level::Run, "decode", None, from, from + 100_000);
            let step = made.step(run, "add", 1000 + past as usize, from, from + 1_000);
            let names = ["split", "reduce", "memset"].map(|name| made.timeline.texts.number(name));
            for (at, (name, us)) in names.into_iter().zip([60, 20, 5]).enumerate() {
                let start = from + 5_000 + [0, 60_000, 85_000][at];
                let kind = if at < 2 { Kind::Kernel } else { Kind::Set };
                let ran = event(kind, Track::Stream(7), [start, start + us * 1_000], 1, Some(step));
                made.timeline.events.push(Event { name, ..ran });
            }
        }
        made
    }

    #[test]
    fn a_step_of_several_kernels_is_a_row_with_its_class_and_they_are_parts_of_it() {
        let (made, suites) = (decoded(), suites());
        let knowledge = host_knowledge(&suites);
        let runs = analysis::runs(&made.timeline, "decode");
        let known = known(&made.timeline, &knowledge);
        let parts = Parts::of(&made.timeline, &runs, &known, &knowledge);
        let rows: Vec<_> = (parts.kernels.iter())
            .map(|part| (part.name.as_str(), part.within.as_str(), part.total_us, part.kernels, part.bound.is_some()))
            .collect();
        assert_eq!(
            rows,
            [
                ("add::tiled", "", 85.0, Some(2.0), true),
                ("add::tiled split", "add::tiled", 60.0, Some(1.0), false),
                ("add::tiled reduce", "add::tiled", 20.0, Some(1.0), false),
                ("add::tiled memset", "add::tiled", 5.0, Some(0.0), false),
            ]
        );
        assert!(parts.kernels.iter().all(|part| part.shape == "n=1000…1007"), "{:?}", parts.kernels);
        assert!(parts.kernels[0].bytes > 0.0 && parts.kernels[0].of_ceiling.is_some());
        let whole: f64 = parts.kernels.iter().filter(|part| part.within.is_empty()).map(|part| part.share).sum();
        approx::assert_relative_eq!(whole + parts.idle.iter().map(|s| s.share).sum::<f64>(), 1.0, epsilon = 1e-9);
    }

    #[test]
    fn an_operator_knows_the_idle_time_before_it() {
        let (made, suites) = (decoded(), suites());
        let knowledge = host_knowledge(&suites);
        let runs = analysis::runs(&made.timeline, "decode");
        let parts = Parts::of(&made.timeline, &runs, &Known::new(), &knowledge);
        // Five before its first kernel, five between the second one and the memset; five behind all belong to none.
        assert_eq!(parts.operators[0].idle_us, Some(10.0));
        assert_eq!(parts.idle.iter().map(|slice| slice.us).sum::<f64>(), 15.0);
        assert!(parts.kernels.iter().all(|part| part.idle_us.is_none()));
    }
}
