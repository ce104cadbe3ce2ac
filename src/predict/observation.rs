//! A time that a sweep has measured.

use serde::{Deserialize, Serialize};

/// A measured case of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The shape, as `--shape` takes it.
    pub shape: String,
    /// Median time of a cold launch, µs.
    pub us: f64,
    /// What a library said of its algorithm, where it says such things.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// What the fitted parameters alone give for it on the device of the sweep, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modelled_us: Option<f64>,
    /// The same where a library is not asked for its algorithm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unasked_us: Option<f64>,
}

impl Observation {
    /// A time of a shape, of which nothing else is known.
    pub fn new(shape: String, us: f64) -> Self {
        Observation { shape, us, algorithm: None, modelled_us: None, unasked_us: None }
    }
}
