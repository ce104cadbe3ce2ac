//! What the gate says about one candidate, in one dtype, from one seed.

use kernelgate::check::outcome::{Outcome, Verdict};
use kernelgate::check::property::{self, SHRINKING, Settings};
use kernelgate::check::{Context, Subject, correctness};
use kernelgate::core::candidate::Candidate;
use kernelgate::core::suite::Suite;
use kernelgate::device::Device;
use kernelgate::prelude::*;
use serde::{Deserialize, Serialize};

/// Every fixture is judged from each of these.
pub const SEEDS: [u64; 3] = [0x1, 0x5eed, 0xfau64 << 32];

/// Random shapes for a candidate that passed the fixed ones.
const CASES: u32 = 32;

/// The verdicts on one candidate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// In which dtype.
    pub dtype: DType,
    /// From which seed.
    pub seed: u64,
    /// Of the correctness check.
    pub correctness: Outcome,
    /// Of the property check; not run where correctness failed.
    pub property: Option<Outcome>,
}

impl Finding {
    /// The outcome that decided.
    pub fn last(&self) -> &Outcome {
        self.property.as_ref().unwrap_or(&self.correctness)
    }

    /// Which check failed: `correctness/values`.
    pub fn caught_by(&self) -> Option<(&'static str, &str)> {
        let check = if self.property.is_some() { "property" } else { "correctness" };
        let outcome = self.last();
        (outcome.verdict == Verdict::Fail)
            .then(|| (check, outcome.failure.as_ref().map_or("no case", |failure| failure.check.as_str())))
    }
}

/// Runs both checks on a candidate.
pub fn find(device: &dyn Device, suite: &Suite, candidate: &Candidate, dtype: DType, seed: u64) -> Finding {
    let subject = Subject { operator: suite.operator.as_ref(), candidate, dtype };
    let correctness = correctness::run(&Context::without_deadline(device, seed), &subject);
    let property = (correctness.verdict == Verdict::Pass).then(|| {
        let settings = Settings { cases: CASES, regressions: None, shrinking: SHRINKING };
        property::run(&Context::without_deadline(device, seed), &subject, &settings)
    });
    Finding { dtype, seed, correctness, property }
}
