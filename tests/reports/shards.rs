//! Shards of a run, merged, are the whole run; what overlaps is refused.

use crate::support::kernelgate;
use serde_json::Value;
use std::path::Path;

/// Runs the gate over some trials and gives back its summary.
fn check(filters: &[&str], to: &Path) -> Value {
    let mut command = kernelgate("check");
    command.args(filters).args(["--device", "cpu", "--dtype", "f32", "--seed", "7", "--skip", "perf", "--out"]).arg(to);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    read(to)
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Without what differs from run to run: times, and which run it was.
fn timeless(mut summary: Value) -> Value {
    for name in ["id", "started", "command", "merged"] {
        summary["run"].as_object_mut().unwrap().remove(name);
    }
    for record in summary["records"].as_array_mut().unwrap() {
        record.as_object_mut().unwrap().remove("duration_s");
    }
    summary
}

#[test]
fn two_shards_merged_are_the_whole_run() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let whole = check(&["silu::", "gelu::"], &at("whole.json"));
    check(&["silu::naive", "gelu::"], &at("one.json"));
    check(&["silu::", "--skip", "silu::naive"], &at("two.json"));
    let merge = |files: &[&str]| {
        let mut command = kernelgate("merge");
        command.args(files.iter().map(|file| at(file))).arg("--out").arg(at("merged.json"));
        command.output().unwrap()
    };
    let merged = merge(&["one.json", "two.json"]);
    assert!(merged.status.success(), "{}", String::from_utf8_lossy(&merged.stderr));
    assert!(whole["records"].as_array().unwrap().len() > 6, "{}", whole["records"]);
    assert_eq!(timeless(read(&at("merged.json"))), timeless(whole.clone()));
    // A guard for the comparison itself: one record less is another run.
    let mut less = whole;
    less["records"].as_array_mut().unwrap().pop();
    assert_ne!(timeless(read(&at("merged.json"))), timeless(less));
    let overlap = merge(&["whole.json", "two.json"]);
    assert_eq!(overlap.status.code(), Some(2));
    let said = String::from_utf8_lossy(&overlap.stderr).into_owned();
    assert!(said.contains("silu::") && said.contains("whole.json") && said.contains("two.json"), "{said}");
    let newer = kernelgate("merge").arg("--newer").args([at("whole.json"), at("two.json")]).output().unwrap();
    assert!(newer.status.success(), "{}", String::from_utf8_lossy(&newer.stderr));
}
