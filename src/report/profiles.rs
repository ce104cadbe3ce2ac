//! Profiles as a table: a row a part, a layer, a class, a cause of idle time, and a hint.

use super::summary::Summary;
use super::text;
use crate::profile::{Part, ProfileRun, Slice};
use serde::Serialize;

/// One row; the names of the fields are the header.
#[derive(Default, Serialize)]
struct Row<'a> {
    subject: &'a str,
    way: &'a str,
    run: &'a str,
    device: &'a str,
    dtype: &'a str,
    source: &'a str,
    table: &'a str,
    name: String,
    shape: String,
    calls: Option<f64>,
    total_us: Option<f64>,
    share: Option<f64>,
    mean_us: Option<f64>,
    p50_us: Option<f64>,
    p95_us: Option<f64>,
    bytes: Option<f64>,
    flops: Option<f64>,
    gb_per_s: Option<f64>,
    gflop_per_s: Option<f64>,
    of_ceiling: Option<f64>,
    bound: &'a str,
    level: String,
    predicted_gain_us: Option<f64>,
    realised_gain_us: Option<f64>,
    basis: &'a str,
    evidence: String,
}

/// The table.
///
/// # Errors
/// If a row cannot be written as CSV.
pub fn table(summary: &Summary) -> Result<String, String> {
    let fail = |e: &dyn std::fmt::Display| format!("cannot write the table: {e}");
    let mut writer = csv::Writer::from_writer(Vec::new());
    for run in &summary.profiles {
        for row in rows(run) {
            writer.serialize(row).map_err(|e| fail(&e))?;
        }
    }
    let bytes = writer.into_inner().map_err(|e| fail(&e))?;
    String::from_utf8(bytes).map_err(|e| fail(&e))
}

fn rows(run: &ProfileRun) -> Vec<Row<'_>> {
    let head = |table| Row {
        subject: &run.subject,
        way: &run.way,
        run: &run.run,
        device: &run.device,
        dtype: &run.dtype,
        source: &run.source,
        table,
        ..Row::default()
    };
    let mut all = vec![Row {
        name: run.run.clone(),
        total_us: Some(run.untraced_us),
        bytes: Some(run.memory.peak_bytes as f64),
        evidence: format!("tracing adds {:.4}", run.overhead),
        ..head("run")
    }];
    let part = |table| move |part: &'_ Part| (table, part.clone());
    let parts = run.operators.iter().map(part("operator")).chain(run.kernels.iter().map(part("kernel")));
    for (table, part) in parts {
        let bound = part.bound.map_or("", |bound| bound.name());
        all.push(Row {
            calls: Some(part.calls),
            total_us: Some(part.total_us),
            share: Some(part.share),
            mean_us: Some(part.mean_us),
            p50_us: Some(part.p50_us),
            p95_us: Some(part.p95_us),
            bytes: Some(part.bytes),
            flops: Some(part.flops),
            gb_per_s: Some(part.gb_per_s()),
            gflop_per_s: Some(part.gflop_per_s()),
            of_ceiling: part.of_ceiling,
            bound,
            level: part.level,
            name: text::csv(&part.name),
            shape: text::csv(&part.shape),
            ..head(table)
        });
    }
    let slices = [("layer", &run.layers), ("class", &run.classes), ("idle", &run.idle)];
    for (table, slice) in slices.into_iter().flat_map(|(table, all)| all.iter().map(move |slice| (table, slice))) {
        let Slice { name, count, us, share } = slice;
        let (calls, total_us, share) = (Some(*count), Some(*us), Some(*share));
        all.push(Row { name: text::csv(name), calls, total_us, share, ..head(table) });
    }
    for hint in &run.hints {
        all.push(Row {
            name: text::csv(&format!("{}: {}", hint.rule, hint.action)),
            shape: text::csv(&hint.place),
            predicted_gain_us: Some(hint.gain_us),
            realised_gain_us: hint.applied.map(|applied| applied.gain_us()),
            basis: &hint.basis,
            evidence: text::csv(&hint.evidence),
            ..head("hint")
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::samples::run;

    #[test]
    fn every_table_has_its_rows_and_no_cell_is_a_formula() {
        let text = include_str!("../../tests/harness/data/summary-full.json");
        let mut summary = Summary::new(run("r"));
        summary.profiles = Summary::parse(text).unwrap().profiles;
        summary.profiles[0].hints[0].evidence = "=cmd()".into();
        let table = table(&summary).unwrap();
        let mut reader = csv::Reader::from_reader(table.as_bytes());
        let tables = reader.records().map(|row| row.unwrap()[6].to_owned()).collect::<Vec<_>>();
        assert_eq!(tables, ["run", "operator", "kernel", "layer", "class", "idle", "hint"]);
        assert!(table.contains("predicted_gain_us") && table.contains(",1.5,2.0,predictor,"), "{table}");
        assert!(!table.contains(",=cmd"), "{table}");
    }

    #[test]
    fn profiles_of_before_the_clock_was_kept_are_read_and_claim_nothing() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results/h200-profile.json");
        let summary = Summary::read(&path).unwrap();
        assert!(summary.profiles.len() > 20 && summary.profiles.iter().all(|run| run.covered().is_none()));
        let text = crate::profile::table(&summary.profiles[0]);
        assert!(!text.contains("parts and idle time"), "{text}");
    }
}
