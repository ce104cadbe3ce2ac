//! `kernelgate ab`: two builds of a gate on one device, case by case, without any stored time.

use super::{Failure, print, project};
use crate::baseline::BaselineSettings;
use crate::check::builds::{BuildCase, BuildComparison, Duel, Matched, Tally, matched};
use crate::check::outcome::{Check, Verdict};
use crate::check::perf::PerfSettings;
use crate::core::dtype::DType;
use crate::core::environment;
use crate::core::seed::DEFAULT_SEED;
use crate::core::seed::parse as parse_seed;
use crate::device::fingerprint::Fingerprint;
use crate::device::{DeviceKind, Heat};
use crate::harness::arguments::{DeviceChoice, only_dtypes, parse_seconds};
use crate::harness::lane::Lanes;
use crate::harness::plant::Plant;
use crate::harness::progress::{Progress, Quiet};
use crate::harness::terminal::note;
use crate::measure::lock::DeviceLock;
use crate::measure::threshold::NoiseTable;
use crate::protocol::process::CommandLine;
use crate::protocol::{Deadlines, Peer};
use crate::report::builds::table;
use crate::report::summary::Summary;
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Arguments of `ab`.
#[derive(Args)]
pub struct Ab {
    /// Only candidates whose name contains one of these: gelu, gelu::cuda, ::bf16::
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    /// The build to compare with: a folder that ci/bundle.sh made, or a gate binary
    #[arg(long, value_name = "BUNDLE")]
    base: PathBuf,
    /// The build to judge
    #[arg(long, value_name = "BUNDLE")]
    head: PathBuf,
    /// Where kernels run: cpu, cuda or cuda:N; with cpu they are left out, with cuda only they are compared
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// Run only these dtypes
    #[arg(long = "dtype", value_name = "DTYPE,…", help = only_dtypes(), value_delimiter = ',')]
    dtypes: Vec<DType>,
    /// Only this shape instead of those that the gates list: rows=8192,cols=4096; may be given several times
    #[arg(long = "shape", value_name = "AXIS=N,…")]
    shapes: Vec<String>,
    /// Keep the data in the caches between launches
    #[arg(long)]
    hot: bool,
    /// Seconds after which no new case is begun
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    budget: Option<Duration>,
    /// Seconds that a build may take to start and to get ready for a case
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "120")]
    deadline: Duration,
    /// Compare each case so often: how many verdicts are wrong when both builds are the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: usize,
    /// Plant a slowdown in head, to see it found: softmax::cuda::f32=0.02
    #[arg(long, value_name = "[FILTER=]SHARE")]
    plant: Option<Plant>,
    /// The seed of the inputs and of the order of measurements
    #[arg(long, value_name = "N", value_parser = parse_seed, default_value_t = DEFAULT_SEED, hide_default_value = true)]
    seed: u64,
    /// List cases that stayed the same too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    quiet: Quiet,
    /// Print the summary as JSON; the Markdown goes to stderr
    #[arg(long)]
    json: bool,
    /// Where the summary goes, and the Markdown beside it as .md [default: nowhere]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

impl Ab {
    /// Compares all cases; a slower one, or one that head fails, is a failed verdict.
    pub fn run(self) -> Result<(), Failure> {
        let (base, head) = (self.start(&self.base, None)?, self.start(&self.head, self.plant.as_ref())?);
        let mut summary = Summary::new(project().describe_run(self.seed));
        summary.builds = self.compare(&base, &head, &mut summary)?;
        base.close();
        head.close();

        let markdown = table(&summary.builds, self.all) + &self.planted(&summary.builds);
        if let Some(out) = &self.out {
            summary.write(out)?;
            let beside = out.with_extension("md");
            std::fs::write(&beside, &markdown).map_err(|e| Failure::Input(format!("{}: {e}", beside.display())))?;
        }
        if self.json {
            note(format_args!("{}", markdown.trim_end_matches('\n')));
            print(&summary.to_json())?;
        } else {
            print(&markdown)?;
        }
        if summary.builds.iter().any(|comparison| comparison.verdict.is_failure()) {
            return Err(Failure::Verdict);
        }
        Ok(())
    }

    /// Starts a build as a server.
    fn start(&self, build: &Path, plant: Option<&Plant>) -> Result<Peer, Failure> {
        let peer = Peer::start(self.command(build, plant)?, Deadlines::of(self.deadline));
        match peer.hello() {
            Ok(hello) => {
                note(format_args!("{}: {}, {}", build.display(), hello.name, hello.about));
                Ok(peer)
            }
            Err(end) => Err(Failure::Missing(format!("{}: it {end}", build.display()))),
        }
    }

    fn command(&self, build: &Path, plant: Option<&Plant>) -> Result<CommandLine, Failure> {
        let there = std::fs::canonicalize(build).map_err(|e| Failure::Input(format!("{}: {e}", build.display())))?;
        let is_bundle = there.is_dir();
        let gate = if is_bundle { there.join("bin/gate") } else { there.clone() };
        if !gate.is_file() {
            let why = "holds no bin/gate: give a folder that ci/bundle.sh made, or a gate binary";
            return Err(Failure::Input(format!("{}: {why}", build.display())));
        }
        let mut words: Vec<OsString> = vec![gate.into(), "--serve".into()];
        if let Some(device) = self.device {
            words.extend(["--device".into(), device.to_string().into()]);
        }
        if let Some(plant) = plant {
            words.extend(["--plant".into(), plant.to_string().into()]);
        }
        words.extend(self.filters.iter().map(OsString::from));
        let mut environment: Vec<(OsString, OsString)> = Vec::new();
        if is_bundle {
            environment.push((environment::CACHE.into(), there.join("kernels").into()));
            environment.push((environment::ROOT.into(), there.into()));
        }
        Ok(CommandLine { words, environment })
    }

    fn compare(&self, base: &Peer, head: &Peer, summary: &mut Summary) -> Result<Vec<BuildComparison>, Failure> {
        let hello = |peer: &Peer| peer.hello().cloned().map_err(|end| Failure::Missing(end.to_string()));
        let (of_base, of_head) = (hello(base)?, hello(head)?);
        let begun = Instant::now();
        let is_over = || self.budget.is_some_and(|budget| begun.elapsed() >= budget);
        let mut found = Vec::new();
        let lanes = Lanes::default();
        let mut matched = matched(&of_base, &of_head, &self.dtypes, &self.shapes);
        if self.device.is_some_and(|choice| choice.kind == DeviceKind::Cuda) {
            matched.retain(|case| case.device == DeviceKind::Cuda);
        }
        if matched.is_empty() {
            let is_asked = !self.filters.is_empty() || !self.dtypes.is_empty() || !self.shapes.is_empty();
            let why = "no timed candidate of either build fits the filters, --dtype and --shape; `--list` of a gate names all";
            let none = "neither build offers such a candidate on a device of this machine";
            return Err(if is_asked { Failure::Input(why.into()) } else { Failure::Missing(none.into()) });
        }
        let is_planted = |plant: &Plant| matched.iter().any(|one| plant.share_of(&trial_of(&one.case)) > 0.0);
        if let Some(plant) = self.plant.as_ref().filter(|plant| !is_planted(plant)) {
            return Err(Failure::Input(format!("--plant {plant}: no case that is compared has such a name")));
        }
        let progress = Progress::of(matched.len(), self.quiet);
        for (at, Matched { case, device, in_base, in_head }) in matched.into_iter().enumerate() {
            progress.reach(at);
            let fingerprint = [&of_head, &of_base].into_iter().flat_map(|hello| &hello.devices);
            let fingerprint = fingerprint.filter(|note| note.kind == device).find_map(|note| note.fingerprint.clone());
            let key = fingerprint.as_ref().map_or_else(|| device.name().into(), Fingerprint::key);
            let name = format!("{} {}", case.name(), case.shape);
            progress.say(&name);
            let none = |reason: &str| BuildComparison::none(case.clone(), key.clone(), Verdict::Skip, reason.into());
            if !(in_base && in_head) {
                found.push(none(if in_head { "only in head" } else { "only in base" }));
                continue;
            }
            if is_over() {
                found.push(none("the budget is spent"));
                continue;
            }
            let noise = self.noise_folder();
            let noise = NoiseTable::load(&noise, &key, device).map_err(Failure::Input)?;
            let settings =
                PerfSettings { heat: if self.hot { Heat::Hot } else { Heat::Cold }, ..PerfSettings::of(device) };
            let _turn = lanes.enter(Check::Perf, device).map_err(Failure::Input)?;
            let _lock = DeviceLock::acquire(&key).map_err(|e| Failure::Input(format!("the device lock: {e}")))?;
            if let Some(fingerprint) = &fingerprint {
                summary.add_device(fingerprint);
            }
            match Duel::prepare([base, head], &case, (device, &key), self.seed) {
                Ok(duel) => {
                    for turn in 0..self.repeat {
                        let comparison = duel.compare(&settings, &noise, turn);
                        say(&name, &comparison);
                        let ended = comparison.base_us.is_none();
                        found.push(comparison);
                        if ended || is_over() {
                            break;
                        }
                    }
                }
                Err(comparison) => {
                    say(&name, &comparison);
                    found.push(*comparison);
                }
            }
        }
        Ok(found)
    }

    /// The noise tables: those of the judged bundle, or those of this project.
    fn noise_folder(&self) -> PathBuf {
        let root = if self.head.is_dir() { self.head.clone() } else { project().folder };
        BaselineSettings::new(root).noise_folder()
    }

    /// With a planted slowdown: how often it was found, and how often something else was.
    fn planted(&self, comparisons: &[BuildComparison]) -> String {
        let Some(plant) = &self.plant else { return String::new() };
        let trial = |comparison: &&BuildComparison| plant.share_of(&trial_of(&comparison.case)) > 0.0;
        let (hit, rest): (Vec<_>, Vec<_>) = comparisons.iter().partition(trial);
        let (hit, rest) = (Tally::of(hit), Tally::of(rest));
        format!(
            "\nplanted {plant}: {} of {} found; of the {} others {} were called slower and {} faster, {} unclear\n",
            hit.slower, hit.compared, rest.compared, rest.slower, rest.faster, rest.unclear
        )
    }
}

/// The trial that times a case.
fn trial_of(case: &BuildCase) -> String {
    format!("{}::perf", case.name())
}

/// Progress, for whoever waits.
fn say(name: &str, comparison: &BuildComparison) {
    let ratio = comparison.ratio.map_or_else(|| comparison.reason.clone(), |ratio| format!("{ratio:.4}"));
    note(format_args!("{:<8} {name}: {ratio}", comparison.verdict.name()));
}
