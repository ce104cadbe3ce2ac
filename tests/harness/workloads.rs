//! `kernelgate cnn`, `kernelgate chain` and `kernelgate bench-cpu`: what they measure, what the summary keeps, and
//! what they say of a wrong request.

use crate::schema::problems;
use crate::support::{Ran, bare, root};
use rstest::rstest;
use serde_json::Value;
use std::path::Path;

const DIGITS: &str = "fixtures/cnn/digits";

fn run(subcommand: &str, arguments: &[&str]) -> Ran {
    let mut command = bare(env!("CARGO_BIN_EXE_kernelgate"));
    command.current_dir(root()).arg(subcommand).args(arguments).output().unwrap().into()
}

fn read(path: &Path) -> Value {
    let summary = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(problems(&summary), [""; 0]);
    summary
}

#[test]
fn a_hundred_digits_are_right_and_every_variant_is_spoken_of() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("summary.json");
    let ran = run("cnn", &["--data", DIGITS, "--device", "cpu", "--batch", "1,3", "--out", out.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let summary = read(&out);
    let runs = summary["workloads"].as_array().unwrap();
    let of = |variant: &str| runs.iter().filter(|run| run["variant"] == variant).collect::<Vec<_>>();
    let accuracy = &of("cpu")[0]["accuracy"];
    assert_eq!((&accuracy["digits"], &accuracy["kept_out"]), (&100.into(), &100.into()));
    assert!(accuracy["right_kept_out"].as_u64().unwrap() >= 98, "{accuracy}");
    let times: Vec<_> = of("cpu").iter().filter_map(|run| run["time"]["p50_us"].as_f64()).collect();
    assert!(times.len() == 2 && times.iter().all(|us| *us > 0.0), "{runs:?}");
    for variant in ["cuda", "triton", "baseline"] {
        let why = of(variant)[0]["skipped"].as_str().unwrap();
        assert!(why.contains("switched off by `--device cpu`"), "{variant}: {why}");
        assert!(ran.stdout.contains(&format!("{variant}: not here: ")), "{}", ran.stdout);
    }
}

#[cfg(unix)]
#[test]
fn digits_that_are_ended_keep_the_batches_that_are_done() {
    use std::io::{BufRead as _, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("summary.json");
    let mut command = bare(env!("CARGO_BIN_EXE_kernelgate"));
    let batches = (1..=200).map(|batch| batch.to_string()).collect::<Vec<_>>().join(",");
    command
        .current_dir(root())
        .args(["cnn", "--data", DIGITS, "--device", "cpu", "--batch", &batches, "--out"])
        .arg(&out);
    let mut running = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines().map_while(Result::ok);
    // The table of the second batch comes when the first is kept.
    assert!(lines.any(|line| line.starts_with("batch 2 ")), "no second batch came");
    assert!(std::process::Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap().success());
    assert_eq!(running.wait().unwrap().code(), Some(143));
    let timed = read(&out)["workloads"].as_array().unwrap().iter().filter(|run| run["time"].is_object()).count();
    assert!((1..200).contains(&timed), "{timed} of 200 batches");
}

#[rstest]
fn the_variants_agree_in_the_simulator(#[values("f32", "bf16")] dtype: &str) {
    let arguments = ["--data", DIGITS, "--device", "sim", "--digits", "5", "--batch", "0", "--activation", "gelu"];
    let ran = run("cnn", &[&arguments[..], &["--dtype", dtype]].concat());
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("the variants agree on every digit"), "{}", ran.stdout);
    for variant in ["cpu", "cuda", "triton"] {
        assert!(ran.stdout.contains(&format!("\n{variant:<6}   5 of 5  100.00 %")), "{variant}: {}", ran.stdout);
    }
    assert!(ran.stdout.contains("baseline: not here: "), "{}", ran.stdout);
}

#[rstest]
#[case("cnn", &["--data", "fixtures/models"], "fixtures/models: expected digits as IDX files, ")]
#[case("cnn", &["--data", DIGITS, "--weights", "fixtures/models/llama-tiny/model.safetensors"],
    "tensor `relu.conv1.weight`: expected it in the safetensors files, found 21 tensors without it")]
#[case("cnn", &["--data", DIGITS, "--dtype", "f16"], "--dtype f16: the classifier runs in f32 and bf16")]
#[case("chain", &["--sizes", "2x3"], "expected N or ROWSxINNERxCOLS, found `2x3`")]
#[case("chain", &["--device", "sim"], "--device sim: the simulator tells no time")]
#[case("bench-cpu", &["--sizes", "2x3"], "expected N or ROWSxINNERxCOLS, found `2x3`")]
fn a_wrong_request_says_where_and_what_was_expected(
    #[case] subcommand: &str,
    #[case] arguments: &[&str],
    #[case] said: &str,
) {
    let ran = run(subcommand, arguments);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
}

#[test]
fn a_chain_has_its_stages_and_is_predicted_from_them() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("summary.json");
    let ran = run("chain", &["--sizes", "16,8x24x32", "--out", out.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let summary = read(&out);
    let runs = summary["workloads"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * 6);
    for run in runs {
        let shares = run["stages"].as_array().unwrap().iter().map(|stage| stage["share"].as_f64().unwrap());
        let sum: f64 = shares.sum();
        assert!((sum - 1.0).abs() < 1e-9, "{run}");
        assert!(run["time"]["p95_us"].as_f64() >= run["time"]["p50_us"].as_f64(), "{run}");
        // How near they are depends on how quiet the machine is.
        let exchange = &run["exchange"];
        assert_eq!(exchange["predicted"].as_f64().is_some(), run["variant"] != "naive", "{run}");
    }
    let svg = run_plot(&out);
    assert!(svg.contains("<svg") && svg.contains("best_softmax predicted"), "{svg}");
}

fn run_plot(summary: &Path) -> String {
    let ran = run("plot", &["amdahl", summary.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.stdout
}

#[test]
fn the_cpu_suite_times_every_tier_and_writes_its_table() {
    let folder = tempfile::tempdir().unwrap();
    let [out, csv] = ["summary.json", "cpu.csv"].map(|name| folder.path().join(name));
    let places = ["--out", out.to_str().unwrap(), "--csv", csv.to_str().unwrap()];
    let ran = run("bench-cpu", &[&["--sizes", "16,32"][..], &places].concat());
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stdout.matches("chain::best::f32").count(), 2, "{}", ran.stdout);
    let summary = read(&out);
    for operator in ["gemm", "softmax", "layernorm", "chain"] {
        let record =
            summary["records"].as_array().unwrap().iter().find(|record| record["operator"] == operator).unwrap();
        assert_eq!(record["timings"].as_array().map(Vec::len), Some(2), "{record}");
        let naive = record["timings"][0]["peers"].as_array().unwrap().iter().any(|peer| peer["name"] == "naive");
        assert!(naive, "{record}");
    }
    let table = std::fs::read_to_string(csv).unwrap();
    assert!(table.lines().count() > 16 && table.contains("chain::best::f32::perf"), "{table}");
}
