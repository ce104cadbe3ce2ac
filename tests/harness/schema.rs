//! The summary against its committed JSON Schema, in both directions, and files of older versions.

use crate::support::Fixture;
use jsonschema::Validator;
use kernelgate::report::SCHEMA;
use kernelgate::report::summary::Summary;
use serde_json::{Value, json};

fn validator() -> Validator {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

pub fn problems(summary: &Value) -> Vec<String> {
    validator().iter_errors(summary).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// A file with every field that there is.
fn full() -> Value {
    serde_json::from_str(include_str!("data/summary-full.json")).unwrap()
}

#[test]
fn a_real_summary_is_valid() {
    let fixture = Fixture::new();
    fixture.run("right,wrong,panic,abort", &["--device", "cpu"]);
    let summary = fixture.summary();
    assert_eq!(problems(&summary), [""; 0]);
    assert_eq!(
        summary["counts"],
        json!({ "pass": 2, "fail": 6, "skip": 2, "same": 0, "faster": 0, "slower": 0, "unclear": 0, "invalid": 0 })
    );
}

#[test]
fn every_field_of_the_schema_is_one_of_the_program_and_the_other_way_round() {
    assert_eq!(problems(&full()), [""; 0]);
    let read = Summary::parse(&full().to_string()).unwrap();
    let written: Value = serde_json::from_str(&read.to_json()).unwrap();
    assert_eq!(written, full(), "a field was lost, or is no longer written");
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let mut missing = Vec::new();
    unused(&schema, &schema, &full(), "", &mut missing);
    assert!(missing.is_empty(), "tests/data/summary-full.json has no example of {missing:?}");
}

/// Properties of the schema that no part of the example has.
fn unused(root: &Value, schema: &Value, example: &Value, place: &str, missing: &mut Vec<String>) {
    let schema = schema["$ref"].as_str().map_or(schema, |name| &root["$defs"][name.trim_start_matches("#/$defs/")]);
    let Some(properties) = schema["properties"].as_object() else { return };
    for (name, property) in properties {
        let place = format!("{place}/{name}");
        let owners: Vec<&Value> = example.as_array().map_or(vec![example], |list| list.iter().collect());
        let values: Vec<&Value> = owners.iter().filter_map(|owner| owner.get(name)).collect();
        if values.is_empty() {
            missing.push(place.clone());
        }
        let inner = if property["type"] == "array" { &property["items"] } else { property };
        let flat: Value =
            values.iter().flat_map(|v| v.as_array().cloned().unwrap_or_else(|| vec![(*v).clone()])).collect();
        unused(root, inner, &flat, &place, missing);
    }
}

#[test]
fn drift_would_be_seen() {
    for (pointer, value) in [
        ("", json!({ "surprise": 1 })),
        ("/run", json!({ "hostname": "x" })),
        ("/records/0", json!({ "verdict": "great" })),
        ("/records/0", json!({ "trial": "gelu" })),
        ("/records/0/timings/0", json!({ "median_us": "3" })),
        ("/counts", json!({ "ok": 1 })),
    ] {
        let mut changed = full();
        let object = changed.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
        object.extend(value.as_object().unwrap().clone());
        assert!(!problems(&changed).is_empty(), "{pointer} {value} was accepted");
    }
}

#[test]
fn a_file_of_the_first_version_is_still_read() {
    let text = include_str!("data/summary-v1.json");
    assert_eq!(problems(&serde_json::from_str(text).unwrap()), [""; 0]);
    let summary = Summary::parse(text).unwrap();
    assert_eq!((summary.version, summary.records.len()), (1, 2));
    let errors = summary.records.iter().find_map(|record| record.outcome.errors).unwrap();
    assert!(errors.max_rel.is_nan(), "null stands for a number that is not finite");
}
