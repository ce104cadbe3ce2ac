//! A failed trial as text for a person: what, where, how far off, and the command that repeats it.

use super::record::Record;
use super::text::plain;
use crate::check::outcome::{Failure, Verdict, Worst};
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
    for timing in outcome.timings.iter().filter(|timing| timing.verdict.is_failure()) {
        line(timing.verdict.name(), &describe_timing(timing));
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

fn describe_timing(timing: &crate::check::outcome::Timing) -> String {
    let mut text = format!("{}: {:.3} µs", timing.shape, timing.median_us);
    if let (Some(baseline_us), Some(ratio)) = (timing.baseline_us, timing.ratio) {
        let _ = write!(text, " against {baseline_us:.3} µs accepted: {:+.1} %", (ratio - 1.0) * 100.0);
    }
    if let (Some(floor_us), Verdict::Invalid) = (timing.floor_us, timing.verdict) {
        let _ = write!(text, ", faster than the floor of {floor_us:.3} µs");
    }
    if let Some(threshold) = timing.threshold {
        let _ = write!(text, " (counts from {:.1} %)", threshold * 100.0);
    }
    text
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
    fn a_slow_shape_in_full() {
        assert_eq!(
            describe(&slower()),
            "  slower    1 of 2 shapes
  slower    n=4096: 10.500 µs against 10.000 µs accepted: +5.0 % (counts from 2.0 %)
  device    nvidia-h200-132
  repeat    cargo test --test gate -- --exact gelu::fast::f32::perf"
        );
    }
}
