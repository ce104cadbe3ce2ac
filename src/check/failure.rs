//! A case that went wrong, and its worst element.

use super::case::CaseId;
use super::errors::Errors;
use serde::{Deserialize, Serialize};

/// A failed case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Which check of the many inside a trial: values, poison, guard, input, determinism, null, relation, crash …
    pub check: String,
    /// The case.
    pub case: CaseId,
    /// What happened, in a few lines.
    pub text: String,
    /// Where the worst value stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<Worst>,
    /// The errors of the case, on their way to those of the outcome.
    #[serde(skip)]
    pub errors: Option<Errors>,
}

impl Failure {
    /// Whether another case could have gone well: what does not compile, or takes other arguments, fails in all of them,
    /// and a loose declaration is no fault of the candidate.
    pub fn depends_on_the_case(&self) -> bool {
        !matches!(self.check.as_str(), "compile" | "signature" | "null" | "reference")
    }

    /// The error of the worst element as a share of what was allowed, where an element was found wrong.
    pub fn of_allowed(&self) -> Option<f64> {
        self.worst.as_ref()?.of_allowed()
    }

    /// Whether the declaration of the operator is wrong and not the candidate.
    pub fn blames_declaration(&self) -> bool {
        matches!(self.check.as_str(), "null" | "reference")
    }
}

/// The worst element of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// The output.
    pub output: String,
    /// Its index, one number a dimension.
    pub index: Vec<usize>,
    /// The reference there; a string, since JSON has no NaN.
    pub expected: String,
    /// What came.
    pub got: String,
    /// The error that was allowed.
    pub allowed: String,
    /// How many elements failed.
    pub failing: usize,
    /// Of how many.
    pub elements: usize,
}

impl Worst {
    /// The error as a share of what was allowed; infinite where both values are of different classes.
    fn of_allowed(&self) -> Option<f64> {
        if self.class_difference().is_some() {
            return Some(f64::INFINITY);
        }
        let number = |text: &str| text.parse::<f64>().ok();
        let (expected, got, allowed) = (number(&self.expected)?, number(&self.got)?, number(&self.allowed)?);
        let share = (got - expected).abs() / allowed;
        // Nothing is allowed where the reference is exact.
        (!share.is_nan()).then_some(share)
    }

    /// What the classes of both values are, where they differ: `expected finite, got NaN`. No error can be given then.
    pub fn class_difference(&self) -> Option<String> {
        let class = |text: &str| match text.parse::<f64>() {
            Ok(value) if value.is_nan() => Some("NaN"),
            Ok(f64::INFINITY) => Some("inf"),
            Ok(f64::NEG_INFINITY) => Some("-inf"),
            Ok(_) => Some("finite"),
            Err(_) => None,
        };
        let (expected, got) = (class(&self.expected)?, class(&self.got)?);
        (expected != got).then(|| format!("expected {expected}, got {got}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_share_of_what_is_allowed() {
        let of = |got: &str, allowed: &str| {
            let worst = Worst {
                output: "y".into(),
                index: vec![0],
                expected: "1.5e0".into(),
                got: got.into(),
                allowed: allowed.into(),
                failing: 1,
                elements: 2,
            };
            worst.of_allowed()
        };
        assert_eq!([of("1.75e0", "5e-2"), of("1.5e0", "1e-2")], [Some(5.0), Some(0.0)]);
        assert_eq!([of("NaN", "1e-2"), of("1e0", "0e0")], [Some(f64::INFINITY); 2]);
        assert_eq!([of("1.5e0", "0e0"), of("?", "1e-2")], [None, None]);
    }
}
