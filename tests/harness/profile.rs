//! `kernelgate profile`: that parts and idle time are the whole, what summary and trace hold, and what is said of a wrong
//! request.

use crate::schema::problems;
use crate::support::{Ran, bare, gate, root};
use rstest::rstest;
use serde_json::Value;
use std::path::Path;

fn profile(arguments: &[&str]) -> Ran {
    let mut command = bare(env!("CARGO_BIN_EXE_kernelgate"));
    command.current_dir(root()).arg("profile").args(arguments).output().unwrap().into()
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The profiles of a run that is to end well, and its trace.
fn profiled(arguments: &[&str]) -> (Vec<Value>, Value) {
    let folder = tempfile::tempdir().unwrap();
    let (out, trace) = (folder.path().join("summary.json"), folder.path().join("trace.json"));
    let calibration = "tests/harness/data/host-calibration.json";
    let more = ["--out", out.to_str().unwrap(), "--trace", trace.to_str().unwrap(), "--calibration", calibration];
    let ran = profile(&[arguments, &more].concat());
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let summary = read(&out);
    assert_eq!(problems(&summary), [""; 0]);
    let trace = read(&trace);
    let schema: Value = serde_json::from_str(include_str!("data/trace.schema.json")).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let wrong: Vec<String> = validator.iter_errors(&trace).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(wrong.is_empty(), "{:?}", &wrong[..wrong.len().min(3)]);
    let profiles = summary["profiles"].as_array().unwrap().clone();
    for profile in &profiles {
        // The kernels of a step are counted with it.
        let sum = |table: &str| {
            let rows = profile[table].as_array().unwrap().iter().filter(|x| x["within"].is_null());
            rows.map(|x| x["share"].as_f64().unwrap()).sum::<f64>()
        };
        for table in ["operators", "kernels"] {
            let whole = sum(table) + sum("idle");
            assert!((whole - 1.0).abs() < 0.02, "{table} and idle time are {whole} of the run: {profile}");
        }
        assert!((sum("classes") - 1.0).abs() < 0.02, "{profile}");
        // How large it is depends on who else is at work here.
        assert!(profile["overhead"].as_f64().is_some_and(f64::is_finite), "{profile}");
    }
    (profiles, trace)
}

fn names<'v>(profile: &'v Value, table: &str) -> Vec<&'v str> {
    let mut names: Vec<_> =
        profile[table].as_array().unwrap().iter().map(|part| part["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn an_operator_has_a_hint_that_is_tried_and_a_way_beside_it() {
    let shape = ["swiglu::naive::f32", "--shape", "n=65536", "--repeats", "5", "--device", "cpu"];
    let (profiles, trace) = profiled(&[&shape[..], &["--against", "tiled", "--apply"]].concat());
    let swiglu = &profiles[0];
    assert_eq!((profiles.len(), &swiglu["run"], &swiglu["source"]), (1, &"launch".into(), &"host spans".into()));
    assert_eq!(names(swiglu, "kernels"), ["swiglu::naive"]);
    let hint = swiglu["hints"].as_array().unwrap().iter().find(|hint| hint["rule"] == "candidate").unwrap();
    assert!(hint["action"].as_str().unwrap().ends_with("use swiglu::tiled"), "{hint}");
    let [before, after] = ["before_us", "after_us"].map(|at| hint["applied"][at].as_f64().unwrap());
    assert!(before > after && after > 0.0, "{hint}");
    let against = &swiglu["against"];
    assert_eq!((&against["way"], &against["launches"]), (&"tiled".into(), &serde_json::json!([1.0, 1.0])));
    let difference = against["largest_difference"].as_f64().unwrap();
    assert!(difference > 0.0 && difference < 1e-5, "{against}");
    let kernels = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == "kernel").count();
    assert_eq!(5.0 * kernels as f64, swiglu["runs"].as_f64().unwrap(), "the trace has one repeat of five");
}

#[test]
fn the_steps_of_a_chain_are_told_apart() {
    let (profiles, _) = profiled(&["chain::naive::f32", "--shape", "rows=16,inner=32,cols=64", "--repeats", "5"]);
    let chain = &profiles[0];
    assert_eq!(names(chain, "operators"), ["gemm", "layernorm", "softmax"]);
    assert_eq!(names(chain, "layers"), ["norm", "projection", "softmax"]);
    let alive = chain["memory"]["alive"].as_array().unwrap();
    // The product and what softmax makes of it are 16 x 64 each.
    let of = |name: &str| alive.iter().find(|held| held["name"] == name).map(|held| held["bytes"].as_u64().unwrap());
    assert_eq!((of("product"), of("softmax")), (Some(4096), Some(4096)), "{alive:?}");
}

#[test]
fn every_step_of_a_model_has_its_layer() {
    let model = ["llm", "--model", "fixtures/models/llama-tiny", "--tokens", "3", "--repeats", "3"];
    let (profiles, trace) = profiled(&[&model[..], &["--against", "naive"]].concat());
    assert_eq!(profiles.iter().map(|p| p["run"].as_str().unwrap()).collect::<Vec<_>>(), ["prefill", "decode"]);
    let decode = &profiles[1];
    assert_eq!(decode["runs"], 9);
    let layers = names(decode, "layers");
    assert!(layers.contains(&"embedding") && layers.contains(&"layer 0") && layers.contains(&"output"), "{layers:?}");
    for operator in ["add", "attention_cached", "embedding", "rmsnorm", "rope", "swiglu"] {
        assert!(names(decode, "operators").contains(&operator), "{operator} is missing");
    }
    let perplexity = decode["against"]["perplexity"].as_array().unwrap();
    let [ours, theirs] = [0, 1].map(|at| perplexity[at].as_f64().unwrap());
    assert!((ours / theirs - 1.0).abs() < 1e-4, "{ours} and {theirs}");
    for profile in &profiles {
        let [clock, parts] = ["traced_mean_us", "accounted_us"].map(|name| profile[name].as_f64().unwrap());
        assert!((parts / clock - 1.0).abs() < 0.05, "{parts} µs of {clock} are accounted for: {profile}");
    }
    assert_eq!((named(&trace, "prefill"), named(&trace, "decode")), (1, 3), "the trace has the last repeat alone");
}

#[test]
fn a_trace_has_all_repeats_where_they_are_asked_for() {
    let model = ["llm", "--model", "fixtures/models/llama-tiny", "--tokens", "2", "--repeats", "3", "--trace-all"];
    let (_, trace) = profiled(&model);
    assert_eq!((named(&trace, "prefill"), named(&trace, "decode")), (3, 6));
}

/// How many events of a trace have a name.
fn named(trace: &Value, name: &str) -> usize {
    trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["name"] == name).count()
}

#[test]
fn a_gate_of_ones_own_is_profiled_too() {
    let ask = |program: &Path, first: &[&str]| -> Ran {
        let mut command = bare(program);
        let calibration = root().join("tests/harness/data/host-calibration.json");
        let rest = ["profile", "right", "--shape", "rows=8,cols=64", "--repeats", "3", "--device", "cpu", "--json"];
        command.args(first).args(rest).arg("--calibration").arg(calibration).output().unwrap().into()
    };
    let ran = ask(gate(), &["--command"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(problems(&summary), [""; 0]);
    let profile = &summary["profiles"][0];
    assert!(profile["way"] == "right" && profile["untraced_us"].as_f64().unwrap() > 0.0, "{profile}");
    assert!(profile["kernels"][0]["bound"].is_string(), "{profile}");
}

#[test]
fn a_kernel_is_foreseen_on_a_gpu_that_is_not_here() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("summary.json");
    let shape = ["softmax::cuda::bf16", "--shape", "rows=8192,cols=4096", "--on", "nvidia-h200-132"];
    let ran = profile(&[&shape[..], &["--out", out.to_str().unwrap()]].concat());
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let summary = read(&out);
    assert_eq!(problems(&summary), [""; 0]);
    let all = summary["profiles"].as_array().unwrap();
    let softmax = all.iter().find(|p| p["subject"].as_str().unwrap().starts_with("softmax ")).unwrap();
    let us = softmax["untraced_us"].as_f64().unwrap();
    assert!((28.0..=39.0).contains(&us) && softmax["source"] == "prediction", "{softmax}");
    let bound = &softmax["kernels"][0]["bound"];
    assert_eq!((bound, &softmax["device"]), (&"memory".into(), &"nvidia-h200-132".into()));
}

#[rstest]
#[case(&["softmax::tiled::f32", "--on", "nvidia-h200-132"], 2, "no kernel was selected")]
#[case(&["softmax::cuda::f32", "--on", "nvidia-nothing-1"], 2, "nvidia-nothing-1.json")]
#[case(&["softmax::tiled::f32", "--against", "best", "--shape", "rows=1,cols=2"], 2, "--against best: ")]
#[case(&["no_such_operator"], 2, "no trial has a name with `no_such_operator`")]
#[case(&["softmax", "--calibration", "/nope.json"], 2, "/nope.json")]
#[case(&["softmax", "--repeats", "1"], 2, "--repeats")]
#[case(&["softmax", "--trace-all"], 2, "--trace <PATH>")]
#[case(&["llm", "--model", "opt-125m", "--device", "sim"], 2, "the simulator tells no time")]
#[case(&["llm", "--model", "fixtures/models/llama-tiny", "--against", "magic"], 2, "--way magic: on cpu a model runs as")]
fn a_wrong_request_says_what_was_expected(#[case] arguments: &[&str], #[case] code: i32, #[case] said: &str) {
    let ran = profile(arguments);
    assert_eq!(ran.code, Some(code), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
}
