//! The last repeat of a recording: what a trace shows where all of them would be a file that no viewer opens gladly.

use crate::device::trace::{Event, Kind, Level, Range, RangeId, Timeline};
use std::collections::HashMap;

/// The ranges and events of the last repeat in which something ran, and the memory that was held before it.
pub fn last_repeat(timeline: &Timeline) -> Timeline {
    let runs = || timeline.ranges.iter().filter(|range| range.level == Level::Run);
    let has_run = |[from, to]: &&[u64; 2]| runs().any(|run| (*from..=*to).contains(&run.start_ns));
    let Some(&[from, to]) = timeline.repeats.iter().rev().find(has_run) else { return timeline.clone() };
    let mut ids: HashMap<RangeId, RangeId> = HashMap::new();
    let mut ranges = Vec::new();
    for (at, range) in timeline.ranges.iter().enumerate().filter(|(_, range)| (from..=to).contains(&range.start_ns)) {
        ids.insert(RangeId(at as u32), RangeId(ranges.len() as u32));
        // A range around it began before it, within the same repeat.
        ranges.push(Range { parent: range.parent.and_then(|id| ids.get(&id).copied()), ..range.clone() });
    }
    let kept = |event: &Event| match event.range {
        Some(id) => Some(Event { range: Some(*ids.get(&id)?), ..event.clone() }),
        None if (from..=to).contains(&event.start_ns) => Some(event.clone()),
        // What is held throughout is held from the beginning on.
        None if event.start_ns < from && matches!(event.kind, Kind::Allocate | Kind::Free) => {
            Some(Event { start_ns: from, end_ns: from, ..event.clone() })
        }
        None => None,
    };
    let events = timeline.events.iter().filter_map(kept).collect();
    Timeline {
        texts: timeline.texts.clone(),
        works: timeline.works.clone(),
        ranges,
        events,
        repeats: vec![[from, to]],
        lost: timeline.lost,
        source: timeline.source.clone(),
        notes: timeline.notes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::trace::Track;
    use crate::profile::samples::{Made, event};

    #[test]
    fn the_last_repeat_is_whole_and_alone() {
        let mut made = Made::default();
        made.memory(Kind::Allocate, "weights", 1000, 10, None);
        made.timeline.repeats.push([0, 100]);
        for repeat in 1..=3u64 {
            let from = repeat * 1_000_000;
            made.timeline.repeats.push([from, from + 900_000]);
            let run = made.range(Level::Run, "decode", None, from + 10, from + 800_000);
            made.memory(Kind::Allocate, "a", repeat, from + 20, Some(run));
            let layer = made.range(Level::Layer, "layer 0", Some(run), from + 30, from + 700_000);
            let step = made.step(layer, "add", repeat as usize, from + 40, from + 50);
            // The device is behind the host, and its clock a little ahead.
            made.timeline.events.push(event(Kind::Kernel, Track::Stream(7), [from - 5, from + 850_000], 1, Some(step)));
            made.timeline.events.push(event(Kind::Call, Track::Host(0), [from + 42, from + 44], 1, None));
        }
        made.timeline.repeats.push([5_000_000, 5_000_100]);
        let cut = last_repeat(&made.timeline);
        assert_eq!((cut.ranges.len(), cut.events.len(), cut.runs("decode").count()), (3, 4, 1));
        let kernel = cut.events.iter().find(|event| event.kind == Kind::Kernel).unwrap();
        let step = kernel.range.unwrap();
        assert_eq!(cut.works[cut.work_of(step).unwrap().0 as usize].point, [3]);
        assert_eq!(cut.around(step, Level::Run), Some(RangeId(0)));
        let held: Vec<_> =
            cut.events.iter().filter(|e| e.kind == Kind::Allocate).map(|e| (e.bytes, e.start_ns)).collect();
        assert_eq!(held, [(1000, 3_000_000), (3, 3_000_020)]);
        made.timeline.repeats.clear();
        assert_eq!(last_repeat(&made.timeline).events.len(), made.timeline.events.len(), "nobody said what repeats");
    }
}
