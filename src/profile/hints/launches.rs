//! Launches that a graph would make together.

use super::idea::{Idea, Input, hint, percent};
use crate::device::trace::Kind;
use crate::profile::analysis::Cause;

/// Between two nodes of a graph there is still this, µs, where nothing else is known.
const NODE_US: f64 = 1.0;

/// The gaps between kernels that are there because the host asks too late; nothing of runs that are graphs already.
pub fn ideas(input: &Input<'_>) -> Option<Idea> {
    let mut events = input.runs.iter().flat_map(|run| &run.calls).flat_map(|call| &call.events);
    if !input.is_launched || events.any(|event| event.kind == Kind::Kernel && event.node != 0) {
        return None;
    }
    let all = input.runs.iter().flat_map(|run| &run.gaps);
    let late = all.filter(|gap| gap.cause == Cause::Launch && gap.is_between_launches);
    let (count, us) = late.fold((0.0, 0.0), |(count, us), gap| (count + 1.0, us + gap.us));
    if count == 0.0 {
        return None;
    }
    let runs = input.runs.len() as f64;
    let node = input.knowledge.limits.as_ref().map(|limits| limits.launch_us).filter(|us| *us > 0.0).unwrap_or(NODE_US);
    // A node that does nothing takes so long from the end of one kernel to that of the next.
    let gain_us = (us - count * node) / runs;
    let evidence = format!(
        "the device waits {:.1} µs a run ({}) in {:.0} gaps because the host asks too late; a node of a graph takes {node:.2} µs",
        us / runs,
        percent(us / runs / input.mean_us),
        count / runs,
    );
    Some(Idea {
        hint: hint("graph", "all launches".into(), "record them in a CUDA graph".into(), evidence, gain_us, "timeline"),
        trial: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::trace::{Event, RangeId, Track};
    use crate::profile::analysis::{Call, Gap, Run};
    use crate::profile::samples::{event, host_knowledge, suites};

    #[test]
    fn late_launches_are_what_a_graph_saves() {
        let suites = suites();
        let knowledge = host_knowledge(&suites);
        let gap = |cause, us, is_between_launches| Gap { cause, start_ns: 0, us, before: None, is_between_launches };
        let gaps = vec![
            gap(Cause::Launch, 6.0, true),
            gap(Cause::Launch, 4.0, true),
            gap(Cause::Launch, 70.0, false),
            gap(Cause::Device, 50.0, true),
        ];
        let kernel = event(Kind::Kernel, Track::Stream(1), [0, 1_000], 1, None);
        let node = Event { node: 3, ..kernel.clone() };
        let of = |event| {
            let call = Call { step: None, work: None, events: vec![event], us: 1.0 };
            [Run { id: RangeId(0), us: 100.0, follows: false, calls: vec![call], gaps: gaps.clone() }]
        };
        let gain = |runs: &[Run<'_>], is_launched| {
            let input = Input { seen: &[], runs, mean_us: 100.0, is_launched, knowledge: &knowledge };
            ideas(&input).map(|idea| idea.hint.gain_us)
        };
        assert_eq!(gain(&of(&kernel), true), Some(8.0), "a copy on one side is no launch that a graph saves");
        assert_eq!(gain(&of(&kernel), false), None, "the host launches nothing");
        assert_eq!(gain(&of(&node), true), None, "it is a graph");
    }
}
