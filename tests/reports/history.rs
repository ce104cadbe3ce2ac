//! `report --history`: a folder of summaries as Markdown.

use crate::support::{kernelgate, stdout};
use kernelgate::report::summary::Summary;
use std::path::Path;

#[test]
fn a_folder_is_a_history() {
    let folder = tempfile::tempdir().unwrap();
    let history = || kernelgate("report").arg("--history").arg(folder.path()).output().unwrap();
    let empty = history();
    assert_eq!(empty.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&empty.stderr).contains("holds no summary"));
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results/h200-gate.json.xz");
    let real = Summary::read(&real).unwrap();
    for day in 1..=8 {
        let mut summary = real.clone();
        summary.run.started = format!("2026-10-0{day}T00:00:00Z");
        for record in summary.records.iter_mut().filter(|record| record.operator == "softmax") {
            record.outcome.timings.iter_mut().filter(|_| day > 4).for_each(|timing| timing.median_us *= 1.25);
        }
        summary.write(&folder.path().join(format!("{day}.json"))).unwrap();
    }
    let text = stdout(&history());
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| +25.0 % | softmax::")).collect();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.contains("| 5.json |")), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("| +") || line.starts_with("| -")).count(), rows.len());
    std::fs::write(folder.path().join("other.json"), "[]").unwrap();
    let wrong = history();
    assert!(wrong.status.code() == Some(2) && String::from_utf8_lossy(&wrong.stderr).contains("other.json"));
}
