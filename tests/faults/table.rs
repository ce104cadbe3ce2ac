//! The table at the end of the output.

use crate::finding::Finding;
use crate::judgement::Expectation;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The rows so far; trials enter theirs as they end.
#[derive(Default)]
pub struct Table(Mutex<Vec<Row>>);

#[derive(Clone)]
struct Row {
    device: String,
    name: String,
    operator: String,
    expected: &'static str,
    /// What was found, by which check, how often.
    found: String,
    /// Findings as expected, of all.
    runs: String,
    /// `yes`, `NO` or `skip`.
    ok: &'static str,
    defect: String,
}

impl Table {
    /// Enters the findings on a fixture, `wrong` of which are not as expected.
    pub fn enter(&self, device: &str, name: &str, expectation: &Expectation, findings: &[Finding], wrong: usize) {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for finding in findings {
            let what = finding.caught_by().map(|(check, what)| format!("{check}/{what}"));
            *counts.entry(what.unwrap_or_else(|| finding.last().verdict.name().into())).or_default() += 1;
        }
        let found: Vec<String> = counts.iter().map(|(what, count)| format!("{what} x{count}")).collect();
        let runs = format!("{}/{}", findings.len() - wrong, findings.len());
        let ok = if wrong == 0 && !findings.is_empty() { "yes" } else { "NO" };
        self.push(device, name, expectation, found.join(", "), runs, ok);
    }

    /// Enters a fixture that was not run.
    pub fn skip(&self, device: &str, name: &str, expectation: &Expectation, why: &str) {
        let why = why.lines().next().unwrap_or_default();
        self.push(device, name, expectation, format!("not run: {why}"), "0/0".into(), "skip");
    }

    fn push(&self, device: &str, name: &str, expectation: &Expectation, found: String, runs: String, ok: &'static str) {
        let row = Row {
            device: device.into(),
            name: name.into(),
            operator: expectation.operator.clone(),
            expected: expectation.verdict(),
            found,
            runs,
            ok,
            defect: expectation.defect.clone(),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(row);
    }

    /// Prints all rows, faulty ones first, and the sums.
    pub fn print(&self) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if rows.is_empty() {
            return;
        }
        rows.sort_by_key(|row| (row.device.clone(), row.expected, row.operator.clone(), row.name.clone()));
        let head = ["device", "operator", "fixture", "expected", "found", "runs", "ok", "defect"].map(String::from);
        let cells = rows.iter().map(|row| {
            [&row.device, &row.operator, &row.name, row.expected, &row.found, &row.runs, row.ok, &row.defect]
                .map(String::from)
        });
        let lines: Vec<[String; 8]> = std::iter::once(head).chain(cells).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 8] = std::array::from_fn(width);
        println!();
        for line in &lines {
            let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            println!("{}", cells.join("  ").trim_end());
        }
        let count =
            |expected: &str, ok: &str| rows.iter().filter(|row| row.expected == expected && row.ok == ok).count();
        println!(
            "\n{} faulty candidates caught, {} missed; {} right ones accepted, {} rejected; {} not run",
            count("fail", "yes"),
            count("fail", "NO"),
            count("pass", "yes"),
            count("pass", "NO"),
            count("fail", "skip") + count("pass", "skip"),
        );
    }
}
