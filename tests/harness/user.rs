//! The downstream project of `fixtures/user`, built and run as its author would.

use crate::support::{Ran, bare, build, root};
use serde_json::Value;
use std::path::Path;

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
    for package in ["mmap-io", "minijinja", "safetensors", "tokenizers"] {
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

/// The gate of the downstream project.
fn gate() -> std::path::PathBuf {
    let project = root().join("fixtures/user");
    std::fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    build(&project.join("Cargo.toml"), "gate")
}

#[test]
fn its_gate_answers_what_the_command_asks() {
    let (gate, folder) = (gate(), tempfile::tempdir().unwrap());
    let ask = |program: &std::path::Path, arguments: &[&str]| {
        Ran::from(bare(program).env("KERNELGATE_ROOT", folder.path()).args(arguments).output().unwrap())
    };
    let listed = ask(&gate, &["--command", "list", "--json"]);
    let operators: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!((listed.code, &operators[0]["operator"]), (Some(0), &"fast_gelu".into()));

    // The same through the command, which hands on arguments and exit code.
    let kernelgate = std::path::Path::new(env!("CARGO_BIN_EXE_kernelgate"));
    let gate = gate.to_string_lossy().into_owned();
    assert_eq!(ask(kernelgate, &["list", "--gate", &gate, "--json"]).stdout, listed.stdout);
    let no_hit = ask(kernelgate, &["bench", "--gate", &gate, "gulu"]);
    assert_eq!(no_hit.code, Some(2), "{}", no_hit.stderr);
    assert!(no_hit.stderr.contains("`gulu`"), "{}", no_hit.stderr);

    let out = folder.path().join("tuned.json").to_string_lossy().into_owned();
    let shape = ["--shape", "n=4096", "--device", "cpu"];
    let chosen = ask(kernelgate, &[&["tune", "--gate", &gate, "cpu", "--out", &out], &shape[..]].concat());
    assert_eq!(chosen.code, Some(0), "{}{}", chosen.stdout, chosen.stderr);
    let tuned: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!((&tuned[0]["fastest"], &tuned[0]["shape"]), (&"cpu".into(), &"n=4096".into()));
}

#[cfg(unix)]
#[test]
fn a_bench_that_is_ended_keeps_the_shapes_that_are_done() {
    use std::io::{BufRead as _, BufReader};
    let (gate, folder) = (gate(), tempfile::tempdir().unwrap());
    let out = folder.path().join("bench.json");
    let mut command = bare(&gate);
    command
        .env("KERNELGATE_ROOT", folder.path())
        .args(["--command", "bench", "cpu", "--device", "cpu", "--out"])
        .arg(&out);
    command.args((0..200).flat_map(|i| ["--shape".to_owned(), format!("n={}", 5000 + i)])).args(["--sampling", "0.05"]);
    let mut running = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    // A row a shape, as soon as it is done.
    let lines = BufReader::new(running.stdout.take().unwrap()).lines().map_while(Result::ok);
    let first = lines.into_iter().find(|line| line.contains("n=5000"));
    assert!(first.is_some(), "no row came");
    let pid = running.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(running.wait().unwrap().code(), Some(143));
    let summary: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    let timings = summary["records"][0]["timings"].as_array().unwrap().len();
    assert!((1..200).contains(&timings), "{timings} of 200 shapes");
}

/// The block of the README behind a line that begins so.
fn block<'r>(readme: &'r str, before: &str) -> &'r str {
    let behind = &readme[readme.find(before).unwrap_or_else(|| panic!("the README has no `{before}`"))..];
    let inside = behind.split_once("```").and_then(|(_, rest)| rest.split_once('\n')).unwrap().1;
    &inside[..inside.find("```").unwrap()]
}

/// So that what is pasted is what the tests above build and run.
#[test]
fn the_readme_holds_this_very_project() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let file = |path: &str| std::fs::read_to_string(root().join("fixtures/user").join(path)).unwrap();
    assert_eq!(block(&readme, "`tests/gate.rs`:"), file("tests/gate.rs"));
    assert_eq!(block(&readme, "`kernels/fast_gelu.cu`:"), file("kernels/fast_gelu.cu"));
    let manifest =
        block(&readme, "At the end of `Cargo.toml`:").replace("path = \"../kernelgate\"", "path = \"../..\"");
    assert!(file("Cargo.toml").ends_with(&manifest), "{manifest}");
    assert!(env!("CARGO_PKG_VERSION").starts_with("0.1."));
}

/// Who looks a type of the prelude up finds it used.
#[test]
fn every_type_of_the_prelude_has_an_example() {
    let prelude = std::fs::read_to_string(root().join("src/prelude.rs")).unwrap();
    let of_crate = prelude
        .lines()
        .filter_map(|line| line.strip_prefix("pub use crate::core::"))
        .filter(|line| !line.contains("DType::{"));
    let words = of_crate.flat_map(|line| {
        line.rsplit("::").next().unwrap_or_default().split(|c: char| !c.is_alphanumeric() && c != '_')
    });
    let names: Vec<&str> = words.filter(|word| !word.is_empty()).chain(["DType"]).collect();
    assert!(names.len() > 20, "{names:?}");
    let mut sources = Vec::new();
    sources_in(&root().join("src/core"), &mut sources);
    for name in names {
        let defines = |text: &&String| {
            ["struct", "enum", "trait", "fn"].iter().any(|kind| {
                let begins = format!("pub {kind} {name}");
                text.match_indices(&begins)
                    .any(|(at, _)| !text[at + begins.len()..].starts_with(|c: char| c.is_alphanumeric()))
            })
        };
        let shows = |text: &&String| {
            let docs = text.lines().filter_map(|line| line.trim_start().strip_prefix("///"));
            let docs = docs.collect::<Vec<_>>().join("\n");
            docs.split("```").skip(1).step_by(2).any(|example| example.contains(name))
        };
        assert!(sources.iter().any(|text| defines(&text) && shows(&text)), "`{name}` has no example");
    }
}

fn sources_in(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources_in(&path, found);
        } else {
            found.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn its_gate_is_short_and_safe() {
    let gate = std::fs::read_to_string(root().join("fixtures/user/tests/gate.rs")).unwrap();
    assert!(gate.lines().count() <= 32 && !gate.contains("unsafe"), "{gate}");
}
