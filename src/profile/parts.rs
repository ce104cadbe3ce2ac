//! The parts of a run: time by operator, by kernel, by layer, by class; and idle time by cause.

use super::analysis::{Call, Run};
use super::knowledge::{Facts, Knowledge};
use super::record::{Part, Slice};
use crate::core::stats::{quantile_sorted, sorted};
use crate::device::trace::{Kind, Level, Timeline, WorkId};
use std::collections::{BTreeMap, HashMap};

/// The parts of the runs of one name.
pub struct Parts {
    /// By operator.
    pub operators: Vec<Part>,
    /// By operator, candidate and shape, or by kernel.
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

/// Sums of calls under one name.
#[derive(Default)]
struct Sum {
    shape: String,
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
    first: usize,
}

impl Sum {
    fn add(&mut self, us: f64, facts: Option<&Facts>) {
        self.times.push(us);
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

    fn part(self, name: String, runs: f64, all_us: f64, knowledge: &Knowledge<'_>) -> Part {
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
            shape: self.shape,
            calls: calls / runs,
            total_us: total / runs,
            share: total / all_us,
            mean_us: total / calls,
            p50_us: quantile_sorted(&times, 0.5),
            p95_us: quantile_sorted(&times, 0.95),
            bytes: self.bytes / runs,
            flops: self.flops / runs,
            of_ceiling: (calibrated && self.floor_us > 0.0).then(|| self.floor_us / calls / typical_us),
            bound,
            level: level.filter(|_| calibrated).unwrap_or_default(),
        }
    }
}

impl Parts {
    /// Takes the runs of one name apart.
    pub fn of(timeline: &Timeline, runs: &[Run<'_>], known: &Known, knowledge: &Knowledge<'_>) -> Parts {
        let (count, all_us) = (runs.len().max(1) as f64, runs.iter().map(|run| run.us).sum::<f64>());
        let (mut operators, mut kernels) = (BTreeMap::<String, Sum>::new(), BTreeMap::<(String, String), Sum>::new());
        let mut layers: BTreeMap<String, (usize, usize, f64)> = BTreeMap::new();
        let mut classes: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        let mut idle: BTreeMap<&'static str, (usize, f64)> = BTreeMap::new();
        let mut seen = 0;
        for run in runs {
            for call in &run.calls {
                seen += 1;
                let facts = call.work.and_then(|work| known.get(&work));
                operators.entry(operator(timeline, call)).or_default().add(call.us, facts);
                for (name, us, facts) in pieces(timeline, call, facts) {
                    let shape = facts.map_or_else(String::new, |facts| facts.shape.clone());
                    let sum = kernels.entry((name, shape.clone())).or_default();
                    (sum.shape, sum.first) = (shape, if sum.first == 0 { seen } else { sum.first });
                    sum.add(us, facts);
                }
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
        let mut parts = Parts {
            operators: operators.into_iter().map(|(name, sum)| sum.part(name, count, all_us, knowledge)).collect(),
            kernels: kernels.into_iter().map(|((name, _), sum)| sum.part(name, count, all_us, knowledge)).collect(),
            layers: layers.into_iter().map(|(name, (_, times, us))| slice(name, times, us)).collect(),
            classes: classes.into_iter().map(|(name, (times, us))| slice(name, times, us)).collect(),
            idle: idle.into_iter().map(|(name, (times, us))| slice(name.into(), times, us)).collect(),
            mean_us: all_us / count,
        };
        let by_time = |parts: &mut Vec<Part>| parts.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
        by_time(&mut parts.operators);
        by_time(&mut parts.kernels);
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

/// What a call is made of: itself where one function computed it, else its kernels, of which only times are known.
fn pieces<'f>(timeline: &Timeline, call: &Call<'_>, facts: Option<&'f Facts>) -> Vec<(String, f64, Option<&'f Facts>)> {
    let work = call.work.map(|work| &timeline.works[work.0 as usize]);
    let names = call.events.iter().map(|event| timeline.texts.text(event.name));
    match (work, &call.events[..]) {
        (Some(work), [event]) => {
            let name = timeline.texts.text(event.name);
            let whole = format!("{}::{}", work.operator, work.candidate);
            let name = if name == work.operator { whole } else { format!("{whole} {name}") };
            vec![(name, call.us, facts)]
        }
        (Some(work), _) => {
            let each = names.zip(&call.events);
            each.map(|(name, event)| (format!("{}::{} {name}", work.operator, work.candidate), event.us(), None))
                .collect()
        }
        (None, _) => names.zip(&call.events).map(|(name, event)| (name.to_owned(), event.us(), None)).collect(),
    }
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
    use crate::profile::analysis;
    use crate::profile::samples::{Made, host_knowledge, suites};

    #[test]
    fn the_first_of_a_batch_waits_for_it_and_is_not_typical() {
        let mut sum = Sum::default();
        [900.0, 30.0, 31.0, 32.0].iter().for_each(|&us| sum.add(us, None));
        let times = sorted(&sum.times);
        assert_eq!(sum.typical_us(&times), 31.5);
        sum.is_mixed = true;
        assert_eq!(sum.typical_us(&times), 248.25);
    }

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
}
