//! The readable end of a run: counts, the worst errors, what was skipped, what took longest.

use super::record::Record;
use super::summary::Summary;
use super::text::line;
use crate::check::outcome::{Check, Verdict};
use crate::core::columns::Columns;
use crate::core::dtype::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// How many of the slowest trials are named.
const SLOWEST: usize = 3;

/// The columns of the count table.
const VERDICTS: [Verdict; 8] = [
    Verdict::Pass,
    Verdict::Fail,
    Verdict::Skip,
    Verdict::Same,
    Verdict::Faster,
    Verdict::Slower,
    Verdict::Unclear,
    Verdict::Invalid,
];

/// A few tables, each line at most as wide as a terminal.
///
/// With `all_times` every trial is named with its time, not the slowest ones alone.
pub fn describe(summary: &Summary, all_times: bool) -> String {
    let mut text = String::new();
    for entry in &summary.devices {
        let _ = writeln!(text, "{}: {} ({})", entry.fingerprint.kind, line(&entry.fingerprint.name), line(&entry.key));
    }
    counts(&mut text, &summary.records);
    worst_errors(&mut text, &summary.records);
    reasons(&mut text, &summary.records, Verdict::Skip, "skipped");
    reasons(&mut text, &summary.records, Verdict::Unclear, "unclear");
    judged(&mut text, &summary.records);
    slowest(&mut text, &summary.records, if all_times { usize::MAX } else { SLOWEST });
    text
}

/// The cases that were cut by a time that was asked for, and those that were planned.
pub fn cut(records: &[Record]) -> (usize, usize) {
    let sum = |of: fn(&Record) -> usize| records.iter().map(of).sum();
    (sum(|record| record.outcome.cut), sum(|record| record.outcome.planned))
}

/// That nothing at all was judged must not look like a good run.
fn judged(text: &mut String, records: &[Record]) {
    if !records.is_empty() && records.iter().all(|record| record.outcome.verdict == Verdict::Skip) {
        let _ = writeln!(text, "\nnothing was judged: all {} trials were skipped", records.len());
    }
}

fn counts(text: &mut String, records: &[Record]) {
    let present = |verdict: &Verdict| records.iter().any(|r| r.outcome.verdict == *verdict);
    let columns: Vec<Verdict> = VERDICTS.into_iter().filter(present).collect();
    let heads: Vec<String> = columns.iter().map(|verdict| format!(">{}", verdict.name())).collect();
    let mut table = Columns::new(std::iter::once("check").chain(heads.iter().map(String::as_str)));
    for check in Check::ALL {
        let of_check: Vec<&Record> = records.iter().filter(|r| r.check == check).collect();
        if of_check.is_empty() {
            continue;
        }
        let count = |&verdict: &Verdict| of_check.iter().filter(|r| r.outcome.verdict == verdict).count().to_string();
        table.row(std::iter::once(check.name().to_owned()).chain(columns.iter().map(count)));
    }
    let _ = write!(text, "\n{table}");
}

/// The largest error of each operator and candidate as a share of what is allowed, a column a dtype.
fn worst_errors(text: &mut String, records: &[Record]) {
    let mut rows: BTreeMap<(&str, &str), BTreeMap<DType, f64>> = BTreeMap::new();
    for record in records {
        if let Some(share) = record.outcome.worst_of_allowed() {
            let row = rows.entry((&record.operator, &record.candidate)).or_default();
            let cell = row.entry(record.dtype).or_insert(0.0);
            *cell = cell.max(share);
        }
    }
    if rows.is_empty() {
        return;
    }
    let dtypes: BTreeSet<DType> = rows.values().flat_map(BTreeMap::keys).copied().collect();
    let heads: Vec<String> = dtypes.iter().map(|dtype| format!(">{}", dtype.name())).collect();
    let what = std::iter::once("largest error, of what is allowed");
    let mut table = Columns::new(what.chain(heads.iter().map(String::as_str)));
    for ((operator, candidate), row) in rows {
        let cell = |dtype| row.get(dtype).map_or_else(|| "-".into(), |&share| of_allowed(share));
        let name = line(&format!("{operator}::{candidate}"));
        table.row(std::iter::once(name).chain(dtypes.iter().map(cell)));
    }
    let _ = write!(text, "\n{table}");
}

/// A share of what is allowed; a NaN in place of a number is beyond any.
fn of_allowed(share: f64) -> String {
    if share.is_finite() { format!("{:.0} %", share * 100.0) } else { "not finite".into() }
}

fn reasons(text: &mut String, records: &[Record], verdict: Verdict, label: &str) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records.iter().filter(|r| r.outcome.verdict == verdict) {
        *counts.entry(&record.outcome.reason).or_default() += 1;
    }
    for (i, (reason, count)) in counts.iter().enumerate() {
        let _ = writeln!(text, "{}{label} {count}: {}", if i == 0 { "\n" } else { "" }, line(reason));
    }
}

fn slowest(text: &mut String, records: &[Record], most: usize) {
    let mut order: Vec<&Record> = records.iter().collect();
    order.sort_by(|a, b| b.duration_s.total_cmp(&a.duration_s));
    for (i, record) in order.iter().take(most).enumerate() {
        let _ = writeln!(
            text,
            "{}slow {:>6.2} s: {}",
            if i == 0 { "\n" } else { "" },
            record.duration_s,
            line(&record.trial)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::outcome::Outcome;
    use crate::report::record::samples::{failed, passed, record, slower};
    use crate::report::summary::samples::run;

    #[test]
    fn a_whole_digest() {
        let mut summary = Summary::new(run("r"));
        let skip = |trial: &str| record(trial, Outcome::skip("no CUDA driver"));
        summary.add(vec![passed(), failed(), slower(), skip("gelu::fast::f16::perf"), skip("gelu::fast::bf16::perf")]);
        assert_eq!(
            describe(&summary, false),
            "
check        pass  fail  skip  slower
correctness     1     1     0       0
perf            0     0     2       1

largest error, of what is allowed   f32         f16
gelu::naive                        40 %           -
rows::naive                           -  not finite

skipped 2: no CUDA driver

slow   0.25 s: gelu::fast::f32::perf
slow   0.25 s: gelu::fast::f16::perf
slow   0.25 s: gelu::fast::bf16::perf
"
        );
    }

    #[test]
    fn cut_and_planned_cases_are_those_of_all_trials() {
        let trial = |cut, planned| record("a::b::f32::correctness", Outcome { cut, planned, ..Outcome::skip("") });
        assert_eq!(cut(&[trial(2, 64), trial(0, 10), trial(3, 5)]), (5, 79));
    }
}
