//! Peers of every kind beside a candidate: what they do is reported, in time, and the candidate is timed all the same.

use crate::support::{Ran, bare, root};
use rstest::rstest;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The seconds that a peer is given.
const DEADLINE: &str = "3";

/// Generous: the candidate's own session, Python's start, a deadline, a busy machine.
const LONGEST: Duration = Duration::from_secs(40);

fn peer(mode: &str) -> String {
    let script = root().join("tests/peers/silu.py");
    format!("python3 '{}' {mode}", script.display())
}

/// `bench` of one case beside these peers, and the summary that it wrote.
fn bench(peers: &[String], deadline: &str) -> (Ran, Value) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("summary.json");
    let mut command = bare(env!("CARGO_BIN_EXE_kernelgate"));
    // The locks of a folder of its own: it does not wait for other gates of this machine.
    command.env("TMPDIR", folder.path());
    command.args(["bench", "silu::tiled", "--dtype", "f32", "--shape", "n=4096", "--device", "cpu"]);
    command.args(["--deadline", deadline, "--out"]).arg(&out);
    for peer in peers {
        command.args(["--peer", peer]);
    }
    let begun = Instant::now();
    let ran = Ran::from(command.output().unwrap());
    assert!(begun.elapsed() < LONGEST, "it took {:?}", begun.elapsed());
    let summary: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!(crate::schema::problems(&summary), [""; 0]);
    let record = &summary["records"][0];
    assert_eq!((&record["verdict"], record["timings"].as_array().unwrap().len()), (&"pass".into(), 1), "{record}");
    assert!(record["timings"][0]["median_us"].as_f64().unwrap() > 0.0);
    (ran, summary)
}

fn peers(summary: &Value) -> &[Value] {
    summary["records"][0]["timings"][0]["peers"].as_array().unwrap()
}

#[test]
fn peers_are_timed_in_the_same_session() {
    let (ran, summary) = bench(&[peer("right"), peer("chatty")], "60");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let peers = peers(&summary);
    assert_eq!(peers.len(), 2);
    for peer in peers {
        assert_eq!((&peer["name"], &peer["about"]), (&"python".into(), &"plain Python".into()));
        assert_eq!(peer["verdict"], "pass", "{peer}");
        let ours = summary["records"][0]["timings"][0]["median_us"].as_f64().unwrap();
        let (theirs, ratio) = (peer["median_us"].as_f64().unwrap(), peer["ratio"].as_f64().unwrap());
        assert!((ratio - ours / theirs).abs() < 1e-9 && ratio < 0.5, "plain Python at {theirs} µs, {ours} µs here");
        let interval = peer["ratio_interval"].as_array().unwrap();
        assert!(interval[0].as_f64().unwrap() <= ratio && ratio <= interval[1].as_f64().unwrap());
        assert!(peer["samples"].as_u64().unwrap() >= 6 && peer["errors"]["max_of_allowed"].as_f64().unwrap() < 1.0);
    }
    let row = ran.stdout.lines().find(|line| line.starts_with("  beside python")).unwrap();
    assert!(row.contains("candidate / peer 0."), "{row}");
    assert!(ran.stderr.contains("a library says something"), "{}", ran.stderr);
}

#[rstest]
#[case::dies("dies", "fail", "died when asked for `case`: exit code 7")]
#[case::dies_armed("dies_armed", "fail", "died when asked for `arm`: exit code 8")]
#[case::dies_sampling("dies_sampling", "fail", "died when asked for `sample`: signal 6")]
#[case::hangs("hangs", "fail", "gave no answer to `case` within 3 s and was killed")]
#[case::hangs_sampling("hangs_sampling", "fail", "gave no answer to `sample` within 3 s")]
#[case::garbage("garbage", "fail", "spoke garbage when asked for `case`")]
#[case::endless("endless", "fail", "it does not end")]
#[case::wrong_id(
    "wrong_id",
    "fail",
    "was asked for `case of case 1 (message 1)` and answered `ready of case 1 (message 99)`"
)]
#[case::wrong_case("wrong_case", "fail", "answered `ready of case 99 (message 1)`")]
#[case::wrong_kind("wrong_kind", "fail", "was asked for `case` and answered `written`")]
#[case::nan("nan", "fail", "spoke garbage when asked for `sample`")]
#[case::null("null", "fail", "lied: a launch took no number")]
#[case::negative("negative", "fail", "lied: a launch took -1 µs")]
#[case::instant("instant", "fail", "µs, which no clock can show")]
#[case::eternal("eternal", "fail", "lied: a launch took 1000000000000 µs, but the answer came ")]
#[case::wrong_output("wrong_output", "fail", "`y` is wrong in 1 of")]
#[case::short_output("short_output", "fail", "16380 bytes, 16384 are expected")]
#[case::no_output("no_output", "fail", "output `y`: ")]
#[case::wrong_later("wrong_later", "invalid", "after it was timed: `y` is wrong in 1 of")]
#[case::many_instances("many_instances", "fail", "lied: 99 instances, 16 were asked for")]
#[case::refuses("refuses", "skip", "it is Sunday")]
#[case::fails("fails", "fail", "failed: RuntimeError: no room on the moon")]
#[case::other_device("other_device", "skip", "offers no silu in f32 on a device of kind cpu")]
fn what_a_peer_does_is_reported(#[case] mode: &str, #[case] verdict: &str, #[case] reason: &str) {
    let (ran, summary) = bench(&[peer(mode)], DEADLINE);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let peer = &peers(&summary)[0];
    assert_eq!(peer["verdict"], verdict, "{peer}");
    assert!(peer["reason"].as_str().unwrap().contains(reason), "{peer}");
    assert!(ran.stdout.contains(reason), "{}", ran.stdout);
}

#[rstest]
#[case::hangs("absent_minded", "gave no answer to `hello` within 3 s")]
#[case::version("old_version", "speaks version 99 of the protocol, this kernelgate version 1")]
fn a_peer_that_does_not_come_is_missing(#[case] mode: &str, #[case] reason: &str) {
    let (ran, summary) = bench(&[peer(mode), peer("right")], DEADLINE);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    assert!(peers(&summary)[0]["reason"].as_str().unwrap().contains(reason));
    assert_eq!(peers(&summary)[1]["verdict"], "pass", "another peer has nothing to do with it");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let (ran, summary) = bench(&["/no/such/peer --fast".into()], DEADLINE);
    assert!(ran.code == Some(3) && ran.stderr.contains("/no/such/peer: "), "{}", ran.stderr);
    assert_eq!(peers(&summary)[0]["verdict"], "fail");
}

#[test]
fn a_command_with_an_open_quote_is_a_usage_error() {
    let arguments = ["bench", "silu::tiled", "--device", "cpu", "--peer", "python3 'x"];
    let ran = Ran::from(bare(env!("CARGO_BIN_EXE_kernelgate")).args(arguments).output().unwrap());
    assert!(ran.code == Some(2) && ran.stderr.contains("a ' is not closed"), "{}", ran.stderr);
}

/// A peer that hangs is killed with the processes that it started.
#[test]
#[cfg(target_os = "linux")]
fn children_of_a_killed_peer_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("child");
    let (_, summary) = bench(&[peer(&format!("orphan '{}'", note.display()))], DEADLINE);
    assert!(peers(&summary)[0]["reason"].as_str().unwrap().contains("was killed"));
    let child = std::fs::read_to_string(note).unwrap();
    let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    // Whoever adopted it may not have buried it yet.
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

/// The gate itself as a peer: it takes the inputs from their files and writes its outputs.
#[test]
fn a_gate_that_serves_is_a_peer() {
    let command = format!("'{}' check --serve silu::tiled --device cpu", env!("CARGO_BIN_EXE_kernelgate"));
    let (ran, summary) = bench(&[command], "60");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let peer = &peers(&summary)[0];
    assert_eq!((&peer["name"], &peer["verdict"]), (&"tiled".into(), &"pass".into()), "{peer}");
    assert!((0.1..10.0).contains(&peer["ratio"].as_f64().unwrap()), "{peer}");
}
