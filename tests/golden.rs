//! Holds the reference of every operator of the catalogue against values that PyTorch computed in f64.

use kernelgate::core::operator::Operator;
use kernelgate::core::packed;
use kernelgate::core::shape::parse;
use kernelgate::ops::catalogue;
use rstest::rstest;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Both sides are f64: they differ by a few roundings of the result, and of a few dozen terms of size 1 where
/// those cancel.
const RELATIVE: f64 = 1e-12;
const ABSOLUTE: f64 = 1e-13;

#[derive(Deserialize)]
struct Golden {
    torch: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    shape: String,
    inputs: Vec<Vec<f64>>,
    outputs: Vec<Vec<f64>>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden")
}

fn read(operator: &str) -> Result<Golden, String> {
    let path = folder().join(format!("{operator}.json.xz"));
    let place = path.display();
    let text = std::fs::read(&path)
        .and_then(packed::text)
        .map_err(|e| format!("{place}: {e}; run fixtures/golden/make_goldens.py where torch is installed"))?;
    serde_json::from_str(&text).map_err(|e| format!("{place}: {e}"))
}

fn close(got: f64, golden: f64) -> bool {
    (got - golden).abs() <= RELATIVE * golden.abs() + ABSOLUTE
}

/// What the reference makes of the inputs of a case.
fn evaluate(operator: &dyn Operator, case: &Case) -> Result<Vec<Vec<f64>>, String> {
    let point = parse(operator.axes(), &case.shape)?;
    let sizes = |count: usize, dims: &dyn Fn(usize) -> Vec<usize>| -> Vec<usize> {
        (0..count).map(|i| dims(i).iter().product()).collect()
    };
    let wanted = sizes(operator.inputs().len(), &|i| operator.input_dims(i, &point));
    let given: Vec<usize> = case.inputs.iter().map(Vec::len).collect();
    if wanted != given {
        return Err(format!("{}: inputs of {given:?} elements where the operator has {wanted:?}", case.shape));
    }
    let inputs: Vec<&[f64]> = case.inputs.iter().map(Vec::as_slice).collect();
    let lengths = sizes(operator.outputs().len(), &|i| operator.output_dims(i, &point));
    let mut outputs: Vec<Vec<f64>> = lengths.into_iter().map(|n| vec![0.0; n]).collect();
    operator.reference(&point, kernelgate::core::dtype::DType::F32, &inputs, &mut outputs);
    Ok(outputs)
}

/// Every way in which an operator departs from its golden file.
fn departures(operator: &dyn Operator) -> Result<Vec<String>, String> {
    let golden = read(operator.name())?;
    if golden.cases.is_empty() {
        return Err(format!("{}: its golden file holds no case", operator.name()));
    }
    let mut departures = Vec::new();
    for case in &golden.cases {
        let outputs = evaluate(operator, case)?;
        let lengths = |outputs: &[Vec<f64>]| outputs.iter().map(Vec::len).collect::<Vec<_>>();
        if lengths(&outputs) != lengths(&case.outputs) {
            departures.push(format!("{} {}: outputs of other lengths", operator.name(), case.shape));
        }
        for (i, (&got, &golden_value)) in outputs.iter().flatten().zip(case.outputs.iter().flatten()).enumerate() {
            if !close(got, golden_value) {
                let place = format!("{} {} [{i}]", operator.name(), case.shape);
                departures.push(format!("{place}: {got:e}, torch {} says {golden_value:e}", golden.torch));
            }
        }
    }
    Ok(departures)
}

#[test]
fn references_agree_with_torch() {
    let mut found = Vec::new();
    for suite in catalogue() {
        match departures(&*suite.operator) {
            Ok(departures) => found.extend(departures),
            Err(missing) => found.push(missing),
        }
    }
    assert!(found.is_empty(), "{} departures:\n{}", found.len(), found[..found.len().min(20)].join("\n"));
}

#[test]
fn every_golden_belongs_to_an_operator() {
    let names: Vec<String> = catalogue().iter().map(|suite| format!("{}.json.xz", suite.operator.name())).collect();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        assert!(file.ends_with(".py") || names.contains(&file), "{file} belongs to no operator of the catalogue");
    }
}

#[rstest]
#[case(1.0 + 1e-13, 1.0, true)]
#[case(1.0 + 1e-11, 1.0, false)]
#[case(1e-14, 0.0, true)]
#[case(1e-12, 0.0, false)]
#[case(f64::NAN, 1.0, false)]
fn closeness(#[case] got: f64, #[case] golden: f64, #[case] expected: bool) {
    assert_eq!(close(got, golden), expected);
}
