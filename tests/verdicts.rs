//! The verdicts on times, held to series with known answers and to the whole life of a baseline.

use kernelgate::baseline::{BaselineSettings, Row, judge, pending_path, stand};
use kernelgate::check::Subject;
use kernelgate::check::outcome::{Outcome, Timing, Verdict};
use kernelgate::core::candidate::{Candidate, IntoCandidate};
use kernelgate::device::fingerprint::Fingerprint;
use kernelgate::device::{DeviceKind, Heat, Sample};
use kernelgate::measure::clock::ClockWatch;
use kernelgate::measure::series::Series;
use kernelgate::measure::{Change, paired};
use kernelgate::prelude::*;
use rstest::rstest;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

shape! { struct Vector { n: 1..=1 << 20 } }

#[derive(Deserialize)]
struct Fixture {
    version: u32,
    about: String,
    threshold: f64,
    expected: Expected,
    base: Session,
    head: Session,
}

#[derive(Deserialize)]
struct Expected {
    paired: Change,
    stored: Change,
    dropped: usize,
}

#[derive(Deserialize)]
struct Session {
    candidate: Vec<Vec<(f64, f64)>>,
    copy: Vec<Vec<(f64, f64)>>,
}

fn series(samples: &[Vec<(f64, f64)>]) -> Series {
    let sample = |&(launch_us, mhz): &(f64, f64)| Sample { launch_us, clock_mhz: Some(mhz) };
    Series::of(samples.iter().map(|instance| instance.iter().map(sample).collect()).collect())
}

/// The timing of a session, as the perf check reports it.
fn timing_of(session: &Session) -> Timing {
    let (candidate, copy) = (series(&session.candidate), series(&session.copy));
    let watch = ClockWatch::over(&[candidate.clone(), copy.clone()]);
    let summary = candidate.summary(&watch);
    Timing {
        low_us: summary.interval_us.low,
        high_us: summary.interval_us.high,
        samples: summary.samples,
        dropped: summary.dropped,
        verdict: if summary.samples < 6 { Verdict::Unclear } else { Verdict::Pass },
        ..timing("n=1", summary.median_us, copy.summary(&watch).median_us)
    }
}

/// A sound timing with an interval of 0.1 % to either side.
fn timing(shape: &str, median_us: f64, copy_us: f64) -> Timing {
    Timing {
        shape: shape.into(),
        heat: Heat::Cold,
        median_us,
        p5_us: median_us,
        p95_us: median_us,
        low_us: median_us * 0.999,
        high_us: median_us * 1.001,
        samples: 40,
        dropped: 0,
        clock_mhz: None,
        bytes: 1 << 20,
        flops: 1 << 18,
        copy_us: Some(copy_us),
        read_us: None,
        fma_us: None,
        floor_us: Some(copy_us),
        of_ceiling: Some(copy_us / median_us),
        baseline_us: None,
        ratio: None,
        normalised_ratio: None,
        threshold: None,
        verdict: Verdict::Pass,
        peers: Vec::new(),
        code: None,
        predicted_us: None,
        predicted_interval_us: None,
        bound: None,
    }
}

#[rstest]
fn series_with_known_answers(
    #[files("fixtures/timings/*.json")]
    #[mode = path]
    path: PathBuf,
) {
    let text = fs::read_to_string(&path).unwrap();
    let fixture: Fixture = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(fixture.version, 1);

    let (base, head) = (series(&fixture.base.candidate), series(&fixture.head.candidate));
    let watch = ClockWatch::over(&[base.clone(), head.clone()]);
    let comparison = paired(&base.kept_us(&watch), &head.kept_us(&watch), fixture.threshold);
    assert_eq!(comparison.change, fixture.expected.paired, "{}: {comparison:?}", fixture.about);
    assert_eq!(head.summary(&watch).dropped, fixture.expected.dropped, "{}", fixture.about);

    let (accepted, now) = (timing_of(&fixture.base), timing_of(&fixture.head));
    let stored = if now.verdict == Verdict::Unclear {
        Change::Unclear
    } else {
        stand(&Row::of(&accepted, None), &now, fixture.threshold).change
    };
    assert_eq!(stored, fixture.expected.stored, "{}", fixture.about);
}

/// One operator with a baseline in a folder of its own.
struct Gate {
    operator: Op<Vector>,
    candidate: Candidate,
    settings: BaselineSettings,
}

impl Gate {
    fn new(root: &Path) -> Self {
        let settings = BaselineSettings { threshold: Some(0.01), ..BaselineSettings::new(root) };
        let operator = Op::<Vector>::new("gelu").perf([1, 2, 3].map(|n| Vector { n }));
        Gate { operator, candidate: Cpu::new::<f32>(|_: &Vector, _, _| {}).named("v3"), settings }
    }

    fn judge(&self, timings: Vec<Timing>) -> Outcome {
        let subject = Subject { operator: &self.operator, candidate: &self.candidate, dtype: F32 };
        judge(Outcome { timings, ..Outcome::new(Verdict::Pass) }, &subject, &gpu(), &self.settings)
    }

    fn snapshot(&self) -> PathBuf {
        self.settings.root.join("snapshots/perf/nvidia-h200-132/gelu.v3.f32.snap")
    }

    fn pending(&self) -> Option<String> {
        fs::read_to_string(pending_path(&self.snapshot())).ok()
    }

    /// What `cargo insta accept` does.
    fn accept(&self) {
        fs::rename(pending_path(&self.snapshot()), self.snapshot()).unwrap();
    }

    /// A gate whose baseline is 10, 20 and 30 µs, beside copies of 8 µs.
    fn accepted(root: &Path) -> Self {
        let gate = Gate::new(root);
        gate.judge(times([10.0, 20.0, 30.0]));
        gate.accept();
        gate
    }
}

fn gpu() -> Fingerprint {
    Fingerprint {
        kind: DeviceKind::Cuda,
        name: "NVIDIA H200".into(),
        arch: "sm_90".into(),
        units: 132,
        cache_bytes: 50 << 20,
        memory_bytes: 0,
        clock_mhz: 1980.0,
        driver: "580.1".into(),
        compiler: "NVRTC 13.0".into(),
    }
}

fn times(medians_us: [f64; 3]) -> Vec<Timing> {
    (1..).zip(medians_us).map(|(n, us)| timing(&format!("n={n}"), us, 8.0)).collect()
}

#[test]
fn a_new_baseline_is_pending_until_it_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::new(folder.path());
    let first = gate.judge(times([10.0, 20.0, 30.0]));
    assert_eq!(first.verdict, Verdict::Skip);
    assert_eq!(first.reason, "no baseline for nvidia-h200-132: n=1; n=2; n=3");
    assert!(gate.pending().unwrap().contains("description: \"gelu v3 f32 on NVIDIA H200\""));
    assert!(!gate.snapshot().exists());

    assert_eq!(gate.judge(times([10.0, 20.0, 30.0])).verdict, Verdict::Skip, "pending is not accepted");
    gate.accept();
    let again = gate.judge(times([10.01, 19.99, 30.02]));
    assert_eq!((again.verdict, again.timings[0].baseline_us), (Verdict::Same, Some(10.0)));
    assert_eq!(gate.pending(), None);
}

#[test]
fn a_required_baseline_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut gate = Gate::new(folder.path());
    gate.settings.require = true;
    let outcome = gate.judge(times([10.0, 20.0, 30.0]));
    assert_eq!(outcome.verdict, Verdict::Fail);
    assert!(outcome.reason.starts_with("no baseline for nvidia-h200-132"), "{}", outcome.reason);
    assert!(gate.pending().is_some(), "it can still be accepted");
}

#[test]
fn a_diff_shows_only_the_rows_that_changed() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::accepted(folder.path());
    let accepted = fs::read_to_string(gate.snapshot()).unwrap();
    let outcome = gate.judge(times([10.05, 21.0, 29.0]));
    assert_eq!(outcome.verdict, Verdict::Slower);
    let verdicts: Vec<Verdict> = outcome.timings.iter().map(|t| t.verdict).collect();
    assert_eq!(verdicts, [Verdict::Same, Verdict::Slower, Verdict::Faster]);
    assert!(outcome.reason.contains("n=2: 21.000 µs against 20.000 µs accepted (+5.0 %"), "{}", outcome.reason);

    let pending = gate.pending().unwrap();
    let changed: Vec<&str> = pending.lines().filter(|line| !accepted.contains(*line)).collect();
    assert_eq!(changed.len(), 2, "{changed:?}");
    assert!(changed[0].starts_with("n=2 ") && changed[1].starts_with("n=3 "), "{changed:?}");

    gate.accept();
    assert_eq!(gate.judge(times([10.05, 21.0, 29.0])).verdict, Verdict::Same);
}

#[test]
fn a_pending_snapshot_goes_when_it_says_nothing_new() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::accepted(folder.path());
    gate.judge(times([11.0, 20.0, 30.0]));
    assert!(gate.pending().is_some());
    gate.judge(times([10.0, 20.0, 30.0]));
    assert_eq!(gate.pending(), None);
}

#[test]
fn a_yardstick_of_another_kind_is_taken_over_without_a_change_of_the_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::accepted(folder.path());
    let beside_reading = |us| Timing { copy_us: None, read_us: Some(7.0), ..timing("n=1", us, 7.0) };
    let outcome = gate.judge(vec![beside_reading(10.05)]);
    assert_eq!((outcome.verdict, outcome.timings[0].normalised_ratio), (Verdict::Same, None));
    let row = |text: &str| text.lines().find(|line| line.starts_with("n=1 ")).unwrap().to_owned();
    let pending = row(&gate.pending().unwrap());
    assert!(pending.contains("7.0000 read") && pending.contains("10.000/-"), "{pending}");
    gate.accept();
    let again = gate.judge(vec![beside_reading(10.04)]);
    assert!(again.timings[0].normalised_ratio.is_some_and(|ratio| (ratio - 0.999).abs() < 1e-4), "{again:?}");
    assert_eq!(gate.pending(), None);
}

#[test]
fn rows_left_out_this_time_stay_and_rows_no_longer_timed_go() {
    let folder = tempfile::tempdir().unwrap();
    let mut gate = Gate::accepted(folder.path());
    assert_eq!(gate.judge(vec![timing("n=2", 20.0, 8.0)]).verdict, Verdict::Same);
    assert_eq!(gate.pending(), None, "two shapes were not measured, which is no change");
    gate.operator = Op::<Vector>::new("gelu").perf([1, 4].map(|n| Vector { n }));
    let outcome = gate.judge(vec![timing("n=1", 10.0, 8.0), timing("n=4", 40.0, 8.0)]);
    assert_eq!(outcome.verdict, Verdict::Fail, "rows that nothing is held against are no accident");
    for words in ["gelu.v3.f32.snap", "n=2 cold; n=3 cold", "cargo insta review"] {
        assert!(outcome.reason.contains(words), "{}", outcome.reason);
    }
    let shapes: Vec<String> =
        gate.pending().unwrap().lines().filter_map(|l| Some(l.split_once(" |")?.0.trim().into())).collect();
    assert_eq!(shapes, ["shape", "n=1", "n=4"]);
}

#[test]
fn what_cannot_be_believed_is_never_proposed() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::accepted(folder.path());
    let mut timings = times([1.0, 20.0, 30.0]);
    timings[0].verdict = Verdict::Invalid;
    let outcome = gate.judge(timings);
    assert_eq!(outcome.verdict, Verdict::Invalid);
    assert_eq!(gate.pending(), None);
}

#[test]
fn a_row_in_another_heat_or_of_another_shape_is_a_failure() {
    for (old, new) in [("n=2                              | cold", "n=2 | hot"), ("n=2 ", "n=22 ")] {
        let folder = tempfile::tempdir().unwrap();
        let gate = Gate::accepted(folder.path());
        let text = fs::read_to_string(gate.snapshot()).unwrap();
        assert!(text.contains(old), "{text}");
        fs::write(gate.snapshot(), text.replace(old, new)).unwrap();
        let outcome = gate.judge(times([10.0, 20.0, 30.0]));
        assert_eq!(outcome.verdict, Verdict::Fail, "{new}: {outcome:?}");
        assert!(outcome.reason.contains("shapes that are not timed"), "{}", outcome.reason);
    }
}

#[rstest]
#[case::median("    20.000 |", "     1e300 |")]
#[case::interval(" 0.10 |", " 100 |")]
#[case::yardstick("8.0000 copy", "400.00 copy")]
fn a_damaged_number_is_a_failure_under_every_setting(
    #[case] old: &str,
    #[case] new: &str,
    #[values(None, Some(("INSTA_UPDATE", "always")), Some(("INSTA_FORCE_PASS", "1")))] setting: Option<(&str, &str)>,
) {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::accepted(folder.path());
    let text = fs::read_to_string(gate.snapshot()).unwrap();
    assert!(text.contains(old), "{text}");
    fs::write(gate.snapshot(), text.replacen(old, new, 1)).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_measures_a_regression", "--ignored", "--nocapture"])
        .env("KERNELGATE_TEST_ROOT", folder.path())
        .envs(setting)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(said.contains("the verdict was fail"), "{said}");
    assert_eq!(fs::read_to_string(gate.snapshot()).unwrap(), text.replacen(old, new, 1), "it is not overwritten");
}

#[test]
fn a_first_baseline_that_is_incomplete_is_not_proposed() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::new(folder.path());
    let subject = Subject { operator: &gate.operator, candidate: &gate.candidate, dtype: F32 };
    let cut = |timings| Outcome { timings, unreached: 2, ..Outcome::new(Verdict::Pass) };
    let outcome = judge(cut(vec![timing("n=1", 10.0, 8.0)]), &subject, &gpu(), &gate.settings);
    assert_eq!((outcome.verdict, gate.pending()), (Verdict::Skip, None));
    assert!(outcome.notes.iter().any(|note| note.contains("1 of 3 shapes")), "{:?}", outcome.notes);
    // Rows that are there are kept, so a baseline can be changed in part.
    gate.judge(times([10.0, 20.0, 30.0]));
    gate.accept();
    judge(cut(vec![timing("n=1", 12.0, 8.0)]), &subject, &gpu(), &gate.settings);
    assert!(gate.pending().is_some_and(|text| text.contains("n=3 ")));
}

#[test]
fn a_time_that_is_hardly_known_is_no_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::new(folder.path());
    let wide = Timing { low_us: 5.0, high_us: 15.0, ..timing("n=1", 10.0, 8.0) };
    let outcome = gate.judge(vec![wide]);
    assert_eq!((outcome.verdict, gate.pending()), (Verdict::Unclear, None), "{outcome:?}");
}

#[rstest]
#[case::cut_off("---\ndescription: \"a\"\n---\nkernelgate perf 1\nshape ", "line 5")]
#[case::merge_conflict("<<<<<<< ours\n---\n---\n", "front matter")]
#[case::empty("", "front matter")]
fn a_corrupt_baseline_is_a_failure_that_says_what_to_do(#[case] text: &str, #[case] part: &str) {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::accepted(folder.path());
    fs::write(gate.snapshot(), text).unwrap();
    let outcome = gate.judge(times([10.0, 20.0, 30.0]));
    assert_eq!(outcome.verdict, Verdict::Fail);
    for words in [part, "gelu.v3.f32.snap", "version control", "cargo insta review"] {
        assert!(outcome.reason.contains(words), "{}", outcome.reason);
    }
    assert_eq!(fs::read_to_string(gate.snapshot()).unwrap(), text, "it is not overwritten");
}

#[test]
fn insta_takes_an_accepted_baseline_for_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::accepted(folder.path());
    let snapshot = insta::Snapshot::from_file(&gate.snapshot()).unwrap();
    let text = snapshot.as_text().unwrap().to_string();
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(gate.snapshot().parent().unwrap());
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!("gelu.v3.f32", text));
}

/// Runs in a process of its own, below.
#[test]
#[ignore = "a part of no_setting_of_insta_hides_a_regression"]
fn child_that_measures_a_regression() {
    // Without a parent (`--include-ignored`) there is nothing to judge.
    let Ok(root) = std::env::var("KERNELGATE_TEST_ROOT") else { return };
    let outcome = Gate::new(Path::new(&root)).judge(times([11.0, 20.0, 30.0]));
    println!("the verdict was {}", outcome.verdict.name());
}

#[rstest]
#[case::nothing_set(&[], true)]
#[case::always(&[("INSTA_UPDATE", "always")], true)]
#[case::force(&[("INSTA_UPDATE", "force")], true)]
#[case::unseen(&[("INSTA_UPDATE", "unseen")], true)]
#[case::new(&[("INSTA_UPDATE", "new")], true)]
#[case::no(&[("INSTA_UPDATE", "no")], false)]
#[case::nonsense(&[("INSTA_UPDATE", "perhaps")], true)]
#[case::old_force(&[("INSTA_FORCE_UPDATE", "1"), ("INSTA_FORCE_UPDATE_SNAPSHOTS", "1")], true)]
#[case::continuous_integration(&[("CI", "1")], true)]
#[case::cargo_insta_test(&[("INSTA_FORCE_PASS", "1"), ("INSTA_UPDATE", "new"), ("INSTA_CARGO_INSTA", "1")], true)]
#[case::cargo_insta_test_accept(&[("INSTA_FORCE_PASS", "1"), ("INSTA_UPDATE", "always"), ("INSTA_CARGO_INSTA", "1")], true)]
#[case::full_match(&[("INSTA_REQUIRE_FULL_MATCH", "1")], true)]
#[case::no_cargo(&[("PATH", ""), ("CARGO", "/nonexistent")], true)]
#[case::bundle(&[("PATH", ""), ("INSTA_WORKSPACE_ROOT", "/nonexistent")], true)]
fn no_setting_of_insta_hides_a_regression(#[case] environment: &[(&str, &str)], #[case] leaves_pending: bool) {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::accepted(folder.path());
    let accepted = fs::read_to_string(gate.snapshot()).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "--nocapture", "child_that_measures_a_regression"]);
    for name in ["CI", "INSTA_UPDATE", "INSTA_FORCE_PASS", "INSTA_WORKSPACE_ROOT"] {
        child.env_remove(name);
    }
    let output = child.env("KERNELGATE_TEST_ROOT", folder.path()).envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("the verdict was slower"), "{text}");
    assert_eq!(fs::read_to_string(gate.snapshot()).unwrap(), accepted, "the baseline was overwritten");
    assert_eq!(gate.pending().is_some(), leaves_pending);
}
