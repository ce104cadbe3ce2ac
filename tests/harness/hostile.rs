//! Candidates that do their worst, one behaviour a row: each ends as it should, in its own trial, within its limit, and
//! leaves its neighbours and the machine alone.

use crate::support::{Ran, bare, build, root};
use rstest::rstest;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What a trial may take here, in seconds.
const LIMIT: &str = "4";

/// What a whole run may take: two of its trials may reach their limits, on a machine that is busy.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// The trial that is looked at.
const TRIAL: &str = "triple::hostile::f32::correctness";

fn gate() -> &'static Path {
    static GATE: OnceLock<PathBuf> = OnceLock::new();
    GATE.get_or_init(|| build(&root().join("Cargo.toml"), "hostile"))
}

/// A run of the fixture in a folder of its own.
struct Run {
    folder: tempfile::TempDir,
}

impl Run {
    fn new() -> Self {
        Run { folder: tempfile::tempdir().unwrap() }
    }

    fn command(&self, how: &str, arguments: &[&str]) -> Command {
        let mut command = bare(gate());
        command.env("HOSTILE", how).env("KERNELGATE_ROOT", self.folder.path());
        command.env("KERNELGATE_OUT", self.out()).args(["--time-limit", LIMIT]).args(arguments).stdin(Stdio::null());
        command
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("summary.json")
    }

    fn summary(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.out()).expect("a summary")).unwrap()
    }

    /// The verdict of a trial in the summary.
    fn verdict(&self, trial: &str) -> String {
        let summary = self.summary();
        let record = summary["records"].as_array().unwrap().iter().find(|record| record["trial"] == trial);
        record.map_or("absent", |record| record["verdict"].as_str().unwrap()).to_owned()
    }
}

#[rstest]
#[case("right", "")]
#[case("right_prints", "")]
#[case("right_prints_without_end", "")]
#[case("right_forges", "")]
#[case("right_without_stdout", "")]
#[case("right_leaves_a_process", "it left processes running (1)")]
#[case("right_leaves_threads", "")]
#[case("right_prints_beside", "")]
#[case("right_changes_the_environment", "")]
#[case("wrong", "is wrong in")]
#[case("writes_past_its_output", "past the end of `y`")]
#[case("writes_to_its_input", "modified its input `x`")]
#[case("overflows_its_stack", "signal 6")]
#[case("sends_stdout_nowhere", "is wrong in")]
#[case("opens_the_memory_of_its_parent", "is wrong in")]
#[case("panic", "panicked")]
#[case("panic_twice", "signal 6")]
#[case("exit", "exit code 0")]
#[case("exit_at_once", "exit code 0")]
#[case("abort", "signal 6")]
#[case("segfault", "signal 11")]
#[case("spin", "still running after 4 s")]
#[case("sleep", "still running after 4 s")]
#[case("stop", "still running after 4 s")]
#[case("ignores_signals", "still running after 4 s")]
#[case("leaves_the_session", "still running after 4 s")]
#[case("kills_its_parent", "")]
#[case("terminates_its_parent", "")]
#[case("kills_its_group", "signal 9")]
#[case("forges", "is wrong in")]
#[case("forges_and_exits", "exit code 0")]
#[case("forges_and_waits", "still running after 4 s")]
#[case("forges_everywhere", "is no reply to this trial")]
#[case("forges_everywhere_and_exits", "is no reply to this trial")]
#[case("prints_a_separator", "is wrong in")]
#[case("prints_a_result", "is wrong in")]
#[case("closes_stdout", "is wrong in")]
#[case("closes_all", "")]
#[case("closes_all_and_sleeps", "")]
#[case("reads_stdin", "is wrong in")]
#[case("forks_and_exits", "exit code 0")]
#[case("forks_and_waits", "still running after 4 s")]
#[case("changes_folder", "is wrong in")]
#[case("writes_a_summary", "is wrong in")]
fn each_ends_as_it_should(#[case] how: &str, #[case] why: &str) {
    judge(how, why, &["correctness"]);
}

#[rstest]
#[case("right", "")]
#[case("wrong", "is wrong in")]
#[case("exit_at_once", "exit code 0")]
#[case("spin", "still running after 4 s")]
#[case("forges_and_exits", "exit code 0")]
#[case("kills_its_parent", "")]
#[case("closes_all_and_sleeps", "")]
#[case("right_leaves_a_process", "it left processes running (1)")]
fn so_it_does_in_one_process_and_when_it_is_repeated(
    #[case] how: &str,
    #[case] why: &str,
    #[values(&["--in-process", "correctness"][..], &["correctness", "--shape", "n=77"])] mode: &[&str],
) {
    judge(how, why, mode);
}

/// Runs the gate and looks at the candidate, at its neighbours and at the log.
fn judge(how: &str, why: &str, mode: &[&str]) {
    let run = Run::new();
    let begun = Instant::now();
    let ran = Ran::from(run.command(how, mode).output().unwrap());
    let took = begun.elapsed();
    let expected = if how.starts_with("right") && why.is_empty() { "pass" } else { "fail" };
    assert_eq!(run.verdict(TRIAL), expected, "{}{}", ran.stdout, ran.stderr);
    let failure = ran.failure(TRIAL);
    assert!(failure.contains(why), "{failure}");
    for (neighbour, verdict) in [("a_right", "pass"), ("a_wrong", "fail"), ("z_right", "pass"), ("z_wrong", "fail")] {
        let trial = format!("triple::{neighbour}::f32::correctness");
        assert_eq!(run.verdict(&trial), verdict, "{neighbour}: {}", ran.stdout);
    }
    assert_eq!(ran.code, Some(101), "two neighbours are wrong");
    assert!(took < RUN_LIMIT, "{took:?}");
    assert!(!ran.stdout.contains(['\u{1b}', '\u{1e}']) && ran.stdout.len() < 1 << 16, "{}", ran.stdout.len());
    let result = ran.stdout.lines().filter(|line| line.starts_with("test result:")).count();
    assert_eq!(result, 1, "{}", ran.stdout);
}

/// Memory is bounded from outside: the worker ends, the gate does not.
#[test]
fn a_candidate_that_takes_all_memory_is_one_failure() {
    let run = Run::new();
    let gate = run.command("memory", &["correctness", "--test-threads", "1"]);
    let mut bounded = Command::new("sh");
    bounded.args(["-c", "ulimit -v 2000000; exec \"$0\" \"$@\""]).arg(gate.get_program()).args(gate.get_args());
    for (name, value) in gate.get_envs() {
        match value {
            Some(value) => bounded.env(name, value),
            None => bounded.env_remove(name),
        };
    }
    let ran = Ran::from(bounded.output().unwrap());
    assert_eq!((ran.code, run.verdict(TRIAL).as_str()), (Some(101), "fail"), "{}", ran.stdout);
    assert!(ran.failure(TRIAL).contains("ended its process"), "{}", ran.stdout);
    assert_eq!(run.verdict("triple::z_right::f32::correctness"), "pass");
}

/// A process that has forked must not keep the machine: the next timed trial would wait for it.
#[test]
fn a_forked_process_holds_no_lock() {
    let run = Run::new();
    let mut first = run.command("forks_and_exits", &["hostile::f32::perf"]);
    assert_eq!(Ran::from(first.env("HOSTILE_TIMED", "1").output().unwrap()).code, Some(101));
    let begun = Instant::now();
    let mut second = run.command("right", &["a_right::f32::perf"]);
    let ran = Ran::from(second.env("HOSTILE_TIMED", "1").output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// Whatever ends the gate ends its worker too.
#[rstest]
#[case("spin", rustix::process::Signal::KILL)]
#[case("spin", rustix::process::Signal::TERM)]
#[case("stop", rustix::process::Signal::KILL)]
#[case("leaves_the_session", rustix::process::Signal::KILL)]
#[cfg(target_os = "linux")]
fn a_worker_dies_with_its_gate(#[case] how: &str, #[case] signal: rustix::process::Signal) {
    let run = Run::new();
    let mut command = run.command(how, &["hostile::f32::correctness"]);
    let mut gate = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = i32::try_from(gate.id()).unwrap();
    // The keeper is a child of the gate, the worker one of the keeper.
    let worker = wait_for(|| children(pid).into_iter().find_map(|keeper| children(keeper).first().copied()));
    let worker = worker.expect("a worker");
    std::thread::sleep(Duration::from_millis(300));
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
    gate.wait().unwrap();
    assert!(wait_for(|| (!is_running(worker)).then_some(())).is_some(), "process {worker} has outlived its gate");
}

#[cfg(target_os = "linux")]
fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        match found() {
            Some(found) => return Some(found),
            None if begun.elapsed() > Duration::from_secs(20) => return None,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[cfg(target_os = "linux")]
fn children(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
}

/// Whether there is such a process; one that has ended and was not waited for is none.
#[cfg(target_os = "linux")]
fn is_running(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// In this very process nobody can see how it ends; so it never looks good where it does come to its end.
#[test]
fn an_unsupervised_run_is_never_green() {
    let run = Run::new();
    let right = Ran::from(run.command("right", &["a_right", "--unsupervised"]).output().unwrap());
    assert_eq!(right.code, Some(3), "{}{}", right.stdout, right.stderr);
    assert!(right.stderr.contains("nobody watched this process"), "{}", right.stderr);
    let wrong = Ran::from(run.command("right", &["a_wrong", "--unsupervised"]).output().unwrap());
    assert_eq!(wrong.code, Some(101));
}

#[rstest]
#[case("1")]
#[case("worker")]
#[case("worker 1")]
#[case("keeper 1")]
fn a_worker_without_a_gate_is_an_error(#[case] role: &str) {
    let run = Run::new();
    let ran = Ran::from(run.command("right", &[]).env("KERNELGATE_WORKER", role).output().unwrap());
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    assert!(ran.stderr.contains("KERNELGATE_WORKER") && ran.stderr.contains("Unset it"), "{}", ran.stderr);
}
