//! Failures that are the same in several trials: told in full once, and pointed to by the others.
//!
//! A kernel that does not compile fails in every dtype and check, and a loose declaration fails with every candidate. All
//! of these trials are red; one of them says why.

use crate::check::outcome::Outcome;
use crate::report::record::Record;
use std::collections::HashMap;

/// What has been told so far, and by which trial.
#[derive(Default)]
pub struct Told(HashMap<String, String>);

impl Told {
    /// Shortens a failure that another trial has told: one that no case can change, of the same candidate, or of the same
    /// declaration.
    pub fn shorten(&mut self, record: &mut Record) {
        let Some(failure) = record.outcome.failure.as_ref().filter(|failure| !failure.depends_on_the_case()) else {
            return;
        };
        let blamed = if failure.blames_declaration() { "" } else { &record.candidate };
        // An entry may have the dtype in its name.
        let text = failure.text.replace(record.dtype.name(), "{dtype}");
        let key = [&record.operator, blamed, &failure.check, &text].join("\n");
        match self.0.get(&key) {
            Some(first) if *first != record.trial => {
                record.outcome = Outcome::fail(format!("{}: as in `{first}`", failure.check));
            }
            _ => drop(self.0.insert(key, record.trial.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::case::CaseId;
    use crate::check::outcome::{Check, Failure, Verdict};
    use crate::core::distribution::Distribution;
    use crate::core::dtype::DType;
    use crate::device::DeviceKind;

    fn record(candidate: &str, dtype: DType, check: &str, text: &str) -> Record {
        let case = CaseId { shape: "n=1".into(), dtype, distribution: Distribution::Normal, seed: 1, offset_bytes: 0 };
        let failure = Failure { check: check.into(), case, text: text.into(), worst: None, errors: None };
        Record {
            trial: format!("gelu::{candidate}::{dtype}::correctness"),
            operator: "gelu".into(),
            candidate: candidate.into(),
            dtype,
            check: Check::Correctness,
            device: DeviceKind::Sim,
            fingerprint: None,
            source: None,
            outcome: Outcome { failure: Some(failure), ..Outcome::fail(text) },
            duration_s: 0.0,
            repeat: String::new(),
        }
    }

    #[rstest::rstest]
    #[case::compile("compile", "b", false)]
    #[case::compile_of_one("compile", "a", true)]
    #[case::declaration("null", "b", true)]
    #[case::data("values", "a", false)]
    fn what_no_case_can_change_is_told_once(#[case] check: &str, #[case] candidate: &str, #[case] is_short: bool) {
        let mut told = Told::default();
        let mut first = record("a", DType::F32, check, "no entry `k_f32`");
        told.shorten(&mut first);
        assert!(first.outcome.failure.is_some());
        let mut second = record(candidate, DType::F16, check, "no entry `k_f16`");
        told.shorten(&mut second);
        assert_eq!((second.outcome.failure.is_none(), second.outcome.verdict), (is_short, Verdict::Fail));
        assert_eq!(second.outcome.reason.contains("as in `gelu::a::f32::correctness`"), is_short);
        let mut other = record("a", DType::BF16, check, "another message");
        told.shorten(&mut other);
        assert!(other.outcome.failure.is_some());
    }
}
