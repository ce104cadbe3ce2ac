//! The CUDA fixtures: `expected.json`, launch rules, and a child process for each.

use crate::cpu::{Lookup, Matrix, Normalised, Product, Vector};
use crate::finding::{Finding, SEEDS, find};
use crate::host::{SecondHalf, launched, prepared};
use crate::judgement::Expectation;
use crate::small::{PAST_16_BITS, Small};
use kernelgate::core::candidate::{Candidate, IntoCandidate};
use kernelgate::core::environment::{REQUIRE, ROOT};
use kernelgate::core::suite::Suite;
use kernelgate::device::Device;
use kernelgate::device::cuda::{CudaDevice, precompile};
use kernelgate::prelude::*;
use serde::Deserialize;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::{OnceLock, PoisonError, RwLock};

/// Names the fixture that a child process is to run, and how many of its runs are done already.
const CHILD: &str = "KERNELGATE_TEST_FAULT";

/// One line of `expected.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Fixture {
    /// The source, in `fixtures/faulty/kernels`.
    pub file: String,
    pub operator: String,
    /// How it is launched; the header of the source says it too.
    launch: String,
    pub dtypes: Vec<DType>,
    defect: String,
    caught_by: Vec<String>,
    pub devices: Vec<String>,
    pub verdict: String,
}

impl Fixture {
    pub fn name(&self) -> &str {
        self.file.trim_end_matches(".cu")
    }

    pub fn expectation(&self) -> Expectation {
        let caught_by: Vec<&str> = self.caught_by.iter().map(String::as_str).collect();
        Expectation::of(&self.operator, &self.defect, &caught_by)
    }

    /// Whether it may keep the GPU busy until the watchdog ends it.
    fn hangs(&self) -> bool {
        self.caught_by.iter().any(|check| check == "timeout")
    }

    fn runs(&self) -> Vec<(DType, u64)> {
        self.dtypes.iter().flat_map(|&dtype| SEEDS.map(|seed| (dtype, seed))).collect()
    }

    pub fn candidate(&self) -> Result<Candidate, String> {
        let path = folder().join("kernels").join(&self.file);
        let source = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = self.name();
        Ok(match (self.launch.as_str(), self.operator.as_str()) {
            // What host code launches by itself is compiled ahead like the others.
            ("elementwise" | "host_default" | "host_forked" | "host_joined" | "host_prepared", _) => {
                self.kernel(source, |s: &Vector| Launch::blocks(s.n.div_ceil(256), 256).scalar(s.n as i64)).named(name)
            }
            ("elementwise_300_kib", _) => {
                let launch = |s: &Vector| Launch::blocks(s.n.div_ceil(256), 256).scalar(s.n as i64).shared(300 << 10);
                self.kernel(source, launch).named(name)
            }
            ("rows", "softmax") => self
                .kernel(source, |s: &Matrix| Launch::blocks(s.rows, 256).scalar(s.rows as i32).scalar(s.cols as i32))
                .named(name),
            ("warp_rows", _) => self
                .kernel(source, |s: &Matrix| Launch::blocks(s.rows, 32).scalar(s.rows as i32).scalar(s.cols as i32))
                .named(name),
            ("rows", _) => self.kernel(source, |s| norm(s, [s.rows, 1, 1], 256)).named(name),
            ("warp_rows_y", _) => self.kernel(source, |s| norm(s, [1, s.rows, 1], 32)).named(name),
            ("gemm", _) => self
                .kernel(source, |s: &Product| {
                    Launch::grid([s.n.div_ceil(16), s.m.div_ceil(16), 1], [16, 16, 1])
                        .scalar(s.m as i32)
                        .scalar(s.n as i32)
                        .scalar(s.k as i32)
                })
                .named(name),
            ("embedding", _) => self
                .kernel(source, |s: &Lookup| {
                    Launch::blocks(s.ids, 128).scalar(s.ids as i32).scalar(s.dim as i32).scalar(s.vocab as i32)
                })
                .named(name),
            (launch, _) => return Err(format!("{}: unknown launch `{launch}` in expected.json", self.file)),
        })
    }

    fn kernel<S: kernelgate::core::shape::Shape>(
        &self,
        source: String,
        launch: impl Fn(&S) -> Launch + Send + Sync + 'static,
    ) -> Cuda<S> {
        Cuda::source(source, "candidate", launch)
            .header("common.cuh", include_str!("../../fixtures/faulty/kernels/common.cuh"))
            .file(&self.file)
            .dtypes(self.dtypes.clone())
    }
}

fn norm(s: &Normalised, grid: [usize; 3], block: usize) -> Launch {
    Launch::grid(grid, [block, 1, 1]).scalar(s.rows as i32).scalar(s.cols as i32).scalar(s.eps)
}

/// `fixtures/faulty`, in the checkout or in a bundle.
pub fn folder() -> PathBuf {
    let root = std::env::var_os(ROOT).map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    root.join("fixtures/faulty")
}

/// All of `expected.json`.
pub fn fixtures() -> Result<Vec<Fixture>, String> {
    let path = folder().join("expected.json");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Whether there is one entry a source and one source an entry, each with a candidate.
pub fn every_file_is_listed(fixtures: &[Fixture]) -> Result<(), String> {
    let kernels = folder().join("kernels");
    let entries = std::fs::read_dir(&kernels).map_err(|error| format!("{}: {error}", kernels.display()))?;
    let mut files: Vec<String> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    files.retain(|file| file.ends_with(".cu"));
    let mut listed: Vec<String> = fixtures.iter().map(|fixture| fixture.file.clone()).collect();
    files.sort_unstable();
    listed.sort_unstable();
    if files != listed {
        let differs = files.iter().filter(|file| !listed.contains(file));
        let missing: Vec<&String> = differs.chain(listed.iter().filter(|file| !files.contains(file))).collect();
        return Err(format!("expected.json and the sources differ, or name one twice: {missing:?}"));
    }
    fixtures.iter().try_for_each(|fixture| {
        if (fixture.verdict == "pass") != fixture.caught_by.is_empty() {
            return Err(format!("{}: `verdict` and `caught_by` contradict each other", fixture.file));
        }
        fixture.candidate().map(|_| ())
    })
}

/// Whether a missing GPU is a failure.
pub fn is_required() -> bool {
    std::env::var(REQUIRE).is_ok_and(|all| all.split(',').any(|what| what.trim() == "cuda"))
}

/// Whether a GPU can show the defect at all.
pub fn shows_on_a_gpu(fixture: &Fixture) -> bool {
    fixture.devices.iter().any(|device| device == "cuda")
}

/// Why a fixture is not run here, if it is not.
pub fn available(fixture: &Fixture) -> Result<(), String> {
    static GPU: OnceLock<Result<(), String>> = OnceLock::new();
    if !shows_on_a_gpu(fixture) {
        return Err("shows in the simulator only".into());
    }
    GPU.get_or_init(|| CudaDevice::open(0).map(|_| ())).clone()
}

/// Runs a fixture in child processes: a new one whenever the device was lost.
pub fn findings(fixture: &Fixture) -> Result<Vec<Finding>, String> {
    /// Children share the GPU, but for those that keep it to themselves until the watchdog ends them.
    static GPU: RwLock<()> = RwLock::new(());
    let (alone, shared);
    if fixture.hangs() {
        alone = GPU.write().unwrap_or_else(PoisonError::into_inner);
        let _ = &alone;
    } else {
        shared = GPU.read().unwrap_or_else(PoisonError::into_inner);
        let _ = &shared;
    }
    let executable = std::env::current_exe().map_err(|error| format!("this executable is not found: {error}"))?;
    let mut findings: Vec<Finding> = Vec::new();
    while findings.len() < fixture.runs().len() {
        let child = Command::new(&executable)
            .env(CHILD, format!("{} {}", fixture.file, findings.len()))
            .output()
            .map_err(|error| format!("no child process: {error}"))?;
        let output = String::from_utf8_lossy(&child.stdout);
        let found: Vec<Finding> = output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if found.is_empty() {
            let errors = String::from_utf8_lossy(&child.stderr);
            return Err(format!("the child process found nothing ({}):\n{errors}", child.status));
        }
        findings.extend(found);
    }
    Ok(findings)
}

/// In a child process: runs what it was started for, a line of JSON a run, until the device is lost.
pub fn child() -> Option<ExitCode> {
    let task = std::env::var(CHILD).ok()?;
    Some(match run_child(&task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    })
}

fn run_child(task: &str) -> Result<(), String> {
    let words = task.split_once(' ').and_then(|(file, done)| Some((file, done.parse::<usize>().ok()?)));
    let (file, done) = words.ok_or_else(|| format!("{CHILD}={task}: expected a file and a number"))?;
    let all = fixtures()?;
    let fixture = all.iter().find(|fixture| fixture.file == file).ok_or_else(|| format!("no fixture `{file}`"))?;
    let (suite, twin, gpu) = (crate::suite(&fixture.operator)?, fixture.candidate()?, CudaDevice::open(0)?);
    let candidate = match SecondHalf::of(&fixture.launch) {
        Some(second) => launched(&twin, &gpu.arch(), second)?,
        None if fixture.launch == "host_prepared" => prepared(&twin, &gpu.arch())?,
        None => twin,
    };
    let device = Small { device: Box::new(gpu), elements: PAST_16_BITS };
    for (dtype, seed) in fixture.runs().into_iter().skip(done) {
        let finding = find(&device, suite, &candidate, dtype, seed);
        println!("{}", serde_json::to_string(&finding).map_err(|error| error.to_string())?);
        if device.is_lost() {
            break;
        }
    }
    Ok(())
}

/// Compiles all fixtures for a bundle.
pub fn compile(archs: &str) -> ExitCode {
    let archs: Vec<&str> = archs.split(',').collect();
    let compiled = suites().and_then(|suites| precompile(&suites, &archs));
    match compiled {
        Ok(count) => {
            println!("{count} faulty kernels compiled");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn suites() -> Result<Vec<Suite>, String> {
    let suites = fixtures()?.into_iter().map(|fixture| {
        let candidates = vec![fixture.candidate()?];
        Ok(Suite { operator: crate::suite(&fixture.operator)?.operator.clone(), dtypes: fixture.dtypes, candidates })
    });
    let mut suites = suites.collect::<Result<Vec<Suite>, String>>()?;
    let operator = crate::suite("silu")?.operator.clone();
    suites.push(Suite { operator, dtypes: vec![F32], candidates: crate::timed::kernels()? });
    Ok(suites)
}
