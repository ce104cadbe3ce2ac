//! A failed trial as text for a person: what, where, how far off, and the command that repeats it.

use super::record::Record;
use super::text::plain;
use crate::check::outcome::{Failure, Metric, Timing, Verdict, Worst};
use crate::core::columns::Columns;
use std::fmt::Write as _;

/// Several lines, without the trial's name, which the harness prints above them.
pub fn describe(record: &Record) -> String {
    let mut text = String::new();
    let outcome = &record.outcome;
    let mut line = |label: &str, value: &str| {
        let value = plain(value);
        let mut lines = value.lines();
        let _ = writeln!(text, "  {label:<10}{}", lines.next().unwrap_or_default());
        for more in lines {
            let _ = writeln!(text, "  {:<10}{more}", "");
        }
    };
    match &outcome.failure {
        Some(failure) => {
            line("check", &failure.check);
            if failure.blames_declaration() {
                line("blame", "the declaration of the operator, not the candidate");
            }
            describe_case(failure, &mut line);
            line("found", failure.text.trim_end());
            if let Some(worst) = &failure.worst {
                describe_worst(worst, &mut line);
            }
        }
        None => line(outcome.verdict.name(), &outcome.reason),
    }
    let failing: Vec<&Timing> = outcome.timings.iter().filter(|timing| timing.verdict.is_failure()).collect();
    if !failing.is_empty() {
        line("times", &table(&failing));
    }
    let changed: Vec<&Metric> = outcome.metrics.iter().filter(|metric| metric.is_changed()).collect();
    if outcome.verdict.is_failure() && !changed.is_empty() {
        line("counts", &counts(changed));
    }
    for note in &outcome.notes {
        line("note", note);
    }
    line("device", record.fingerprint.as_deref().unwrap_or(record.device.name()));
    line("repeat", &record.repeat);
    text.truncate(text.trim_end().len());
    text
}

fn describe_case(failure: &Failure, line: &mut impl FnMut(&str, &str)) {
    let case = &failure.case;
    line("shape", &case.shape);
    line("inputs", &format!("{} {}, seed {:#x}", case.dtype, case.distribution, case.seed));
    if case.offset_bytes != 0 {
        line("offset", &format!("buffers start {} bytes behind an aligned address", case.offset_bytes));
    }
}

fn describe_worst(worst: &Worst, line: &mut impl FnMut(&str, &str)) {
    line(
        "worst at",
        &format!("{}{:?}; {} of {} elements are wrong", worst.output, worst.index, worst.failing, worst.elements),
    );
    line("expected", &worst.expected);
    line("got", &worst.got);
    line("allowed", &format!("an error of {}", worst.allowed));
}

/// The failing shapes, a line each.
fn table(timings: &[&Timing]) -> String {
    /// A column in which nothing stands is left out.
    const HEADS: [&str; 7] = ["verdict", "shape", ">median µs", ">accepted µs", ">change", ">counts from", ">floor µs"];
    let us = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |us| format!("{us:.3}"));
    let percent = |value: Option<f64>, signed: bool| match value {
        Some(share) if signed => format!("{:+.1} %", share * 100.0),
        Some(share) => format!("{:.1} %", share * 100.0),
        None => "-".into(),
    };
    let row = |timing: &&Timing| {
        [
            timing.verdict.name().into(),
            timing.shape.clone(),
            us(Some(timing.median_us)),
            us(timing.baseline_us),
            percent(timing.ratio.map(|ratio| ratio - 1.0), true),
            percent(timing.threshold, false),
            us(timing.floor_us.filter(|_| timing.verdict == Verdict::Invalid)),
        ]
    };
    let rows: Vec<[String; 7]> = timings.iter().map(row).collect();
    let shown: Vec<usize> = (0..HEADS.len()).filter(|&at| rows.iter().any(|row| row[at] != "-")).collect();
    let mut columns = Columns::new(shown.iter().map(|&at| HEADS[at]));
    rows.iter().for_each(|row| columns.row(shown.iter().map(|&at| row[at].as_str())));
    columns.to_string().trim_end().to_owned()
}

/// Counts that a table shows.
const COUNTS: usize = 12;

/// The counts that changed, those that changed the most first.
fn counts(mut changed: Vec<&Metric>) -> String {
    let factor = |metric: &Metric| {
        let accepted = metric.accepted.unwrap_or_default();
        (metric.value as f64 + 1.0).ln() - (accepted as f64 + 1.0).ln()
    };
    changed.sort_by(|a, b| factor(b).abs().total_cmp(&factor(a).abs()));
    let mut columns = Columns::new(["counted", "shape", ">now", ">accepted", ">change"]);
    for metric in changed.iter().take(COUNTS) {
        let accepted = metric.accepted.unwrap_or_default();
        let change = match accepted {
            0 => "new".to_owned(),
            _ => format!("{:+.1} %", (metric.value as f64 / accepted as f64 - 1.0) * 100.0),
        };
        columns.row([
            metric.name.clone(),
            metric.shape.clone(),
            metric.value.to_string(),
            accepted.to_string(),
            change,
        ]);
    }
    let left = changed.len().saturating_sub(COUNTS);
    let rest = if left > 0 { format!("and {left} more") } else { String::new() };
    format!("{}\n{rest}", columns.to_string().trim_end()).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::samples::{failed, slower};

    #[test]
    fn a_wrong_value_in_full() {
        assert_eq!(
            describe(&failed()),
            "  check     values
  shape     rows=3,cols=5
  inputs    f16 large_mean, seed 0x2a
  found     two lines
            of text
  worst at  y[2, 4]; 7 of 15 elements are wrong
  expected  1.5e0
  got       NaN
  allowed   an error of 1e-3
  note      tolerance overridden: tanh.approx
  device    cpu-x-2
  repeat    cargo test --release --test gate -- --exact rows::naive::f16::correctness --shape rows=3,cols=5"
        );
    }

    #[test]
    fn counts_that_changed_are_a_table() {
        let metric = |name: &str, value, accepted| Metric {
            shape: "n=64".into(),
            name: name.into(),
            value,
            relative: None,
            accepted: Some(accepted),
        };
        let same = metric("barriers", 3, 3);
        let changed = [metric("instructions", 110, 100), metric("loads", 40, 10), metric("spills", 2, 0)];
        let mut record = slower();
        record.outcome.timings.clear();
        record.outcome.metrics = std::iter::once(same).chain(changed).collect();
        let text = describe(&record);
        let table = "  counts    counted       shape  now  accepted    change
            loads         n=64    40        10  +300.0 %
            spills        n=64     2         0       new
            instructions  n=64   110       100   +10.0 %
";
        assert!(text.contains(table), "{text}");
    }

    #[test]
    fn a_slow_shape_in_full() {
        assert_eq!(
            describe(&slower()),
            "  slower    1 of 2 shapes
  times     verdict  shape   median µs  accepted µs  change  counts from
            slower   n=4096     10.500       10.000  +5.0 %        2.0 %
  device    nvidia-h200-132
  repeat    cargo test --test gate -- --exact gelu::fast::f32::perf"
        );
    }
}
