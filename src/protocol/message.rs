//! The messages: what the gate asks, what a peer answers, each one line of JSON.

use crate::core::dtype::DType;
use crate::device::fingerprint::Fingerprint;
use crate::device::{DeviceKind, Heat};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The version of the protocol. It grows when a peer of the version before would misunderstand.
pub const VERSION: u32 = 1;

/// A request under its number, which the answer repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Counts up from 1.
    pub id: u64,
    /// The request.
    #[serde(flatten)]
    pub request: Request,
}

/// What the gate asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
pub enum Request {
    /// Get ready to compute a case; `ready` is the answer.
    Case(CaseRequest),
    /// Compute it once and write the outputs; `written`.
    Run {
        /// Which case.
        case: u64,
    },
    /// Get ready to time it; `armed`.
    Arm {
        /// Which case.
        case: u64,
        /// Caches cold or hot.
        heat: Heat,
        /// How long a batch should take at the least, µs.
        batch_us: f64,
        /// How many batches to record.
        instances: usize,
    },
    /// Time one batch of one instance; `sampled`.
    Sample {
        /// Which case.
        case: u64,
        /// Which of the recorded batches.
        instance: usize,
    },
    /// Run the batch of an instance once more and write the outputs of its last launch; `written`.
    Replay {
        /// Which case.
        case: u64,
        /// Which of the recorded batches.
        instance: usize,
    },
    /// Forget a case; `released`.
    Release {
        /// Which case.
        case: u64,
    },
    /// End; `goodbye`.
    Goodbye,
}

impl Request {
    /// The case that it is about.
    pub fn case(&self) -> Option<u64> {
        match self {
            Request::Case(CaseRequest { case, .. })
            | Request::Run { case }
            | Request::Arm { case, .. }
            | Request::Sample { case, .. }
            | Request::Replay { case, .. }
            | Request::Release { case } => Some(*case),
            Request::Goodbye => None,
        }
    }

    /// Its name, which messages and reports use.
    pub fn name(&self) -> &'static str {
        match self {
            Request::Case(_) => "case",
            Request::Run { .. } => "run",
            Request::Arm { .. } => "arm",
            Request::Sample { .. } => "sample",
            Request::Replay { .. } => "replay",
            Request::Release { .. } => "release",
            Request::Goodbye => "goodbye",
        }
    }
}

/// A case to compute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseRequest {
    /// Its number in this conversation.
    pub case: u64,
    /// What is computed.
    pub operator: String,
    /// Which of the ways that the peer offers.
    pub candidate: String,
    /// The dtype of the case.
    pub dtype: DType,
    /// Extents and attributes as `--shape` takes them: `rows=8192,cols=4096,eps=1e-5`.
    pub shape: String,
    /// The seed of the inputs; text, since readers of JSON round large numbers.
    #[serde(with = "crate::core::seed::text")]
    pub seed: u64,
    /// The inputs, in argument order; absent when the peer is to draw them from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Vec<TensorFile>>,
    /// Where the outputs go, in argument order; empty when nobody reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<TensorFile>,
}

/// A tensor in a file: its elements row by row, little-endian, and nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorFile {
    /// The name of the input or output.
    pub name: String,
    /// Its dtype, which may differ from that of the case.
    pub dtype: DType,
    /// Its extents, outermost first.
    pub dims: Vec<usize>,
    /// The file.
    pub path: PathBuf,
}

/// An answer under the number of its request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The number of the request; 0 in `hello`, which nobody asks for.
    pub id: u64,
    /// The case of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<u64>,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
}

/// What a peer answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Answer {
    /// The first line of a peer.
    Hello(Hello),
    /// The case can be computed.
    Ready,
    /// The outputs are in their files.
    Written,
    /// The batches are recorded.
    Armed {
        /// How many there are.
        instances: usize,
    },
    /// A batch was timed.
    Sampled {
        /// The time a launch, µs. A number that is none is `null` in JSON.
        launch_us: Option<f64>,
        /// The core clock during the batch, MHz, where the peer can tell: samples at a low clock are left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clock_mhz: Option<f64>,
    },
    /// The case is forgotten.
    Released,
    /// The peer ends.
    Goodbye,
    /// The peer does not compute such a case: a skip.
    Unsupported {
        /// Why.
        reason: String,
    },
    /// The peer tried and failed.
    Failed {
        /// How.
        reason: String,
        /// Whether the peer ends with this answer: what it needs is broken in this process.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ends: bool,
    },
}

impl Answer {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Answer::Hello(_) => "hello",
            Answer::Ready => "ready",
            Answer::Written => "written",
            Answer::Armed { .. } => "armed",
            Answer::Sampled { .. } => "sampled",
            Answer::Released => "released",
            Answer::Goodbye => "goodbye",
            Answer::Unsupported { .. } => "unsupported",
            Answer::Failed { .. } => "failed",
        }
    }
}

/// Who a peer is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the protocol that it speaks.
    pub protocol: u32,
    /// Its name.
    pub name: String,
    /// What it is built on, in words: `PyTorch 2.11.0, CUDA 13.0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Where it computes.
    pub devices: Vec<DeviceNote>,
    /// What it computes.
    pub offers: Vec<Offer>,
}

/// A device of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceNote {
    /// cpu or cuda.
    pub kind: DeviceKind,
    /// The vendor's name.
    pub name: String,
    /// All that a gate knows of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
}

/// One way to compute an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// What is computed.
    pub operator: String,
    /// The name of the way.
    pub candidate: String,
    /// The kind of device that it runs on.
    pub device: DeviceKind,
    /// In which dtypes.
    pub dtypes: Vec<DType>,
    /// Shapes to time, where the peer has a list of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<String>,
}

impl Hello {
    /// The offers for an operator in a dtype on a kind of device.
    pub fn offers_for(&self, operator: &str, dtype: DType, device: DeviceKind) -> impl Iterator<Item = &Offer> {
        let fits =
            move |offer: &&Offer| offer.operator == operator && offer.device == device && offer.dtypes.contains(&dtype);
        self.offers.iter().filter(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_flat_objects() {
        let asked = Asked { id: 7, request: Request::Sample { case: 2, instance: 3 } };
        let text = serde_json::to_string(&asked).unwrap();
        assert_eq!(text, r#"{"id":7,"request":"sample","case":2,"instance":3}"#);
        assert_eq!(serde_json::from_str::<Asked>(&text).unwrap(), asked);
        let answered: Answered =
            serde_json::from_str(r#"{"id":7,"case":2,"answer":"sampled","launch_us":3.5,"clock_mhz":1980}"#).unwrap();
        let expected = Answer::Sampled { launch_us: Some(3.5), clock_mhz: Some(1980.0) };
        assert_eq!(answered, Answered { id: 7, case: Some(2), answer: expected });
    }
}
