//! What a check found: verdicts, errors, failures, timings. The summary holds these as they are.

use super::errors::number;
pub use super::errors::{Errors, ShapeErrors};
pub use super::failure::{Failure, Worst};
pub use super::metric::Metric;
use crate::device::Heat;
use serde::{Deserialize, Serialize};

/// The three checks; the last part of a trial name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    /// Against the reference on fixed shapes.
    Correctness,
    /// Against the reference on random shapes.
    Property,
    /// Against the baseline.
    Perf,
}

impl Check {
    /// All of them, in trial order.
    pub const ALL: [Check; 3] = [Check::Correctness, Check::Property, Check::Perf];

    /// The last part of a trial name.
    pub const fn name(self) -> &'static str {
        match self {
            Check::Correctness => "correctness",
            Check::Property => "property",
            Check::Perf => "perf",
        }
    }
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Right.
    Pass,
    /// Wrong.
    Fail,
    /// Not run, for a stated reason. Never counts as a pass.
    Skip,
    /// As fast as the baseline, within its threshold.
    Same,
    /// Faster than the baseline: accept it to keep the gain.
    Faster,
    /// Slower than the baseline.
    Slower,
    /// Too noisy to tell. Never counts as a pass.
    Unclear,
    /// Not believable: faster than the floor, or the outputs changed while being timed.
    Invalid,
}

impl Verdict {
    /// Whether the gate goes red.
    pub const fn is_failure(self) -> bool {
        matches!(self, Verdict::Fail | Verdict::Slower | Verdict::Invalid)
    }

    /// Whether it counts as good in the summary.
    pub const fn is_good(self) -> bool {
        matches!(self, Verdict::Pass | Verdict::Same | Verdict::Faster)
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Skip => "skip",
            Verdict::Same => "same",
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::Unclear => "unclear",
            Verdict::Invalid => "invalid",
        }
    }
}

/// What a whole trial found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The result.
    pub verdict: Verdict,
    /// Why, for anything but a plain pass; one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How many cases were judged.
    pub cases: usize,
    /// How many were planned, where the check plans cases.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub planned: usize,
    /// How many of those were not run, because the time that was asked for was over.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: usize,
    /// The largest errors over all cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Errors>,
    /// The same shape by shape, in the order in which they were run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape_errors: Vec<ShapeErrors>,
    /// The first failure, in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// A row a timed shape.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timings: Vec<Timing>,
    /// A row a counted metric and shape.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// What a reader should know: cut-off cases, degenerate cases, overrides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Shapes that are to be timed and were not reached in time.
    #[serde(skip)]
    pub unreached: usize,
    /// Whether it is a failure only because an accepted baseline is required and there is none.
    #[serde(skip)]
    pub lacks_baseline: bool,
}

impl Outcome {
    /// An outcome with nothing else to say.
    pub fn new(verdict: Verdict) -> Self {
        Outcome {
            verdict,
            reason: String::new(),
            cases: 0,
            planned: 0,
            cut: 0,
            errors: None,
            shape_errors: Vec::new(),
            failure: None,
            timings: Vec::new(),
            metrics: Vec::new(),
            notes: Vec::new(),
            unreached: 0,
            lacks_baseline: false,
        }
    }

    /// A skip.
    pub fn skip(reason: impl Into<String>) -> Self {
        Outcome { reason: reason.into(), ..Outcome::new(Verdict::Skip) }
    }

    /// A failure without a case.
    pub fn fail(reason: impl Into<String>) -> Self {
        Outcome { reason: reason.into(), ..Outcome::new(Verdict::Fail) }
    }

    /// The largest error as a share of what was allowed, that of the failed case among them; infinite where that is of
    /// another class, such as a NaN.
    pub fn worst_of_allowed(&self) -> Option<f64> {
        let judged = self.errors.map(|errors| errors.max_of_allowed).filter(|share| !share.is_nan());
        let failed = self.failure.as_ref().and_then(Failure::of_allowed);
        judged.into_iter().chain(failed).reduce(f64::max)
    }

    /// Adds the errors of a case to those of the others.
    pub(super) fn add_errors(&mut self, shape: String, errors: Errors) {
        self.errors = Some(self.errors.unwrap_or_default().max(errors));
        let found = ShapeErrors::of(shape, errors);
        match self.shape_errors.iter_mut().find(|before| before.shape == found.shape) {
            Some(before) => {
                before.max_ulp = before.max_ulp.max(found.max_ulp);
                before.max_of_allowed = before.max_of_allowed.max(found.max_of_allowed);
            }
            None => self.shape_errors.push(found),
        }
    }

    /// What lacks a baseline has failed where one is required, however well it could be measured.
    pub fn require_baseline(&mut self, lacks: bool) {
        self.lacks_baseline = lacks && matches!(self.verdict, Verdict::Skip | Verdict::Unclear);
        if self.lacks_baseline {
            self.verdict = Verdict::Fail;
        }
    }

    /// What is left out of a plan for want of time, in words.
    pub fn cut_note(&self) -> Option<String> {
        (self.cut > 0).then(|| format!("cut: {} of {} cases not run", self.cut, self.planned))
    }

    /// A pass of which more than [`LARGEST_CUT`] was cut shows too little to be one.
    pub(super) fn unless_mostly_cut(mut self) -> Self {
        if self.verdict == Verdict::Pass && self.cut as f64 > LARGEST_CUT * self.planned as f64 {
            self.verdict = Verdict::Skip;
            let cut = self.cut_note().unwrap_or_default();
            self.reason = format!("{cut}, too many for a verdict: give it more time with `--budget`, or name none");
        }
        self
    }
}

/// The share of its planned cases that a pass may lack.
const LARGEST_CUT: f64 = 0.5;

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// The timing of one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The shape.
    pub shape: String,
    /// Caches cold or hot.
    pub heat: Heat,
    /// Median time a launch, µs.
    #[serde(deserialize_with = "number")]
    pub median_us: f64,
    /// 5th percentile, µs.
    #[serde(deserialize_with = "number")]
    pub p5_us: f64,
    /// 95th percentile, µs.
    #[serde(deserialize_with = "number")]
    pub p95_us: f64,
    /// 95 % confidence interval of the median, lower end, µs.
    #[serde(deserialize_with = "number")]
    pub low_us: f64,
    /// Upper end, µs.
    #[serde(deserialize_with = "number")]
    pub high_us: f64,
    /// Batches that count.
    pub samples: usize,
    /// Batches left out because the clock had dropped.
    pub dropped: usize,
    /// Median core clock, MHz, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    /// A hash of the machine code and the launches, where the device knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Compulsory bytes.
    pub bytes: usize,
    /// Operations.
    pub flops: usize,
    /// A copy of as many bytes, timed in between, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_us: Option<f64>,
    /// In place of the copy for operators that write hardly anything: a kernel that only reads as many bytes, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_us: Option<f64>,
    /// As many operations in f32 registers (a sixteenth of them for half types), timed in between where arithmetic may
    /// be the limit, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fma_us: Option<f64>,
    /// What the ceilings allow, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_us: Option<f64>,
    /// Floor over median: 1 is the ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_ceiling: Option<f64>,
    /// The accepted median, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_us: Option<f64>,
    /// Median over the accepted median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The same, both held against the copy of their own run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalised_ratio: Option<f64>,
    /// The relative change that counts, from the noise of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// The result for this shape.
    pub verdict: Verdict,
    /// Other ways to compute it, timed in between.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerTiming>,
    /// What the predictor said, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_us: Option<f64>,
    /// Nine of ten times lie between these, as the predictor says, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_interval_us: Option<[f64; 2]>,
    /// What the time is bound by, where the device was calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
}

/// What a launch waits for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The operations of its pipe.
    Compute,
    /// The bytes between memory and chip.
    Memory,
    /// Neither: dependent loads, synchronisation, too few blocks, or work beyond what is compulsory.
    Latency,
    /// The launch itself: it would hardly be shorter if there were nothing to do.
    Launch,
}

impl Bound {
    /// Its name in tables and records.
    pub const fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Memory => "memory",
            Bound::Latency => "latency",
            Bound::Launch => "launch",
        }
    }
}

/// A peer beside a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerTiming {
    /// Who.
    pub name: String,
    /// What it is built on, in its own words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Whether its outputs are right and its times can be believed: `pass`, `fail`, `skip`, `unclear`, `invalid`.
    #[serde(default = "pass")]
    pub verdict: Verdict,
    /// Why, for anything but a pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How far its outputs were from the reference, where they were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Errors>,
    /// Median time, µs.
    #[serde(deserialize_with = "number")]
    pub median_us: f64,
    /// 95 of 100 batches are shorter, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_us: Option<f64>,
    /// 95 % confidence interval of the median, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_us: Option<[f64; 2]>,
    /// Batches that count.
    #[serde(default)]
    pub samples: usize,
    /// Batches left out because the clock had dropped.
    #[serde(default)]
    pub dropped: usize,
    /// Median core clock, MHz, where the peer can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    /// Candidate over peer: below 1 the candidate is faster.
    #[serde(deserialize_with = "number")]
    pub ratio: f64,
    /// 95 % confidence interval of the ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_interval: Option<[f64; 2]>,
}

impl PeerTiming {
    /// A peer that was not timed, and why.
    pub fn untimed(name: String, about: String, verdict: Verdict, reason: String) -> Self {
        PeerTiming {
            name,
            about,
            verdict,
            reason,
            errors: None,
            median_us: f64::NAN,
            p95_us: None,
            interval_us: None,
            samples: 0,
            dropped: 0,
            clock_mhz: None,
            ratio: f64::NAN,
            ratio_interval: None,
        }
    }
}

/// Peers of the first version had no verdict: those that failed were not written down.
fn pass() -> Verdict {
    Verdict::Pass
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failed_case_counts_among_the_errors() {
        let mut outcome = Outcome::fail("values: wrong");
        assert_eq!(outcome.worst_of_allowed(), None);
        outcome.errors = Some(Errors { max_of_allowed: 0.5, ..Errors::default() });
        assert_eq!(outcome.worst_of_allowed(), Some(0.5));
        outcome.failure = serde_json::from_value(serde_json::json!({
            "check": "values", "text": "", "case":
            { "shape": "n=2", "dtype": "f32", "distribution": "normal", "seed": "0x7", "offset_bytes": 0 },
            "worst": { "output": "y", "index": [0], "expected": "1.5e0", "got": "1.75e0", "allowed": "5e-2", "failing": 1, "elements": 2 },
        }))
        .unwrap();
        assert_eq!(outcome.worst_of_allowed(), Some(5.0), "an older file, which has the failed case there alone");
    }

    #[test]
    fn a_time_that_cannot_be_believed_is_a_failure_and_one_that_is_unclear_is_not() {
        use Verdict::{Fail, Faster, Invalid, Pass, Same, Skip, Slower, Unclear};
        let all = [Pass, Fail, Skip, Same, Faster, Slower, Unclear, Invalid];
        let failures: Vec<Verdict> = all.into_iter().filter(|verdict| verdict.is_failure()).collect();
        assert_eq!(failures, [Fail, Slower, Invalid]);
    }
}
