//! The messages of the measurement protocol against their committed JSON Schema.

use jsonschema::Validator;
use kernelgate::core::dtype::DType;
use kernelgate::device::{DeviceKind, Heat};
use kernelgate::protocol::SCHEMA;
use kernelgate::protocol::message::{
    Answer, Answered, Asked, CaseRequest, DeviceNote, Hello, Offer, Request, TensorFile, VERSION,
};
use rstest::rstest;
use serde_json::{Value, json};

fn validator() -> Validator {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
}

fn tensor(name: &str) -> TensorFile {
    TensorFile { name: name.into(), dtype: DType::BF16, dims: vec![2, 3], path: "/tmp/x.bin".into() }
}

fn requests() -> Vec<Request> {
    let case = 1;
    vec![
        Request::Case(CaseRequest {
            case,
            operator: "gelu".into(),
            candidate: "eager".into(),
            dtype: DType::BF16,
            shape: "n=6".into(),
            seed: u64::MAX,
            inputs: Some(vec![tensor("x")]),
            outputs: vec![tensor("y")],
        }),
        Request::Run { case },
        Request::Arm { case, heat: Heat::Cold, batch_us: 300.0, instances: 16 },
        Request::Sample { case, instance: 3 },
        Request::Replay { case, instance: 3 },
        Request::Release { case },
        Request::Goodbye,
    ]
}

fn answers() -> Vec<Answer> {
    let hello = Hello {
        protocol: VERSION,
        name: "peer".into(),
        about: "PyTorch".into(),
        devices: vec![DeviceNote { kind: DeviceKind::Cuda, name: "NVIDIA H200".into(), fingerprint: None }],
        offers: vec![Offer {
            operator: "gelu".into(),
            candidate: "eager".into(),
            device: DeviceKind::Cuda,
            dtypes: vec![DType::F32],
            shapes: vec!["n=6".into()],
        }],
    };
    vec![
        Answer::Hello(hello),
        Answer::Ready,
        Answer::Written,
        Answer::Armed { instances: 16 },
        Answer::Sampled { launch_us: Some(3.5), clock_mhz: Some(1980.0) },
        Answer::Sampled { launch_us: None, clock_mhz: None },
        Answer::Released,
        Answer::Goodbye,
        Answer::Unsupported { reason: "no".into() },
        Answer::Failed { reason: "no".into(), ends: true },
    ]
}

#[test]
fn every_message_is_one_of_the_schema_and_comes_back() {
    let validator = validator();
    for request in requests() {
        let value = serde_json::to_value(Asked { id: 7, request: request.clone() }).unwrap();
        let problems: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
        assert!(problems.is_empty(), "{value}: {problems:?}");
        assert_eq!(serde_json::from_value::<Asked>(value).unwrap().request, request);
    }
    for answer in answers() {
        let value = serde_json::to_value(Answered { id: 7, case: Some(1), answer: answer.clone() }).unwrap();
        let problems: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
        assert!(problems.is_empty(), "{value}: {problems:?}");
        assert_eq!(serde_json::from_value::<Answered>(value).unwrap().answer, answer);
    }
}

#[rstest]
#[case::no_id(json!({ "request": "goodbye" }))]
#[case::unknown_request(json!({ "id": 1, "request": "sing" }))]
#[case::no_case(json!({ "id": 1, "request": "run" }))]
#[case::no_shape(json!({ "id": 1, "request": "case", "case": 1, "operator": "f", "candidate": "c", "dtype": "f32", "seed": "0x1" }))]
#[case::unknown_heat(json!({ "id": 1, "request": "arm", "case": 1, "heat": "warm", "batch_us": 1, "instances": 1 }))]
#[case::unknown_answer(json!({ "id": 1, "answer": "perhaps" }))]
#[case::no_time(json!({ "id": 1, "case": 1, "answer": "sampled" }))]
#[case::a_time_in_words(json!({ "id": 1, "case": 1, "answer": "sampled", "launch_us": "3" }))]
#[case::no_instance(json!({ "id": 1, "case": 1, "answer": "armed", "instances": 0 }))]
#[case::no_reason(json!({ "id": 1, "case": 1, "answer": "failed" }))]
#[case::another_version(json!({ "id": 0, "answer": "hello", "protocol": 2, "name": "p", "devices": [], "offers": [] }))]
fn what_is_no_message_is_refused(#[case] message: Value) {
    assert!(!validator().is_valid(&message), "{message}");
}

#[test]
fn the_page_names_every_message() {
    let page = include_str!("../../docs/protocol.md");
    let names = requests().iter().map(Request::name).chain(answers().iter().map(Answer::name)).collect::<Vec<_>>();
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "docs/protocol.md does not mention `{name}`");
    }
    assert!(page.contains(&format!("version {VERSION}")));
}
