//! The dashboard in headless Chromium, which `ci/dashboard.py` drives: pages with every kind of record, two runs, 5,000
//! records, and a history. Without a browser that is skipped, unless `KERNELGATE_REQUIRE` names `chromium`.

use crate::support::{data, kernelgate, report, stdout};
use kernelgate::check::outcome::Verdict;
use kernelgate::report::record::Record;
use kernelgate::report::summary::Summary;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many records the large page has.
const RECORDS: usize = 5000;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Why the test cannot run here.
fn missing() -> Option<&'static str> {
    let has =
        |program: &str| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    if !browsers.into_iter().any(has) {
        return Some("no Chromium (apt-get install chromium)");
    }
    (!has("python3")).then_some("no python3")
}

/// A committed run of some hundred trials and timings, with three trials as they failed in an earlier one.
fn real() -> Summary {
    let read = |path: &str| Summary::read(&root().join(path)).unwrap();
    let (mut summary, failed) = (read("docs/results/h200-gate.json.xz"), read("tests/reports/data/failed.json"));
    summary.records.retain(|record| failed.records.iter().all(|failed| failed.trial != record.trial));
    summary.add(failed.records);
    summary
}

fn write(summary: &Summary, folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    summary.write(&path).unwrap();
    path
}

/// The same run with its times and verdicts changed here and there.
fn changed(of: &Summary, id: &str, started: &str, factor: f64) -> Summary {
    let mut summary = of.clone();
    summary.run.id = id.into();
    summary.run.started = started.into();
    for (i, record) in summary.records.iter_mut().enumerate() {
        for timing in record.outcome.timings.iter_mut().filter(|_| i % 3 == 0) {
            for us in [&mut timing.median_us, &mut timing.p5_us, &mut timing.p95_us] {
                *us *= factor;
            }
        }
        if i % 50 == 0 && record.outcome.timings.is_empty() {
            record.outcome.verdict = Verdict::Skip;
        }
    }
    summary
}

/// As many records as a large catalogue has, each as long as those of a real run.
fn many(of: &Summary) -> Summary {
    let mut summary = of.clone();
    let more = (1..).flat_map(|round| {
        of.records.iter().map(move |record| {
            let operator = format!("{}_{round}", record.operator);
            let trial = record.trial.replacen(&record.operator, &operator, 1);
            let repeat = record.repeat.replace(&record.trial, &trial);
            Record { operator, trial, repeat, ..record.clone() }
        })
    });
    summary.add(more.take(RECORDS - of.records.len()).collect());
    summary
}

fn page(summaries: &[&Path], arguments: &[&str], to: &Path) {
    let mut command = kernelgate("report");
    command.args(summaries).args(arguments).arg("--html").arg(to);
    stdout(&command.output().unwrap());
}

#[test]
fn a_browser_shows_sorts_filters_and_compares() {
    if let Some(why) = missing() {
        let required = std::env::var("KERNELGATE_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word.trim() == "chromium"), "chromium is required, but there is {why}");
        println!("skipped: {why}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let real = real();
    let calibration = root().join("snapshots/calibration/nvidia-h200-132.json");
    page(&[&data("every-kind.json"), &calibration], &[], &at("every.html"));
    let mut before = changed(&real, "before", "2026-11-20T00:00:00Z", 0.9);
    before.records.drain(..5);
    let (before, after) = (write(&before, folder.path(), "before.json"), write(&real, folder.path(), "after.json"));
    page(&[&before, &after], &[], &at("two.html"));
    let llm = |name: &str| root().join("docs/results").join(name);
    page(&[&llm("h200-llm.json.xz"), &llm("h200-llm.json.xz")], &[], &at("runs.html"));
    page(&[&write(&many(&real), folder.path(), "many.json")], &[], &at("big.html"));
    std::fs::create_dir(at("runs")).unwrap();
    for day in 1..=6 {
        let factor = if day < 4 { 1.0 } else { 1.2 };
        let run = changed(&real, &day.to_string(), &format!("2026-11-0{day}T00:00:00Z"), factor);
        write(&run, &at("runs"), &format!("day-{day}.json"));
    }
    page(&[], &["--history", at("runs").to_str().unwrap()], &at("history.html"));
    let mut driver = Command::new("python3");
    driver.arg(root().join("ci/dashboard.py"));
    for name in ["every", "two", "runs", "big", "history"] {
        driver.arg(format!("--{name}")).arg(at(&format!("{name}.html")));
    }
    let ran = driver.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(said.lines().filter(|line| line.starts_with("ok ")).count() > 40, "hardly anything was looked at:\n{said}");
}

#[test]
fn a_page_asks_nobody_for_anything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    stdout(&report(&["--html", path.to_str().unwrap()]));
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("default-src 'none'") && text.contains("connect-src 'none'"));
    for tag in ["<script src", "<link rel=\"stylesheet\"", "<img ", "@import", "url("] {
        assert!(!text.contains(tag), "the page has `{tag}`");
    }
}
