//! Where a run writes: streams that are closed, full or read by nobody, and things that are no files. None of them costs a
//! verdict, a summary, or what lies there.

use crate::support::{Fixture, Ran, bare, gate};
use rstest::rstest;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::process::Command;

/// The gate with a right and a wrong candidate, as a shell would start it: `$GATE` and what stands behind it.
fn shell(fixture: &Fixture, script: &str) -> Ran {
    let gate = fixture.command("right,wrong", &["--skip", "kernel"]);
    let mut command = bare("bash");
    command.args(["-uc", script, "bash"]).arg(gate.get_program()).args(gate.get_args());
    command.envs(gate.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.output().unwrap().into()
}

#[rstest]
#[case::head("set -o pipefail; \"$@\" | head -1", None)]
#[case::closed("\"$@\" >&-", Some(101))]
#[case::both_closed("\"$@\" >&- 2>&-", Some(101))]
#[case::all_closed("\"$@\" <&- >&- 2>&-", Some(101))]
#[case::full("\"$@\" > /dev/full", Some(101))]
#[case::both_full("\"$@\" > /dev/full 2>&1", Some(101))]
#[case::reader_gone("\"$@\" 2>&1 > >(true) | true; exit ${PIPESTATUS[0]}", Some(101))]
#[case::full_log("\"$@\" --logfile /dev/full", Some(101))]
#[case::full_log_alone("\"$@\" --logfile /dev/full --test-threads 1", Some(101))]
fn a_run_ends_with_its_summary_whoever_reads_its_log(#[case] script: &str, #[case] code: Option<i32>) {
    let fixture = Fixture::new();
    let ran = shell(&fixture, script);
    assert!(!ran.stderr.contains("panicked at"), "{}", ran.stderr);
    assert!(code.is_none() || ran.code == code, "{:?}: {}", ran.code, ran.stderr);
    let records = fixture.summary()["records"].as_array().unwrap().len();
    assert_eq!(records, 4, "{}", ran.stderr);
}

#[test]
fn a_log_that_cannot_be_written_is_found_before_the_first_trial() {
    let fixture = Fixture::new();
    let ran = shell(&fixture, "\"$@\" --logfile /proc/absent/log");
    assert!(ran.code == Some(2) && ran.stderr.contains("--logfile /proc/absent/log: cannot write"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
}

/// A run whose summary goes to `out`.
fn run_to(out: &Path) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let mut command = bare(gate());
    command.env("KERNELGATE_ROOT", folder.path()).env("MISBEHAVE", "right").args(["right", "--out"]).arg(out);
    command.output().unwrap().into()
}

#[test]
fn a_device_is_written_through_and_stays_one() {
    let ran = run_to(Path::new("/dev/null"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert!(!Path::new("/dev/.null.lock").exists());
    let ran = run_to(Path::new("/dev/full"));
    assert!(ran.code == Some(101) && ran.stderr.contains("/dev/full: cannot write the summary"), "{}", ran.stderr);
}

#[test]
fn a_link_and_a_pipe_stay_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), "old").unwrap();
    std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
    assert_eq!(run_to(&at("link")).code, Some(0));
    assert!(std::fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert!(std::fs::read_to_string(at("file")).unwrap().contains("\"records\""));

    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let ran = run_to(&at("pipe"));
    assert!(ran.code == Some(101) && ran.stderr.contains("is a pipe that nobody reads"), "{}", ran.stderr);
    assert!(std::fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
    let ran = run_to(folder.path());
    assert!(ran.code == Some(101) && ran.stderr.contains("is a folder"), "{}", ran.stderr);
}

/// What one `cargo test` starts is one run: here a script of that name starts two gates.
#[test]
#[cfg(target_os = "linux")]
fn binaries_of_one_cargo_test_share_a_summary() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new();
    let cargo = tempfile::tempdir().unwrap();
    let script = cargo.path().join("cargo");
    std::fs::write(&script, "#!/bin/sh\n\"$@\" right\n\"$@\" wrong\necho done\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = || {
        let gate = fixture.command("right,wrong", &["--skip", "kernel"]);
        let mut command = bare(&script);
        command.arg(gate.get_program()).args(gate.get_args());
        command.envs(gate.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ran = Ran::from(command.output().unwrap());
        assert!(ran.stdout.ends_with("done\n"), "{}{}", ran.stdout, ran.stderr);
        let summary = fixture.summary();
        assert_eq!(summary["records"].as_array().unwrap().len(), 4, "{summary}");
        summary["run"]["id"].clone()
    };
    let first = run();
    assert_ne!(first, run(), "another cargo is another run");
}

/// A run on a terminal, which shows both streams.
fn on_a_terminal(arguments: &[&str], no_colour: bool) -> Ran {
    let fixture = Fixture::new();
    let gate = fixture.command("slow,right", arguments);
    let mut command = bare("python3");
    command.args(["-c", "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"]);
    command.arg(gate.get_program()).args(gate.get_args()).env("TERM", "xterm").env_remove("NO_COLOR");
    command.envs(gate.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if no_colour {
        command.env("NO_COLOR", "1");
    }
    command.output().unwrap().into()
}

#[test]
fn a_terminal_shows_how_far_a_long_run_is() {
    let ran = on_a_terminal(&["slow::f32::correctness", "right::f32::correctness"], false);
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    assert!(ran.stdout.contains(" of 2 ") && ran.stdout.contains(" left "), "{}", ran.stdout);
    assert!(ran.stdout.contains("slow::f32::correctness"), "{}", ran.stdout);
    // The line is taken away for each line of the log, which begins where it stood.
    let log: Vec<&str> = ran.stdout.split(['\r', '\n']).filter(|line| line.contains(" ... ")).collect();
    assert_eq!(log.len(), 2, "{}", ran.stdout);
    assert!(log.iter().all(|line| !line.contains(" left ") && line.contains("\u{1b}[")), "in colour: {log:?}");
}

#[rstest]
#[case::no_color(&[], true)]
#[case::quiet(&["-q"], false)]
fn a_terminal_is_left_alone_where_that_is_asked_for(#[case] arguments: &[&str], #[case] no_colour: bool) {
    let ran = on_a_terminal(&[arguments, &["double::right::f32::correctness"]].concat(), no_colour);
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    assert!(!no_colour || !ran.stdout.contains("\u{1b}[3"), "{}", ran.stdout);
    assert!(!ran.stdout.contains(" left "), "{}", ran.stdout);
}
