//! How far outputs were from the reference: of a trial, and of each of its shapes.

use serde::{Deserialize, Deserializer, Serialize};

/// How far outputs were from the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Largest |got − expected|.
    #[serde(deserialize_with = "number")]
    pub max_abs: f64,
    /// Largest |got − expected| / |expected|, over expected ≠ 0.
    #[serde(deserialize_with = "number")]
    pub max_rel: f64,
    /// Largest error in units in the last place of the output's dtype.
    #[serde(deserialize_with = "number")]
    pub max_ulp: f64,
    /// Largest error as a share of what was allowed: above 1 is a failure.
    #[serde(deserialize_with = "number")]
    pub max_of_allowed: f64,
}

impl Errors {
    /// The larger of both, member by member.
    pub fn max(self, other: Errors) -> Errors {
        Errors {
            max_abs: self.max_abs.max(other.max_abs),
            max_rel: self.max_rel.max(other.max_rel),
            max_ulp: self.max_ulp.max(other.max_ulp),
            max_of_allowed: self.max_of_allowed.max(other.max_of_allowed),
        }
    }
}

/// The largest errors of one shape, to three digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShapeErrors {
    /// The shape, as `rows=3,cols=5`.
    pub shape: String,
    /// As [`Errors::max_ulp`].
    #[serde(deserialize_with = "number")]
    pub max_ulp: f64,
    /// As [`Errors::max_of_allowed`].
    #[serde(deserialize_with = "number")]
    pub max_of_allowed: f64,
}

impl ShapeErrors {
    pub(super) fn of(shape: String, errors: Errors) -> Self {
        // A trial has dozens of them: digits that nobody reads would be most of its record.
        let short = |x: f64| format!("{x:.2e}").parse().unwrap_or(x);
        ShapeErrors { shape, max_ulp: short(errors.max_ulp), max_of_allowed: short(errors.max_of_allowed) }
    }
}

/// JSON has no NaN and no infinity: such a number is written as `null`, and read back as NaN.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
