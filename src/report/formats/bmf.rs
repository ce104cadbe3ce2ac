//! Numbers in Bencher's metric format: `{"<benchmark>": {"<measure>": {"value": …}}}`.
//!
//! Times are of the built-in measure `latency`, in ns. The exact counts of the simulator are measures of their own.

use super::{believed, series};
use crate::report::summary::Summary;
use serde::Serialize;
use std::collections::BTreeMap;

/// One number with its interval.
#[derive(Serialize)]
struct Metric {
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lower_value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upper_value: Option<f64>,
}

/// The JSON text.
pub fn json(summary: &Summary) -> String {
    let mut benchmarks: BTreeMap<String, BTreeMap<String, Metric>> = BTreeMap::new();
    for record in &summary.records {
        for timing in believed(record) {
            let ns = |us: f64| Some(us * 1e3).filter(|ns| ns.is_finite());
            let metric = Metric {
                value: timing.median_us * 1e3,
                lower_value: ns(timing.low_us),
                upper_value: ns(timing.high_us),
            };
            let name = series(record, &timing.shape, Some(timing.heat.name()));
            benchmarks.entry(name).or_default().insert("latency".into(), metric);
        }
        for metric in &record.outcome.metrics {
            let count = Metric { value: metric.value as f64, lower_value: None, upper_value: None };
            let name = series(record, &metric.shape, None);
            benchmarks.entry(name).or_default().insert(slug(&metric.name), count);
        }
    }
    serde_json::to_string_pretty(&benchmarks).expect("names are strings and numbers are finite") + "\n"
}

/// The name of a measure as Bencher takes it: lower case, digits and single hyphens.
fn slug(name: &str) -> String {
    let mut slug = String::new();
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::outcome::Verdict;
    use crate::report::record::samples::slower;
    use crate::report::summary::samples::run;

    #[test]
    fn a_time_that_cannot_be_believed_is_left_out() {
        let mut record = slower();
        record.outcome.timings[0].verdict = Verdict::Invalid;
        let mut summary = Summary::new(run("r"));
        summary.add(vec![record]);
        let expected = r#"{
  "gelu::fast::f32/n=4096/cold/nvidia-h200-132": {
    "latency": {
      "value": 10500.0,
      "lower_value": 2990.0,
      "upper_value": 3010.0
    }
  }
}
"#;
        assert_eq!(json(&summary), expected);
    }

    #[test]
    fn a_measure_has_a_plain_name() {
        assert_eq!(slug("DRAM bytes (read)"), "dram-bytes-read");
    }
}
