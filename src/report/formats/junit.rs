//! The summary as JUnit XML: a suite an operator and device, a test case a trial.
//!
//! JUnit knows neither `skip` with a verdict nor `unclear`: both are written as skipped, which is no pass.

use crate::check::outcome::Verdict;
use crate::report::failure;
use crate::report::record::Record;
use crate::report::summary::Summary;
use crate::report::text::{line, plain};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::collections::BTreeMap;
use std::time::Duration;

/// Failures that ended before there was a result.
const BROKEN: [&str; 5] = ["compile", "crash", "launch", "panic", "timeout"];

/// The XML text.
///
/// # Errors
/// If it cannot be written.
pub fn xml(summary: &Summary) -> Result<String, String> {
    let mut suites: BTreeMap<(&str, &str), Vec<&Record>> = BTreeMap::new();
    for record in &summary.records {
        let device = record.fingerprint.as_deref().unwrap_or("no device");
        suites.entry((&record.operator, device)).or_default().push(record);
    }
    let mut report = Report::new(line(&summary.run.package));
    for ((operator, device), records) in suites {
        let mut suite = TestSuite::new(line(&format!("{operator} on {device}")));
        suite.timestamp = summary.run.started.parse().ok();
        suite.add_property(("device", line(device).as_str()));
        suite.add_property(("kernelgate", line(&summary.run.kernelgate).as_str()));
        suite.add_property(("seed", format!("{:#x}", summary.run.seed).as_str()));
        suite.set_time(seconds(records.iter().map(|record| record.duration_s).sum()));
        suite.add_test_cases(records.into_iter().map(case));
        report.add_test_suite(suite);
    }
    report.set_time(seconds(summary.records.iter().map(|record| record.duration_s).sum()));
    report.to_string().map_err(|e| format!("cannot write JUnit XML: {e}"))
}

fn case(record: &Record) -> TestCase {
    let mut case = TestCase::new(line(&record.trial), status(record));
    case.set_classname(line(&format!("{}.{}", record.operator, record.candidate)));
    case.set_time(seconds(record.duration_s));
    case.add_property(("verdict", record.outcome.verdict.name()));
    if let Some(source) = &record.source {
        case.add_property(("source", line(source).as_str()));
    }
    if !record.outcome.notes.is_empty() {
        case.set_system_out(plain(&record.outcome.notes.join("\n")));
    }
    case
}

fn status(record: &Record) -> TestCaseStatus {
    let outcome = &record.outcome;
    match outcome.verdict {
        Verdict::Pass | Verdict::Same | Verdict::Faster => TestCaseStatus::success(),
        Verdict::Skip | Verdict::Unclear => {
            let mut skipped = TestCaseStatus::skipped();
            skipped.set_type(outcome.verdict.name()).set_message(line(&outcome.reason));
            skipped
        }
        Verdict::Fail | Verdict::Slower | Verdict::Invalid => {
            let check = outcome.failure.as_ref().map(|failure| failure.check.as_str());
            let begins = |word: &&str| outcome.reason.starts_with(&format!("{word}:"));
            let check = check.or_else(|| BROKEN.into_iter().find(begins));
            let is_broken = check.is_some_and(|check| BROKEN.contains(&check));
            let kind = if is_broken { NonSuccessKind::Error } else { NonSuccessKind::Failure };
            let mut failed = TestCaseStatus::non_success(kind);
            failed.set_type(line(check.unwrap_or(outcome.verdict.name())));
            failed.set_message(line(&outcome.reason)).set_description(failure::describe(record));
            failed
        }
    }
}

/// A time that a file may say anything of.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
