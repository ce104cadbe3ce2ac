//! Memory over time: what was held when, and what was alive at the peak.

use super::analysis::Run;
use super::record::{Held, MemoryUse};
use crate::device::trace::{Kind, Level, Text, Timeline};
use std::collections::BTreeMap;

/// Points of the curve at the most.
const POINTS: usize = 100;

/// Names at the peak at the most; the rest is one sum.
const NAMES: usize = 12;

/// The memory of a run: what was taken before it and is still held, and what it takes itself.
pub fn of(timeline: &Timeline, runs: &[Run<'_>]) -> MemoryUse {
    let Some(run) = runs.last() else { return MemoryUse::default() };
    let range = timeline.range(run.id);
    let mut events: Vec<_> =
        timeline.events.iter().filter(|event| matches!(event.kind, Kind::Allocate | Kind::Free)).collect();
    events.sort_by_key(|event| event.start_ns);
    let mut held: BTreeMap<Text, u64> = BTreeMap::new();
    let (mut now, mut found) = (0u64, MemoryUse::default());
    let mut points: Vec<[f64; 2]> = Vec::new();
    let mut at_peak = BTreeMap::new();
    for event in events {
        let of_run = event.range.and_then(|id| timeline.around(id, Level::Run));
        // What another run took it has given back, or it came before this one.
        if event.start_ns > range.end_ns || of_run.is_some_and(|of| of != run.id) {
            continue;
        }
        let entry = held.entry(event.name).or_default();
        if event.kind == Kind::Allocate {
            (*entry, now) = (*entry + event.bytes, now + event.bytes);
        } else {
            (*entry, now) = (entry.saturating_sub(event.bytes), now.saturating_sub(event.bytes));
        }
        let us = event.start_ns.saturating_sub(range.start_ns) as f64 * 1e-3;
        points.push([us, now as f64]);
        if now > found.peak_bytes {
            (found.peak_bytes, found.peak_us) = (now, us);
            at_peak = held.clone();
        }
    }
    let named = at_peak.into_iter().filter(|(_, bytes)| *bytes > 0);
    let mut alive: Vec<Held> =
        named.map(|(name, bytes)| Held { name: timeline.texts.text(name).to_owned(), bytes }).collect();
    alive.sort_by_key(|held| std::cmp::Reverse(held.bytes));
    if alive.len() > NAMES {
        let rest = alive.split_off(NAMES);
        let bytes = rest.iter().map(|held| held.bytes).sum();
        alive.push(Held { name: format!("{} others", rest.len()), bytes });
    }
    MemoryUse { alive, over_time: thinned(points), ..found }
}

/// As few points as keep the peaks: of each stretch its largest.
fn thinned(points: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    let stretch = points.len().div_ceil(POINTS).max(1);
    let largest = |part: &[[f64; 2]]| part.iter().copied().max_by(|a, b| a[1].total_cmp(&b[1]));
    points.chunks(stretch).filter_map(largest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::analysis;
    use crate::profile::samples::Made;

    #[test]
    fn the_peak_knows_who_is_alive() {
        let mut made = Made::default();
        made.memory(Kind::Allocate, "weights", 1000, 0, None);
        for repeat in 0..2u64 {
            let from = 1_000_000 * (repeat + 1);
            let run = made.range(Level::Run, "r", None, from, from + 900_000);
            for (kind, name, bytes, us) in [
                (Kind::Allocate, "a", 10, 100),
                (Kind::Allocate, "b", 30, 200),
                (Kind::Free, "a", 10, 300),
                (Kind::Allocate, "c", 5, 400),
                (Kind::Free, "b", 30, 500),
                (Kind::Free, "c", 5, 600),
            ] {
                made.memory(kind, name, bytes, from + us * 1000, Some(run));
            }
        }
        let found = of(&made.timeline, &analysis::runs(&made.timeline, "r"));
        assert_eq!((found.peak_bytes, found.peak_us), (1040, 200.0));
        let alive: Vec<_> = found.alive.iter().map(|held| (held.name.as_str(), held.bytes)).collect();
        assert_eq!(alive, [("weights", 1000), ("b", 30), ("a", 10)]);
        assert_eq!(found.over_time.len(), 7);
        assert_eq!(found.over_time.last(), Some(&[600.0, 1000.0]));
    }

    #[test]
    fn a_long_curve_keeps_its_peak() {
        let points: Vec<[f64; 2]> = (0..1000).map(|i| [f64::from(i), if i == 437 { 9.0 } else { 1.0 }]).collect();
        let thin = thinned(points);
        assert!(thin.len() <= POINTS && thin.contains(&[437.0, 9.0]), "{}", thin.len());
    }
}
