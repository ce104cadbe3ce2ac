//! Hints: what would help, by how much, and why one may believe it.
//!
//! A rule sees what was measured and what the device could do, and says a time that would be saved. Where a family was fitted
//! the predictor says how long the other way takes; else the ceilings say the least that it takes, and the hint the most that
//! can be gained. A rule without a number says nothing.

mod apply;
mod dtype;
mod exchange;
mod fuse;
mod idea;
mod kernel;
mod launches;
mod seen;

pub use apply::apply;
pub use idea::{Idea, Input, Swap, Way};
pub use seen::{Sectors, Seen, seen};

/// Gains below this share of a run are not worth a line.
const LEAST_SHARE: f64 = 0.005;

/// Hints at the most.
const MOST: usize = 16;

/// All hints, those that gain the most first.
pub fn hints(input: &Input<'_>) -> Vec<Idea> {
    let mut all = exchange::ideas(input);
    all.extend(fuse::ideas(input));
    all.extend(dtype::ideas(input));
    all.extend(launches::ideas(input));
    all.extend(kernel::ideas(input));
    let least = LEAST_SHARE * input.mean_us;
    all.retain(|idea| idea.hint.gain_us.is_finite() && idea.hint.gain_us >= least);
    all.sort_by(|a, b| b.hint.gain_us.total_cmp(&a.hint.gain_us));
    all.truncate(MOST);
    all
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::core::dtype::DType;
    use crate::core::shape::parse;
    use crate::device::trace::{Work, WorkId};
    use crate::profile::knowledge::Knowledge;

    /// What was seen of one candidate at a shape.
    pub fn seen_of(
        knowledge: &Knowledge<'_>,
        (operator, candidate): (&str, &str),
        shape: &str,
        dtype: DType,
        us: f64,
        calls: f64,
    ) -> Seen {
        let subject = knowledge.subject(operator, candidate, dtype).unwrap();
        let point = parse(subject.operator.axes(), shape).unwrap();
        let reuse_bytes = subject.candidate.body.is_host().then_some(1 << 20);
        let facts = knowledge.facts_of(&subject, &point, reuse_bytes);
        let work =
            Work { operator: operator.into(), candidate: candidate.into(), point, dtype, reuse_bytes, launches: 1 };
        Seen { id: WorkId(0), work, facts, calls, us, shape: None, sectors: None }
    }

    /// What rules look at where nothing else was seen.
    pub fn input<'a>(knowledge: &'a Knowledge<'a>, seen: &'a [Seen]) -> Input<'a> {
        Input { seen, runs: &[], mean_us: 100.0, is_launched: false, knowledge }
    }

    #[test]
    fn small_gains_are_left_out_and_the_largest_stands_first() {
        let suites = crate::profile::samples::suites();
        let knowledge = crate::profile::samples::host_knowledge(&suites);
        let slow = |us, calls| seen_of(&knowledge, ("softmax", "naive"), "rows=64,cols=1024", DType::F32, us, calls);
        let all = [slow(20.0, 1.0), slow(90.0, 1.0), slow(20.0, 0.001)];
        let found: Vec<f64> = hints(&input(&knowledge, &all)).iter().map(|idea| idea.hint.gain_us).collect();
        assert!(found.len() == 2 && found[0] > 80.0 && found[1] < 20.0, "{found:?}");
    }
}
