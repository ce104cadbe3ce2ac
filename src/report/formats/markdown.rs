//! The summary of a job in Markdown: short, the worst first.

use super::worst_first;
use crate::check::outcome::{Outcome, Verdict};
use crate::report::record::Record;
use crate::report::summary::Summary;
use crate::report::text::markdown;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How many trials are named, for each section.
const NAMED: usize = 20;

/// How much of what was found stands in a cell.
const CELL: usize = 300;

/// The Markdown text.
pub fn page(summary: &Summary) -> String {
    let mut text = headline(summary);
    let records = worst_first(summary);
    section(&mut text, "Failed", &records, Verdict::is_failure);
    section(&mut text, "Unclear", &records, |verdict| verdict == Verdict::Unclear);
    section(&mut text, "Faster than the baseline", &records, |verdict| verdict == Verdict::Faster);
    errors(&mut text, &records);
    skipped(&mut text, &records);
    text
}

/// What came of it, and where.
fn headline(summary: &Summary) -> String {
    let failures: usize = summary.counts.iter().filter(|(verdict, _)| verdict.is_failure()).map(|(_, n)| n).sum();
    let judged = summary.records.iter().any(|record| record.outcome.verdict != Verdict::Skip);
    let title = match (failures, judged) {
        (0, true) => "the gate is green".to_owned(),
        (0, false) => "nothing was judged".to_owned(),
        (n, _) => format!("{n} of {} trials failed", summary.records.len()),
    };
    let mut text = format!("## {}: {title}\n\n", markdown(&summary.run.package));
    let mut counts: Vec<_> = summary.counts.iter().filter(|(_, count)| **count > 0).collect();
    counts.sort_by_key(|(verdict, _)| super::rank(**verdict));
    let counts: Vec<String> = counts.iter().map(|(verdict, count)| format!("{count} {}", verdict.name())).collect();
    let devices: Vec<String> = summary.devices.iter().map(|entry| markdown(&entry.fingerprint.name)).collect();
    let _ = writeln!(text, "{}", if counts.is_empty() { "no trials".into() } else { counts.join(" · ") });
    if !devices.is_empty() {
        let _ = writeln!(text, "\non {}", devices.join(", "));
    }
    text
}

fn section(text: &mut String, title: &str, records: &[&Record], belongs: impl Fn(Verdict) -> bool) {
    let chosen: Vec<&&Record> = records.iter().filter(|record| belongs(record.outcome.verdict)).collect();
    if chosen.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n### {title}\n\n| verdict | trial | device | what |\n|---|---|---|---|");
    for record in chosen.iter().take(NAMED) {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            record.outcome.verdict.name(),
            markdown(&record.trial),
            markdown(record.fingerprint.as_deref().unwrap_or(record.device.name())),
            cut(&what(&record.outcome)),
        );
    }
    if chosen.len() > NAMED {
        let _ = writeln!(text, "\nand {} more", chosen.len() - NAMED);
    }
}

/// What was found, in one line.
fn what(outcome: &Outcome) -> String {
    if let Some(failure) = &outcome.failure {
        return format!("{}: {} ({})", failure.check, failure.text.trim_end(), failure.case.shape);
    }
    if !outcome.reason.is_empty() {
        return outcome.reason.clone();
    }
    let of_verdict = outcome.timings.iter().filter(|timing| timing.verdict == outcome.verdict);
    let changes = of_verdict.filter_map(|timing| {
        Some(format!("{}: {:.2} µs, {:+.1} %", timing.shape, timing.median_us, (timing.ratio? - 1.0) * 100.0))
    });
    changes.collect::<Vec<_>>().join("; ")
}

/// The text of a cell, of limited length.
fn cut(text: &str) -> String {
    let short: String = text.chars().take(CELL).collect();
    let dots = if short.len() < text.len() { " …" } else { "" };
    markdown(&(short + dots))
}

/// The operators that come closest to what is allowed.
fn errors(text: &mut String, records: &[&Record]) {
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for record in records.iter().filter(|record| record.outcome.verdict == Verdict::Pass) {
        if let Some(errors) = record.outcome.errors {
            let name = format!("{}::{}::{}", record.operator, record.candidate, record.dtype);
            let share = shares.entry(name).or_insert(0.0);
            *share = share.max(errors.max_of_allowed);
        }
    }
    let mut shares: Vec<(String, f64)> = shares.into_iter().collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    if !shares.is_empty() {
        text.push_str("\n### Largest errors that passed\n\n| candidate | of what is allowed |\n|---|---:|\n");
    }
    for (name, share) in shares.iter().take(5) {
        let _ = writeln!(text, "| {} | {:.0} % |", markdown(name), share * 100.0);
    }
}

/// A reason without the shapes that it ends in: those of one reason are counted together.
fn without_shapes(reason: &str) -> &str {
    let is_shape = |text: &str| text.split(',').all(|extent| extent.contains('=') && !extent.contains(' '));
    match reason.rsplit_once(": ") {
        Some((what, shapes)) if shapes.split("; ").all(is_shape) => what,
        _ => reason,
    }
}

fn skipped(text: &mut String, records: &[&Record]) {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records.iter().filter(|record| record.outcome.verdict == Verdict::Skip) {
        *reasons.entry(without_shapes(&record.outcome.reason)).or_default() += 1;
    }
    if !reasons.is_empty() {
        text.push_str("\n### Skipped\n\n| trials | why |\n|---:|---|\n");
    }
    let mut reasons: Vec<(&str, usize)> = reasons.into_iter().collect();
    reasons.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    for (reason, count) in reasons.iter().take(NAMED) {
        let _ = writeln!(text, "| {count} | {} |", cut(reason));
    }
    if reasons.len() > NAMED {
        let _ = writeln!(text, "\nand {} more reasons", reasons.len() - NAMED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::samples::{failed, passed, record, slower};
    use crate::report::summary::samples::run;

    #[test]
    fn a_whole_page() {
        let mut summary = Summary::new(run("r"));
        summary.add(vec![passed(), failed(), slower(), record("a::b::f32::perf", Outcome::skip("no | driver"))]);
        assert_eq!(
            page(&summary),
            "## demo: 2 of 4 trials failed

1 fail · 1 slower · 1 skip · 1 pass

### Failed

| verdict | trial | device | what |
|---|---|---|---|
| fail | rows::naive::f16::correctness | cpu-x-2 | values: two lines of text (rows=3,cols=5) |
| slower | gelu::fast::f32::perf | nvidia-h200-132 | 1 of 2 shapes |

### Largest errors that passed

| candidate | of what is allowed |
|---|---:|
| gelu::naive::f32 | 40 % |

### Skipped

| trials | why |
|---:|---|
| 1 | no \\| driver |
"
        );
    }

    #[test]
    fn thousands_of_failures_stay_short() {
        let mut summary = Summary::new(run("r"));
        let mut long = failed();
        long.outcome.failure.as_mut().unwrap().text = "x".repeat(5000);
        summary.add((0..3000).map(|i| Record { trial: format!("rows::n{i}::f16::perf"), ..long.clone() }).collect());
        let page = page(&summary);
        assert!(page.len() < 20_000 && page.contains("and 2980 more"), "{} bytes", page.len());
    }

    #[test]
    fn skips_are_counted_by_their_reason_and_not_by_their_shapes() {
        let mut summary = Summary::new(run("r"));
        let skip = |name: &str, why: &str| record(&format!("a::{name}::f32::perf"), Outcome::skip(why));
        summary.add(vec![
            skip("b", "no baseline for gpu: rows=3,cols=5; rows=4,cols=5"),
            skip("c", "no baseline for gpu: n=7"),
            skip("d", "no driver: libcuda.so is not there"),
        ]);
        let page = page(&summary);
        assert!(page.contains("| 2 | no baseline for gpu |\n| 1 | no driver: libcuda.so is not there |"), "{page}");
    }

    #[test]
    fn skips_alone_are_not_green() {
        let mut summary = Summary::new(run("r"));
        summary.add(vec![record("a::b::f32::perf", Outcome::skip("none"))]);
        assert!(page(&summary).contains("nothing was judged"));
    }

    #[test]
    fn reasons_beyond_the_named_ones_are_counted() {
        let page_of = |reasons: usize| {
            let mut summary = Summary::new(run("r"));
            let skip = |i| record(&format!("a::n{i}::f32::perf"), Outcome::skip(format!("reason {i}")));
            summary.add((0..reasons).map(skip).collect());
            page(&summary)
        };
        assert!(!page_of(NAMED).contains("more reasons"));
        assert!(page_of(NAMED + 1).ends_with("\nand 1 more reasons\n"));
    }
}
