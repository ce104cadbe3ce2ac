//! Workloads as the summary keeps them: a record a workload, variant, device, dtype and shape.

use serde::{Deserialize, Serialize};

/// The version of [`WorkloadRun`]. It grows when a reader of the version before would misunderstand a record.
pub const VERSION: u32 = 1;

/// One variant of a workload, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadRun {
    /// The version of this record.
    pub version: u32,
    /// `cnn` or `chain`.
    pub workload: String,
    /// Which way it was computed.
    pub variant: String,
    /// The key of the device.
    pub device: String,
    /// The dtype of weights and activations.
    pub dtype: String,
    /// The shape, as `--shape` spells it.
    pub shape: String,
    /// The time of a run, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<RunTime>,
    /// How many digits are classified right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Accuracy>,
    /// The stages alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// What exchanging stages brings, by Amdahl's law and by the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
    /// Why there is no time or no accuracy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// The time of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunTime {
    /// The median, µs.
    pub p50_us: f64,
    /// 95 of 100 are shorter, µs.
    pub p95_us: f64,
    /// Rows a second: digits, or rows of the chain.
    pub per_s: f64,
}

/// Digits that were classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accuracy {
    /// Of all.
    pub right: usize,
    /// How many there are.
    pub digits: usize,
    /// Of those that are kept out of training.
    pub right_kept_out: usize,
    /// How many those are.
    pub kept_out: usize,
    /// Where another variant says another class: all of these are ties within the tolerance, or the run failed.
    pub other_class: usize,
}

/// A stage of a workload, timed alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// The operator.
    pub operator: String,
    /// The median, µs.
    pub p50_us: f64,
    /// Of all stages together.
    pub share: f64,
}

/// A speed-up over the naive variant, by exchanging stages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// What the times of the stages alone say.
    pub predicted: f64,
    /// What was measured.
    pub measured: f64,
}

impl WorkloadRun {
    /// Whether both measured the same.
    pub fn is_like(&self, other: &WorkloadRun) -> bool {
        let key =
            |run: &WorkloadRun| [&run.workload, &run.variant, &run.device, &run.dtype, &run.shape].map(Clone::clone);
        key(self) == key(other)
    }
}

/// What a later run measured stands in place of what an earlier one did.
pub fn merge(runs: &mut Vec<WorkloadRun>, newer: Vec<WorkloadRun>) {
    runs.retain(|old| !newer.iter().any(|new| new.is_like(old)));
    runs.extend(newer);
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;

    /// A chain whose softmax was exchanged.
    pub fn chain(shape: &str, measured: f64) -> WorkloadRun {
        WorkloadRun {
            version: VERSION,
            workload: "chain".into(),
            variant: "best_softmax".into(),
            device: "d".into(),
            dtype: "f32".into(),
            shape: shape.into(),
            time: Some(RunTime { p50_us: 10.0, p95_us: 12.0, per_s: 6.4e6 }),
            accuracy: None,
            stages: vec![Stage { operator: "softmax".into(), p50_us: 4.0, share: 0.4 }],
            exchange: Some(Exchange { predicted: 1.25, measured }),
            skipped: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_run_of_a_shape_stays() {
        let mut runs = vec![samples::chain("rows=1", 1.0), samples::chain("rows=2", 1.0)];
        merge(&mut runs, vec![samples::chain("rows=2", 2.0), samples::chain("rows=3", 1.0)]);
        let kept: Vec<_> =
            runs.iter().map(|run| (run.shape.as_str(), run.exchange.map(|exchange| exchange.measured))).collect();
        assert_eq!(kept, [("rows=1", Some(1.0)), ("rows=2", Some(2.0)), ("rows=3", Some(1.0))]);
    }
}
