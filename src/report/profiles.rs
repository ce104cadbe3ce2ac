//! Profiles as a table: a row a run, a part, a layer, a class, a cause of idle time, a point of memory over time, what is alive
//! at its peak, a hint, another way, a kernel under hardware counters, and a note.

use super::summary::Summary;
use super::text;
use crate::profile::{Against, Counted, Hint, Part, ProfileRun, Slice};
use serde::Serialize;

/// One row; the names of the fields are the header. Shares are of 1.
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
    /// The step that a kernel is counted in.
    within: String,
    calls: Option<f64>,
    kernels: Option<f64>,
    total_us: Option<f64>,
    share: Option<f64>,
    mean_us: Option<f64>,
    p50_us: Option<f64>,
    p95_us: Option<f64>,
    idle_us: Option<f64>,
    /// When, in a run.
    at_us: Option<f64>,
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
    not_applied: String,
    traced_us: Option<f64>,
    traced_mean_us: Option<f64>,
    accounted_us: Option<f64>,
    overhead: Option<f64>,
    overhead_low: Option<f64>,
    overhead_high: Option<f64>,
    largest_difference: Option<f64>,
    relative_difference: Option<f64>,
    perplexity: Option<f64>,
    compute_share: Option<f64>,
    memory_share: Option<f64>,
    occupancy: Option<f64>,
    tensor_share: Option<f64>,
    /// The class by roofline and timeline, beside that by counters.
    ours: &'a str,
    agreement: Option<f64>,
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
    let mut all = vec![of_run(run)];
    all.extend(run.operators.iter().map(|part| of_part(run, "operator", part)));
    all.extend(run.kernels.iter().map(|part| of_part(run, "kernel", part)));
    let slices = [("layer", &run.layers), ("class", &run.classes), ("idle", &run.idle)];
    for (table, slices) in slices {
        all.extend(slices.iter().map(|slice| of_slice(run, table, slice)));
    }
    all.extend(run.memory.over_time.iter().map(|&[at_us, bytes]| Row {
        at_us: Some(at_us),
        bytes: Some(bytes),
        ..head(run, "memory")
    }));
    all.extend(run.memory.alive.iter().map(|held| Row {
        name: text::csv(&held.name),
        at_us: Some(run.memory.peak_us),
        bytes: Some(held.bytes as f64),
        ..head(run, "alive")
    }));
    all.extend(run.hints.iter().map(|hint| of_hint(run, hint)));
    all.extend(run.against.iter().map(|other| against(run, other)));
    let counted = run.counters.iter().flat_map(|counters| &counters.kernels);
    all.extend(counted.map(|kernel| of_counted(run, kernel)));
    all.extend(run.notes.iter().map(|note| Row { evidence: text::csv(note), ..head(run, "note") }));
    all
}

/// What all rows of a run have.
fn head<'a>(run: &'a ProfileRun, table: &'a str) -> Row<'a> {
    Row {
        subject: &run.subject,
        way: &run.way,
        run: &run.run,
        device: &run.device,
        dtype: &run.dtype,
        source: &run.source,
        table,
        ..Row::default()
    }
}

fn of_run(run: &ProfileRun) -> Row<'_> {
    let [low, high] = run.overhead_interval;
    Row {
        name: run.run.clone(),
        calls: Some(run.runs as f64),
        kernels: Some(run.launches()),
        total_us: Some(run.untraced_us),
        mean_us: Some(run.mean_us),
        at_us: Some(run.memory.peak_us),
        bytes: Some(run.memory.peak_bytes as f64),
        traced_us: Some(run.traced_us),
        traced_mean_us: run.traced_mean_us,
        accounted_us: run.accounted_us,
        overhead: Some(run.overhead),
        overhead_low: Some(low),
        overhead_high: Some(high),
        perplexity: run.against.as_ref().and_then(|other| other.perplexity).map(|[ours, _]| ours),
        agreement: run.counters.as_ref().map(|counters| counters.agreement),
        ..head(run, "run")
    }
}

fn of_part<'a>(run: &'a ProfileRun, table: &'a str, part: &'a Part) -> Row<'a> {
    Row {
        name: text::csv(&part.name),
        shape: text::csv(&part.shape),
        within: text::csv(&part.within),
        calls: Some(part.calls),
        kernels: part.kernels,
        total_us: Some(part.total_us),
        share: Some(part.share),
        mean_us: Some(part.mean_us),
        p50_us: Some(part.p50_us),
        p95_us: Some(part.p95_us),
        idle_us: part.idle_us,
        bytes: Some(part.bytes),
        flops: Some(part.flops),
        gb_per_s: Some(part.gb_per_s()),
        gflop_per_s: Some(part.gflop_per_s()),
        of_ceiling: part.of_ceiling,
        bound: part.bound.map_or("", |bound| bound.name()),
        level: part.level.clone(),
        ..head(run, table)
    }
}

fn of_slice<'a>(run: &'a ProfileRun, table: &'a str, slice: &Slice) -> Row<'a> {
    let Slice { name, count, us, share } = slice;
    let (calls, total_us, share) = (Some(*count), Some(*us), Some(*share));
    Row { name: text::csv(name), calls, total_us, share, ..head(run, table) }
}

fn of_hint<'a>(run: &'a ProfileRun, hint: &'a Hint) -> Row<'a> {
    Row {
        name: text::csv(&format!("{}: {}", hint.rule, hint.action)),
        shape: text::csv(&hint.place),
        predicted_gain_us: Some(hint.gain_us),
        realised_gain_us: hint.applied.map(|applied| applied.gain_us()),
        basis: &hint.basis,
        evidence: text::csv(&hint.evidence),
        not_applied: text::csv(&hint.not_applied),
        ..head(run, "hint")
    }
}

fn against<'a>(run: &'a ProfileRun, other: &Against) -> Row<'a> {
    Row {
        name: text::csv(&other.way),
        kernels: Some(other.launches[1]),
        total_us: Some(other.untraced_us),
        bytes: Some(other.peak_bytes[1] as f64),
        largest_difference: other.largest_difference,
        relative_difference: other.relative_difference,
        perplexity: other.perplexity.map(|[_, theirs]| theirs),
        ..head(run, "against")
    }
}

fn of_counted<'a>(run: &'a ProfileRun, kernel: &Counted) -> Row<'a> {
    Row {
        name: text::csv(&kernel.name),
        mean_us: Some(kernel.us),
        bytes: Some(kernel.dram_bytes),
        bound: kernel.bound.name(),
        compute_share: Some(kernel.compute),
        memory_share: Some(kernel.memory),
        occupancy: Some(kernel.occupancy),
        tensor_share: Some(kernel.tensor),
        ours: kernel.ours.map_or("", |bound| bound.name()),
        ..head(run, "counter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::csv::samples::filled;
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
        let parts = ["run", "operator", "kernel", "layer", "class", "idle"];
        assert_eq!(tables, [&parts[..], &["memory", "memory", "alive", "hint", "against", "counter", "note"]].concat());
        assert!(table.contains("predicted_gain_us") && table.contains(",1.5,2.0,predictor,"), "{table}");
        assert!(!table.contains(",=cmd"), "{table}");
    }

    #[test]
    fn profiles_of_before_the_clock_was_kept_are_read_and_claim_nothing() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results/h200-profile.json.xz");
        let summary = Summary::read(&path).unwrap();
        let (since, before): (Vec<_>, Vec<_>) = summary.profiles.iter().partition(|run| run.traced_mean_us.is_some());
        assert!(before.len() > 5 && before.iter().all(|run| run.covered().is_none()));
        assert!(since.len() > 20 && since.iter().all(|run| run.covered().is_some()));
        let text = crate::profile::table(before[0]);
        assert!(!text.contains("parts and idle time"), "{text}");
    }

    #[test]
    fn a_run_and_a_part_tell_all_that_is_known_of_them() {
        let mut summary = Summary::new(run("r"));
        summary.profiles = Summary::parse(include_str!("../../tests/harness/data/summary-full.json")).unwrap().profiles;
        summary.profiles[0].kernels[0].within.clear();
        summary.profiles[0].kernels[0].kernels = Some(1.0);
        // What all rows of a run have comes first.
        let rows: Vec<String> = filled(&table(&summary).unwrap()).iter().map(|row| row[7..].join(" ")).collect();
        assert_eq!(
            rows[0],
            "name=decode calls=20.0 kernels=1.0 total_us=9.0 mean_us=9.5 at_us=2.5 bytes=100.0 traced_us=9.5 \
             traced_mean_us=9.75 accounted_us=9.5 overhead=0.05 overhead_low=0.01 overhead_high=0.09 perplexity=9.5 \
             agreement=1.0"
        );
        assert_eq!(
            rows[1],
            "name=add shape=n=8 within=add calls=2.0 kernels=2.0 total_us=4.5 share=0.5 mean_us=2.25 p50_us=2.0 p95_us=3.0 \
             idle_us=0.5 bytes=96.0 flops=8.0 gb_per_s=0.021333333333333333 gflop_per_s=0.0017777777777777776 \
             of_ceiling=0.25 bound=memory level=L3"
        );
    }
}
