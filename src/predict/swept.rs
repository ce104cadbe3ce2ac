//! A family as its file has it: what was measured, and what was fitted to it.

use super::model::Parameters;
use super::observation::Observation;
use super::process::Process;
use crate::core::dtype::DType;
use serde::{Deserialize, Serialize};

/// A family in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Swept {
    /// The operator.
    pub operator: String,
    /// The candidate.
    pub candidate: String,
    /// The dtype.
    pub dtype: DType,
    /// What was fitted.
    pub parameters: Parameters,
    /// What the model leaves over.
    #[serde(default)]
    pub process: Process,
    /// The same where a library is not asked for its algorithm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unasked: Option<Process>,
    /// What was measured.
    pub observations: Vec<Observation>,
}

impl Swept {
    /// A family by its parameters alone: the model leaves nothing over.
    pub fn new(
        (operator, candidate, dtype): (&str, &str, DType),
        parameters: Parameters,
        observations: Vec<Observation>,
    ) -> Self {
        let process = Process { weights: vec![0.0; observations.len()], ..Process::default() };
        Swept {
            operator: operator.into(),
            candidate: candidate.into(),
            dtype,
            parameters,
            process,
            unasked: None,
            observations,
        }
    }
}
