//! Whether a finding is what a fixture expects.

use crate::finding::Finding;
use kernelgate::check::case::CaseId;
use kernelgate::check::outcome::{Failure, Outcome, Verdict};
use kernelgate::prelude::*;

/// What the gate must make of a fixture.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// The operator of the catalogue that it claims to compute.
    pub operator: String,
    /// What is wrong with it, or merely odd.
    pub defect: String,
    /// The checks of which one must catch it; none if it is right.
    pub caught_by: Vec<String>,
}

impl Expectation {
    pub fn of(operator: &str, defect: &str, caught_by: &[&str]) -> Self {
        Expectation {
            operator: operator.into(),
            defect: defect.into(),
            caught_by: caught_by.iter().map(|&check| check.into()).collect(),
        }
    }

    /// The verdict that is due.
    pub fn verdict(&self) -> &'static str {
        if self.caught_by.is_empty() { "pass" } else { "fail" }
    }
}

/// Whether a finding is the expected one; why not, otherwise.
pub fn judge(expectation: &Expectation, finding: &Finding) -> Result<(), String> {
    let outcome = finding.last();
    match finding.caught_by() {
        Some((check, what)) if expectation.caught_by.is_empty() => {
            let failure = outcome.failure.as_ref().map(|failure| format!("{}\n{}", failure.case, failure.text));
            Err(format!(
                "is right, but {check}/{what} rejects it: {}",
                failure.unwrap_or_else(|| outcome.reason.clone())
            ))
        }
        Some((_, what)) if expectation.caught_by.iter().any(|check| check == what) => Ok(()),
        Some((check, what)) => Err(format!(
            "caught by {check}/{what}, expected one of {}: {}",
            expectation.caught_by.join(", "),
            outcome.reason
        )),
        None if outcome.verdict != Verdict::Pass => {
            Err(format!("is not judged at all: {} ({})", outcome.verdict.name(), outcome.reason))
        }
        None if expectation.caught_by.is_empty() => complete(finding),
        None => Err(format!("is not caught, expected one of {}", expectation.caught_by.join(", "))),
    }
}

/// A pass counts only if nothing was cut off.
fn complete(finding: &Finding) -> Result<(), String> {
    let outcomes = [Some(&finding.correctness), finding.property.as_ref()];
    let notes = outcomes.into_iter().flatten().flat_map(|outcome| &outcome.notes);
    match notes.into_iter().find(|note| note.contains("budget")) {
        Some(cut) => Err(format!("passes, but not all was run: {cut}")),
        None => Ok(()),
    }
}

/// Holds [`judge`] itself to its word: a table that agrees to anything shows nothing.
pub fn notices_wrong_expectations() -> Result<(), String> {
    let outcome = |verdict, check: &str| {
        let case =
            CaseId { shape: "n=1".into(), dtype: F32, distribution: Distribution::Normal, seed: 1, offset_bytes: 0 };
        let failure = Failure { check: check.into(), case, text: String::new(), worst: None, errors: None };
        Outcome { failure: (verdict == Verdict::Fail).then_some(failure), ..Outcome::new(verdict) }
    };
    let finding =
        |correctness: Outcome, property: Option<Outcome>| Finding { dtype: F32, seed: 1, correctness, property };
    let passed = finding(outcome(Verdict::Pass, ""), Some(outcome(Verdict::Pass, "")));
    let caught = finding(outcome(Verdict::Fail, "values"), None);
    let caught_late = finding(outcome(Verdict::Pass, ""), Some(outcome(Verdict::Fail, "values")));
    let skipped = finding(Outcome::skip("no device"), None);
    let mut cut = passed.clone();
    cut.correctness.notes.push("budget spent: 9 of 12 cases not run".into());

    let right = Expectation::of("silu", "", &[]);
    let faulty = Expectation::of("silu", "", &["values"]);
    let guarded = Expectation::of("silu", "", &["guard"]);
    let table = [
        (&right, &passed, true),
        (&right, &caught, false),
        (&right, &caught_late, false),
        (&right, &skipped, false),
        (&right, &cut, false),
        (&faulty, &passed, false),
        (&faulty, &caught, true),
        (&faulty, &caught_late, true),
        (&faulty, &skipped, false),
        (&guarded, &caught, false),
    ];
    for (expectation, finding, agrees) in table {
        if judge(expectation, finding).is_ok() != agrees {
            return Err(format!("{expectation:?} against {finding:?}: expected agreement to be {agrees}"));
        }
    }
    Ok(())
}
