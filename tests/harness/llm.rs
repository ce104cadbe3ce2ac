//! `kernelgate llm`: what it writes, what it measures, and what it says of a wrong request.

use crate::support::{Ran, bare, root};
use rstest::rstest;
use serde_json::Value;

fn llm(arguments: &[&str]) -> Ran {
    let mut command = bare(env!("CARGO_BIN_EXE_kernelgate"));
    command.current_dir(root()).arg("llm").args(arguments).output().unwrap().into()
}

const LLAMA: &str = "fixtures/models/llama-tiny";
const OPT: &str = "fixtures/models/opt-tiny";

#[rstest]
#[case(&["--model", "/nope"], "--model /nope: no such folder, and no such name; names: tinyllama, ")]
#[case(&["--model", "fixtures/models"], "fixtures/models/config.json: expected the configuration of a model, found ")]
#[case(
    &["--model", LLAMA, "--tokens", "200"],
    "config.json: expected at most 128 positions, the model's context, found 216: the prompt and --tokens, or --window"
)]
#[case(&["--model", LLAMA, "--prompt", "hi"], "config.json: text needs a folder with a tokenizer.json")]
#[case(&["--model", LLAMA, "--way", "graph"], "--way graph: on cpu a model runs as tiers")]
#[case(&["--model", LLAMA, "--golden", "/nope"], "/nope: expected prompt, prefill, tokens and decode of a golden, found ")]
fn a_wrong_request_says_where_and_what_was_expected(#[case] arguments: &[&str], #[case] said: &str) {
    let ran = llm(arguments);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
}

#[test]
fn a_golden_holds_and_that_of_another_model_does_not() {
    let golden = |model: &str, of: &str, device: &str| {
        llm(&["--model", model, "--golden", &format!("{of}/golden.json.xz"), "--device", device, "--dtype", "f32"])
    };
    for (model, device) in [(LLAMA, "cpu"), (OPT, "cpu"), (LLAMA, "sim")] {
        let ran = golden(model, model, device);
        assert!(ran.code == Some(0) && ran.stdout.contains("16 of 16 greedy tokens"), "{}{}", ran.stdout, ran.stderr);
    }
    let ran = golden(LLAMA, OPT, "cpu");
    assert!(ran.code == Some(1) && ran.stdout.contains("allowed 1.00e-4"), "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn the_same_seed_writes_the_same_and_the_summary_keeps_the_measurement() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("summary.json").to_string_lossy().into_owned();
    let draw = |seed: &str| {
        let sampled =
            ["--temperature", "1.5", "--top-k", "50", "--repeat", "2", "--tokens", "12", "--json", "--out", &out];
        let ran = llm(&[&["--model", OPT, "--seed", seed][..], &sampled].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        serde_json::from_str::<Value>(&ran.stdout).unwrap()
    };
    let (first, again, other) = (draw("3"), draw("3"), draw("4"));
    assert_eq!(first["tokens"].as_array().unwrap().len(), 12);
    assert!(first["tokens"] == again["tokens"] && first["tokens"] != other["tokens"]);
    assert!(first["run"]["token_ms"]["p50"].as_f64().unwrap() > 0.0);
    let summary: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    // The same measurement again takes the place of the one before.
    assert_eq!(summary["models"].as_array().unwrap().len(), 1);
}
