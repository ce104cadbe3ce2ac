//! The `kernelgate` command: every subcommand, its output and its exit code.

use crate::support::{Ran, bare};
use serde_json::Value;
use std::path::Path;

fn kernelgate(arguments: &[&str]) -> Ran {
    bare(env!("CARGO_BIN_EXE_kernelgate")).args(arguments).output().unwrap().into()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn data(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/harness/data").join(name).to_string_lossy().into_owned()
}

#[test]
fn schema_prints_the_committed_schema() {
    let ran = kernelgate(&["schema"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), kernelgate::report::SCHEMA));
}

#[test]
fn the_readme_names_every_subcommand() {
    let help = kernelgate(&["--help"]).stdout;
    let named = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> = named
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() >= 11, "{help}");
    let readme = std::fs::read_to_string(crate::support::root().join("README.md")).unwrap();
    for name in names {
        assert!(readme.contains(&format!("| `{name}` |")), "README.md says nothing of `kernelgate {name}`");
    }
}

#[test]
fn doctor_says_what_is_there_and_what_is_not() {
    let ran = kernelgate(&["doctor"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("found    CPU") && ran.stdout.contains("GPU"), "{}", ran.stdout);
    let entries = json(&kernelgate(&["doctor", "--json"]).stdout);
    let gpu = entries.as_array().unwrap().iter().find(|entry| entry["what"] == "GPU").unwrap();
    let expected = if gpu.get("found").is_some() { 0 } else { 3 };
    assert_eq!(kernelgate(&["doctor", "--require", "cuda"]).code, Some(expected));
}

#[test]
fn list_names_operators_and_candidates() {
    let ran = kernelgate(&["list", "softmax"]);
    assert!(ran.code == Some(0) && ran.stdout.starts_with("softmax: "), "{}", ran.stdout);
    assert!(ran.stdout.contains("cpu   naive (f32, f16, bf16)"), "{}", ran.stdout);
    let all = json(&kernelgate(&["list", "--json"]).stdout);
    assert_eq!(all.as_array().unwrap().len(), kernelgate::ops::catalogue().len());
}

#[test]
fn listing_the_whole_catalogue_costs_milliseconds() {
    kernelgate(&["check", "--list"]);
    let start = std::time::Instant::now();
    let ran = kernelgate(&["check", "--list"]);
    let took = start.elapsed();
    assert!(ran.stdout.lines().count() > 100 && ran.stdout.contains("gemm::naive::bf16::correctness: test"));
    assert!(took.as_millis() < 500, "{took:?} on a busy machine; it takes a tenth of that on a quiet one");
}

#[test]
fn check_runs_the_gate_for_people_and_for_machines() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("summary.json").to_string_lossy().into_owned();
    let one = ["check", "--exact", "silu::naive::f16::correctness", "--shape", "n=33", "--out", &out];
    let ran = kernelgate(&one);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.says("silu::naive::f16::correctness", "ok") && ran.stdout.contains(&out), "{}", ran.stdout);
    let ran = kernelgate(&[&one[..], &["--json"]].concat());
    let summary = json(&ran.stdout);
    assert_eq!((ran.code, &summary["counts"]["pass"]), (Some(0), &1.into()));
    let repeat = summary["records"][0]["repeat"].as_str().unwrap();
    assert!(repeat.starts_with("kernelgate check --exact silu::naive::f16::correctness"), "{repeat}");
}

#[test]
fn check_ends_with_3_when_only_something_required_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("summary.json").to_string_lossy().into_owned();
    let arguments = ["check", "silu", "--shape", "n=1", "--device", "cpu", "--require", "cuda", "--out", &out];
    let ran = kernelgate(&[&arguments[..], &["--skip", "perf"]].concat());
    assert_eq!(ran.code, Some(3), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(kernelgate(&["check", "--shape", "q=1"]).code, Some(2));
}

#[test]
fn merge_joins_and_a_failed_verdict_is_one_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("merged.json").to_string_lossy().into_owned();
    let good = kernelgate(&["merge", &data("summary-v1.json"), "--out", &out]);
    assert_eq!((good.code, good.stdout.as_str()), (Some(0), ""), "{}", good.stderr);
    let both = kernelgate(&["merge", &out, &data("summary-full.json")]);
    assert_eq!(both.code, Some(1));
    let merged = json(&both.stdout);
    assert_eq!(merged["records"].as_array().unwrap().len(), 4);
    assert_eq!(merged["devices"].as_array().unwrap().len(), 2);
    let missing = kernelgate(&["merge", "/nonexistent.json"]);
    assert!(missing.code == Some(2) && missing.stderr.contains("/nonexistent.json: cannot read"), "{}", missing.stderr);
}

#[test]
fn report_makes_a_table() {
    let ran = kernelgate(&["report", "--csv", &data("summary-full.json"), &data("summary-v1.json")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut lines = ran.stdout.lines();
    assert!(lines.next().unwrap().starts_with("trial,operator,candidate,dtype,check,"));
    let rows: Vec<&str> = lines.collect();
    // Four trials and timed shapes, and the peer of one of them.
    assert_eq!(rows.len(), 5, "{}", ran.stdout);
    assert_eq!(rows.iter().filter(|row| row.contains(",cold,library,11.0,")).count(), 1, "{}", ran.stdout);
    assert_eq!(kernelgate(&["report", &data("summary-full.json")]).code, Some(2), "a form must be named");
}

#[test]
fn bench_times_what_is_selected() {
    let case = ["bench", "silu::tiled", "--dtype", "f32", "--shape", "n=4096", "--device", "cpu"];
    let ran = kernelgate(&case);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stdout.lines().any(|line| line.starts_with("silu::tiled::f32 ") && line.contains("n=4096")),
        "{}",
        ran.stdout
    );
    let ran = kernelgate(&[&case[..], &["--json"]].concat());
    let summary = json(&ran.stdout);
    assert_eq!(crate::schema::problems(&summary), [""; 0]);
    let timing = &summary["records"][0]["timings"][0];
    assert!(timing["median_us"].as_f64().unwrap() > 0.0 && timing["shape"] == "n=4096", "{timing}");
    assert_eq!(kernelgate(&["bench", "no_such_operator"]).code, Some(2));
    assert_eq!(kernelgate(&["bench", "silu::cuda", "--device", "cpu"]).code, Some(3));
}

#[test]
fn noise_compares_a_kernel_with_itself() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("noise.json").to_string_lossy().into_owned();
    let case = ["noise", "silu::tiled", "--dtype", "f32", "--shape", "n=4096", "--device", "cpu"];
    let few = ["--trials", "2", "--planted", "2", "--out", &out, "--json", "--save"];
    let mut command = bare(env!("CARGO_BIN_EXE_kernelgate"));
    let ran = Ran::from(command.env("KERNELGATE_ROOT", folder.path()).args(case).args(few).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("2 comparisons of a kernel with itself"), "{}", ran.stderr);
    let summary = json(&ran.stdout);
    assert_eq!(crate::schema::problems(&summary), [""; 0]);
    assert_eq!(summary, json(&std::fs::read_to_string(&out).unwrap()));
    assert_eq!((&summary["noise"][0]["trials"], &summary["noise"][0]["planted"][0]["trials"]), (&2.into(), &2.into()));
    let key = summary["noise"][0]["device"].as_str().unwrap();
    assert!(folder.path().join(format!("snapshots/noise/{key}.json")).is_file(), "{}", ran.stderr);
}
