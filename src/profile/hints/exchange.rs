//! Another candidate of the same operator: what is vectorised, tiled, on tensor cores, split over k, or flash attention.

use super::idea::{Idea, Input, Swap, Way, hint, how, percent};
use super::seen::Seen;
use crate::check::Subject;
use crate::check::outcome::Bound;
use crate::core::candidate::{Body, Candidate, Language};
use crate::profile::knowledge::Expected;

/// From this share of the ceiling on, nothing is to be gained but noise.
const NEAR: f64 = 0.8;

/// A gain of less than this share is within what a prediction is off by.
const LEAST_GAIN: f64 = 0.05;

/// Of each work the candidate that is expected to be the fastest.
pub fn ideas(input: &Input<'_>) -> Vec<Idea> {
    input.seen.iter().filter_map(|seen| idea(input, seen)).collect()
}

fn idea(input: &Input<'_>, seen: &Seen) -> Option<Idea> {
    let suite = input.knowledge.suite(&seen.work.operator)?;
    let own = input.knowledge.subject_of(&seen.work)?;
    let own_at = suite.candidates.iter().position(|other| std::ptr::eq(other, own.candidate))?;
    let point = &seen.work.point;
    let others = suite.candidates.iter().enumerate().filter(|(_, other)| competes(other, &own));
    let expected = others.filter_map(|(at, candidate)| {
        let subject = Subject { candidate, ..own };
        if subject.objection(point).is_some() {
            return None;
        }
        // The ceilings know no candidate from another: by them a later one, which the catalogue has for the faster, may
        // stand in place of one that is far from them.
        let expected = input.knowledge.expected(&subject, point, seen.work.reuse_bytes)?;
        let is_worth_it = expected.is_predicted || (at > own_at && seen.of_ceiling() < NEAR);
        is_worth_it.then_some((at, candidate, expected))
    });
    let best = expected.min_by(|a, b| {
        // A prediction goes before a floor. Of the same floor what is compiled from CUDA C++ goes before PTX that somebody else's
        // compiler made, and that before a library; then a later candidate before an earlier one.
        let order = (b.2.is_predicted.cmp(&a.2.is_predicted)).then(a.2.us.total_cmp(&b.2.us));
        order.then(distance(a.1).cmp(&distance(b.1))).then(b.0.cmp(&a.0))
    });
    let (_, candidate, expected) = best?;
    if expected.us > (1.0 - LEAST_GAIN) * seen.us {
        return None;
    }
    Some(to(input, seen, candidate, expected))
}

/// How far a candidate is from what its author can change.
fn distance(candidate: &Candidate) -> u8 {
    match &candidate.body {
        Body::Cuda(kernel) if kernel.program.language != Language::Cuda => 1,
        Body::Cuda(_) | Body::Cpu(_) => 0,
        Body::Enqueue(_) => 2,
    }
}

/// Whether a candidate can stand in the place of another.
fn competes(other: &Candidate, own: &Subject<'_>) -> bool {
    !std::ptr::eq(other, own.candidate)
        && other.name != own.candidate.name
        && other.body.is_host() == own.candidate.body.is_host()
        && !other.traits.lesson
        && other.traits.timed
        && other.traits.computes(own.dtype)
}

fn to(input: &Input<'_>, seen: &Seen, candidate: &Candidate, expected: Expected) -> Idea {
    let bound = input.knowledge.bound(seen.us, &seen.facts).map_or("", Bound::name);
    let way = |candidate: &str| Way {
        operator: seen.work.operator.clone(),
        candidate: candidate.into(),
        point: seen.work.point.clone(),
        dtype: seen.work.dtype,
        is_hot: seen.is_hot(),
    };
    let change = change(seen, &candidate.name).map_or_else(String::new, |change| format!("{change}: "));
    let action = format!("{change}use {}::{}", seen.work.operator, candidate.name);
    let evidence = format!(
        "{:.2} µs a call, {} of the ceiling ({}), bound by {bound}; {} {:.2} µs",
        seen.us,
        percent(seen.of_ceiling()),
        seen.facts.level,
        how(expected),
        expected.us
    );
    let gain_us = seen.calls * (seen.us - expected.us);
    let trial = Swap { before: vec![way(&seen.work.candidate)], after: vec![way(&candidate.name)], calls: seen.calls };
    let hint = hint("candidate", seen.place(), action, evidence, gain_us, expected.basis());
    Idea { hint, trial: Some(trial) }
}

/// What the other candidate does that this one does not, where their names tell: only what is called `naive` is known to be
/// neither tiled nor vectorised.
fn change(seen: &Seen, other: &str) -> Option<&'static str> {
    let own = seen.work.candidate.as_str();
    let features = &seen.facts.features;
    let is_product = features.flops > 4.0 * features.bytes();
    let is_new = |words: &[&str]| words.iter().any(|word| other.contains(word) && !own.contains(word));
    if is_new(&["split"]) {
        Some("split-K for a product of few tiles")
    } else if is_new(&["mma", "tensor"]) && !own.contains("mma") {
        Some("tensor cores")
    } else if !own.contains("naive") || other.contains("naive") {
        None
    } else if seen.work.operator.starts_with("attention") {
        Some("flash attention")
    } else if is_product {
        Some("tile and vectorise")
    } else {
        Some("vectorise")
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{input, seen_of};
    use super::*;
    use crate::core::dtype::DType;
    use crate::profile::samples::{host_knowledge, suites};

    #[test]
    fn a_change_is_named_only_where_both_names_tell_it() {
        let suites = suites();
        let knowledge = host_knowledge(&suites);
        let slow = seen_of(&knowledge, ("softmax", "naive"), "rows=64,cols=1024", DType::F32, 50.0, 3.0);
        let named = |operator: &str, own: &str, other: &str| {
            let mut seen = slow.clone();
            (seen.work.operator, seen.work.candidate) = (operator.into(), own.into());
            change(&seen, other)
        };
        assert_eq!(named("linear", "cuda", "cublaslt"), None, "both may be on tensor cores");
        assert_eq!(named("softmax", "lesson2_vectorised", "cuda"), None, "it is vectorised");
        assert_eq!(named("softmax", "lesson1_naive", "cuda"), Some("vectorise"));
        assert_eq!(named("attention_cached", "naive", "tiled"), Some("flash attention"));
        assert_eq!(named("attention_decode", "lesson2_split_kv", "cuda"), None);
        assert_eq!(named("gemm", "lesson3_registers", "lesson4_mma"), Some("tensor cores"));
        assert_eq!(named("linear", "cuda", "split_k"), Some("split-K for a product of few tiles"));
    }

    #[test]
    fn a_slow_tier_is_to_be_exchanged_and_a_fast_one_is_not() {
        let suites = suites();
        let knowledge = host_knowledge(&suites);
        // 64 x 1024 in f32: 512 KiB read and written, 5.2 µs at 100 GB/s.
        let slow = seen_of(&knowledge, ("softmax", "naive"), "rows=64,cols=1024", DType::F32, 50.0, 3.0);
        let idea = ideas(&input(&knowledge, std::slice::from_ref(&slow))).remove(0);
        assert!(idea.hint.action.ends_with("use softmax::tiled") && idea.hint.basis == "roofline", "{idea:?}");
        let floor = 2.0 * 64.0 * 1024.0 * 4.0 / 100e3;
        approx::assert_relative_eq!(idea.hint.gain_us, 3.0 * (50.0 - floor), max_relative = 1e-6);
        assert_eq!(idea.trial.unwrap().after[0].candidate, "tiled");
        let fast = seen_of(&knowledge, ("softmax", "naive"), "rows=64,cols=1024", DType::F32, 1.1 * floor, 3.0);
        assert!(ideas(&input(&knowledge, &[fast])).is_empty(), "it is at its ceiling");
        let last = seen_of(&knowledge, ("softmax", "tiled"), "rows=64,cols=1024", DType::F32, 50.0, 3.0);
        assert!(ideas(&input(&knowledge, &[last])).is_empty(), "the ceilings know nothing better");
    }
}
