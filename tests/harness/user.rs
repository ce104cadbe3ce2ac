//! The downstream project of `fixtures/user`, built and run as its author would.

use crate::support::{Ran, bare, build, root};
use serde_json::Value;

#[test]
fn a_downstream_project_builds_and_passes_its_gate() {
    let folder = tempfile::tempdir().unwrap();
    let project = root().join("fixtures/user");
    // The lock file of this crate, so that nothing else has to be fetched.
    std::fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let gate = build(&project.join("Cargo.toml"), "gate");

    let out = folder.path().join("summary.json");
    let mut command = bare(&gate);
    command.env("KERNELGATE_ROOT", folder.path()).arg("--out").arg(&out).args(["--device", "cpu"]);
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    for trial in ["fast_gelu::cpu::f32::correctness", "fast_gelu::cpu::f32::property"] {
        assert!(ran.says(trial, "ok"), "{}", ran.stdout);
    }
    // No baseline yet, or a machine too busy to tell: neither is a failure.
    assert!(ran.says("fast_gelu::cpu::f32::perf", "ignored ("), "{}", ran.stdout);
    assert!(ran.says("fast_gelu::cuda::bf16::correctness", "ignored (kernels are switched off"), "{}", ran.stdout);

    let summary: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!((&summary["run"]["package"], &summary["counts"]["fail"]), (&"fast-gelu".into(), &0.into()));
}

/// The packages that a build of this crate compiles.
fn packages(features: &[&str]) -> Vec<String> {
    let mut command = std::process::Command::new(env!("CARGO"));
    command.args(["tree", "--offline", "--prefix", "none", "--edges", "normal", "--manifest-path"]);
    let ran = Ran::from(command.arg(root().join("Cargo.toml")).args(features).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout.lines().filter_map(|line| line.split(' ').next().map(Into::into)).collect()
}

#[test]
fn a_gate_pulls_nothing_that_only_models_need() {
    let (gate, all) = (packages(&["--no-default-features", "--features", "cuda-13"]), packages(&[]));
    for package in ["memmap2", "minijinja", "safetensors", "tokenizers"] {
        let has = |packages: &[String]| packages.iter().any(|name| name == package);
        assert!(!has(&gate) && has(&all), "{package}");
    }
}

#[test]
fn its_kernel_runs_in_the_simulator_or_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let project = root().join("fixtures/user");
    std::fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let gate = build(&project.join("Cargo.toml"), "gate");
    let mut command = bare(&gate);
    command.env("KERNELGATE_ROOT", folder.path()).arg("--out").arg(folder.path().join("summary.json"));
    let ran = Ran::from(command.args(["cuda", "--device", "sim"]).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    for dtype in ["f32", "f16", "bf16"] {
        let trial = format!("fast_gelu::cuda::{dtype}::correctness");
        assert!(ran.says(&trial, "ok") || ran.stdout.contains("python3 -m pip install"), "{}", ran.stdout);
    }
}

#[test]
fn its_gate_is_short_and_safe() {
    let gate = std::fs::read_to_string(root().join("fixtures/user/tests/gate.rs")).unwrap();
    assert!(gate.lines().count() <= 25 && !gate.contains("unsafe"), "{gate}");
}
