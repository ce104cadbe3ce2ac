//! Launches that a graph would make together.

use super::idea::{Idea, Input, hint, percent};
use crate::profile::analysis::Cause;

/// Between two nodes of a graph there is still this, µs, where nothing else is known.
const NODE_US: f64 = 1.0;

/// The gaps that are there because the host asks too late.
pub fn ideas(input: &Input<'_>) -> Option<Idea> {
    if !input.is_launched {
        return None;
    }
    let gaps = || input.runs.iter().flat_map(|run| &run.gaps).filter(|gap| gap.cause == Cause::Launch);
    let (count, us) = (gaps().count() as f64, gaps().map(|gap| gap.us).sum::<f64>());
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
    use crate::device::trace::RangeId;
    use crate::profile::analysis::{Gap, Run};
    use crate::profile::samples::{host_knowledge, suites};

    #[test]
    fn late_launches_are_what_a_graph_saves() {
        let suites = suites();
        let knowledge = host_knowledge(&suites);
        let gap = |cause, us| Gap { cause, start_ns: 0, us, before: None };
        let gaps = vec![gap(Cause::Launch, 6.0), gap(Cause::Launch, 4.0), gap(Cause::Device, 50.0)];
        let runs = [Run { id: RangeId(0), us: 100.0, follows: false, calls: Vec::new(), gaps }];
        let input = |is_launched| Input { seen: &[], runs: &runs, mean_us: 100.0, is_launched, knowledge: &knowledge };
        assert_eq!(ideas(&input(true)).unwrap().hint.gain_us, 8.0);
        assert!(ideas(&input(false)).is_none(), "the host launches nothing");
    }
}
