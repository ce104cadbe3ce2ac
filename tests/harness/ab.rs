//! Two builds of a gate against each other: the fixture's gate on both sides, with other candidates, a planted slowdown,
//! a crash.
#![cfg(unix)]

use crate::support::{Ran, bare, gate, tried};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A build with these candidates, as a bundle: `bin/gate` in a folder.
fn bundle(folder: &Path, name: &str, candidates: &str) -> PathBuf {
    let build = folder.join(name);
    std::fs::create_dir_all(build.join("bin")).unwrap();
    let script = format!("#!/bin/sh\nMISBEHAVE={candidates} MISBEHAVE_TIMED=1 exec '{}' \"$@\"\n", gate().display());
    let path = build.join("bin/gate");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    build
}

/// `ab` of two such builds, and the comparisons in its summary.
fn ab(base: &str, head: &str, arguments: &[&str]) -> (Ran, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let (base, head) = (bundle(folder.path(), "base", base), bundle(folder.path(), "head", head));
    let out = folder.path().join("ab.json");
    let mut command = bare(env!("CARGO_BIN_EXE_kernelgate"));
    // The locks of a folder of its own: it does not wait for other gates of this machine.
    command.env("TMPDIR", folder.path());
    command.args(["ab", "--device", "cpu", "--dtype", "f32", "--base"]).arg(base).arg("--head").arg(head);
    let ran = Ran::from(command.arg("--out").arg(&out).args(arguments).output().unwrap());
    let summary: Value = serde_json::from_str(&std::fs::read_to_string(&out).expect(&ran.stderr)).unwrap();
    assert_eq!(crate::schema::problems(&summary), [""; 0]);
    assert_eq!(std::fs::read_to_string(out.with_extension("md")).unwrap(), ran.stdout);
    (ran, summary["builds"].as_array().unwrap().clone())
}

fn find<'a>(comparisons: &'a [Value], candidate: &str) -> &'a Value {
    comparisons.iter().find(|comparison| comparison["candidate"] == candidate).unwrap()
}

#[test]
fn a_build_beside_itself_is_measured_and_judged() {
    let (ran, comparisons) = ab("right,chatty", "right,chatty", &["--all"]);
    assert_eq!(comparisons.len(), 2, "{}", ran.stderr);
    let mut slower = false;
    for comparison in &comparisons {
        // The machine that runs this may be busy: whether noise was mistaken for a change is tested elsewhere.
        let verdict = comparison["verdict"].as_str().unwrap();
        assert!(["same", "faster", "slower", "unclear"].contains(&verdict), "{comparison}");
        slower |= verdict == "slower";
        let (base, head) = (comparison["base_us"].as_f64().unwrap(), comparison["head_us"].as_f64().unwrap());
        assert!((comparison["ratio"].as_f64().unwrap() - head / base).abs() < 1e-9, "{comparison}");
        assert!(comparison["threshold"].as_f64().unwrap() >= 0.01);
    }
    assert_eq!(ran.code, Some(i32::from(slower)), "{}", ran.stdout);
    assert!(ran.stdout.starts_with("**2 compared") && ran.stdout.contains("double::chatty::f32"), "{}", ran.stdout);
    assert!(ran.stderr.contains("no end of line"), "what a candidate prints is passed on: {}", ran.stderr);
}

#[test]
fn a_planted_slowdown_is_found_where_it_was_planted() {
    let plant = ["--plant", "double::right::f32=4", "--repeat", "2"];
    let is_clear = |(_, comparisons): &(Ran, Vec<Value>)| comparisons.iter().all(|one| one["verdict"] != "unclear");
    let (ran, comparisons) = tried(|| ab("right,also_right", "right,also_right", &plant), is_clear);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let of = |candidate: &str| comparisons.iter().filter(|c| c["candidate"] == candidate).collect::<Vec<_>>();
    let planted = of("right");
    assert_eq!((planted.len(), of("also_right").len()), (2, 2));
    for (turn, comparison) in planted.iter().enumerate() {
        assert_eq!((&comparison["verdict"], &comparison["sessions"]), (&"slower".into(), &2.into()), "{comparison}");
        assert!(comparison["ratio"].as_f64().unwrap() > 2.0 && comparison["turn"] == turn, "{comparison}");
    }
    assert!(ran.stdout.contains("planted double::right::f32=4: 2 of 2 found; of the 2 others"), "{}", ran.stdout);
}

#[test]
fn candidates_of_one_side_are_named() {
    let (ran, comparisons) = ab("right,gone", "right,new", &[]);
    assert_eq!(find(&comparisons, "gone")["reason"], "only in base");
    assert_eq!(find(&comparisons, "new")["reason"], "only in head");
    assert!(comparisons.iter().filter(|c| c["verdict"] == "skip").count() == 2, "{}", ran.stdout);
}

#[test]
fn a_head_that_crashes_fails_there_and_nowhere_else() {
    // The same names on both sides, but head's `abort` aborts.
    let (ran, comparisons) = ab("abort,right", "abort,right", &[]);
    let crashed = find(&comparisons, "abort");
    assert_eq!(crashed["verdict"], "fail", "{}", ran.stderr);
    let reason = crashed["reason"].as_str().unwrap();
    assert!(reason.contains("head: the peer died when asked for `case`: signal 6"), "{reason}");
    assert!(find(&comparisons, "right")["ratio"].as_f64().is_some(), "{}", ran.stderr);
    assert_eq!(ran.code, Some(1));
}

#[test]
fn a_head_that_hangs_is_not_waited_for() {
    let (ran, comparisons) = ab("hang,right", "hang,right", &["--deadline", "2"]);
    let reason = find(&comparisons, "hang")["reason"].as_str().unwrap();
    assert!(reason.contains("gave no answer to `case` within 2 s"), "{reason}");
    assert!(find(&comparisons, "right")["ratio"].as_f64().is_some(), "{}", ran.stderr);
}

#[test]
fn a_wrong_head_fails() {
    let (ran, comparisons) = ab("wrong", "wrong", &[]);
    assert!(comparisons[0]["reason"].as_str().unwrap().contains("head: the peer failed: values: `y` is wrong"));
    assert_eq!((ran.code, &comparisons[0]["verdict"]), (Some(1), &"fail".into()));
}

#[test]
fn what_is_no_build_is_a_usage_error() {
    let folder = tempfile::tempdir().unwrap();
    let run = |base: &Path| {
        let mut command = bare(env!("CARGO_BIN_EXE_kernelgate"));
        Ran::from(command.arg("ab").arg("--base").arg(base).arg("--head").arg(gate()).output().unwrap())
    };
    let empty = run(folder.path());
    assert!(empty.code == Some(2) && empty.stderr.contains("holds no bin/gate"), "{}", empty.stderr);
    let nowhere = run(&folder.path().join("nowhere"));
    assert!(nowhere.code == Some(2) && nowhere.stderr.contains("nowhere"), "{}", nowhere.stderr);
}

#[test]
fn committed_tables_are_what_the_command_makes_of_their_summaries() {
    let results = crate::support::root().join("docs/results");
    let tables = [("h200-ab-planted", "--builds"), ("h200-peers", "--peers"), ("cpu-peers", "--peers")];
    for (name, form) in tables {
        let file = |extension: &str| results.join(format!("{name}.{extension}"));
        let mut command = bare(env!("CARGO_BIN_EXE_kernelgate"));
        let ran = Ran::from(command.args(["report", form]).arg(file("json.xz")).output().unwrap());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let committed = std::fs::read_to_string(file("md")).unwrap();
        assert!(ran.stdout == committed, "{name}.md is stale: kernelgate report {form} {name}.json.xz --out {name}.md");
    }
}
