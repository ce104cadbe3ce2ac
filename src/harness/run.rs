//! A run from its options to its conclusion: selection, trials, summary.

use super::arguments::{Options, Requirement};
use super::broken::Told;
use super::budget::Budget;
use super::conclusion::Conclusion;
use super::devices::{KernelDevice, WATCHED_LIMIT};
use super::engine::{self, Engine, Reply};
use super::executor::{Executor, Pool};
use super::interrupt::keep_results;
use super::lane::Lanes;
use super::progress::{Progress, Quiet};
use super::project::{Project, shared_run_id};
use super::serve;
use super::terminal::{Outlet, note, say};
use super::trial::{Trial, has_hits, trials};
use super::worker::{self, Role, Streams};
use crate::check::declaration::mistakes;
use crate::check::outcome::{Outcome, Verdict};
use crate::core::constraint::objection;
use crate::core::shape::{Point, parse};
use crate::core::suite::Suite;
use crate::device::DeviceKind;
use crate::device::fingerprint::Fingerprint;
use crate::report::record::Record;
use crate::report::summary::Summary;
use crate::report::text::line;
use crate::report::{digest, failure};
use crate::toolchain::committed::FOLDER;
#[cfg(feature = "cuda")]
use crate::{
    core::candidate::Program,
    toolchain::{
        committed::{ARCH, Committed},
        compile_ptx_afresh,
    },
};
use libtest_mimic::{ColorSetting, Completion, Failed};
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a trial in a worker process may take.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Stands for the trials that are not selected; no trial is called so.
const UNSELECTED: &str = "\u{0}";

/// Runs, lists or serves trials, as the options say.
pub fn run(project: Project, suites: Vec<Suite>, mut options: Options) -> Conclusion {
    let role = match Role::of_this_process() {
        Ok(Role::Keeper) => worker::keep(),
        Ok(role) => role,
        Err(why) => return Conclusion::Usage(why),
    };
    if role == Role::Gate {
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
    if role == Role::Worker {
        let served = worker::serve(|| Engine::new(&project, suites, options), &all);
        return Conclusion::Broken(served.map_or_else(|e| e.to_string(), |()| "no gate asks any more".into()));
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
    if !options.compile.is_empty() {
        return compile(&only(&suites, &selected), &options.compile);
    }
    if options.serve {
        let served = serve::run(&project, &suites, &selected, &options);
        return served.map_or_else(|e| Conclusion::Broken(e.to_string()), |()| Conclusion::Good);
    }
    if let Err(why) = check_logfile(&options) {
        return Conclusion::Usage(why);
    }
    let outlet = Outlet::open(options.shows_progress());
    if outlet.hides_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
        // libtest-mimic sees no terminal there.
        options.color = options.color.or(Some(ColorSetting::Always));
    }
    let wanted = only(&suites, &selected);
    let session = Arc::new(Session::new(project, suites, options, &selected, &rest));
    if !session.options.list {
        let (session, selected) = (Arc::clone(&session), selected.clone());
        keep_results(move |signal| {
            note(format_args!("ended by {signal}: what was found until now is kept"));
            session.conclude(&selected, Ok(true));
        });
    }
    if !session.options.list && session.kernels == DeviceKind::Cuda {
        compile_ahead(&wanted, session.options.device.map_or(0, |choice| choice.ordinal));
    }
    let conducted = session.conduct(selected.clone(), rest.len());
    if session.options.list {
        return conducted.map_or_else(Conclusion::Broken, |_| Conclusion::Good);
    }
    session.conclude(&selected, conducted.map(|conclusion| conclusion.has_failed()))
}

/// A log that cannot be written is found before the first trial.
fn check_logfile(options: &Options) -> Result<(), String> {
    let Some(path) = &options.logfile else { return Ok(()) };
    let opened = std::fs::File::options().append(true).create(true).open(path);
    opened.map(drop).map_err(|e| format!("--logfile {path}: cannot write: {e}"))
}

/// What libtest is to say of a trial.
fn completion(record: &Record) -> Result<Completion, Failed> {
    let outcome = &record.outcome;
    match outcome.verdict {
        Verdict::Skip => Ok(Completion::ignored_with(line(&outcome.reason))),
        // Not a failure, but libtest knows no word between pass and ignored.
        Verdict::Unclear => Ok(Completion::ignored_with(format!("unclear: {}", line(&outcome.reason)))),
        Verdict::Fail | Verdict::Slower | Verdict::Invalid => Err(failure::describe(record).into()),
        // Right as far as it was judged, and that has to be seen.
        Verdict::Pass | Verdict::Same | Verdict::Faster => {
            Ok(outcome.cut_note().map_or(Completion::Completed, Completion::ignored_with))
        }
    }
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

/// The suites with the candidates and dtypes of some trials alone.
fn only(suites: &[Suite], selected: &[Trial]) -> Vec<Suite> {
    let dtypes_of = |suite: usize, candidate: usize| {
        let of_it = selected.iter().filter(move |trial| (trial.suite, trial.candidate) == (suite, candidate));
        of_it.map(|trial| trial.dtype).collect::<HashSet<_>>()
    };
    let of = |(i, suite): (usize, &Suite)| {
        let candidates = suite.candidates.iter().enumerate().filter_map(|(j, candidate)| {
            let dtypes = dtypes_of(i, j);
            let mut candidate = candidate.clone();
            candidate.traits.dtypes.retain(|dtype| dtypes.contains(dtype));
            (!dtypes.is_empty()).then_some(candidate)
        });
        Suite { candidates: candidates.collect(), ..suite.clone() }
    };
    suites.iter().enumerate().map(of).collect()
}

/// On all cores what the trials would compile in turn.
#[cfg(feature = "cuda")]
fn compile_ahead(suites: &[Suite], ordinal: usize) {
    let all = [suites, &crate::measure::yardstick::Yardstick::suites()].concat();
    crate::device::cuda::precompile_ahead(&all, ordinal, |kernels, processes| {
        note(format_args!("compiling {kernels} kernels, which are not in the cache, in {processes} processes"));
    });
}

#[cfg(not(feature = "cuda"))]
fn compile_ahead(_suites: &[Suite], _ordinal: usize) {}

#[cfg(feature = "cuda")]
fn compile(suites: &[Suite], archs: &[String]) -> Conclusion {
    let archs: Vec<&str> = archs.iter().map(String::as_str).collect();
    let all = [suites, &crate::measure::yardstick::Yardstick::suites(), &crate::calibrate::suites()].concat();
    match crate::device::cuda::precompile(&all, &archs) {
        Ok(kernels) => {
            say(format_args!("{kernels} kernels compiled for {}\n", archs.join(", ")));
            Conclusion::Good
        }
        Err(why) => Conclusion::Broken(why),
    }
}

#[cfg(feature = "cuda")]
fn renew_ptx(suites: &[Suite], folder: &Path) -> Conclusion {
    let compile = |program: &Program, dtype| {
        compile_ptx_afresh(program, dtype, ARCH).map_err(|error| format!("{}: {error}", program.file))
    };
    match Committed::new(folder.into()).renew(suites, compile) {
        Ok((written, others)) => {
            let shown = folder.display();
            say(format_args!("{shown}: {written} files written, the others are up to date\n"));
            if !others.is_empty() {
                let others = others.join(", ");
                say(format_args!("of no kernel of this gate; remove them if they are of no other gate's: {others}\n"));
            }
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

/// A shape that no selected operator has, or that all of them refuse, is a mistake; one that fits some is skipped by the
/// others.
fn check_shape(selected: &[Trial], suites: &[Suite], options: &Options) -> Result<(), String> {
    let Some(shape) = &options.shape else { return Ok(()) };
    let mut first = None;
    for trial in selected {
        let operator = trial.subject(suites).operator;
        let legal = |point: Point| objection(operator.axes(), operator.constraints(), &[], &point).map_or(Ok(()), Err);
        match parse(operator.axes(), shape).and_then(legal) {
            Ok(()) => return Ok(()),
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
    progress: Progress,
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
        let executor = if options.unsupervised {
            Executor::Here(Box::new(Engine::new(&project, suites, options.clone())))
        } else if options.in_process {
            Executor::Workers(Pool::of_one(options.time_limit.unwrap_or(WATCHED_LIMIT)))
        } else {
            let streams = if options.nocapture { Streams::PassedOn } else { Streams::Captured };
            Executor::Workers(Pool::new(options.time_limit.unwrap_or(TIME_LIMIT), streams))
        };
        let progress = Progress::of(selected.len(), Quiet { quiet: !options.shows_progress() });
        let lanes = Lanes::default().serving(options.gpu_trials.map_or(1, NonZeroUsize::get));
        let found = Mutex::default();
        Session { project, options, executor, lanes, kernels, budget, progress, found }
    }

    /// Hands the trials to libtest-mimic, with as many others as it is to count as filtered out.
    ///
    /// # Errors
    /// If it panics, as it does when it cannot write its log.
    fn conduct(
        self: &Arc<Self>,
        selected: Vec<Trial>,
        filtered_out: usize,
    ) -> Result<libtest_mimic::Conclusion, String> {
        let mut arguments = self.options.for_libtest();
        arguments.skip = vec![UNSELECTED.into()];
        let rest = (0..filtered_out).map(|_| libtest_mimic::Trial::test(UNSELECTED, || Ok(())));
        let selected = selected.into_iter().map(|trial| {
            let session = Arc::clone(self);
            libtest_mimic::Trial::ignorable_test(trial.name.clone(), move || session.run(&trial))
        });
        let tests = selected.chain(rest).collect();
        let run = AssertUnwindSafe(|| libtest_mimic::run(&arguments, tests));
        let ended = if matches!(self.executor, Executor::Here(_)) {
            catch_unwind(run)
        } else {
            // No candidate runs here. What panics is libtest-mimic, when it cannot write, and that is said below.
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(|_| {}));
            let ended = catch_unwind(run);
            std::panic::set_hook(hook);
            ended
        };
        ended.map_err(|payload| format!("the log could not be written: {}", engine::panic_message(&*payload)))
    }

    fn run(&self, trial: &Trial) -> Result<Completion, Failed> {
        if self.options.fail_fast && self.has_failed() {
            return Ok(Completion::ignored_with("--fail-fast: another trial has failed"));
        }
        let kind = if trial.kind == DeviceKind::Cpu { trial.kind } else { self.kernels };
        self.progress.say(&trial.name);
        let turn = self.lanes.enter(trial.check, kind);
        let start = Instant::now();
        let reply = match &turn {
            Ok(_) => self.executor.run(trial, self.budget.as_ref().map(|budget| budget.share(trial))),
            Err(why) => Reply::without_device(Outcome::fail(why)),
        };
        let mut record = self.record(trial, &reply, start.elapsed());
        drop(turn);
        self.progress.step();
        self.found.lock().unwrap_or_else(PoisonError::into_inner).told.shorten(&mut record);
        let result = completion(&record);
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
            source: trial.source.clone(),
            outcome: reply.outcome.clone(),
            duration_s: took.as_secs_f64(),
            repeat: self.project.repeat_command(&trial.name, &arguments.join(" ")),
            trial: trial.name.clone(),
        }
    }

    /// What stands in place of the trials that came to no end.
    fn unfinished(&self, selected: &[Trial]) -> Vec<Record> {
        // libtest runs none of ours then.
        if self.options.ignored || self.options.bench {
            return Vec::new();
        }
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let ended: HashSet<&str> = found.records.iter().map(|record| record.trial.as_str()).collect();
        let missing = selected.iter().filter(|trial| !ended.contains(trial.name.as_str()));
        let reply = Reply::without_device(Outcome::fail("the run ended before this trial did"));
        missing.map(|trial| self.record(trial, &reply, Duration::ZERO)).collect()
    }

    /// Keeps the summary and says how it went.
    fn conclude(&self, selected: &[Trial], conducted: Result<bool, String>) -> Conclusion {
        self.progress.end();
        let unfinished = self.unfinished(selected);
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        let records = [found.records, unfinished].concat();
        let (cut, planned) = digest::cut(&records);
        let failures = records.iter().filter(|record| record.outcome.verdict.is_failure()).count();
        let mut summary = Summary::new(self.project.describe_run(self.options.run_seed()));
        found.devices.iter().for_each(|device| summary.add_device(device));
        summary.add(records);
        let path: PathBuf = self.options.out.clone().unwrap_or_else(|| self.project.summary_path());
        if self.options.is_readable() {
            let text = digest::describe(&summary, self.options.report_time);
            say(format_args!("{text}\nsummary: {}\n\n", path.display()));
            if cut > 0 {
                say(format_args!("cut: {cut} of {planned} planned cases not run, because a time was asked for\n\n"));
            }
            if let Some(most) = self.options.most_elements {
                say(format_args!(
                    "cut: cases of more than {most} elements not planned, because that was asked for\n\n"
                ));
            }
        }
        let kept = summary.gather(&path).map_err(|error| error.to_string());
        match (conducted, kept) {
            (Err(why), Ok(_)) | (_, Err(why)) => Conclusion::Broken(why),
            (Ok(false), Ok(_)) if failures == 0 && (cut > 0 || self.options.most_elements.is_some()) => Conclusion::Cut,
            (Ok(false), Ok(_)) if failures == 0 && self.options.unsupervised => Conclusion::Unsupervised,
            (Ok(false), Ok(_)) if failures == 0 => Conclusion::Good,
            (Ok(_), Ok(_)) if failures > found.missing => Conclusion::Failed,
            (Ok(_), Ok(_)) => Conclusion::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::outcome::Check;
    use crate::core::dtype::DType;
    use rstest::rstest;

    #[rstest]
    #[case(Verdict::Pass, "ok")]
    #[case(Verdict::Same, "ok")]
    #[case(Verdict::Faster, "ok")]
    #[case(Verdict::Skip, "ignored")]
    #[case(Verdict::Unclear, "ignored")]
    #[case(Verdict::Fail, "failed")]
    #[case(Verdict::Slower, "failed")]
    #[case(Verdict::Invalid, "failed")]
    fn only_what_is_good_is_shown_as_ok(#[case] verdict: Verdict, #[case] expected: &str) {
        let record = Record {
            trial: "gelu::a::f32::perf".into(),
            operator: "gelu".into(),
            candidate: "a".into(),
            dtype: DType::F32,
            check: Check::Perf,
            device: DeviceKind::Cpu,
            fingerprint: None,
            source: None,
            outcome: Outcome { reason: "a\nb".into(), ..Outcome::new(verdict) },
            duration_s: 0.0,
            repeat: String::new(),
        };
        let shown = match completion(&record) {
            Ok(Completion::Completed) => "ok",
            Ok(_) => "ignored",
            Err(_) => "failed",
        };
        assert_eq!(shown, expected);
        assert_eq!((verdict.is_good(), verdict.is_failure()), (expected == "ok", expected == "failed"));
    }
}
