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
        let fit = root().join("snapshots/prediction/nvidia-h200-132.json");
        let all = predicted(&[&LARGE[..], &["--on", on, "--fit", fit.to_str().unwrap()]].concat());
        let one = all.as_array().unwrap().iter().find(|one| one["trial"] == "log_softmax::cuda::bf16::perf").unwrap();
        one["us"].as_f64().unwrap()
    };
    let (h200, h100) = (time("nvidia-h200-132"), time("nvidia-h100-80gb-hbm3-132"));
    assert!(h100 > h200 && h100 < 2.0 * h200, "{h100} µs on the card with the slower memory, {h200} on the other");
}

#[test]
fn what_cannot_be_said_is_said() {
    let ran = predict(&["softmax::cuda::bf16", "--shape", "rows=1,cols=7", "--on", "nvidia-h200-132"]);
    assert!(ran.code == Some(0) && ran.stdout.contains("outside the calibrated domain: extent"), "{}", ran.stdout);
    for (arguments, said) in [
        (&["softmax", "--on", "nvidia-nothing-1"][..], "make one with `kernelgate calibrate`"),
        (&["softmax", "--on", "../x"], "expected a name such as"),
        (
            &["gemm::cuda::bf16", "--on", "nvidia-h200-132"],
            "no selected candidate was fitted on NVIDIA H200; those that were:",
        ),
        (&["softmax", "--refit", "--on", "nvidia-h200-132"], "say where the file goes by --out"),
        (
            &["softmax", "--fit", "/nowhere.json", "--on", "nvidia-h200-132"],
            "fit families with `kernelgate predict --sweep`",
        ),
        (&["softmax", "--sweep", "--device", "cpu", "--seconds", "x"], "--seconds"),
    ] {
        let ran = predict(arguments);
        assert!(ran.code == Some(2) && ran.stderr.contains(said), "{arguments:?}: {:?} {}", ran.code, ran.stderr);
    }
}
