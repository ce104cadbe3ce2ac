//! `kernelgate bench`: times candidates of the catalogue, with no baseline in sight.

use super::selection::{Selection, describe_device};
use super::{Failure, print, project};
use crate::check::Context;
use crate::check::outcome::{Check, Outcome, Timing, Verdict};
use crate::check::perf::{self, PerfSettings};
use crate::device::Heat;
use crate::report::record::Record;
use clap::Args;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Arguments of `bench`.
#[derive(Args)]
pub struct Bench {
    #[command(flatten)]
    selection: Selection,
    /// Keep the data in the caches between launches
    #[arg(long)]
    hot: bool,
    /// Seconds that a candidate may spend on starting new shapes
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    budget: u64,
    /// Print the summary as JSON; the table goes to stderr
    #[arg(long)]
    json: bool,
    /// Where the summary goes [default: nowhere]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

impl Bench {
    /// Measures, printing a row as soon as it is known.
    pub fn run(self) -> Result<(), Failure> {
        let say = |line: String| {
            if !self.json {
                return print(&line);
            }
            eprint!("{line}");
            Ok(())
        };
        let mut records = Vec::new();
        let mut device_said = None;
        let mut summary = self.selection.each(|trial, subject, device, point| {
            if device_said.replace(device.kind()) != Some(device.kind()) {
                say(format!("\n{}\n{}", describe_device(device.fingerprint()), header()))?;
            }
            let heat = if self.hot { Heat::Hot } else { Heat::Cold };
            let settings = PerfSettings { heat, only: point.cloned(), ..PerfSettings::of(device.kind()) };
            let context = Context::new(device, self.selection.seed, Duration::from_secs(self.budget));
            let start = Instant::now();
            let outcome = perf::run(&context, subject, &settings);
            let name = trial.name.trim_end_matches("::perf");
            outcome.timings.iter().try_for_each(|timing| say(row(name, timing)))?;
            if outcome.timings.is_empty() || outcome.verdict.is_failure() {
                say(format!("{name}: {}: {}\n", outcome.verdict.name(), outcome.reason))?;
            }
            records.push(Record {
                trial: trial.name.clone(),
                operator: subject.operator.name().into(),
                candidate: subject.candidate.name.clone(),
                dtype: trial.dtype,
                check: Check::Perf,
                device: device.kind(),
                fingerprint: Some(device.fingerprint().key()),
                duration_s: start.elapsed().as_secs_f64(),
                repeat: project().repeat_command(&trial.name, ""),
                outcome,
            });
            Ok(())
        })?;
        let failed = |outcome: &Outcome| outcome.verdict.is_failure();
        let any_failed = records.iter().any(|record| failed(&record.outcome));
        summary.add(records);
        if let Some(out) = &self.out {
            summary.write(out).map_err(Failure::Input)?;
        }
        if self.json {
            print(&summary.to_json())?;
        }
        if any_failed { Err(Failure::Verdict) } else { Ok(()) }
    }
}

fn header() -> String {
    format!(
        "{:<32} {:<28} {:>11} {:>7} {:>8} {:>9} {:>9}\n",
        "candidate", "shape", "median µs", "± %", "GB/s", "Gflop/s", "ceiling"
    )
}

/// One timed shape.
fn row(name: &str, timing: &Timing) -> String {
    let per_second = |amount: usize| amount as f64 / timing.median_us * 1e-3;
    let half_width = (timing.high_us - timing.low_us) / 2.0 / timing.median_us * 100.0;
    let ceiling = timing.of_ceiling.map_or_else(|| "-".into(), |share| format!("{:.0} %", share * 100.0));
    let doubt = if timing.verdict == Verdict::Pass { "" } else { timing.verdict.name() };
    let text = format!(
        "{name:<32} {:<28} {:>11.3} {half_width:>7.2} {:>8.1} {:>9.1} {ceiling:>9} {doubt}",
        timing.shape,
        timing.median_us,
        per_second(timing.bytes),
        per_second(timing.flops),
    );
    format!("{}\n", text.trim_end())
}
