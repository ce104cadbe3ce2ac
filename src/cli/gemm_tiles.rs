//! `kernelgate gemm-tiles`: times every tile of gemm's kernels for compute capability 9.0a and writes the table by which one is
//! chosen.

use super::{Failure, project};
use crate::check::perf::{self, PerfSettings};
use crate::check::{Context, Subject};
use crate::core::dtype::DType;
use crate::core::seed::DEFAULT_SEED;
use crate::core::shape::parse;
use crate::device::DeviceKind;
use crate::harness::arguments::DeviceChoice;
use crate::harness::devices::Devices;
use crate::harness::progress::{Progress, Quiet};
use crate::harness::terminal::note;
use crate::ops::gemm::tuning::{self, Timed};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `gemm-tiles`.
#[derive(Args)]
pub struct GemmTiles {
    /// Where kernels run: cuda or cuda:N
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// Where the table goes [default: src/ops/gemm/tiles.json of the project]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    #[command(flatten)]
    quiet: Quiet,
}

impl GemmTiles {
    /// Measures, fits and writes.
    pub fn run(self) -> Result<(), Failure> {
        /// Time that the shapes of a tile may take.
        const OF_TILE: Duration = Duration::from_secs(120);
        let devices = Devices::new(self.device, true);
        let device = devices.for_kind(DeviceKind::Cuda).map_err(Failure::Missing)?;
        let suite = tuning::suite();
        let operator = suite.operator.as_ref();
        let mut timed = Vec::new();
        let progress = Progress::of(suite.candidates.len(), self.quiet);
        for candidate in &suite.candidates {
            progress.say(&candidate.name);
            let subject = Subject { operator, candidate, dtype: DType::BF16 };
            let settings = PerfSettings { only: tuning::points(&candidate.name), ..PerfSettings::of(device.kind()) };
            let outcome = perf::run(&Context::new(device, DEFAULT_SEED, OF_TILE), &subject, &settings);
            if outcome.timings.len() < settings.only.len() {
                let why = [outcome.reason].into_iter().chain(outcome.notes).collect::<Vec<_>>().join("; ");
                return Err(Failure::Missing(format!("times of {}: {why}", candidate.name)));
            }
            for timing in outcome.timings {
                note(format_args!("{:<18} {:<24} {:>9.2} µs", candidate.name, timing.shape, timing.median_us));
                let point = parse(operator.axes(), &timing.shape).map_err(Failure::Input)?;
                timed.push(Timed { tile: candidate.name.clone(), point, us: timing.median_us });
            }
            progress.step();
        }
        let table = tuning::table(&device.fingerprint().name, &timed);
        let out = self.out.unwrap_or_else(|| project().folder.join("src/ops/gemm/tiles.json"));
        let text = serde_json::to_string_pretty(&table).map_err(|error| Failure::Input(error.to_string()))?;
        std::fs::write(&out, text + "\n").map_err(|error| Failure::Input(format!("{}: {error}", out.display())))?;
        note(format_args!("{} written", out.display()));
        Ok(())
    }
}
