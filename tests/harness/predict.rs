//! `kernelgate predict` from the files that ship: no GPU is needed.

use crate::support::{Ran, bare, root};
use serde_json::Value;

fn predict(arguments: &[&str]) -> Ran {
    bare(env!("CARGO_BIN_EXE_kernelgate")).arg("predict").args(arguments).output().unwrap().into()
}

fn predicted(arguments: &[&str]) -> Value {
    let ran = predict(&[arguments, &["--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

const LARGE: [&str; 3] = ["softmax::cuda::bf16", "--shape", "rows=8192,cols=4096"];

#[test]
fn a_time_is_said_with_its_interval_and_what_binds_it() {
    let all = predicted(&[&LARGE[..], &["--on", "nvidia-h200-132"]].concat());
    // Also log_softmax, whose name ends the same.
    let one = all.as_array().unwrap().iter().find(|one| one["trial"] == "softmax::cuda::bf16::perf").unwrap();
    let number = |name: &str| one[name].as_f64().unwrap();
    // The accepted time is 33.4 µs.
    assert!((28.0..=39.0).contains(&number("us")), "{one}");
    assert!(number("low_us") < number("us") && number("us") < number("high_us"), "{one}");
    assert_eq!(one["bound"], "memory");
}

#[test]
fn a_fit_carries_over_to_a_device_that_was_calibrated() {
    let time = |on: &str| {
        let fit = root().join("snapshots/prediction/nvidia-h200-132.json.xz");
        let all = predicted(&[&LARGE[..], &["--on", on, "--fit", fit.to_str().unwrap()]].concat());
        let one = all.as_array().unwrap().iter().find(|one| one["trial"] == "log_softmax::cuda::bf16::perf").unwrap();
        one["us"].as_f64().unwrap()
    };
    let (h200, h100) = (time("nvidia-h200-132"), time("nvidia-h100-80gb-hbm3-132"));
    assert!(h100 > h200 && h100 < 2.0 * h200, "{h100} µs on the card with the slower memory, {h200} on the other");
}

/// A fit to small and ragged products must not let a large one compute faster than tensor cores do.
#[test]
fn no_product_is_predicted_to_be_faster_than_tensor_cores() {
    for (on, shape) in
        [("nvidia-h200-132", "m=8192,n=8192,k=8192"), ("nvidia-h100-80gb-hbm3-132", "m=2048,n=8192,k=2048")]
    {
        let all = predicted(&["gemm::cuda::bf16", "--shape", shape, "--on", on]);
        let number = |name: &str| all[0][name].as_f64().unwrap();
        assert!(number("us") >= number("pipe_us"), "{all}");
    }
}

#[test]
fn what_cannot_be_said_is_said() {
    let ran = predict(&["softmax::cuda::bf16", "--shape", "rows=1,cols=65536", "--on", "nvidia-h200-132"]);
    assert!(ran.code == Some(0) && ran.stdout.contains("outside the calibrated domain: extent"), "{}", ran.stdout);
    for (arguments, said) in [
        (&["softmax", "--on", "nvidia-nothing-1"][..], "make one with `kernelgate calibrate`"),
        (&["softmax", "--on", "../x"], "expected a name such as"),
        (
            &["conv2d::cuda::f32", "--on", "nvidia-h200-132"],
            "no selected candidate was fitted on NVIDIA H200; those that were:",
        ),
        (&["softmax", "--refit", "--on", "nvidia-h200-132"], "say where the file goes by --out"),
        (
            &["softmax", "--fit", "/nowhere.json", "--on", "nvidia-h200-132"],
            "fit families with `kernelgate predict --sweep`",
        ),
        (&["softmax", "--sweep", "--device", "cpu", "--seconds", "x"], "--seconds"),
        (&["--model", "gpt", "--on", "nvidia-h200-132"], "no such name; names: tinyllama"),
        (&["--model", "tinyllama", "--prompt", "2000", "--on", "nvidia-h200-132"], "tinyllama has 2048 positions"),
        (&["--chain", "64", "--way", "fused", "--on", "nvidia-h200-132"], "run as unfused or library"),
        (&["--chain", "64", "--cnn", "8"], "cannot be used with"),
        (&["softmax", "--called", "x"], "--recorded"),
        (&["softmax", "--range", "cols=1..8"], "--range: for --sweep and --validate"),
        (
            &["softmax", "--validate", "--chained", "--recorded", "x.json"],
            "--chained: for --sweep and --validate, where they measure",
        ),
        (&["softmax", "--sweep", "--range", "width=1..8"], "has no extent `width`; it has rows, cols"),
        (&["softmax", "--sweep", "--range", "cols=8..1"], "expected an axis and its smallest and largest extent"),
    ] {
        let ran = predict(arguments);
        assert!(ran.code == Some(2) && ran.stderr.contains(said), "{arguments:?}: {:?} {}", ran.code, ran.stderr);
    }
}

/// The steps that run are those that are predicted; what no family speaks for is said.
#[test]
fn a_model_is_predicted_from_its_steps() {
    let on = ["--on", "nvidia-h200-132"];
    let said =
        |prompt: &str| predicted(&[&["--model", "tinyllama", "--prompt", prompt, "--gen", "64"][..], &on].concat());
    let (short, long) = (said("128"), said("512"));
    let number = |value: &Value, place: &str| value.pointer(place).unwrap().as_f64().unwrap();
    assert_eq!((short["way"].as_str(), short["dtype"].as_str()), (Some("graph"), Some("bf16")));
    // All weights are read for each token: 2.07 GB at 4.4 TB/s.
    assert!((0.47..3.0).contains(&number(&short, "/token_ms/first")), "{short}");
    assert!(number(&short, "/token_ms/last") > number(&short, "/token_ms/first"), "the cache grows");
    assert!(number(&long, "/first_token_ms") > 1.2 * number(&short, "/first_token_ms"));
    let total = number(&short, "/first_token_ms") + 63.0 * number(&short, "/token_ms/mean");
    assert!((number(&short, "/total_ms") / total - 1.0).abs() < 1e-9);
    let shares: f64 =
        short["token"]["shares"].as_array().unwrap().iter().map(|one| one["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9);
    assert!(short["token"]["estimated"].as_array().unwrap().is_empty() && number(&short, "/token/fitted") > 0.999);
    // Nobody has swept f16.
    let opt = ["--model", "opt-125m", "--dtype", "f16", "--on", "nvidia-h200-132"];
    let (opt, table) = (predicted(&opt), predict(&opt).stdout);
    let estimated = opt["token"]["estimated"].as_array().unwrap();
    let relu = estimated.iter().find(|one| one["name"] == "relu::cuda").unwrap();
    assert!(relu["why"].as_str().unwrap().contains("no sweep") && relu["factor"].as_f64().unwrap() > 1.0);
    assert!(table.contains("first token") && table.contains("estimated: relu::cuda"), "{table}");
    // Its fused kernels take less than an operator a launch.
    let unfused = predicted(&["--model", "tinyllama", "--gen", "64", "--way", "unfused", "--on", "nvidia-h200-132"]);
    assert!(number(&short, "/token/launches") < 0.5 * number(&unfused, "/token/launches"));
    assert!(number(&short, "/token_ms/mean") < 0.8 * number(&unfused, "/token_ms/mean"));
}

#[test]
fn the_chain_and_the_classifier_are_predicted() {
    let chain = predicted(&["--chain", "1024", "--on", "nvidia-h200-132"]);
    // Measured: 11.03 µs.
    assert!((7.0..16.0).contains(&chain["us"].as_f64().unwrap()) && chain["launches"] == 3.0, "{chain}");
    let images = |count: &str| predicted(&["--cnn", count, "--on", "nvidia-h200-132"])["us"].as_f64().unwrap();
    assert!(images("1024") > 2.0 * images("1"));
}

/// No device is needed: the times are those of a committed summary.
#[test]
fn predictions_are_held_against_what_was_recorded() {
    let file = root().join("docs/results/h200-peers.json.xz");
    let recorded = ["--recorded", file.to_str().unwrap(), "--on", "nvidia-h200-132"];
    let found = predicted(&[&["gemm::cuda::bf16", "--validate"][..], &recorded].concat());
    let one = &found[0];
    assert_eq!((one["family"].as_str(), one["cases"].as_u64()), (Some("gemm::cuda::bf16"), Some(9)));
    let mean = |who: &str| one[who]["mean"].as_f64().unwrap();
    assert!(mean("predictor") < 8.0 && mean("predictor") < mean("roofline"), "{one}");
    let nobody = predict(&[&["gemm::cuda::bf16", "--validate", "--called", "nobody"][..], &recorded].concat());
    assert!(
        nobody.code == Some(3) && nobody.stderr.contains("no selected family was fitted and measured"),
        "{}",
        nobody.stderr
    );
}

/// Whoever changes a launch rule has to fit again what ships.
#[test]
fn what_ships_was_fitted_by_the_launch_rules_of_now() {
    for key in ["nvidia-h200-132", "nvidia-h100-80gb-hbm3-132"] {
        let all = predicted(&["--on", key]);
        let all = all.as_array().unwrap();
        let why = |one: &Value| one["outside"].as_str().unwrap_or_default().to_owned();
        let moved: Vec<_> = all.iter().filter(|one| why(one).contains("--refit")).map(|one| &one["trial"]).collect();
        assert!(all.len() > 30 && moved.is_empty(), "{key}: {} cases, {moved:?}", all.len());
    }
}

#[test]
fn a_sweep_writes_over_no_file_that_it_cannot_add_to() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("fit.json");
    let recorded = root().join("docs/results/h200-peers.json.xz");
    let of_another = std::fs::read(root().join("snapshots/prediction/nvidia-h100-80gb-hbm3-132.json.xz")).unwrap();
    for (content, said) in
        [(&b"{\"version\":3"[..], "fit.json"), (&of_another, "families of nvidia-h100-80gb-hbm3-132")]
    {
        std::fs::write(&out, content).unwrap();
        let sweep = ["gemm::cuda::bf16", "--sweep", "--on", "nvidia-h200-132", "--recorded"];
        let ran = predict(&[&sweep[..], &[recorded.to_str().unwrap(), "--out", out.to_str().unwrap()]].concat());
        assert!(ran.code == Some(2) && ran.stderr.contains(said) && ran.stderr.contains("--out"), "{}", ran.stderr);
        assert!(std::fs::read(&out).unwrap() == content, "{said}");
    }
}

/// A busy machine measures less in a time, so it is given more until there is enough to fit.
#[cfg(unix)]
#[test]
fn a_sweep_that_is_ended_keeps_what_it_has_measured() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("fit.json");
    let calibration = root().join("snapshots/calibration/nvidia-h200-132.json");
    for seconds in [4, 16, 64] {
        let mut command = bare(env!("CARGO_BIN_EXE_kernelgate"));
        command.args(["predict", "silu::tiled::f32", "--sweep", "--device", "cpu", "--seconds", "600", "--cases"]);
        command.args(["1000000", "--calibration"]).arg(&calibration).arg("--out").arg(&out);
        let mut running = command.spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_secs(seconds));
        let pid = running.id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert_eq!(running.wait().unwrap().code(), Some(143));
        if out.exists() {
            break;
        }
    }
    let fitted: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    assert!(!fitted["families"][0]["observations"].as_array().unwrap().is_empty(), "{fitted}");
}
