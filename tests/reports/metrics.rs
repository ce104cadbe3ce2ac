//! Numbers for systems that follow them over time, held against the schemas of those systems.

use crate::support::{every_kind, report, stdout};
use serde_json::{Value, json};

fn check(schema: &Value, value: &Value) -> Vec<String> {
    let validator = jsonschema::draft202012::new(schema).unwrap();
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Bencher Metric Format, as its reference has it.
fn reference() -> Value {
    serde_json::from_str(include_str!("data/bmf.schema.json")).unwrap()
}

/// What this writer promises beyond that: names that Bencher takes as they are, and nothing else.
fn bmf() -> Value {
    json!({
        "type": "object",
        "minProperties": 1,
        "propertyNames": { "minLength": 1, "maxLength": 1024, "pattern": "^[^\\u0000-\\u001f]*$" },
        "additionalProperties": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": { "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 64 },
            "additionalProperties": {
                "type": "object",
                "required": ["value"],
                "additionalProperties": false,
                "properties": {
                    "value": { "type": "number" },
                    "lower_value": { "type": "number" },
                    "upper_value": { "type": "number" }
                }
            }
        }
    })
}

/// What `github-action-benchmark` reads with the tool `customSmallerIsBetter`.
fn gh_benchmark() -> Value {
    json!({
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["name", "unit", "value"],
            "additionalProperties": false,
            "properties": {
                "name": { "type": "string", "minLength": 1 },
                "unit": { "type": "string", "minLength": 1 },
                "value": { "type": "number" },
                "range": { "type": "string" },
                "extra": { "type": "string" }
            }
        }
    })
}

fn made(form: &str) -> Value {
    serde_json::from_str(&stdout(&report(&[form, "-"]))).unwrap()
}

#[test]
fn bencher_reads_times_and_counts() {
    let made = made("--bmf");
    assert_eq!(check(&reference(), &made), [""; 0]);
    assert_eq!(check(&bmf(), &made), [""; 0]);
    let time = &made["gelu::fast::f32/n=1048576/cold/nvidia-h200-132"]["latency"];
    let ns = ["lower_value", "value", "upper_value"].map(|name| time[name].as_f64().unwrap().round());
    assert_eq!(ns, [9950.0, 10000.0, 10050.0]);
    assert_eq!(made["gelu::fast::f32/n=4096/sim-sm_90"]["instructions"]["value"], 700.0);
    assert!(made.as_object().unwrap().keys().all(|name| !name.contains("cheat")), "an invalid time is none");
    let wrong = json!({ "a": { "latency": { "value": "fast" } } });
    assert!(!check(&bmf(), &wrong).is_empty() && !check(&reference(), &wrong).is_empty());
}

#[test]
fn github_action_benchmark_reads_times() {
    let made = made("--gh-benchmark");
    assert_eq!(check(&gh_benchmark(), &made), [""; 0]);
    let summary = every_kind();
    let timings: usize = summary.records.iter().map(|record| record.outcome.timings.len()).sum();
    assert_eq!(made.as_array().unwrap().len(), timings - 1, "all but the invalid one");
    let names: std::collections::BTreeSet<&str> =
        made.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), timings - 1, "each name once");
    assert!(!check(&gh_benchmark(), &json!([{ "name": "a", "value": 1 }])).is_empty());
}
