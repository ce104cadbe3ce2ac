//! The chain and its stages alone, all tiers of both, timed in one session in random order.

use crate::check::Subject;
use crate::check::armed::armed;
use crate::check::perf::PerfSettings;
use crate::core::dtype::DType;
use crate::core::shape::{Point, Shape as _, describe};
use crate::core::suite::Suite;
use crate::device::{Device, DeviceKind, Heat};
use crate::measure::lock::DeviceLock;
use crate::measure::series::Summary;
use crate::measure::session::{Contestant, SessionSettings, measure};
use crate::models::{CHAINS, Chain, STAGES, Stages, Tier, chain_suite, stage_points};
use crate::report::workloads::{Exchange, RunTime, Stage, VERSION, WorkloadRun};
use std::time::Duration;

/// The tiers of a stage, in the order of the columns.
pub const TIERS: [Tier; 3] = [Tier::Naive, Tier::Library, Tier::Best];

/// How long each of the stages and chains is sampled on a CPU, unless said otherwise.
const HOST_SAMPLING: Duration = Duration::from_millis(600);

/// What is measured where.
pub struct Bench<'d> {
    device: &'d dyn Device,
    dtype: DType,
    seed: u64,
    /// How the chain and its stages are sampled, for one of them.
    settings: SessionSettings,
    chain: Suite,
    stages: Vec<Suite>,
}

/// The times of one size.
pub struct Measured {
    /// The size.
    pub size: Chain,
    /// The key of the device, and the dtype.
    pub device: String,
    /// As above.
    pub dtype: DType,
    /// Of each stage, its tiers.
    pub stages: Vec<[Time; 3]>,
    /// Of each chain of [`CHAINS`].
    pub chains: Vec<Time>,
}

/// A time, µs.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// 5 of 100 are shorter: what it takes where nobody disturbs it.
    pub p5_us: f64,
    /// The median.
    pub p50_us: f64,
    /// 95 of 100 are shorter.
    pub p95_us: f64,
}

impl From<Summary> for Time {
    fn from(summary: Summary) -> Self {
        Time { p5_us: summary.p5_us, p50_us: summary.median_us, p95_us: summary.p95_us }
    }
}

impl<'d> Bench<'d> {
    /// The chain and its stages in one dtype, each sampled for so long.
    ///
    /// # Errors
    /// When they do not run in it.
    pub fn new(device: &'d dyn Device, dtype: DType, seed: u64, sampling: Option<Duration>) -> Result<Self, String> {
        let chain = chain_suite();
        if !chain.dtypes.contains(&dtype) {
            return Err(format!("--dtype {dtype}: the chain runs in f32 and bf16"));
        }
        let mut all = crate::ops::catalogue();
        let stages = STAGES.map(|stage| {
            let at = all.iter().position(|suite| suite.operator.name() == stage);
            at.map(|at| all.swap_remove(at)).ok_or_else(|| format!("no operator `{stage}` in the catalogue"))
        });
        let mut settings = PerfSettings::of(device.kind()).session;
        if device.kind() == DeviceKind::Cpu {
            // Undisturbed times are few where others share the processor.
            settings.stopping.budget = HOST_SAMPLING;
            settings.stopping.max_rounds = usize::MAX;
        }
        settings.stopping.budget = sampling.unwrap_or(settings.stopping.budget);
        Ok(Bench { device, dtype, seed, settings, chain, stages: stages.into_iter().collect::<Result<_, _>>()? })
    }

    /// The names of a tier's candidates, the first that there is.
    fn names(&self, tier: Tier) -> &'static [&'static str] {
        match (self.device.kind(), tier) {
            (DeviceKind::Cpu, Tier::Naive) => &["naive"],
            (DeviceKind::Cpu, Tier::Library) => &["library", "tiled"],
            (DeviceKind::Cpu, Tier::Best) => &["tiled"],
            (_, Tier::Naive) => &["lesson1_naive"],
            (_, Tier::Library) => &["cublaslt", "cudnn", "cuda"],
            (_, Tier::Best) => &["cuda"],
        }
    }

    /// Verifies and arms a candidate, the first of these names that computes in the dtype.
    fn contestant(&self, suite: &Suite, names: &[&str], point: &Point) -> Result<Contestant<'d>, String> {
        let found = names.iter().find_map(|name| {
            suite.candidates.iter().find(|other| other.name == *name && other.traits.computes(self.dtype))
        });
        let (operator, dtype) = (&*suite.operator, self.dtype);
        let candidate =
            found.ok_or_else(|| format!("{}: no `{}` in {dtype}", operator.name(), names.join("` or `")))?;
        let subject = Subject { operator, candidate, dtype };
        // Within a chain a stage finds what the one before has left in the caches.
        armed(self.device, &subject, point, Heat::Hot, self.seed)
    }

    /// Times one size.
    ///
    /// # Errors
    /// What could not be prepared, or failed.
    pub fn measure(&self, size: &Chain) -> Result<Measured, String> {
        let _lock = DeviceLock::acquire(&self.device.fingerprint().key()).map_err(|why| why.to_string())?;
        let mut contestants = Vec::new();
        for (suite, point) in self.stages.iter().zip(stage_points(size)) {
            for tier in TIERS {
                contestants.push(self.contestant(suite, self.names(tier), &point)?);
            }
        }
        let prefix = if self.device.kind() == DeviceKind::Cpu { "" } else { "cuda_" };
        for (name, _) in CHAINS {
            contestants.push(self.contestant(&self.chain, &[&format!("{prefix}{name}")], &size.to_point())?);
        }
        let settings = self.settings.shared_with(contestants.len());
        let measurement = measure(&mut contestants, &settings, self.seed).map_err(|fault| fault.to_string())?;
        let times: Vec<Time> = (0..contestants.len()).map(|at| measurement.summary(at).into()).collect();
        let (stages, chains) = times.split_at(STAGES.len() * TIERS.len());
        Ok(Measured {
            size: size.clone(),
            device: self.device.fingerprint().key(),
            dtype: self.dtype,
            stages: stages.as_chunks().0.to_vec(),
            chains: chains.to_vec(),
        })
    }
}

impl Measured {
    /// The time of the stages of a chain together, each alone. Here and in what follows from it undisturbed times count: what
    /// a scheduler takes away it takes from long stages more than from short ones.
    fn sum_us(&self, stages: Stages) -> f64 {
        self.stages_of(stages).map(|time| time.p5_us).sum()
    }

    fn stages_of(&self, stages: Stages) -> impl Iterator<Item = &Time> {
        let column = |tier: Tier| TIERS.iter().position(|other| *other == tier).unwrap_or(0);
        self.stages.iter().zip(stages).map(move |(times, tier)| &times[column(tier)])
    }

    /// What exchanging stages of the naive chain brings: by Amdahl's law from the stages alone, and by the clock.
    pub fn exchange(&self, chain: usize) -> Exchange {
        Exchange {
            predicted: self.sum_us(CHAINS[0].1) / self.sum_us(CHAINS[chain].1),
            measured: self.chains[0].p5_us / self.chains[chain].p5_us,
        }
    }

    /// The shares of its stages in a chain.
    pub fn shares(&self, stages: Stages) -> Vec<f64> {
        let sum = self.sum_us(stages);
        self.stages_of(stages).map(|time| time.p5_us / sum).collect()
    }

    /// Rows of the chain a second.
    pub fn per_s(&self, time: Time) -> f64 {
        self.size.rows as f64 / time.p50_us * 1e6
    }

    /// A record a chain.
    pub fn runs(&self) -> Vec<WorkloadRun> {
        let run = |(at, (name, stages)): (usize, &(&str, Stages))| {
            let time = self.chains[at];
            let alone = STAGES.iter().zip(self.stages_of(*stages)).zip(self.shares(*stages));
            let stage = |((operator, time), share): ((&&str, &Time), f64)| Stage {
                operator: (*operator).into(),
                p50_us: time.p50_us,
                share,
            };
            WorkloadRun {
                version: VERSION,
                workload: "chain".into(),
                variant: (*name).into(),
                device: self.device.clone(),
                dtype: self.dtype.name().into(),
                shape: describe(&Chain::axes(), &self.size.to_point()),
                time: Some(RunTime { p50_us: time.p50_us, p95_us: time.p95_us, per_s: self.per_s(time) }),
                accuracy: None,
                stages: alone.map(stage).collect(),
                exchange: (at > 0).then(|| self.exchange(at)),
                skipped: None,
            }
        };
        CHAINS.iter().enumerate().map(run).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_that_is_the_sum_of_its_stages_is_predicted() {
        let time = |p50_us: f64| Time { p5_us: p50_us, p50_us, p95_us: p50_us };
        let stages = vec![[70.0, 10.0, 7.0].map(time), [20.0, 20.0, 5.0].map(time), [10.0, 10.0, 4.0].map(time)];
        let chains = [100.0, 40.0, 16.0, 37.0, 85.0, 94.0].map(time).to_vec();
        let size = Chain { rows: 8, inner: 4, cols: 2 };
        let measured = Measured { size, device: "d".into(), dtype: DType::F32, stages, chains };
        for chain in 1..CHAINS.len() {
            let Exchange { predicted, measured } = measured.exchange(chain);
            approx::assert_relative_eq!(predicted, measured, max_relative = 1e-12);
        }
        assert_eq!(measured.shares(CHAINS[0].1), [0.7, 0.2, 0.1]);
        let runs = measured.runs();
        assert_eq!((runs[0].exchange, runs[2].stages[0].p50_us), (None, 7.0));
        assert_eq!(runs[2].time.unwrap().per_s, 0.5e6);
    }
}
