//! A profile as the summary keeps it: a record a run, device, dtype and way.

use crate::check::outcome::Bound;
use serde::{Deserialize, Serialize};

/// The version of [`ProfileRun`]. It grows when a reader of the version before would misunderstand a record.
pub const VERSION: u32 = 1;

/// Where the time of one kind of run goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileRun {
    /// The version of this record.
    pub version: u32,
    /// What was run: `smollm2-135m`, `softmax rows=8,cols=16`.
    pub subject: String,
    /// Which way: a candidate, `tiers`, `unfused`.
    pub way: String,
    /// Which run of it: `prefill`, `decode`, `batch`.
    pub run: String,
    /// The key of the device.
    pub device: String,
    /// The dtype.
    pub dtype: String,
    /// Where the events are from: `host spans`, `CUPTI`, `CUDA events`; `prediction` where nothing was run.
    pub source: String,
    /// How many runs were traced.
    pub runs: usize,
    /// The time of a run without tracing, µs: the median.
    pub untraced_us: f64,
    /// The same with tracing.
    pub traced_us: f64,
    /// The mean with tracing, µs; none where no time was measured over the same extent as the parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traced_mean_us: Option<f64>,
    /// Parts and idle time of the runs that this is the time of, on average, µs: of a batch without its first launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounted_us: Option<f64>,
    /// What tracing adds, as a share of the time without it: the median over pairs of runs, and its 95 % interval.
    pub overhead: f64,
    /// See `overhead`.
    pub overhead_interval: [f64; 2],
    /// What a traced run takes on average, µs: parts and idle time are shares of it.
    pub mean_us: f64,
    /// Time by operator.
    pub operators: Vec<Part>,
    /// Time by operator, candidate and shape, or by kernel where a device names them; behind a step of several kernels these.
    pub kernels: Vec<Part>,
    /// Time by layer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<Slice>,
    /// Time by what binds it: `memory (DRAM)`, `compute`, `latency`, `launch`, `idle`.
    pub classes: Vec<Slice>,
    /// Time in which the device had nothing to do, by cause.
    pub idle: Vec<Slice>,
    /// What memory was taken.
    pub memory: MemoryUse,
    /// What would help.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<Hint>,
    /// The same beside another way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
    /// What hardware counters say of the same kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
    /// What a reader should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A part of the time of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// An operator, a candidate, or a kernel.
    pub name: String,
    /// The shape, where there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shape: String,
    /// The step that this is a kernel of, in the row above with the same shape: its time is counted there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub within: String,
    /// Calls a run.
    pub calls: f64,
    /// Kernels a run, which copies and memsets are not; none in records that did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<f64>,
    /// Time a run, µs.
    pub total_us: f64,
    /// Of the time of a run.
    pub share: f64,
    /// Time a call, µs.
    pub mean_us: f64,
    /// The median of calls, µs.
    pub p50_us: f64,
    /// 95 of 100 calls are shorter, µs.
    pub p95_us: f64,
    /// Idle time a run before it, µs, of an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_us: Option<f64>,
    /// Compulsory bytes a run.
    pub bytes: f64,
    /// Operations a run.
    pub flops: f64,
    /// What its bytes and operations take at the ceilings, over what it took; none without a calibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_ceiling: Option<f64>,
    /// What binds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// The level of memory that its data comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub level: String,
}

impl Part {
    /// 10⁹ bytes a second.
    pub fn gb_per_s(&self) -> f64 {
        self.bytes / self.total_us * 1e-3
    }

    /// 10⁹ operations a second.
    pub fn gflop_per_s(&self) -> f64 {
        self.flops / self.total_us * 1e-3
    }
}

/// A share of the time of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// What it is.
    pub name: String,
    /// How often in a run.
    pub count: f64,
    /// Time a run, µs.
    pub us: f64,
    /// Of the time of a run.
    pub share: f64,
}

/// Memory over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// The most that was held at once, bytes.
    pub peak_bytes: u64,
    /// When in the run, µs.
    pub peak_us: f64,
    /// What was alive then, the largest first.
    pub alive: Vec<Held>,
    /// Bytes over the time of one run: µs and bytes, at most some 100 points.
    pub over_time: Vec<[f64; 2]>,
}

/// Memory under one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// What it holds.
    pub name: String,
    /// How much.
    pub bytes: u64,
}

/// A change that would help, with what it would gain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hint {
    /// The rule: `candidate`, `fuse`, `graph`, `narrow`, `waves`, `occupancy`, `coalesce`.
    pub rule: String,
    /// What is to be changed.
    pub place: String,
    /// What to do.
    pub action: String,
    /// What was seen.
    pub evidence: String,
    /// Time a run that it should save, µs.
    pub gain_us: f64,
    /// Where the number is from: `predictor`, `roofline` (the most that can be gained), `timeline`.
    pub basis: String,
    /// What was measured when it was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Applied>,
    /// Why nothing was, where it was to be applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub not_applied: String,
}

/// A hint that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// Time a run before, µs, measured beside the other.
    pub before_us: f64,
    /// Time a run after, µs.
    pub after_us: f64,
}

impl Applied {
    /// Time a run that was saved, µs.
    pub fn gain_us(&self) -> f64 {
        self.before_us - self.after_us
    }
}

/// Another way of the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// Which.
    pub way: String,
    /// The time of a run, µs: the median without tracing.
    pub untraced_us: f64,
    /// Launches a run, of this way and of the other.
    pub launches: [f64; 2],
    /// The peak of memory, of this way and of the other, bytes.
    pub peak_bytes: [u64; 2],
    /// The largest difference between the outputs of both; none where one has a NaN or an infinity that the other has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_difference: Option<f64>,
    /// The same over the largest output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_difference: Option<f64>,
    /// Perplexity of both, of a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perplexity: Option<[f64; 2]>,
}

/// What Nsight Compute says of the kernels of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Kernels, with the class here and there.
    pub kernels: Vec<Counted>,
    /// The share of them whose class is the same.
    pub agreement: f64,
}

/// One kernel under hardware counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Its name.
    pub name: String,
    /// The time without the counters' own, µs.
    pub us: f64,
    /// Throughput of the multiprocessors, of their peak.
    pub compute: f64,
    /// Throughput of memory, of its peak.
    pub memory: f64,
    /// Warps that were resident, of the most.
    pub occupancy: f64,
    /// Bytes read from and written to DRAM.
    pub dram_bytes: f64,
    /// Cycles in which a tensor pipe worked, of all.
    pub tensor: f64,
    /// The class by these counters.
    pub bound: Bound,
    /// The class by roofline and timeline, where the kernel was attributed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Bound>,
}

impl ProfileRun {
    /// Whether both measured the same.
    pub fn is_like(&self, other: &ProfileRun) -> bool {
        let key = |run: &ProfileRun| {
            [&run.subject, &run.way, &run.run, &run.device, &run.dtype, &run.source].map(Clone::clone)
        };
        key(self) == key(other)
    }

    /// Parts and idle time over what a clock said of the same runs; none where there was no such clock.
    pub fn covered(&self) -> Option<f64> {
        Some(self.accounted_us? / self.traced_mean_us?)
    }

    /// Kernels a run.
    pub fn launches(&self) -> f64 {
        let whole = self.kernels.iter().filter(|part| part.within.is_empty());
        whole.map(|part| part.kernels.unwrap_or(part.calls)).fold(0.0, |all, launches| all + launches)
    }
}

/// What a later run measured stands in place of what an earlier one did.
pub fn merge(runs: &mut Vec<ProfileRun>, newer: Vec<ProfileRun>) {
    runs.retain(|old| !newer.iter().any(|new| new.is_like(old)));
    runs.extend(newer);
}
