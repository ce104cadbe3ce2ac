//! A counted metric of a shape.

use serde::{Deserialize, Serialize};

/// An exact count of the simulator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The shape.
    pub shape: String,
    /// What was counted.
    pub name: String,
    /// How much.
    pub value: u64,
    /// Held against what the case asks for: `1.0000 of compulsory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative: Option<String>,
    /// The accepted count, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<u64>,
}

impl Metric {
    /// Whether it is another than was accepted.
    pub fn is_changed(&self) -> bool {
        self.accepted.is_some_and(|accepted| accepted != self.value)
    }
}
