//! Counts against accepted ones: exact, so that any more work is a regression. What is written is only ever a pending
//! snapshot.

use super::BaselineSettings;
use super::metrics_table::MetricsTable;
use super::store::{Metadata, read};
use crate::check::counts::{self, Counted, RESIDENT};
use crate::check::outcome::{Metric, Outcome, Verdict};
use crate::check::{Context, Subject};
use crate::core::shape::{Point, describe};
use std::collections::BTreeSet;

/// Changes that the reason names before it only counts them.
const NAMED: usize = 3;

/// Counts the work of a subject and holds it against what was accepted.
pub fn gate(
    context: &Context<'_>,
    subject: &Subject<'_>,
    only: Option<&Point>,
    settings: &BaselineSettings,
) -> Outcome {
    let arch = context.device.fingerprint().arch.replace("compute_", "sm_");
    judge(counts::run(context, subject, only), subject, &arch, settings)
}

fn judge(counted: Counted, subject: &Subject<'_>, arch: &str, settings: &BaselineSettings) -> Outcome {
    let Counted { mut outcome, made_by } = counted;
    // What failed at one shape has failed, whatever was counted at others.
    if outcome.verdict != Verdict::Pass || outcome.metrics.is_empty() {
        return outcome;
    }
    let path = settings.metrics_path(subject, arch);
    let accepted: Option<MetricsTable> = match read(&path) {
        Ok(accepted) => accepted,
        Err(why) => return Outcome { verdict: Verdict::Fail, reason: why, ..outcome },
    };
    let shapes: BTreeSet<String> = outcome.metrics.iter().map(|metric| metric.shape.clone()).collect();
    let comparable = accepted.as_ref().filter(|accepted| accepted.made_by == made_by);
    let unknown: Vec<&String> =
        shapes.iter().filter(|shape| comparable.is_none_or(|table| table.of_shape(shape).next().is_none())).collect();
    let mut changes = Changes::default();
    if let Some(table) = comparable {
        for shape in shapes.iter().filter(|shape| !unknown.contains(shape)) {
            changes.compare(shape, &mut outcome.metrics, table);
        }
    }
    (outcome.verdict, outcome.reason) = match (&accepted, changes) {
        (_, Changes { worse, .. }) if !worse.is_empty() => (
            Verdict::Fail,
            format!("more work than accepted: {}; accept with `cargo insta review` if intended", told(&worse)),
        ),
        (Some(table), _) if table.made_by != made_by => (
            Verdict::Skip,
            format!(
                "counts were accepted for {}, and this is {made_by}: look at the new ones with `cargo insta review`",
                table.made_by
            ),
        ),
        (_, _) if !unknown.is_empty() => {
            let shapes: Vec<&str> = unknown.iter().map(|shape| shape.as_str()).collect();
            (Verdict::Skip, format!("no baseline of counts for {arch}: {}", shapes.join("; ")))
        }
        (_, Changes { better, .. }) if !better.is_empty() => (
            Verdict::Pass,
            format!("less work than accepted: {}; accept with `cargo insta review` to keep it", told(&better)),
        ),
        _ => (Verdict::Pass, String::new()),
    };
    if settings.require {
        outcome.require_baseline(outcome.verdict == Verdict::Skip);
    }
    if settings.write_pending {
        let proposed = proposal(subject, comparable, &outcome.metrics, &shapes, made_by);
        let note = settings.propose(&path, accepted.as_ref(), &proposed, &metadata(subject));
        outcome.notes.extend(note);
    }
    outcome
}

/// What changed against the accepted counts, in words.
#[derive(Default)]
struct Changes {
    worse: Vec<String>,
    better: Vec<String>,
}

impl Changes {
    fn compare(&mut self, shape: &str, metrics: &mut [Metric], table: &MetricsTable) {
        let mut seen = BTreeSet::new();
        for metric in metrics.iter_mut().filter(|metric| metric.shape == shape) {
            let accepted = table.count(shape, &metric.name);
            metric.accepted = Some(accepted);
            self.add(shape, &metric.name, accepted, metric.value);
            seen.insert(metric.name.clone());
        }
        // What is not counted any more is zero now.
        for gone in table.of_shape(shape).filter(|row| !seen.contains(&row.name)) {
            self.add(shape, &gone.name, gone.value, 0);
        }
    }

    fn add(&mut self, shape: &str, name: &str, accepted: u64, now: u64) {
        if accepted == now {
            return;
        }
        let text = format!("{shape}: {name} {accepted} -> {now}");
        let is_worse = (now > accepted) != name.starts_with(RESIDENT);
        if is_worse { self.worse.push(text) } else { self.better.push(text) }
    }
}

fn told(changes: &[String]) -> String {
    let named = changes[..changes.len().min(NAMED)].join("; ");
    if changes.len() > NAMED { format!("{named}; and {} more", changes.len() - NAMED) } else { named }
}

/// The table that would be accepted: the new rows of the shapes that were counted, the old ones of those that were not
/// and are still listed.
fn proposal(
    subject: &Subject<'_>,
    comparable: Option<&MetricsTable>,
    metrics: &[Metric],
    shapes: &BTreeSet<String>,
    made_by: String,
) -> MetricsTable {
    let mut table = MetricsTable { made_by, rows: Vec::new() };
    let axes = subject.operator.axes();
    let mut order: Vec<String> = counts::points(subject).iter().map(|point| describe(axes, point)).collect();
    order.extend(shapes.iter().filter(|shape| !order.contains(shape)).cloned().collect::<Vec<_>>());
    for shape in &order {
        if shapes.contains(shape) {
            let rows = metrics.iter().filter(|metric| metric.shape == *shape);
            table.rows.extend(rows.map(|row| Metric { accepted: None, ..row.clone() }));
        } else {
            table.rows.extend(comparable.into_iter().flat_map(|table| table.of_shape(shape)).cloned());
        }
    }
    table
}

fn metadata(subject: &Subject<'_>) -> Metadata {
    let (operator, candidate) = (subject.operator.name(), &subject.candidate.name);
    let description = format!("{operator} {candidate} {}, counted by the simulator", subject.dtype);
    Metadata { description, info: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::pending_path;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::dtype::DType;
    use crate::core::operator::Op;
    use std::path::Path;

    crate::shape! { struct Vector { n: 1..=64 } }

    fn metric(name: &str, value: u64) -> Metric {
        Metric { shape: "n=8".into(), name: name.into(), value, relative: None, accepted: None }
    }

    fn counted(metrics: &[Metric], made_by: &str) -> Counted {
        let outcome = Outcome { metrics: metrics.to_vec(), cases: 1, ..Outcome::new(Verdict::Pass) };
        Counted { outcome, made_by: made_by.into() }
    }

    struct Fixture {
        folder: tempfile::TempDir,
        operator: Op<Vector>,
        candidate: Candidate,
    }

    impl Fixture {
        fn new() -> Self {
            let operator = Op::<Vector>::new("k").output("y", |s| [s.n]).perf([Vector { n: 8 }]);
            let candidate = Cpu::new::<f32>(|_: &Vector, _, _| {}).named("c");
            Fixture { folder: tempfile::tempdir().unwrap(), operator, candidate }
        }

        fn judge(&self, metrics: &[Metric], made_by: &str, require: bool) -> (Outcome, bool) {
            let subject = Subject { operator: &self.operator, candidate: &self.candidate, dtype: DType::F32 };
            let settings =
                BaselineSettings { root: self.folder.path().into(), require, threshold: None, write_pending: true };
            let outcome = judge(counted(metrics, made_by), &subject, "sm_90a", &settings);
            (outcome, pending_path(&self.path()).exists())
        }

        fn path(&self) -> std::path::PathBuf {
            self.folder.path().join("snapshots/metrics/sm_90a/k.c.f32.snap")
        }

        fn accept(&self) {
            std::fs::rename(pending_path(&self.path()), self.path()).unwrap();
        }
    }

    #[test]
    fn a_kernel_that_failed_at_a_later_shape_has_failed() {
        let fixture = Fixture::new();
        let counts = [metric("instructions", 100)];
        fixture.judge(&counts, "NVRTC 13.0", false);
        let pending = |is_accepted: bool| {
            if is_accepted {
                fixture.accept();
            }
            let subject = Subject { operator: &fixture.operator, candidate: &fixture.candidate, dtype: DType::F32 };
            let settings = BaselineSettings {
                root: fixture.folder.path().into(),
                require: false,
                threshold: None,
                write_pending: true,
            };
            let outcome = Outcome { metrics: counts.to_vec(), cases: 1, ..Outcome::fail("out-of-bounds") };
            let outcome = judge(Counted { outcome, made_by: "NVRTC 13.0".into() }, &subject, "sm_90a", &settings);
            (outcome.verdict, outcome.reason)
        };
        for is_accepted in [false, true] {
            assert_eq!(pending(is_accepted), (Verdict::Fail, "out-of-bounds".into()));
        }
    }

    #[test]
    fn counts_are_accepted_and_then_held_exactly() {
        let fixture = Fixture::new();
        let first = [metric("instructions", 100), metric("barrier arrivals", 4), metric("resident warps: k", 32)];
        let (outcome, pending) = fixture.judge(&first, "NVRTC 13.0", false);
        assert_eq!((outcome.verdict, pending), (Verdict::Skip, true));
        assert_eq!(outcome.reason, "no baseline of counts for sm_90a: n=8");
        assert!(!outcome.lacks_baseline, "none is required");
        let (required, _) = fixture.judge(&first, "NVRTC 13.0", true);
        assert_eq!((required.verdict, required.lacks_baseline), (Verdict::Fail, true), "a baseline is required");
        fixture.accept();

        let (outcome, pending) = fixture.judge(&first, "NVRTC 13.0", true);
        assert_eq!((outcome.verdict, outcome.reason.as_str(), pending), (Verdict::Pass, "", false));
        assert_eq!(outcome.metrics[0].accepted, Some(100));

        let judged = |metrics: &[Metric]| {
            let (outcome, pending) = fixture.judge(metrics, "NVRTC 13.0", false);
            assert!(pending, "a change asks for review");
            (outcome.verdict, outcome.reason)
        };
        let (verdict, reason) = judged(&[metric("instructions", 101), first[1].clone(), first[2].clone()]);
        assert!(verdict == Verdict::Fail && reason.contains("n=8: instructions 100 -> 101"), "{reason}");
        let (verdict, reason) = judged(&[metric("instructions", 90), first[2].clone()]);
        assert!(
            verdict == Verdict::Pass && reason.contains("instructions 100 -> 90; n=8: barrier arrivals 4 -> 0"),
            "{reason}"
        );
        let (verdict, _) = judged(&[first[0].clone(), first[1].clone(), metric("resident warps: k", 16)]);
        assert_eq!(verdict, Verdict::Fail, "fewer resident warps are worse");
        let (verdict, _) = judged(&[first.to_vec(), vec![metric("divergent branches", 1)]].concat());
        assert_eq!(verdict, Verdict::Fail, "what was zero has no row");
    }

    #[test]
    fn another_compiler_is_a_skip_that_asks_for_review() {
        let fixture = Fixture::new();
        fixture.judge(&[metric("instructions", 100)], "NVRTC 13.0", false);
        fixture.accept();
        let (outcome, pending) = fixture.judge(&[metric("instructions", 120)], "NVRTC 13.1", false);
        assert_eq!((outcome.verdict, pending), (Verdict::Skip, true));
        assert!(outcome.reason.contains("NVRTC 13.0") && outcome.reason.contains("NVRTC 13.1"), "{}", outcome.reason);
    }

    #[test]
    fn a_damaged_snapshot_is_a_failure_and_stays() {
        let fixture = Fixture::new();
        fixture.judge(&[metric("instructions", 100)], "NVRTC 13.0", false);
        fixture.accept();
        let text = std::fs::read_to_string(fixture.path()).unwrap();
        let damaged = text.replace("100", "<<<<<<<");
        std::fs::write(fixture.path(), &damaged).unwrap();
        let (outcome, pending) = fixture.judge(&[metric("instructions", 100)], "NVRTC 13.0", false);
        assert!(outcome.verdict == Verdict::Fail && outcome.reason.contains("is no count"), "{}", outcome.reason);
        assert!(!pending);
        assert_eq!(std::fs::read_to_string(Path::new(&fixture.path())).unwrap(), damaged);
    }
}
