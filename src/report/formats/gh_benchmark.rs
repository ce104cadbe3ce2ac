//! Times as `github-action-benchmark` reads them: its tool `customSmallerIsBetter`.

use super::{believed, series};
use crate::report::summary::Summary;
use serde::Serialize;

#[derive(Serialize)]
struct Entry {
    name: String,
    unit: &'static str,
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    extra: String,
}

/// The JSON text.
pub fn json(summary: &Summary) -> String {
    let mut entries = Vec::new();
    for record in &summary.records {
        for timing in believed(record) {
            let half = (timing.high_us - timing.low_us) / 2.0;
            let share =
                timing.of_ceiling.map_or(String::new(), |share| format!("{:.1} % of the ceiling, ", share * 100.0));
            entries.push(Entry {
                name: series(record, &timing.shape, Some(timing.heat.name())),
                unit: "µs",
                value: timing.median_us,
                range: half.is_finite().then(|| format!("± {half:.4}")),
                extra: format!("{share}{} samples, {}", timing.samples, timing.verdict.name()),
            });
        }
    }
    serde_json::to_string_pretty(&entries).expect("entries hold text and finite numbers") + "\n"
}
