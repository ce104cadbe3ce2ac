//! What measured times mean against the accepted ones, and the snapshot that is proposed for review.

use super::BaselineSettings;
use super::row::{MOST_HALF_WIDTH, Row, Table, half_width_of};
use super::standing::{Standing, stand};
use super::store::{Metadata, read};
use crate::check::Subject;
use crate::check::outcome::{Outcome, Timing, Verdict};
use crate::check::perf::worst;
use crate::core::shape::describe;
use crate::device::fingerprint::Fingerprint;
use crate::measure::Change;
use crate::measure::threshold::{Distance, NoiseTable, case_name};
use std::path::Path;

/// Judges the timings of a perf outcome. The verdict is made first; then, if the table would change, the proposed one
/// is written as a pending snapshot.
pub fn judge(
    mut outcome: Outcome,
    subject: &Subject<'_>,
    fingerprint: &Fingerprint,
    settings: &BaselineSettings,
) -> Outcome {
    if outcome.timings.is_empty() {
        return outcome;
    }
    let path = settings.snapshot_path(subject, fingerprint);
    let noise = NoiseTable::load(&settings.noise_folder(), &fingerprint.key(), fingerprint.kind);
    let (accepted, noise) = match (read::<Table>(&path), noise) {
        (Ok(accepted), Ok(noise)) => (accepted.unwrap_or_default(), noise),
        (Err(why), _) | (_, Err(why)) => return Outcome { verdict: Verdict::Fail, reason: why, ..outcome },
    };

    let mut proposed = accepted.clone();
    let mut reasons = Reasons { unknown: retire(&mut proposed, subject, &outcome.timings), ..Reasons::default() };
    for timing in &mut outcome.timings {
        let case = case_name(subject.operator.name(), &subject.candidate.name, subject.dtype, &timing.shape);
        let of_noise = || noise.threshold_of(&case, timing.median_us, Distance::Stored);
        let threshold = settings.threshold.unwrap_or_else(of_noise);
        let chooses = subject.candidate.body.chooses_algorithm();
        judge_timing(timing, (&accepted, &mut proposed), (threshold, chooses), &mut reasons);
    }
    outcome.verdict = worst(&outcome.timings);
    if settings.require {
        outcome.require_baseline(!reasons.missing.is_empty());
    }
    if outcome.reason.is_empty() {
        outcome.reason = reasons.of(outcome.verdict, &fingerprint.key());
    }
    if !reasons.unknown.is_empty() {
        (outcome.verdict, outcome.reason) = (Verdict::Fail, unknown(&path, &reasons.unknown));
        outcome.lacks_baseline = false;
    }
    outcome.notes.append(&mut reasons.notes);
    let (timed, all) = (outcome.timings.len(), outcome.timings.len() + outcome.unreached);
    if accepted.rows.is_empty() && timed < all {
        let what = format!("{timed} of {all} shapes were timed: nothing is proposed, a first baseline has all of them");
        outcome.notes.push(what);
    } else if settings.write_pending {
        let metadata = metadata(subject, fingerprint);
        outcome.notes.extend(settings.propose(&path, Some(&accepted), &proposed, &metadata));
    }
    outcome
}

/// Takes out the rows that no timing will ever be held against, of shapes that the operator does not list or in another
/// heat than shapes are timed in, and names them. Rows of shapes that were only left out this time stay.
fn retire(proposed: &mut Table, subject: &Subject<'_>, timings: &[Timing]) -> Vec<String> {
    let listed: Vec<String> =
        subject.operator.perf_shapes().iter().map(|point| describe(subject.operator.axes(), point)).collect();
    let is_known = |row: &Row| {
        let is_timed = |t: &Timing| t.shape == row.shape && t.heat == row.heat;
        timings.iter().any(is_timed) || (listed.contains(&row.shape) && timings.iter().all(|t| t.heat == row.heat))
    };
    let (known, unknown) = std::mem::take(&mut proposed.rows).into_iter().partition(is_known);
    proposed.rows = known;
    unknown.into_iter().map(|row: Row| format!("{} {}", row.shape, row.heat_name())).collect()
}

fn unknown(path: &Path, rows: &[String]) -> String {
    format!(
        "{}: rows of shapes that are not timed: {}; restore the file from version control, or accept it without them \
         with `cargo insta review`",
        path.display(),
        rows.join("; ")
    )
}

/// What is said about the trial, by kind.
#[derive(Default)]
struct Reasons {
    slower: Vec<String>,
    faster: Vec<String>,
    unclear: Vec<String>,
    missing: Vec<String>,
    unknown: Vec<String>,
    notes: Vec<String>,
}

impl Reasons {
    fn of(&self, verdict: Verdict, key: &str) -> String {
        let accept = |lines: &[String]| format!("{}; accept with `cargo insta review` if intended", lines.join("; "));
        match verdict {
            Verdict::Slower => accept(&self.slower),
            Verdict::Faster => format!("{}; accept with `cargo insta review` to keep it", self.faster.join("; ")),
            Verdict::Unclear => self.unclear.join("; "),
            Verdict::Skip | Verdict::Fail => format!("no baseline for {key}: {}", self.missing.join("; ")),
            Verdict::Pass | Verdict::Same | Verdict::Invalid => String::new(),
        }
    }
}

/// Holds a timing against its row. That of a library that `chooses` its algorithm fails nobody where it is another.
fn judge_timing(
    timing: &mut Timing,
    (accepted, proposed): (&Table, &mut Table),
    (threshold, chooses): (f64, bool),
    reasons: &mut Reasons,
) {
    let row = accepted.row(&timing.shape, timing.heat);
    // What could not be measured, or not believed, is no candidate for a baseline either. It lacks one all the same.
    if let Some(doubt) = doubt(timing) {
        timing.verdict = Verdict::Unclear;
        reasons.unclear.push(format!("{}: {doubt}", timing.shape));
    }
    if row.is_none() && matches!(timing.verdict, Verdict::Pass | Verdict::Unclear) {
        reasons.missing.push(timing.shape.clone());
    }
    if timing.verdict != Verdict::Pass {
        return;
    }
    timing.threshold = Some(threshold);
    let Some(row) = row else {
        timing.verdict = Verdict::Skip;
        proposed.rows.push(Row::of(timing, None));
        return;
    };
    let standing = stand(row, timing, threshold);
    timing.baseline_us = Some(row.median_us);
    timing.ratio = Some(standing.ratio);
    timing.normalised_ratio = standing.normalised_ratio;
    let is_other = matches!(standing.change, Change::Slower | Change::Faster);
    let is_choice = chooses && is_other;
    timing.verdict = if is_choice { Verdict::Unclear } else { standing.change.into() };
    let mut line = explain(timing, row, &standing, threshold);
    if standing.is_of_environment {
        line += ", and the machine code and the launches are those of the accepted time: this is the environment";
    }
    if is_choice {
        line += ", and the library chooses its algorithm anew in every run; accept with `cargo insta review` if it is to be so";
    }
    match standing.change {
        _ if is_choice => reasons.unclear.push(line),
        Change::Slower => reasons.slower.push(line),
        Change::Faster => reasons.faster.push(line),
        Change::Unclear => reasons.unclear.push(line),
        Change::Same if (standing.ratio - 1.0).abs() > threshold => {
            reasons.notes.push(format!("{line}: the yardstick changed as much, so this is the environment"));
        }
        Change::Same => {}
    }
    // Other code that takes the accepted time: the time stays, so that no row of small steps leads away from it.
    if let (Change::Same, Some(code)) = (standing.change, &timing.code)
        && row.code.as_ref() != Some(code)
    {
        replace(proposed, row.with_code(code));
    }
    // A row with a yardstick of another kind would leave the next run without one, too.
    if is_other || row.has_other_yardstick(timing) {
        let epoch = (!standing.new_epoch).then(|| row.epoch_for(timing));
        replace(proposed, Row::of(timing, epoch));
    }
}

/// Why a time that was taken cannot be held against another one.
fn doubt(timing: &Timing) -> Option<String> {
    let half_width = half_width_of(timing);
    match timing.verdict {
        Verdict::Unclear => Some(format!("only {} samples", timing.samples)),
        Verdict::Pass if half_width.is_nan() || half_width > MOST_HALF_WIDTH => {
            Some(format!("known to ±{:.1} % only", 100.0 * half_width))
        }
        _ => None,
    }
}

fn replace(table: &mut Table, row: Row) {
    if let Some(old) = table.rows.iter_mut().find(|old| old.shape == row.shape && old.heat == row.heat) {
        *old = row;
    }
}

fn explain(timing: &Timing, row: &Row, standing: &Standing, threshold: f64) -> String {
    let percent = |ratio: f64| format!("{:+.1} %", 100.0 * (ratio - 1.0));
    let mut text = format!(
        "{}: {:.3} µs against {:.3} µs accepted ({}, threshold {:.1} %",
        timing.shape,
        timing.median_us,
        row.median_us,
        percent(standing.ratio),
        100.0 * threshold
    );
    if let Some(ratio) = standing.normalised_ratio {
        text += &format!("; {} against the yardstick", percent(ratio));
    }
    if standing.is_creep {
        text += &format!("; crept {} since the pinned {:.3} µs", percent(standing.epoch_ratio), row.epoch_us.0);
    }
    text + ")"
}

fn metadata(subject: &Subject<'_>, fingerprint: &Fingerprint) -> Metadata {
    let facts = [
        ("device", &fingerprint.name),
        ("arch", &fingerprint.arch),
        ("driver", &fingerprint.driver),
        ("compiler", &fingerprint.compiler),
    ];
    let info = facts.into_iter().filter(|(_, fact)| !fact.is_empty()).map(|(name, fact)| (name, fact.clone()));
    Metadata {
        description: format!(
            "{} {} {} on {}",
            subject.operator.name(),
            subject.candidate.name,
            subject.dtype,
            fingerprint.name
        ),
        info: info.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::simulated::timing;
    use crate::core::candidate::{Cpu, CudaHost, Enqueue, IntoCandidate};
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use crate::device::Device;
    use crate::device::cpu::CpuDevice;
    use rstest::rstest;

    crate::shape! { struct Vector { n: 1..=64 } }

    /// A time known to a half of itself.
    fn vague(shape: &str) -> Timing {
        Timing { low_us: 5.0, high_us: 15.0, ..timing(shape, 10.0, None) }
    }

    #[rstest]
    #[case::own_code(false, Verdict::Slower)]
    #[case::a_choice_of_a_library(true, Verdict::Unclear)]
    fn a_library_that_chooses_is_not_failed_by_its_choice(#[case] chooses: bool, #[case] expected: Verdict) {
        let operator = Op::<Vector>::new("k").output("y", |s| [s.n]).perf([Vector { n: 8 }]);
        let host = CudaHost::new(|_: &Vector, _: &Enqueue| Ok(()));
        let host = if chooses { host.describe(|_, _| Some("algorithm 3".into())) } else { host };
        let candidate = host.named("c");
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let (folder, device) = (tempfile::tempdir().unwrap(), CpuDevice::new());
        let settings =
            BaselineSettings { root: folder.path().into(), require: false, threshold: Some(0.01), write_pending: true };
        let path = settings.snapshot_path(&subject, device.fingerprint());
        let judged = |us: f64| {
            let outcome = Outcome { timings: vec![timing("n=8", us, None)], ..Outcome::new(Verdict::Pass) };
            judge(outcome, &subject, device.fingerprint(), &settings)
        };
        let pending = path.with_extension("snap.new");
        assert_eq!(judged(10.0).verdict, Verdict::Skip);
        std::fs::rename(&pending, &path).unwrap();
        assert_eq!((judged(10.0).verdict, pending.exists()), (Verdict::Same, false));
        let outcome = judged(11.0);
        assert_eq!((outcome.verdict, pending.exists()), (expected, true), "{}", outcome.reason);
        assert_eq!(outcome.reason.contains("chooses its algorithm"), chooses, "{}", outcome.reason);
    }

    #[rstest]
    #[case::measured(&[timing("n=8", 10.0, None)], Verdict::Skip, "n=8")]
    #[case::known_too_badly(&[vague("n=8")], Verdict::Unclear, "n=8")]
    #[case::one_of_each(&[timing("n=8", 10.0, None), vague("n=9")], Verdict::Unclear, "n=8; n=9")]
    fn what_lacks_a_baseline_fails_where_one_is_required(
        #[case] timings: &[Timing],
        #[case] verdict: Verdict,
        #[case] missing: &str,
    ) {
        let operator = Op::<Vector>::new("k").output("y", |s| [s.n]).perf([Vector { n: 8 }, Vector { n: 9 }]);
        let candidate = Cpu::new::<f32>(|_: &Vector, _, _| {}).named("c");
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let folder = tempfile::tempdir().unwrap();
        let device = CpuDevice::new();
        let judged = |require: bool| {
            let settings =
                BaselineSettings { root: folder.path().into(), require, threshold: None, write_pending: false };
            let outcome = Outcome { timings: timings.to_vec(), ..Outcome::new(Verdict::Pass) };
            judge(outcome, &subject, device.fingerprint(), &settings)
        };
        assert_eq!((judged(false).verdict, judged(false).lacks_baseline), (verdict, false));
        let required = judged(true);
        assert_eq!((required.verdict, required.lacks_baseline), (Verdict::Fail, true));
        let reason = required.reason;
        assert!(reason.starts_with("no baseline for ") && reason.ends_with(missing), "{reason}");
    }
}
