//! Steps that follow each other, for which the catalogue has one operator.

use super::idea::{Idea, Input, Swap, Way, hint, how};
use super::seen::Seen;
use crate::check::Subject;
use crate::core::shape::{Point, parse};
use crate::core::stats::median;
use crate::device::trace::WorkId;
use crate::profile::knowledge::Expected;
use std::collections::BTreeMap;

/// Two operators in a row, and the one for both: its shape is that of one of them, with attributes set.
struct Pair {
    first: &'static str,
    second: &'static str,
    fused: &'static str,
    /// Whose shape it has.
    shape_of: Side,
    set: &'static str,
}

#[derive(Clone, Copy)]
enum Side {
    First,
    Second,
}

const PAIRS: [Pair; 8] = [
    pair("layernorm", "gelu", "layernorm_gelu", Side::First, ""),
    pair("add", "rmsnorm", "add_rmsnorm", Side::Second, ""),
    pair("linear", "gelu_tanh", "linear", Side::First, "activation=gelu_tanh"),
    pair("linear", "silu", "linear", Side::First, "activation=silu"),
    pair("linear", "add", "linear", Side::First, "residual=true"),
    pair("relu", "max_pool2d", "max_pool2d", Side::Second, "activation=relu"),
    pair("gelu", "max_pool2d", "max_pool2d", Side::Second, "activation=gelu"),
    pair("silu", "max_pool2d", "max_pool2d", Side::Second, "activation=silu"),
];

const fn pair(
    first: &'static str,
    second: &'static str,
    fused: &'static str,
    shape_of: Side,
    set: &'static str,
) -> Pair {
    Pair { first, second, fused, shape_of, set }
}

/// Every pair of works in a row that could be one.
pub fn ideas(input: &Input<'_>) -> Vec<Idea> {
    let mut together: BTreeMap<(WorkId, WorkId), Vec<f64>> = BTreeMap::new();
    for run in input.runs {
        let mut calls = run.calls.iter().peekable();
        while let Some(call) = calls.next() {
            let Some(next) = calls.peek() else { break };
            if let (Some(first), Some(second)) = (call.work, next.work) {
                // What lies between both goes too.
                let gap = run.gaps.iter().find(|gap| gap.before.is_some() && gap.before == next.step);
                let us = call.us + next.us + gap.map_or(0.0, |gap| gap.us);
                together.entry((first, second)).or_default().push(us);
            }
        }
    }
    let find = |id: WorkId| input.seen.iter().find(|seen| seen.id == id);
    let idea = |(&(first, second), times): (&(WorkId, WorkId), &Vec<f64>)| {
        let calls = times.len() as f64 / input.runs.len() as f64;
        of(input, find(first)?, find(second)?, calls, median(times))
    };
    together.iter().filter_map(idea).collect()
}

fn of(input: &Input<'_>, first: &Seen, second: &Seen, calls: f64, us: f64) -> Option<Idea> {
    let fits = |pair: &&Pair| pair.first == first.work.operator && pair.second == second.work.operator;
    let pair = PAIRS.iter().find(fits)?;
    let of = match pair.shape_of {
        Side::First => first,
        Side::Second => second,
    };
    let (subject, point) = fused(input, pair, of)?;
    let reuse = first.work.reuse_bytes.zip(second.work.reuse_bytes).map(|(first, second)| first.max(second));
    let mut expected = input.knowledge.expected(&subject, &point, reuse)?;
    if !expected.is_predicted {
        // Not the floor, which no kernel reaches: the two at their own share of it, with the bytes of one.
        let floors = first.facts.floor_us() + second.facts.floor_us();
        if floors <= 0.0 {
            return None;
        }
        expected = Expected { us: us * (expected.us / floors).min(1.0), is_predicted: false };
    }
    let way = |seen: &Seen| Way {
        operator: seen.work.operator.clone(),
        candidate: seen.work.candidate.clone(),
        point: seen.work.point.clone(),
        dtype: seen.work.dtype,
        is_hot: seen.is_hot(),
    };
    let after = Way {
        operator: pair.fused.into(),
        candidate: subject.candidate.name.clone(),
        point,
        dtype: subject.dtype,
        is_hot: of.is_hot(),
    };
    let set = if pair.set.is_empty() { String::new() } else { format!(" with {}", pair.set) };
    let place = format!("{} + {} {}", pair.first, pair.second, of.facts.shape);
    let action = format!("fuse both: {}::{}{set}", after.operator, after.candidate);
    let moved = first.facts.features.bytes() + second.facts.features.bytes();
    let left = input.knowledge.facts_of(&subject, &after.point, reuse).features.bytes();
    let evidence = format!(
        "{us:.2} µs together, one behind the other; {} {:.2} µs, {:.0} of {:.0} KB and one launch less",
        how(expected),
        expected.us,
        (moved - left) * 1e-3,
        moved * 1e-3
    );
    let gain_us = calls * (us - expected.us);
    let trial = Swap { before: vec![way(first), way(second)], after: vec![after], calls };
    Some(Idea { hint: hint("fuse", place, action, evidence, gain_us, expected.basis()), trial: Some(trial) })
}

/// The candidate for both, of the name that one of them has if there is one.
fn fused<'a>(input: &Input<'a>, pair: &Pair, of: &Seen) -> Option<(Subject<'a>, Point)> {
    let suite = input.knowledge.suite(pair.fused)?;
    let on_host = input.knowledge.subject_of(&of.work)?.candidate.body.is_host();
    let point = parse(suite.operator.axes(), &format!("{},{}", of.facts.shape, pair.set)).ok()?;
    let fits = suite.candidates.iter().filter(|candidate| {
        candidate.body.is_host() == on_host && candidate.traits.computes(of.work.dtype) && !candidate.traits.lesson
    });
    let best = fits.max_by_key(|candidate| (candidate.name == of.work.candidate, candidate.traits.timed))?;
    let subject = Subject { operator: &*suite.operator, candidate: best, dtype: of.work.dtype };
    subject.objection(&point).is_none().then_some((subject, point))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::trace::Level;
    use crate::profile::samples::{Made, host_knowledge, suites};
    use crate::profile::{analysis, hints, parts};

    #[test]
    fn an_addition_before_a_norm_is_one_operator() {
        let mut made = Made::default();
        let run = made.range(Level::Run, "decode", None, 0, 100_000);
        let add = made.step_of(run, ("add", "tiled"), vec![64 * 512], [0, 20_000]);
        let norm = made.step_of(run, ("rmsnorm", "tiled"), vec![64, 512, 0], [22_000, 52_000]);
        let relu = made.step_of(run, ("relu", "tiled"), vec![64 * 512], [60_000, 70_000]);
        for (id, from, to) in [(add, 0, 20_000), (norm, 22_000, 52_000), (relu, 60_000, 70_000)] {
            let event = crate::profile::samples::event(
                crate::device::trace::Kind::Kernel,
                crate::device::trace::Track::Stream(0),
                [from, to],
                0,
                Some(id),
            );
            made.timeline.events.push(event);
        }
        let suites = suites();
        let knowledge = host_knowledge(&suites);
        let runs = analysis::runs(&made.timeline, "decode");
        let known = parts::known(&made.timeline, &knowledge);
        let seen = hints::seen(&made.timeline, &runs, &known);
        let input = Input { seen: &seen, runs: &runs, mean_us: 100.0, is_launched: false, knowledge: &knowledge };
        let found = ideas(&input);
        assert_eq!(found.len(), 1, "a norm and what follows it are none: {found:?}");
        let idea = &found[0];
        assert_eq!(idea.hint.action, "fuse both: add_rmsnorm::tiled");
        // 52 µs with the gap; five passes over the data become four.
        assert!((idea.hint.gain_us / (52.0 / 5.0) - 1.0).abs() < 0.02, "{}", idea.hint.gain_us);
        let trial = idea.trial.as_ref().unwrap();
        assert_eq!((trial.before.len(), &trial.after[0].point), (2, &vec![64, 512, 0]));
    }

    #[test]
    fn every_fused_operator_and_attribute_is_one_of_the_catalogue() {
        let suites = suites();
        let knowledge = host_knowledge(&suites);
        for pair in &PAIRS {
            for name in [pair.first, pair.second, pair.fused] {
                assert!(knowledge.suite(name).is_some(), "{name}");
            }
            let of = match pair.shape_of {
                Side::First => pair.first,
                Side::Second => pair.second,
            };
            let suite = knowledge.suite(of).unwrap();
            let point = &suite.operator.shapes()[0];
            let shape = crate::core::shape::describe(suite.operator.axes(), point);
            let axes = knowledge.suite(pair.fused).unwrap().operator.axes();
            assert!(parse(axes, &format!("{shape},{}", pair.set)).is_ok(), "{} {shape},{}", pair.fused, pair.set);
        }
    }
}
