//! Calibration files against their committed JSON Schema, in both directions.

use crate::support::root;
use jsonschema::Validator;
use kernelgate::calibrate::Calibration;
use rstest::rstest;
use serde_json::{Value, json};
use std::path::Path;

fn validator() -> Validator {
    let text = std::fs::read_to_string(root().join("docs/calibration.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

fn problems(calibration: &Value) -> Vec<String> {
    validator().iter_errors(calibration).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn shipped() -> Vec<Value> {
    let files = std::fs::read_dir(root().join("snapshots/calibration")).unwrap().flatten();
    files.map(|file| serde_json::from_str(&std::fs::read_to_string(file.path()).unwrap()).unwrap()).collect()
}

/// A file with every field that there is.
fn full() -> Value {
    let mut calibration = shipped().swap_remove(0);
    calibration["revision"] = "abc".into();
    calibration["accesses"] = json!([{"pattern": "gathered", "step_bytes": 32, "footprint_bytes": 1 << 28,
        "launch_us": 100.5, "gb_per_s": 1000.5}]);
    calibration["dependent_us"] = 1.25.into();
    calibration["host"] = json!({"launch_us": 2.5, "synchronised_us": 5.5, "over_node_us": 0.5,
        "dependent_over_node_us": 0.0, "reading_over_node_us": 1.5, "dependent_reading_over_node_us": 0.5});
    calibration
}

fn read(calibration: &Value, folder: &Path) -> Result<Calibration, String> {
    let path = folder.join("calibration.json");
    std::fs::write(&path, calibration.to_string()).unwrap();
    Calibration::read(&path)
}

#[test]
fn files_that_ship_are_valid() {
    let files = shipped();
    assert!(files.len() >= 2);
    files.iter().for_each(|file| assert_eq!(problems(file), [""; 0]));
}

#[test]
fn what_is_read_is_written_as_the_schema_has_it() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(problems(&full()), [""; 0]);
    let calibration = read(&full(), folder.path()).unwrap();
    assert_eq!(serde_json::to_value(&calibration).unwrap(), full(), "no field is lost");
}

#[rstest]
#[case::rate("/bandwidths/0/gb_per_s", json!(-1.0))]
#[case::time("/host/launch_us", json!(0.0))]
#[case::queue("/host/over_node_us", json!(-0.5))]
#[case::reading_queue("/host/reading_over_node_us", json!(-0.5))]
#[case::pipe("/peaks/0/pipe", json!("vector"))]
#[case::level("/latencies/0/level", json!("l4"))]
#[case::version("/version", json!(2))]
#[case::pattern("/accesses/0/pattern", json!("random"))]
fn a_planted_defect_is_refused_by_both(#[case] place: &str, #[case] wrong: Value) {
    let mut calibration = full();
    *calibration.pointer_mut(place).unwrap() = wrong;
    let found = problems(&calibration);
    assert!(found.len() == 1 && found[0].starts_with(place), "{found:?}");
    assert!(read(&calibration, tempfile::tempdir().unwrap().path()).is_err());
}

#[test]
fn a_field_that_nobody_knows_is_found() {
    let mut calibration = full();
    calibration["peaks"][0]["guessed"] = true.into();
    assert_eq!(problems(&calibration).len(), 1);
    calibration["peaks"][0].as_object_mut().unwrap().remove("guessed");
    calibration["peaks"][0].as_object_mut().unwrap().remove("dtype");
    assert_eq!(problems(&calibration).len(), 1, "nor may one be missing");
}
