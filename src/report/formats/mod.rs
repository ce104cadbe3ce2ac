//! Forms of a summary that a CI system reads, and what they have in common: the order and the names.

pub mod annotations;
pub mod bmf;
pub mod gh_benchmark;
pub mod junit;
pub mod markdown;

use super::record::Record;
use super::summary::Summary;
use super::text::line;
use crate::check::outcome::{Timing, Verdict};

/// How bad a verdict is; the worst is 0.
pub fn rank(verdict: Verdict) -> usize {
    use Verdict::{Fail, Faster, Invalid, Pass, Same, Skip, Slower, Unclear};
    let order = [Fail, Invalid, Slower, Unclear, Skip, Faster, Same, Pass];
    order.iter().position(|other| *other == verdict).unwrap_or(order.len())
}

/// The records, the worst first; of equal verdicts the slowdown or the error that is farthest beyond what is allowed.
pub fn worst_first(summary: &Summary) -> Vec<&Record> {
    let mut records: Vec<&Record> = summary.records.iter().collect();
    records.sort_by(|a, b| {
        let verdicts = rank(a.outcome.verdict).cmp(&rank(b.outcome.verdict));
        verdicts.then_with(|| excess(b).total_cmp(&excess(a)))
    });
    records
}

/// How far a record is beyond what is allowed, for the order alone.
fn excess(record: &Record) -> f64 {
    let slowest = record.outcome.timings.iter().filter_map(|timing| timing.ratio).fold(0.0, f64::max);
    record.outcome.worst_of_allowed().map_or(slowest, |share| share.max(slowest))
}

/// The name under which a system that follows numbers over time keeps those of one shape: the same in every run.
fn series(record: &Record, shape: &str, heat: Option<&str>) -> String {
    let candidate = format!("{}::{}::{}", record.operator, record.candidate, record.dtype);
    let device = record.fingerprint.as_deref().unwrap_or(record.device.name());
    let parts = [Some(candidate.as_str()), Some(shape), heat, Some(device)];
    line(&parts.into_iter().flatten().collect::<Vec<_>>().join("/"))
}

/// The timings whose numbers can be believed.
fn believed(record: &Record) -> impl Iterator<Item = &Timing> {
    let timings = record.outcome.timings.iter();
    timings.filter(|timing| timing.verdict != Verdict::Invalid && timing.median_us.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::outcome::{Errors, Outcome};
    use crate::report::record::samples::{failed, passed, record, slower};
    use crate::report::summary::samples::run;
    use std::path::Path;

    #[test]
    fn the_worst_comes_first() {
        let mut worse = slower();
        worse.trial = "z::fast::f32::perf".into();
        worse.outcome.timings[1].ratio = Some(2.0);
        let mut summary = Summary::new(run("r"));
        let skip = record("a::b::f32::perf", Outcome::skip("none"));
        summary.add(vec![passed(), slower(), worse, skip, failed()]);
        let order: Vec<_> = worst_first(&summary).iter().map(|record| record.trial.as_str()).collect();
        let expected = [
            "rows::naive::f16::correctness",
            "z::fast::f32::perf",
            "gelu::fast::f32::perf",
            "a::b::f32::perf",
            "gelu::naive::f32::correctness",
        ];
        assert_eq!(order, expected);
    }

    /// A failure whose worst element is this far beyond what is allowed, in a file that kept errors of passing cases alone.
    fn fails_at(trial: &str, share: f64) -> Record {
        let mut record = Record { trial: trial.into(), ..failed() };
        record.outcome.errors = Some(Errors { max_of_allowed: 0.9 / share, ..Errors::default() });
        let worst = record.outcome.failure.as_mut().unwrap().worst.as_mut().unwrap();
        (worst.expected, worst.got, worst.allowed) = ("0e0".into(), format!("{share:e}"), "1e0".into());
        record
    }

    #[test]
    fn of_two_failures_the_one_farther_off_comes_first_in_every_form() {
        let mut summary = Summary::new(run("r"));
        summary.add(vec![fails_at("a::near::f16::property", 1.06), fails_at("b::far::bf16::correctness", 5.7)]);
        let order: Vec<_> = worst_first(&summary).iter().map(|record| record.trial.as_str()).collect();
        assert_eq!(order, ["b::far::bf16::correctness", "a::near::f16::property"]);
        for text in [markdown::page(&summary), annotations::commands(&summary, Path::new("/nonexistent"))] {
            let at = |name: &str| text.find(name).unwrap();
            assert!(at("far") < at("near"), "{text}");
        }
    }

    #[test]
    fn a_series_has_one_name_in_every_run() {
        assert_eq!(series(&slower(), "n=4", Some("cold")), "gelu::fast::f32/n=4/cold/nvidia-h200-132");
    }
}
