//! The arguments of a gate: libtest's, as libtest-mimic has them, and our own.

use super::plant::Plant;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::environment;
use crate::core::seed::{DEFAULT_SEED, parse as parse_seed};
use crate::device::DeviceKind;
use clap::{Args, Parser, ValueEnum};
use libtest_mimic::{ColorSetting, FormatSetting};
use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What `--dtype` is for.
pub fn only_dtypes() -> String {
    format!("Only these dtypes: {}", DType::ALL.map(DType::name).join(", "))
}

/// The command line of a gate binary.
#[derive(Parser, Debug)]
#[command(
    about = "Judges operator kernels: correctness, properties, perf.",
    disable_version_flag = true,
    after_help = format!(
        "Exit codes: 0 good, 101 a trial failed, 2 wrong arguments or declarations or a filter without a hit, 3 \
          --unsupervised and nothing failed, 4 nothing failed but cases were cut by a time that was asked \
          for.\n\n`--command list|bench|noise|tune …` as the first argument asks for something else than trials; \
          `--command bench --help` says what.\n\nEnvironment:\n{}",
        environment::describe()
    ),
)]
pub struct GateArguments {
    #[command(flatten)]
    /// What the run was told.
    pub options: Options,
}

/// What a run can be told.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Run only trials whose name contains one of these
    #[arg(value_name = "FILTER")]
    pub filters: Vec<String>,
    /// Leave out trials whose name contains this; may be given several times
    #[arg(long, value_name = "FILTER")]
    pub skip: Vec<String>,
    /// Filters and skips are whole names
    #[arg(long)]
    pub exact: bool,
    /// List the trials and run none
    #[arg(long)]
    pub list: bool,
    /// Run ignored trials too (a gate has none: what a machine cannot run is skipped with a reason)
    #[arg(long)]
    pub include_ignored: bool,
    /// Run only ignored trials
    #[arg(long)]
    pub ignored: bool,
    /// No effect: every trial is a test
    #[arg(long, conflicts_with = "bench")]
    pub test: bool,
    /// Run benchmarks, of which a gate has none
    #[arg(long)]
    pub bench: bool,
    /// Pass what candidates print on to stderr; without this it is shown with a failure only
    #[arg(long, alias = "no-capture")]
    pub nocapture: bool,
    /// No effect: what a candidate prints is shown with its failure
    #[arg(long)]
    pub show_output: bool,
    /// Accepted for libtest's sake
    #[arg(short = 'Z', value_name = "unstable-options")]
    pub unstable: Option<Unstable>,
    /// One character a trial; as --format terse
    #[arg(short, long, conflicts_with = "format")]
    pub quiet: bool,
    /// How many trials run at once; perf trials run alone in any case, those of a GPU unless --gpu-trials says otherwise
    #[arg(long, value_name = "N")]
    pub test_threads: Option<usize>,
    /// Write the log to a file instead of stdout
    #[arg(long, value_name = "PATH")]
    pub logfile: Option<String>,
    /// When to colour
    #[arg(long, value_enum, value_name = "auto|always|never", hide_possible_values = true)]
    pub color: Option<ColorSetting>,
    /// The form of the log
    #[arg(long, value_enum, value_name = "pretty|terse|json", hide_possible_values = true)]
    pub format: Option<FormatSetting>,

    /// Where kernels run: sim, cuda or cuda:N; with cpu they are skipped. Without this: on the GPU if there is one, else
    /// in the simulator. CPU candidates run on the host always, but with cuda only the GPU is timed
    #[arg(long, value_name = "DEVICE", help_heading = "Kernelgate")]
    pub device: Option<DeviceChoice>,
    /// Run only these dtypes
    #[arg(long = "dtype", value_name = "DTYPE,…", help = only_dtypes(), value_delimiter = ',', help_heading = "Kernelgate")]
    pub dtypes: Vec<DType>,
    /// Run only this case: rows=3,cols=5
    #[arg(long, value_name = "AXIS=N,…", help_heading = "Kernelgate")]
    pub shape: Option<String>,
    /// The distribution of that case [default: normal]
    #[arg(long = "dist", value_name = "NAME", requires = "shape", help_heading = "Kernelgate")]
    pub distribution: Option<Distribution>,
    /// The seed of that case, or of the whole run
    #[arg(long, value_name = "N", value_parser = parse_seed, help_heading = "Kernelgate")]
    pub seed: Option<u64>,
    /// How far the buffers of that case start behind an aligned address
    #[arg(long = "offset", value_name = "BYTES", requires = "shape", help_heading = "Kernelgate")]
    pub offset_bytes: Option<usize>,
    /// Let correctness trials check one shape past 2^31 elements instead; it takes gigabytes
    #[arg(long, conflicts_with = "shape", help_heading = "Kernelgate")]
    pub large: bool,
    /// Where the summary goes [default: target/kernelgate/summary.json]
    #[arg(long, value_name = "PATH", help_heading = "Kernelgate")]
    pub out: Option<PathBuf>,
    /// Time lessons too: the steps on the way to the best candidate, which otherwise are only checked
    #[arg(long, help_heading = "Kernelgate")]
    pub lessons: bool,
    /// Seconds after which a trial starts no new case; what is cut is said, and the exit code is then 4. Without it a run
    /// plans its cases by work and runs them all, however long the machine takes
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = "Kernelgate")]
    pub budget: Option<Duration>,
    /// The same for all trials together, each of which has its share; 0 plans every case and has no limit
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = "Kernelgate")]
    pub run_budget: Option<Duration>,
    /// The most elements that the tensors of a case may have together: for tools under which a kernel takes a thousand times
    /// as long, as compute-sanitizer's racecheck. How many shapes that leaves out is a note of each trial, and the exit code is then 4
    #[arg(long, value_name = "N", help_heading = "Kernelgate")]
    pub most_elements: Option<usize>,
    /// How many trials of correctness and property the GPU serves at once, each in a process with memory of its own there
    /// [default: 1]
    #[arg(long, value_name = "N", help_heading = "Kernelgate")]
    pub gpu_trials: Option<NonZeroUsize>,
    /// What must be there; its lack is then a failure, not a skip
    #[arg(long, value_name = "cuda|baseline|nvrtc", value_delimiter = ',', help_heading = "Kernelgate")]
    pub require: Vec<Requirement>,
    /// Add a slowdown to every timed launch, as a share of its time, or only in trials of a name, to see the gate find it:
    /// 0.05, softmax::cuda=0.05
    #[arg(long, value_name = "[FILTER=]SHARE", help_heading = "Kernelgate")]
    pub plant: Option<Plant>,
    /// Compile the kernels for these architectures into the cache and run nothing: sm_80,sm_90a
    #[arg(long, value_name = "ARCH,…", value_delimiter = ',', help_heading = "Kernelgate")]
    pub compile: Vec<String>,
    /// Compile the kernels to PTX for the simulator, into kernels/ptx of the project, and run nothing: a machine that has
    /// these files simulates the kernels without a compiler
    #[arg(long, help_heading = "Kernelgate")]
    pub ptx: bool,
    /// Offer the timed candidates over the measurement protocol on the standard streams, and run nothing else: for
    /// `kernelgate ab`
    #[arg(long, conflicts_with_all = ["list", "compile", "ptx"], help_heading = "Kernelgate")]
    pub serve: bool,
    /// Start no further trial after a failure; those left are ignored, with that reason
    #[arg(long)]
    pub fail_fast: bool,
    /// Show how long every trial took, not the slowest ones alone
    #[arg(long)]
    pub report_time: bool,
    /// Run all trials one after another in one child process, whose output is not captured, and which has a day for a
    /// trial and for a launch: for profilers and debuggers that follow children (compute-sanitizer --target-processes
    /// all; gdb: set follow-fork-mode child). This process still judges how it ends
    #[arg(long, help_heading = "Kernelgate")]
    pub in_process: bool,
    /// Run trials in this very process: for debuggers that follow no children. A candidate that ends the process ends the
    /// run, and nobody sees whether it was done: the exit code is never 0 where the run comes to its end
    #[arg(long, conflicts_with = "in_process", help_heading = "Kernelgate")]
    pub unsupervised: bool,
    /// Seconds after which a trial in a worker process counts as hung
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = "Kernelgate")]
    pub time_limit: Option<Duration>,
}

/// `-Z unstable-options`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unstable {
    /// The only one there is.
    UnstableOptions,
}

/// Something that has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// A usable GPU.
    Cuda,
    /// A stored baseline for every timed case.
    Baseline,
    /// The compiler for kernels: for tests that compile without a GPU. A gate on a GPU fails without it anyway.
    Nvrtc,
    /// The browser in which this crate's own tests open the dashboard; no gate needs it.
    Chromium,
}

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "cuda" => Ok(Requirement::Cuda),
            "baseline" => Ok(Requirement::Baseline),
            "nvrtc" => Ok(Requirement::Nvrtc),
            "chromium" => Ok(Requirement::Chromium),
            other => Err(format!("unknown requirement `{other}`; use cuda, baseline, nvrtc or chromium")),
        }
    }
}

/// `--device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceChoice {
    /// The kind.
    pub kind: DeviceKind,
    /// Which GPU.
    pub ordinal: usize,
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        DeviceChoice::parse(text, std::env::var(NEXTEST_SLOT).ok().as_deref())
    }
}

/// The place of a process among those of its test group, counted from 0; nextest sets it.
const NEXTEST_SLOT: &str = "NEXTEST_TEST_GROUP_SLOT";

/// The GPU with the number of that place.
const SLOT: &str = "cuda:slot";

impl DeviceChoice {
    /// A choice; `slot` is the place in the test group, for `cuda:slot`.
    fn parse(text: &str, slot: Option<&str>) -> Result<Self, String> {
        let choice = |kind| Ok(DeviceChoice { kind, ordinal: 0 });
        match text.trim() {
            "cpu" => choice(DeviceKind::Cpu),
            "sim" => choice(DeviceKind::Sim),
            "cuda" => choice(DeviceKind::Cuda),
            SLOT => {
                let ordinal = slot.and_then(|slot| slot.parse().ok()).ok_or_else(|| {
                    format!(
                        "`cuda:slot` takes the GPU of the nextest slot, but {NEXTEST_SLOT} is {}: put the trials into a \
                         test group, or name a GPU as cuda:<n>",
                        slot.map_or("not set".to_owned(), |slot| format!("`{slot}`"))
                    )
                })?;
                Ok(DeviceChoice { kind: DeviceKind::Cuda, ordinal })
            }
            other => {
                let ordinal = other.strip_prefix("cuda:").and_then(|n| n.parse().ok());
                let ordinal = ordinal
                    .ok_or_else(|| format!("unknown device `{other}`; use cpu, sim, cuda, cuda:<n> or cuda:slot"))?;
                Ok(DeviceChoice { kind: DeviceKind::Cuda, ordinal })
            }
        }
    }
}

impl std::fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ordinal {
            0 => write!(f, "{}", self.kind),
            n => write!(f, "{}:{n}", self.kind),
        }
    }
}

/// `20` or `0.5`.
///
/// # Errors
/// If it is no number of seconds.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.ok_or_else(|| format!("`{text}` is no number of seconds; use 20 or 0.5"))
}

impl Options {
    /// Fills what no flag gave from the `KERNELGATE_*` variables.
    ///
    /// # Errors
    /// If a variable cannot be understood.
    pub fn with_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        fn read<T>(
            slot: &mut Option<T>,
            (name, text): (&str, Option<String>),
            parse: impl Fn(&str) -> Result<T, String>,
        ) -> Result<(), String> {
            if let (None, Some(text)) = (&slot, text) {
                *slot = Some(parse(&text).map_err(|e| format!("{name}: {e}"))?);
            }
            Ok(())
        }
        let named = |name: &'static str| (name, variable(name).filter(|text| !text.is_empty()));
        // nextest asks for the list in no slot.
        let device = |text: &str| {
            if self.list && text.trim() == SLOT { DeviceChoice::parse("cuda", None) } else { text.parse() }
        };
        read(&mut self.device, named(environment::DEVICE), device)?;
        read(&mut self.out, named(environment::OUT), |path| Ok(path.into()))?;
        read(&mut self.seed, named(environment::SEED), parse_seed)?;
        read(&mut self.budget, named(environment::BUDGET), parse_seconds)?;
        read(&mut self.run_budget, named(environment::RUN_BUDGET), parse_seconds)?;
        read(&mut self.plant, named(environment::PLANT), str::parse)?;
        let mut required = if self.require.is_empty() { None } else { Some(self.require) };
        read(&mut required, named(environment::REQUIRE), |list| list.split(',').map(str::parse).collect())?;
        self.require = required.unwrap_or_default();
        self.in_process |= named(environment::IN_PROCESS).1.is_some_and(|value| value != "0");
        Ok(self)
    }

    /// The seed of the run. With `--shape` a given seed is that of the case instead.
    pub fn run_seed(&self) -> u64 {
        if self.shape.is_some() { DEFAULT_SEED } else { self.seed.unwrap_or(DEFAULT_SEED) }
    }

    /// Whether `what` must be there.
    pub fn requires(&self, what: Requirement) -> bool {
        self.require.contains(&what)
    }

    /// What libtest-mimic is to know. Selection is not its business: it knows one filter only.
    pub fn for_libtest(&self) -> libtest_mimic::Arguments {
        libtest_mimic::Arguments {
            include_ignored: self.include_ignored,
            ignored: self.ignored,
            test: self.test,
            bench: self.bench,
            list: self.list,
            quiet: self.quiet,
            test_threads: self.test_threads,
            logfile: self.logfile.clone(),
            color: self.color,
            format: self.format,
            ..libtest_mimic::Arguments::default()
        }
    }

    /// Whether a line on the terminal says how far the run is.
    pub fn shows_progress(&self) -> bool {
        self.is_readable() && !self.list && std::io::stderr().is_terminal()
    }

    /// Whether stdout holds a log for people, to which more text may be added.
    pub fn is_readable(&self) -> bool {
        self.logfile.is_none() && self.format.is_none_or(|format| format == FormatSetting::Pretty) && !self.quiet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use rstest::rstest;

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        let all = ["gate"].iter().chain(arguments);
        GateArguments::try_parse_from(all).map(|a| a.options).map_err(|e| e.to_string())
    }

    #[test]
    fn every_flag_of_libtest_mimic_is_known() {
        let ours = GateArguments::command();
        for theirs in libtest_mimic::Arguments::command().get_arguments() {
            let known = match (theirs.get_long(), theirs.get_short()) {
                (Some(long), _) => ours.get_arguments().any(|a| a.get_long() == Some(long)),
                (None, Some(short)) => ours.get_arguments().any(|a| a.get_short() == Some(short)),
                (None, None) => ours.get_positionals().count() == 1,
            };
            assert!(known, "{theirs}");
        }
    }

    #[test]
    fn several_filters_and_our_own() {
        let options = parse(&[
            "a",
            "b",
            "--skip",
            "c",
            "--skip",
            "d",
            "--dtype",
            "f16,bf16",
            "--shape",
            "n=3",
            "--dist",
            "tiny",
            "--seed",
            "0x2a",
            "--device",
            "cuda:1",
            "--require",
            "cuda,baseline",
            "--budget",
            "0.5",
        ])
        .unwrap();
        assert_eq!((options.filters.len(), options.skip.len(), options.dtypes.len()), (2, 2, 2));
        assert_eq!((options.seed, options.run_seed()), (Some(42), DEFAULT_SEED));
        assert_eq!(options.device, Some(DeviceChoice { kind: DeviceKind::Cuda, ordinal: 1 }));
        assert!(options.requires(Requirement::Cuda) && options.requires(Requirement::Baseline));
        assert_eq!(options.budget, Some(Duration::from_millis(500)));
    }

    #[rstest]
    #[case(&["--device", "gpu"], "use cpu, sim, cuda, cuda:<n> or cuda:slot")]
    #[case(&["--dtype", "f64"], "use f32, f16, bf16")]
    #[case(&["--dist", "tiny"], "--shape")]
    #[case(&["--seed", "x"], "use 42 or 0x2a")]
    #[case(&["--budget=-1"], "use 20 or 0.5")]
    #[case(&["--require", "luck"], "use cuda, baseline, nvrtc or chromium")]
    fn wrong_arguments_say_what_is_right(#[case] arguments: &[&str], #[case] expected: &str) {
        let message = parse(arguments).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn a_slot_of_nextest_names_the_gpu() {
        let third = DeviceChoice { kind: DeviceKind::Cuda, ordinal: 2 };
        assert_eq!(DeviceChoice::parse("cuda:slot", Some("2")), Ok(third));
        for (slot, said) in [(None, "is not set"), (Some("none"), "is `none`")] {
            let why = DeviceChoice::parse("cuda:slot", slot).unwrap_err();
            assert!(why.contains(said) && why.contains("test group"), "{why}");
        }
    }

    #[test]
    fn trials_are_listed_in_no_slot() {
        let read = |list| {
            let options = Options { list, ..Options::default() };
            options.with_environment(|name| (name == environment::DEVICE).then(|| SLOT.to_owned()))
        };
        assert_eq!(read(true).unwrap().device, Some(DeviceChoice { kind: DeviceKind::Cuda, ordinal: 0 }));
        assert!(read(false).unwrap_err().contains("put the trials into a test group"));
    }

    #[test]
    fn a_flag_wins_over_its_variable() {
        let variable = |name: &str| match name {
            environment::DEVICE => Some("cpu".to_owned()),
            environment::REQUIRE => Some("cuda,baseline".to_owned()),
            environment::SEED => Some("9".to_owned()),
            _ => None,
        };
        let options = parse(&["--seed", "3"]).unwrap().with_environment(variable).unwrap();
        assert_eq!((options.seed, options.require.len()), (Some(3), 2));
        assert_eq!(options.device.map(|choice| choice.kind), Some(DeviceKind::Cpu));
        let wrong = Options::default().with_environment(|name| (name == environment::DEVICE).then(|| "tpu".into()));
        assert!(wrong.unwrap_err().starts_with("KERNELGATE_DEVICE: unknown device `tpu`"));
    }
}
