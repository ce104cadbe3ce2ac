//! Devices: where candidates run. One interface for the CPU, a GPU and the simulator.

pub mod arena;
mod argument;
mod content;
pub mod counts;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod dependent;
pub mod fault;
pub mod fingerprint;
pub mod image;
mod prepared;
mod signature;
pub mod sim;
pub mod trace;

use crate::core::candidate::{Body, Candidate};
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::core::tensor::Tensor;
use fault::Fault;
use fingerprint::Fingerprint;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The kinds of device, as `--device` spells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// The host.
    Cpu,
    /// The PTX simulator.
    Sim,
    /// An NVIDIA GPU.
    Cuda,
}

impl DeviceKind {
    /// `cpu`, `sim` or `cuda`.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Sim => "sim",
            DeviceKind::Cuda => "cuda",
        }
    }
}

impl std::fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A place to run candidates.
pub trait Device: Send + Sync {
    /// What it is, for reports and for the key of its baselines.
    fn fingerprint(&self) -> &Fingerprint;

    /// What kind it is.
    fn kind(&self) -> DeviceKind {
        self.fingerprint().kind
    }

    /// Whether candidates with such a body run here at all.
    fn runs(&self, body: &Body) -> bool;

    /// Compiles, allocates and uploads; the problem is then ready to run.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] when this device cannot run it (a skip), every other fault when the candidate is to blame.
    fn prepare(&self, job: &Job<'_>) -> Result<Box<dyn Problem + '_>, Fault>;

    /// Whether an earlier fault has left the device unusable in this process.
    fn is_lost(&self) -> bool {
        false
    }

    /// How much it can do in a gate.
    fn capacity(&self) -> Capacity;

    /// The same for a random case: there are many of them, and they may not differ from run to run.
    fn search_capacity(&self) -> Capacity {
        self.capacity()
    }

    /// What it takes the host to launch an empty kernel, and to see its end; `None` where nothing is launched.
    ///
    /// # Errors
    /// What the device said.
    fn round_trip(&self) -> Result<Option<RoundTrip>, Fault> {
        Ok(None)
    }

    /// What records the launches on it, beside the host.
    fn recording(&self) -> trace::Recording {
        trace::Recording::of_host()
    }

    /// Launches in a row that must agree bit for bit.
    fn repeats(&self) -> usize {
        100
    }
}

/// How large the cases may be that a device is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Elements (inputs and outputs) of a correctness case.
    pub elements: usize,
    /// Operations of a correctness case.
    pub flops: usize,
    /// Threads that the launches of a random case start.
    pub threads: usize,
    /// Whether timings mean anything here.
    pub timed: bool,
    /// Bytes of a timed case, all rotated buffers together.
    pub timed_bytes: usize,
    /// The same of a case that was asked for by its shape.
    pub asked_bytes: usize,
}

impl Capacity {
    /// The same with no more elements than that.
    pub fn of_at_most(self, elements: usize) -> Self {
        Capacity { elements: self.elements.min(elements), ..self }
    }

    /// Whether a case of so many elements and operations is within it.
    pub const fn takes(&self, elements: usize, flops: usize) -> bool {
        elements <= self.elements && flops <= self.flops
    }
}

/// What each launch of a queue reads that is held against a graph.
pub const READ_BYTES: usize = 8 << 20;

/// An empty kernel as the host sees it, and queues of kernels that are empty or read: medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTrip {
    /// Until the launch has returned, µs.
    pub launch_us: f64,
    /// From there until the host knows that the kernel has ended, µs.
    pub synchronised_us: f64,
    /// What the device takes longer from an empty launch to the next, µs, where the host launches them than where a graph does,
    /// all enqueued before the first begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_node_us: Option<f64>,
    /// The same of launches that may begin before the one ahead has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependent_over_node_us: Option<f64>,
    /// Of launches that read [`READ_BYTES`] each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading_over_node_us: Option<f64>,
    /// Of such as read so much, and may begin before the one ahead has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependent_reading_over_node_us: Option<f64>,
}

/// What to prepare: a case and the candidate that is to compute it.
pub struct Job<'a> {
    /// What is computed.
    pub operator: &'a dyn Operator,
    /// By whom.
    pub candidate: &'a Candidate,
    /// At which shape.
    pub point: &'a [usize],
    /// In which dtype.
    pub dtype: DType,
    /// On which inputs. One that has fewer elements than its port is repeated in its buffer: what is only timed is not drawn
    /// in full.
    pub inputs: &'a [Tensor],
    /// How far every buffer starts behind a 256-byte boundary; a multiple of the candidate's alignment.
    pub offset_bytes: usize,
}

/// What the memory around and under a candidate's buffers holds before it runs. Two runs with different poisons
/// must give the same bits: else something was read that nobody wrote, or not written at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poison {
    /// 0xFF: NaN in every float type, -1 in i32.
    Nan,
    /// 0x7B: large finite values.
    Huge,
}

impl Poison {
    /// The byte that fills memory.
    pub const fn byte(self) -> u8 {
        match self {
            Poison::Nan => 0xFF,
            Poison::Huge => 0x7B,
        }
    }
}

/// A case with its buffers on a device.
pub trait Problem {
    /// Poisons every output, restores the inputs, runs the candidate once, and reads the outputs back after the
    /// guard bands and the inputs were found untouched.
    ///
    /// # Errors
    /// Whatever the candidate did wrong.
    fn run(&mut self, poison: Poison) -> Result<Vec<Tensor>, Fault>;

    /// Runs once and keeps the outputs for later comparison; neither they nor bands and inputs are looked at. For candidates
    /// that are known to be right, at sizes of which reading everything back takes far longer than the run.
    ///
    /// # Errors
    /// As [`Problem::run`], as far as it is seen.
    fn run_unread(&mut self) -> Result<(), Fault> {
        self.run(Poison::Nan).map(drop)
    }

    /// [`Problem::run`] on other inputs of the same extents, in the very buffers of the case; these are its inputs from now on.
    ///
    /// # Errors
    /// As [`Problem::run`]; [`Fault::Unsupported`] where the inputs of a case stay what they are.
    fn run_on(&mut self, _inputs: &[Tensor], _poison: Poison) -> Result<Vec<Tensor>, Fault> {
        Err(Fault::Unsupported("the inputs of this case stay what they are".into()))
    }

    /// Runs once more with everything that a device may lawfully do otherwise (approximate operations, the order of
    /// sums in matrix operations) done otherwise: the outputs may then have other bits and must still be right. `None`
    /// on a device that has no choice.
    ///
    /// # Errors
    /// As [`Problem::run`].
    fn run_varied(&mut self) -> Result<Option<Vec<Tensor>>, Fault> {
        Ok(None)
    }

    /// Runs once more under another poison, and says whether the outputs have the bits of the last [`Problem::run`].
    ///
    /// # Errors
    /// As [`Problem::run`].
    fn agrees_under(&mut self, poison: Poison) -> Result<bool, Fault>;

    /// Runs `times` more launches back to back on the same inputs and returns how many gave outputs that differ in
    /// any bit from those of the last [`Problem::run`].
    ///
    /// # Errors
    /// As [`Problem::run`].
    fn repeat(&mut self, times: usize) -> Result<usize, Fault>;

    /// Runs once and counts the work, where the device can.
    ///
    /// # Errors
    /// As [`Problem::run`]; [`Fault::Unsupported`] on a device that has a clock instead.
    fn count(&mut self) -> Result<counts::Counts, Fault> {
        Err(Fault::Unsupported("only the simulator counts work".into()))
    }

    /// A [hash](crate::toolchain::code::code_of) of the kernels and their launches; `None` of host code, which may enqueue anything.
    fn code(&self) -> Option<String> {
        None
    }

    /// Gets ready to be timed, as `plan` says: buffers to rotate through, batches recorded. Returns the number of
    /// recorded instances.
    ///
    /// # Errors
    /// As [`Problem::run`]; also when the buffers do not fit.
    fn arm(&mut self, plan: &TimingPlan) -> Result<usize, Fault>;

    /// Times one batch of instance `instance`.
    ///
    /// # Errors
    /// As [`Problem::run`].
    fn sample(&mut self, instance: usize) -> Result<Sample, Fault>;

    /// After timing: whether what timed launches left behind was right. Between batches, outside the clock, outputs are
    /// poisoned and inputs replaced by others; launches on the inputs of the case must give the bits of the last
    /// [`Problem::run`], and a launch that is run again must give the same bits again.
    ///
    /// # Errors
    /// As [`Problem::run`].
    fn timed_outputs_agree(&mut self) -> Result<bool, Fault>;

    /// After timing: what a timed launch made of the inputs of the case, where one was kept. Of a candidate whose bits may
    /// differ these are judged by value.
    ///
    /// # Errors
    /// As [`Problem::run`].
    fn timed_outputs(&mut self) -> Result<Option<Vec<Tensor>>, Fault> {
        Ok(None)
    }
}

/// How a problem is to be timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimingPlan {
    /// Whether each launch finds its data in the caches.
    pub heat: Heat,
    /// Whether a run may begin before the one ahead of it has ended, if its first launch is a dependent one: as in a model,
    /// where another launch is ahead. A run then takes what it adds.
    pub chained: bool,
    /// How long a batch should take at the least, µs.
    pub batch_us: f64,
    /// How many batches to record: each has a small offset of its own, so several are mixed.
    pub instances: usize,
    /// Time to add to each launch, µs, as a planted slowdown.
    pub planted_us: f64,
    /// For about how long it will be sampled: what that cannot reach need not be prepared.
    pub session: Duration,
}

/// The state of the caches before a timed launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Heat {
    /// Launches rotate through more buffers than the last-level cache holds.
    Cold,
    /// One buffer set, used again and again.
    Hot,
}

impl Heat {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Heat::Cold => "cold",
            Heat::Hot => "hot",
        }
    }
}

/// One timed batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time a launch, µs.
    pub launch_us: f64,
    /// The core clock seen just before the batch, where the device can tell.
    pub clock_mhz: Option<f64>,
}
