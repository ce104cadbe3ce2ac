//! One record a trial: who was judged, where, and what was found.

use crate::check::outcome::{Check, Outcome, Timing};
use crate::check::perf::worst;
use crate::core::dtype::DType;
use crate::device::DeviceKind;
use serde::{Deserialize, Serialize};

/// What the summary holds of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// `<operator>::<candidate>::<dtype>::<check>`.
    pub trial: String,
    /// What is computed.
    pub operator: String,
    /// By whom.
    pub candidate: String,
    /// In which dtype.
    pub dtype: DType,
    /// What was checked.
    pub check: Check,
    /// The kind of device that the candidate needs or ran on.
    pub device: DeviceKind,
    /// The key of the device that it ran on, as in the summary's list; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The file of the kernel, as its declaration names it; absent for host code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What was found.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How long the trial took, s.
    pub duration_s: f64,
    /// A command that repeats the trial, or just its failed case.
    pub repeat: String,
}

impl Record {
    /// What makes two records results of the same thing: the trial and the device.
    pub fn identity(&self) -> (&str, &str) {
        (&self.trial, self.fingerprint.as_deref().unwrap_or_default())
    }

    /// What started the gate that this is of: the command that repeats it, up to the name of the trial.
    pub fn binary(&self) -> &str {
        self.repeat.split_once(" --exact ").map_or("", |(binary, _)| binary)
    }

    /// Takes over from an older record of the same trial the shapes that were not timed anew. A record without any times
    /// stays as it is: that it could not be timed is what it says.
    pub fn complete(&mut self, older: &Record) {
        let outcome = &mut self.outcome;
        if outcome.timings.is_empty() {
            return;
        }
        let is_new =
            |old: &&Timing| !outcome.timings.iter().any(|new| (&new.shape, new.heat) == (&old.shape, old.heat));
        let missing: Vec<Timing> = older.outcome.timings.iter().filter(is_new).cloned().collect();
        outcome.cases += missing.len();
        outcome.timings.splice(0..0, missing);
        let verdict = worst(&outcome.timings);
        // A failure may be no time's: a wrong output, found while the next shape was to be timed.
        if !outcome.verdict.is_failure() && verdict != outcome.verdict {
            outcome.verdict = verdict;
            outcome.reason.clone_from(&older.outcome.reason);
        }
    }
}

/// Records that the tests of this module's neighbours share.
#[cfg(test)]
pub(super) mod samples {
    use super::Record;
    use crate::check::case::CaseId;
    use crate::check::outcome::{Check, Errors, Failure, Outcome, Timing, Verdict, Worst};
    use crate::core::distribution::Distribution;
    use crate::core::dtype::DType;
    use crate::device::{DeviceKind, Heat};

    /// A record of `trial` that found `outcome` on a CPU.
    pub fn record(trial: &str, outcome: Outcome) -> Record {
        let mut parts = trial.split("::");
        let mut part = || parts.next().unwrap_or_default();
        let (operator, candidate, dtype, check) = (part().into(), part().into(), part(), part());
        Record {
            trial: trial.into(),
            operator,
            candidate,
            dtype: dtype.parse().unwrap_or(DType::F32),
            check: Check::ALL.into_iter().find(|c| c.name() == check).unwrap_or(Check::Correctness),
            device: DeviceKind::Cpu,
            fingerprint: Some("cpu-x-2".into()),
            source: None,
            outcome,
            duration_s: 0.25,
            repeat: format!("cargo test --test gate -- --exact {trial}"),
        }
    }

    /// A pass with errors, one of them infinite.
    pub fn passed() -> Record {
        let errors = Errors { max_abs: 1e-7, max_rel: f64::INFINITY, max_ulp: 0.5, max_of_allowed: 0.4 };
        let outcome = Outcome { cases: 60, errors: Some(errors), ..Outcome::new(Verdict::Pass) };
        record("gelu::naive::f32::correctness", outcome)
    }

    /// A wrong value.
    pub fn failed() -> Record {
        let case = CaseId {
            shape: "rows=3,cols=5".into(),
            dtype: DType::F16,
            distribution: Distribution::LargeMean,
            seed: 42,
            offset_bytes: 0,
        };
        let worst = Worst {
            output: "y".into(),
            index: vec![2, 4],
            expected: "1.5e0".into(),
            got: "NaN".into(),
            allowed: "1e-3".into(),
            failing: 7,
            elements: 15,
        };
        let text = "two lines\nof text\n".into();
        let failure = Failure { check: "values".into(), case, text, worst: Some(worst), errors: None };
        let mut outcome = Outcome::fail("values: two lines");
        outcome.failure = Some(failure);
        outcome.notes.push("tolerance overridden: tanh.approx".into());
        Record {
            repeat: "cargo test --release --test gate -- --exact rows::naive::f16::correctness --shape rows=3,cols=5"
                .into(),
            ..record("rows::naive::f16::correctness", outcome)
        }
    }

    /// A slow shape beside a good one.
    pub fn slower() -> Record {
        let same = Timing {
            shape: "n=1024".into(),
            heat: Heat::Cold,
            median_us: 3.0,
            p5_us: 2.9,
            p95_us: 3.1,
            low_us: 2.99,
            high_us: 3.01,
            samples: 40,
            dropped: 1,
            clock_mhz: Some(1980.0),
            bytes: 8192,
            flops: 1024,
            copy_us: None,
            read_us: None,
            fma_us: None,
            floor_us: Some(1.5),
            of_ceiling: Some(0.5),
            baseline_us: Some(3.0),
            ratio: Some(1.0),
            normalised_ratio: None,
            threshold: Some(0.02),
            verdict: Verdict::Same,
            peers: Vec::new(),
            code: None,
            predicted_us: None,
            predicted_interval_us: None,
            bound: None,
        };
        let slow = Timing {
            shape: "n=4096".into(),
            median_us: 10.5,
            baseline_us: Some(10.0),
            ratio: Some(1.05),
            verdict: Verdict::Slower,
            ..same.clone()
        };
        let outcome = Outcome {
            reason: "1 of 2 shapes".into(),
            cases: 2,
            timings: vec![same, slow],
            ..Outcome::new(Verdict::Slower)
        };
        let device = DeviceKind::Cuda;
        Record { device, fingerprint: Some("nvidia-h200-132".into()), ..record("gelu::fast::f32::perf", outcome) }
    }
}
