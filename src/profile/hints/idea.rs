//! What a rule sees, and what it says: a hint, and the cases by which it can be tried.

use super::seen::Seen;
use crate::core::dtype::DType;
use crate::core::shape::Point;
use crate::profile::analysis::Run;
use crate::profile::knowledge::{Expected, Knowledge};
use crate::profile::record::Hint;

/// A hint with what it takes to try it.
#[derive(Clone, Debug, PartialEq)]
pub struct Idea {
    /// What is said.
    pub hint: Hint,
    /// What to measure, where the catalogue has it.
    pub trial: Option<Swap>,
}

/// Cases that are to be replaced by others: both are measured beside each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Swap {
    /// What runs now.
    pub before: Vec<Way>,
    /// What would run.
    pub after: Vec<Way>,
    /// How often in a run.
    pub calls: f64,
}

/// A candidate at a shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// The operator.
    pub operator: String,
    /// The candidate.
    pub candidate: String,
    /// The shape.
    pub point: Point,
    /// The dtype.
    pub dtype: DType,
    /// Whether its data is found in the caches.
    pub is_hot: bool,
}

/// Everything that rules look at.
pub struct Input<'a> {
    /// What was seen of each work.
    pub seen: &'a [Seen],
    /// The runs, for what stands next to what.
    pub runs: &'a [Run<'a>],
    /// The mean time of a run, µs.
    pub mean_us: f64,
    /// Whether kernels were launched on a device of its own.
    pub is_launched: bool,
    /// What is known.
    pub knowledge: &'a Knowledge<'a>,
}

/// A hint that was not applied yet.
pub(super) fn hint(rule: &str, place: String, action: String, evidence: String, gain_us: f64, basis: &str) -> Hint {
    Hint {
        rule: rule.into(),
        place,
        action,
        evidence,
        gain_us,
        basis: basis.into(),
        applied: None,
        not_applied: String::new(),
    }
}

/// What a gain is said to be: `saves 12 µs` or `saves at most 12 µs`.
pub(super) fn how(expected: Expected) -> &'static str {
    if expected.is_predicted { "predicted" } else { "at best" }
}

/// A share as a person reads it.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}
