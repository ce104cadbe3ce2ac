//! Half the bytes: bf16 or f16 in place of f32 for what the memory binds.

use super::idea::{Idea, Input, Swap, Way, hint, how};
use super::seen::Seen;
use crate::calibrate::Level;
use crate::check::Subject;
use crate::check::outcome::Bound;
use crate::core::dtype::DType;
use crate::profile::knowledge::Expected;

/// What is half as wide.
const NARROW: [DType; 2] = [DType::BF16, DType::F16];

/// Of each work in f32 that waits for DRAM, in each dtype that its candidate computes.
pub fn ideas(input: &Input<'_>) -> Vec<Idea> {
    let wide = input.seen.iter().filter(|seen| seen.work.dtype == DType::F32 && seen.facts.level == Level::Dram);
    wide.flat_map(|seen| NARROW.into_iter().filter_map(|dtype| idea(input, seen, dtype))).collect()
}

fn idea(input: &Input<'_>, seen: &Seen, dtype: DType) -> Option<Idea> {
    if input.knowledge.bound(seen.us, &seen.facts)? != Bound::Memory {
        return None;
    }
    let own = input.knowledge.subject_of(&seen.work)?;
    let narrow = input.knowledge.subject(&seen.work.operator, &seen.work.candidate, dtype)?;
    let narrow = Subject { dtype, ..narrow };
    if narrow.candidate.body.is_host() != own.candidate.body.is_host() {
        return None;
    }
    let mut expected = input.knowledge.expected(&narrow, &seen.work.point, seen.work.reuse_bytes)?;
    if !expected.is_predicted {
        // As far from the ceiling as in f32.
        expected = Expected { us: (expected.us / seen.of_ceiling()).max(0.5 * seen.us), is_predicted: false };
    }
    if expected.us >= seen.us {
        return None;
    }
    let way = |dtype| Way {
        operator: seen.work.operator.clone(),
        candidate: seen.work.candidate.clone(),
        point: seen.work.point.clone(),
        dtype,
        is_hot: false,
    };
    let evidence = format!(
        "{:.2} µs a call for {:.2} MB out of DRAM; {} {:.2} µs for half of it",
        seen.us,
        seen.facts.features.bytes() * 1e-6,
        how(expected),
        expected.us
    );
    let gain_us = seen.calls * (seen.us - expected.us);
    let trial = Swap { before: vec![way(DType::F32)], after: vec![way(dtype)], calls: seen.calls };
    let action = format!("{dtype} in place of f32");
    let hint = hint("narrow", seen.place(), action, evidence, gain_us, expected.basis());
    Some(Idea { hint, trial: Some(trial) })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{input, seen_of};
    use super::*;
    use crate::profile::samples::{host_knowledge, suites};

    #[test]
    fn what_dram_binds_gains_from_half_the_bytes() {
        let suites = suites();
        let knowledge = host_knowledge(&suites);
        let shape = "batch=1,n=4096,k=4096";
        let mut seen = seen_of(&knowledge, ("gemv", "tiled"), shape, DType::F32, 4000.0, 1.0);
        assert!(ideas(&input(&knowledge, std::slice::from_ref(&seen))).is_empty(), "it comes from a cache");
        seen.work.reuse_bytes = None;
        let subject = knowledge.subject_of(&seen.work).unwrap();
        seen.facts = knowledge.facts_of(&subject, &seen.work.point, None);
        let found = ideas(&input(&knowledge, std::slice::from_ref(&seen)));
        approx::assert_relative_eq!(found[0].hint.gain_us, 2000.0, max_relative = 0.01);
        let offered = |idea: &Idea| (idea.hint.action.clone(), idea.trial.as_ref().unwrap().after[0].dtype);
        assert_eq!(
            found.iter().map(offered).collect::<Vec<_>>(),
            [("bf16 in place of f32".into(), DType::BF16), ("f16 in place of f32".into(), DType::F16)]
        );
        seen.us = 40_000.0;
        assert!(ideas(&input(&knowledge, &[seen])).is_empty(), "the memory does not bind it");
    }
}
