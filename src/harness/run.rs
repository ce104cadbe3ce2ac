//! A run from its options to its conclusion: selection, trials, summary.

use super::arguments::{Options, Requirement};
use super::broken::Told;
use super::budget::Budget;
use super::conclusion::Conclusion;
use super::devices::KernelDevice;
use super::engine::{Engine, Reply};
use super::executor::{Executor, Pool};
use super::lane::Lanes;
use super::project::{Project, shared_run_id};
use super::serve;
use super::trial::{Trial, has_hits, trials};
use super::worker;
use crate::check::declaration::mistakes;
use crate::check::outcome::Verdict;
use crate::core::shape::parse;
use crate::core::suite::Suite;
use crate::device::DeviceKind;
use crate::device::fingerprint::Fingerprint;
use crate::device::sim::FOLDER;
use crate::report::record::Record;
use crate::report::summary::Summary;
use crate::report::{digest, failure};
#[cfg(feature = "cuda")]
use crate::{
    core::candidate::Program,
    device::sim::{ARCH, Committed},
};
use libtest_mimic::{Completion, Failed};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a trial in a worker process may take.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Stands for the trials that are not selected; no trial is called so.
const UNSELECTED: &str = "\u{0}";

/// Runs, lists or serves trials, as the options say.
pub fn run(project: Project, suites: Vec<Suite>, options: Options) -> Conclusion {
    if !worker::is_worker() {
        warn_if_unoptimised();
        let mistakes = mistakes(&suites);
        if !mistakes.is_empty() {
            return Conclusion::Usage(format!("mistakes in the declarations:\n  {}", mistakes.join("\n  ")));
        }
    }
    let all = match trials(&suites) {
        Ok(all) => all,
        Err(why) => return Conclusion::Usage(why),
    };
    if worker::is_worker() {
        let served = worker::serve(&Engine::new(&project, suites, options), &all);
        return served.map_or_else(|e| Conclusion::Broken(e.to_string()), |()| Conclusion::Good);
    }
    if !options.compile.is_empty() {
        return compile(&suites, &options.compile);
    }
    if options.ptx {
        return renew_ptx(&suites, &project.folder.join(FOLDER));
    }
    if let Err(why) = has_hits(&all, &options) {
        return Conclusion::Usage(why);
    }
    let (selected, rest): (Vec<Trial>, Vec<Trial>) = all.into_iter().partition(|trial| trial.is_selected(&options));
    if let Err(why) = check_shape(&selected, &suites, &options) {
        return Conclusion::Usage(why);
    }
    if options.serve {
        let served = serve::run(&project, &suites, &selected, &options);
        return served.map_or_else(|e| Conclusion::Broken(e.to_string()), |()| Conclusion::Good);
    }
    let session = Arc::new(Session::new(project, suites, options, &selected, &rest));
    let conclusion = session.conduct(selected, rest.len());
    if session.options.list {
        return Conclusion::Good;
    }
    session.conclude(conclusion.has_failed())
}

/// The simulator and the references take ten times as long without optimisation, and host candidates are not what ships.
fn warn_if_unoptimised() {
    let level = env!("KERNELGATE_OPT_LEVEL");
    if matches!(level, "0" | "1") {
        eprintln!(
            "warning: kernelgate is built with opt-level {level}: a run takes many times as long, and times of host \
             candidates mean nothing.\nwarning: add to Cargo.toml: [profile.test] opt-level = 3; or run `cargo test \
             --release`"
        );
    }
}

#[cfg(feature = "cuda")]
fn compile(suites: &[Suite], archs: &[String]) -> Conclusion {
    let archs: Vec<&str> = archs.iter().map(String::as_str).collect();
    let all = [suites, &crate::measure::yardstick::Yardstick::suites()].concat();
    match crate::device::cuda::precompile(&all, &archs) {
        Ok(kernels) => {
            println!("{kernels} kernels compiled for {}", archs.join(", "));
            Conclusion::Good
        }
        Err(why) => Conclusion::Broken(why),
    }
}

#[cfg(feature = "cuda")]
fn renew_ptx(suites: &[Suite], folder: &Path) -> Conclusion {
    let compile = |program: &Program, dtype| {
        crate::device::cuda::ptx_afresh(program, dtype, ARCH).map_err(|fault| format!("{}: {fault}", program.file))
    };
    match Committed::new(folder.into()).renew(suites, compile) {
        Ok((written, removed)) => {
            println!("{}: {written} files written, {removed} removed, the others are up to date", folder.display());
            Conclusion::Good
        }
        Err(why) => Conclusion::Broken(why),
    }
}

#[cfg(not(feature = "cuda"))]
fn renew_ptx(_suites: &[Suite], _folder: &Path) -> Conclusion {
    Conclusion::Usage("this build has no CUDA support: enable the feature `cuda-13` or `cuda-12`".into())
}

#[cfg(not(feature = "cuda"))]
fn compile(_suites: &[Suite], _archs: &[String]) -> Conclusion {
    Conclusion::Usage("this build has no CUDA support: enable the feature `cuda-13` or `cuda-12`".into())
}

/// A shape that fits no selected operator is a mistake; one that fits some is skipped by the others.
fn check_shape(selected: &[Trial], suites: &[Suite], options: &Options) -> Result<(), String> {
    let Some(shape) = &options.shape else { return Ok(()) };
    let mut first = None;
    for trial in selected {
        match parse(trial.subject(suites).operator.axes(), shape) {
            Ok(_) => return Ok(()),
            Err(why) => first = first.or(Some(why)),
        }
    }
    first.map_or(Ok(()), Err)
}

/// One run in the making.
struct Session {
    project: Project,
    options: Options,
    executor: Executor,
    lanes: Lanes,
    /// Where kernels run.
    kernels: DeviceKind,
    /// How the time is shared out, where the run has a limit.
    budget: Option<Budget>,
    found: Mutex<Found>,
}

/// What the trials have found so far.
#[derive(Default)]
struct Found {
    records: Vec<Record>,
    devices: Vec<Fingerprint>,
    /// Failures for want of something.
    missing: usize,
    /// Failures that are the same in several trials.
    told: Told,
}

impl Session {
    fn new(project: Project, suites: Vec<Suite>, options: Options, selected: &[Trial], rest: &[Trial]) -> Self {
        // A listing touches no device.
        let kernels = if options.list {
            DeviceKind::Cuda
        } else {
            KernelDevice::choose(options.device, options.requires(Requirement::Cuda)).kind
        };
        let threads = options.test_threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
        let time = options.run_budget.filter(|time| !time.is_zero());
        let lanes = threads.unwrap_or(1);
        let budget = time.map(|time| match shared_run_id() {
            // What this process leaves out, another one may run.
            Some(id) => Budget::shared(time, lanes, selected.iter().chain(rest), &project.budget_path(), id),
            None => Budget::new(time, lanes, selected),
        });
        let executor = if options.in_process || options.shape.is_some() {
            Executor::Here(Box::new(Engine::new(&project, suites, options.clone())))
        } else {
            Executor::Workers(Pool::new(options.time_limit.unwrap_or(TIME_LIMIT)))
        };
        Session { project, options, executor, lanes: Lanes::default(), kernels, budget, found: Mutex::default() }
    }

    /// Hands the trials to libtest-mimic, with as many others as it is to count as filtered out.
    fn conduct(self: &Arc<Self>, selected: Vec<Trial>, filtered_out: usize) -> libtest_mimic::Conclusion {
        let mut arguments = self.options.for_libtest();
        arguments.skip = vec![UNSELECTED.into()];
        let rest = (0..filtered_out).map(|_| libtest_mimic::Trial::test(UNSELECTED, || Ok(())));
        let selected = selected.into_iter().map(|trial| {
            let session = Arc::clone(self);
            libtest_mimic::Trial::ignorable_test(trial.name.clone(), move || session.run(&trial))
        });
        libtest_mimic::run(&arguments, selected.chain(rest).collect())
    }

    fn run(&self, trial: &Trial) -> Result<Completion, Failed> {
        if self.options.fail_fast && self.has_failed() {
            return Ok(Completion::ignored_with("--fail-fast: another trial has failed"));
        }
        let kind = if trial.kind == DeviceKind::Cpu { trial.kind } else { self.kernels };
        let turn = self.lanes.enter(trial.check, kind);
        let start = Instant::now();
        let reply = self.executor.run(trial, self.budget.as_ref().map(|budget| budget.share(trial)));
        let mut record = self.record(trial, &reply, start.elapsed());
        drop(turn);
        self.found.lock().unwrap_or_else(PoisonError::into_inner).told.shorten(&mut record);
        let outcome = &record.outcome;
        let result = match outcome.verdict {
            Verdict::Skip => Ok(Completion::ignored_with(&outcome.reason)),
            // Not a failure, but libtest knows no word between pass and ignored.
            Verdict::Unclear => Ok(Completion::ignored_with(format!("unclear: {}", outcome.reason))),
            verdict if verdict.is_failure() => Err(failure::describe(&record).into()),
            // Right as far as it was judged, and that has to be seen.
            _ => Ok(outcome.cut_note().map_or(Completion::Completed, Completion::ignored_with)),
        };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.records.push(record);
        found.devices.extend(reply.fingerprint);
        found.missing += usize::from(reply.missing);
        result
    }

    fn has_failed(&self) -> bool {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.records.iter().any(|record| record.outcome.verdict.is_failure())
    }

    fn record(&self, trial: &Trial, reply: &Reply, took: Duration) -> Record {
        let mut parts = trial.name.split("::").map(str::to_owned);
        let mut arguments = Vec::new();
        if let Some(failure) = &reply.outcome.failure {
            arguments.push(failure.case.arguments());
        } else if self.options.seed.is_some() {
            arguments.push(format!("--seed {:#x}", self.options.run_seed()));
        }
        if let Some(choice) = self.options.device {
            arguments.push(format!("--device {choice}"));
        }
        Record {
            operator: parts.next().unwrap_or_default(),
            candidate: parts.next().unwrap_or_default(),
            dtype: trial.dtype,
            check: trial.check,
            device: reply.fingerprint.as_ref().map_or(trial.kind, |fingerprint| fingerprint.kind),
            fingerprint: reply.fingerprint.as_ref().map(Fingerprint::key),
            outcome: reply.outcome.clone(),
            duration_s: took.as_secs_f64(),
            repeat: self.project.repeat_command(&trial.name, &arguments.join(" ")),
            trial: trial.name.clone(),
        }
    }

    /// Keeps the summary and says how it went.
    fn conclude(&self, failed: bool) -> Conclusion {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        let (cut, planned) = digest::cut(&found.records);
        let failures = found.records.iter().filter(|record| record.outcome.verdict.is_failure()).count();
        let mut summary = Summary::new(self.project.describe_run(self.options.run_seed()));
        found.devices.iter().for_each(|device| summary.add_device(device));
        summary.add(found.records);
        let path: PathBuf = self.options.out.clone().unwrap_or_else(|| self.project.summary_path());
        if self.options.is_readable() {
            let text = digest::describe(&summary, self.options.report_time);
            println!("{text}\nsummary: {}\n", path.display());
            if cut > 0 {
                println!("cut: {cut} of {planned} planned cases not run, because a time was asked for\n");
            }
        }
        if let Err(why) = summary.gather(&path) {
            return Conclusion::Broken(why);
        }
        match (failed, failures > found.missing) {
            (false, _) if cut > 0 => Conclusion::Cut,
            (false, _) => Conclusion::Good,
            (true, true) => Conclusion::Failed,
            (true, false) => Conclusion::Missing,
        }
    }
}
