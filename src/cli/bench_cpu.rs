//! `kernelgate bench-cpu`: gemm, softmax, layernorm and the chain of them on the CPU over a list of sizes, tier beside
//! tier, and beside NumPy and Numba.

use super::chain::{parse_size, size as text_of};
use super::{Failure, print, project};
use crate::check::beside::Competition;
use crate::check::outcome::Check;
use crate::check::perf::{self, PerfSettings};
use crate::check::{Context, Subject};
use crate::core::candidate::Candidate;
use crate::core::dtype::DType;
use crate::core::place::Place;
use crate::core::seed::DEFAULT_SEED;
use crate::core::shape::{Point, Shape as _};
use crate::core::suite::Suite;
use crate::device::cpu::CpuDevice;
use crate::device::{Device, DeviceKind};
use crate::harness::arguments::parse_seconds;
use crate::harness::command::{describe_device, header, peer_row, row};
use crate::harness::progress::{Progress, Quiet};
use crate::harness::terminal::note;
use crate::models::{Chain, STAGES, chain_suite, stage_points};
use crate::protocol::{Deadlines, Peer, process::CommandLine};
use crate::report::record::Record;
use crate::report::summary::Summary;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Arguments of `bench-cpu`.
#[derive(Args)]
pub struct BenchCpu {
    /// The sizes: N for N by N all along, or ROWSxINNERxCOLS
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_size, default_value = "64,256,512")]
    sizes: Vec<Chain>,
    /// Write the summary's table here too, as CSV
    #[arg(long, value_name = "PATH")]
    csv: Option<PathBuf>,
    /// Time that the sampling of a shape may take, beside each other contestant once more [default: as in the gate]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    sampling: Option<Duration>,
    /// Print the summary as JSON; the table goes to stderr
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    quiet: Quiet,
    /// Where the summary goes [default: nowhere]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

/// For starting a session; what was started is finished.
const BUDGET: Duration = Duration::from_secs(600);
/// How long Python may take to start and to compile.
const DEADLINE: Duration = Duration::from_secs(120);

/// An operator with the tiers that are timed: the first is the subject, the others stand beside it.
struct Timed {
    suite: Suite,
    tiers: [&'static str; 3],
}

impl BenchCpu {
    /// Times everything, printing a row as soon as it is known.
    pub fn run(self) -> Result<(), Failure> {
        let bench = &self;
        let device = CpuDevice::new();
        let say = |text: String| {
            if !bench.json {
                return print(&text);
            }
            note(format_args!("{}", text.trim_end_matches('\n')));
            Ok(())
        };
        let peers: Vec<Peer> = python().into_iter().collect();
        let mut summary = Summary::new(project().describe_run(DEFAULT_SEED));
        summary.add_device(device.fingerprint());
        say(format!("\n{}\n{}", describe_device(device.fingerprint()), header()))?;
        let timed = operators().map_err(Failure::Input)?;
        let progress = Progress::of(timed.len() * bench.sizes.len(), bench.quiet);
        for (one, size) in timed.iter().flat_map(|one| bench.sizes.iter().map(move |size| (one, size))) {
            progress.say(&format!("{} {}", one.suite.operator.name(), text_of(size)));
            let record = one.measure(&device, bench, &peers, size)?;
            progress.step();
            let name = record.trial.trim_end_matches("::perf");
            for timing in &record.outcome.timings {
                say(row(name, timing))?;
                timing.peers.iter().try_for_each(|peer| say(peer_row(peer)))?;
            }
            if record.outcome.timings.is_empty() || record.outcome.verdict.is_failure() {
                say(format!("{name}: {}: {}\n", record.outcome.verdict.name(), record.outcome.reason))?;
            }
            keep(&mut summary, record);
            // After each size: what was measured outlives whatever ends this process.
            if let Some(out) = &bench.out {
                summary.write(out)?;
            }
            bench.write_table(&summary)?;
        }
        peers.into_iter().for_each(Peer::close);
        if bench.json {
            print(&summary.to_json())?;
        }
        let has_failed = summary.records.iter().any(|record| record.outcome.verdict.is_failure());
        if has_failed { Err(Failure::Verdict) } else { Ok(()) }
    }

    /// The summary as a table, where one was asked for.
    fn write_table(&self, summary: &Summary) -> Result<(), Failure> {
        let Some(path) = &self.csv else { return Ok(()) };
        let table = crate::report::csv::table(summary).map_err(Failure::Input)?;
        let mut place = Place::of(path)?;
        place.write(&table).map_err(|e| Failure::Input(format!("{}: {e}", path.display())))
    }
}

/// Sizes of one operator are one record.
fn keep(summary: &mut Summary, mut record: Record) {
    if let Some(before) = summary.records.iter().find(|before| before.identity() == record.identity()) {
        let mut timings = before.outcome.timings.clone();
        timings.append(&mut record.outcome.timings);
        record.outcome.timings = timings;
        record.outcome.cases += before.outcome.cases;
        record.duration_s += before.duration_s;
        if before.outcome.verdict.is_failure() {
            (record.outcome.verdict, record.outcome.reason) = (before.outcome.verdict, before.outcome.reason.clone());
        }
    }
    summary.add(vec![record]);
}

/// NumPy and Numba, where they are installed.
fn python() -> Option<Peer> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/numpy_peer.py");
    let command = CommandLine::parse(&format!("python3 {} --library numpy,numba", script.display())).ok()?;
    let peer = Peer::start(command, Deadlines::of(DEADLINE));
    match peer.hello() {
        Ok(hello) => note(format_args!("peer {}: {}", hello.name, hello.about)),
        Err(end) => {
            note(format_args!("NumPy and Numba take no part: the peer {end}"));
            return None;
        }
    }
    Some(peer)
}

fn operators() -> Result<Vec<Timed>, String> {
    let mut all = crate::ops::catalogue();
    let mut timed = Vec::new();
    for stage in STAGES {
        let at = all.iter().position(|suite| suite.operator.name() == stage);
        let suite = all.swap_remove(at.ok_or_else(|| format!("no operator `{stage}` in the catalogue"))?);
        timed.push(Timed { suite, tiers: ["tiled", "library", "naive"] });
    }
    timed.push(Timed { suite: chain_suite(), tiers: ["best", "library", "naive"] });
    Ok(timed)
}

impl Timed {
    fn point(&self, size: &Chain) -> Point {
        let stage = STAGES.iter().position(|stage| *stage == self.suite.operator.name());
        stage.map_or_else(|| size.to_point(), |stage| stage_points(size)[stage].clone())
    }

    fn measure(&self, device: &CpuDevice, bench: &BenchCpu, peers: &[Peer], size: &Chain) -> Result<Record, Failure> {
        let tier = |name: &&str| {
            let fits = |other: &&Candidate| other.name == **name && other.traits.computes(DType::F32);
            self.suite.candidates.iter().find(fits)
        };
        let candidates: Vec<&Candidate> = self.tiers.iter().filter_map(tier).collect();
        let operator = &*self.suite.operator;
        let (candidate, beside) = candidates
            .split_first()
            .ok_or_else(|| Failure::Input(format!("{}: no `{}`", operator.name(), self.tiers[0])))?;
        let subject = Subject { operator, candidate, dtype: DType::F32 };
        let mut settings = PerfSettings { only: vec![self.point(size)], ..PerfSettings::of(DeviceKind::Cpu) };
        settings.session.stopping.budget = bench.sampling.unwrap_or(settings.session.stopping.budget);
        let start = Instant::now();
        let context = Context::new(device, DEFAULT_SEED, BUDGET);
        let outcome = perf::run_beside(&context, &subject, &settings, Competition { peers, candidates: beside });
        let trial = format!("{}::{}::f32::perf", operator.name(), candidate.name);
        Ok(Record {
            repeat: project().repeat_command(&trial, ""),
            trial,
            operator: operator.name().into(),
            candidate: candidate.name.clone(),
            dtype: DType::F32,
            check: Check::Perf,
            device: DeviceKind::Cpu,
            fingerprint: Some(device.fingerprint().key()),
            source: None,
            duration_s: start.elapsed().as_secs_f64(),
            outcome,
        })
    }
}
