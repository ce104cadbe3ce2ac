//! The summary as a table: a row a trial, for perf trials a row a timed shape, and below it a row a peer.

use super::record::Record;
use super::summary::Summary;
use super::text;
use crate::check::outcome::{PeerTiming, Timing, Verdict};
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::device::Heat;
use serde::Serialize;

/// One row; the names of the fields are the header.
#[derive(Default, Serialize)]
struct Row<'a> {
    trial: &'a str,
    operator: &'a str,
    candidate: &'a str,
    dtype: Option<DType>,
    check: &'a str,
    device: &'a str,
    fingerprint: &'a str,
    verdict: Option<Verdict>,
    reason: &'a str,
    cases: usize,
    duration_s: f64,
    max_abs: Option<f64>,
    max_rel: Option<f64>,
    max_ulp: Option<f64>,
    max_of_allowed: Option<f64>,
    failed_check: &'a str,
    shape: &'a str,
    distribution: Option<Distribution>,
    seed: Option<String>,
    worst_output: &'a str,
    worst_index: String,
    expected: &'a str,
    got: &'a str,
    allowed: &'a str,
    heat: Option<Heat>,
    peer: &'a str,
    median_us: Option<f64>,
    p5_us: Option<f64>,
    p95_us: Option<f64>,
    low_us: Option<f64>,
    high_us: Option<f64>,
    samples: Option<usize>,
    dropped: Option<usize>,
    clock_mhz: Option<f64>,
    bytes: Option<usize>,
    flops: Option<usize>,
    copy_us: Option<f64>,
    read_us: Option<f64>,
    fma_us: Option<f64>,
    floor_us: Option<f64>,
    of_ceiling: Option<f64>,
    baseline_us: Option<f64>,
    ratio: Option<f64>,
    normalised_ratio: Option<f64>,
    threshold: Option<f64>,
    repeat: &'a str,
}

/// The table as text, with a header.
///
/// # Errors
/// If a row cannot be written.
pub fn table(summary: &Summary) -> Result<String, String> {
    let fail = |e: csv::Error| format!("cannot write the table: {e}");
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in &summary.records {
        if record.outcome.timings.is_empty() {
            writer.serialize(row(record)).map_err(fail)?;
        }
        for timing in &record.outcome.timings {
            writer.serialize(timed(row(record), timing)).map_err(fail)?;
            for peer in &timing.peers {
                writer.serialize(beside(row(record), timing, peer)).map_err(fail)?;
            }
        }
    }
    let bytes = writer.into_inner().map_err(|e| format!("cannot write the table: {e}"))?;
    let bytes = without_formulas(&bytes)?;
    String::from_utf8(bytes).map_err(|e| format!("cannot write the table: {e}"))
}

/// The same table; no cell is taken for a formula.
fn without_formulas(table: &[u8]) -> Result<Vec<u8>, String> {
    let fail = |e: csv::Error| format!("cannot write the table: {e}");
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(table);
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in reader.records() {
        writer.write_record(row.map_err(fail)?.iter().map(text::csv)).map_err(fail)?;
    }
    writer.into_inner().map_err(|e| format!("cannot write the table: {e}"))
}

fn row(record: &Record) -> Row<'_> {
    let outcome = &record.outcome;
    let failure = outcome.failure.as_ref();
    let worst = failure.and_then(|failure| failure.worst.as_ref());
    Row {
        trial: &record.trial,
        operator: &record.operator,
        candidate: &record.candidate,
        dtype: Some(record.dtype),
        check: record.check.name(),
        device: record.device.name(),
        fingerprint: record.fingerprint.as_deref().unwrap_or_default(),
        verdict: Some(outcome.verdict),
        reason: &outcome.reason,
        cases: outcome.cases,
        duration_s: record.duration_s,
        max_abs: outcome.errors.map(|errors| errors.max_abs),
        max_rel: outcome.errors.map(|errors| errors.max_rel),
        max_ulp: outcome.errors.map(|errors| errors.max_ulp),
        max_of_allowed: outcome.worst_of_allowed(),
        failed_check: failure.map_or("", |failure| &failure.check),
        shape: failure.map_or("", |failure| &failure.case.shape),
        distribution: failure.map(|failure| failure.case.distribution),
        // As text: readers that hold numbers as f64 would round it.
        seed: failure.map(|failure| format!("{:#x}", failure.case.seed)),
        worst_output: worst.map_or("", |worst| &worst.output),
        worst_index: worst.map_or_else(String::new, |worst| format!("{:?}", worst.index)),
        expected: worst.map_or("", |worst| &worst.expected),
        got: worst.map_or("", |worst| &worst.got),
        allowed: worst.map_or("", |worst| &worst.allowed),
        repeat: &record.repeat,
        ..Row::default()
    }
}

/// The verdict of the row is then that of the shape.
fn timed<'a>(row: Row<'a>, timing: &'a Timing) -> Row<'a> {
    Row {
        verdict: Some(timing.verdict),
        shape: &timing.shape,
        heat: Some(timing.heat),
        median_us: Some(timing.median_us),
        p5_us: Some(timing.p5_us),
        p95_us: Some(timing.p95_us),
        low_us: Some(timing.low_us),
        high_us: Some(timing.high_us),
        samples: Some(timing.samples),
        dropped: Some(timing.dropped),
        clock_mhz: timing.clock_mhz,
        bytes: Some(timing.bytes),
        flops: Some(timing.flops),
        copy_us: timing.copy_us,
        read_us: timing.read_us,
        fma_us: timing.fma_us,
        floor_us: timing.floor_us,
        of_ceiling: timing.of_ceiling,
        baseline_us: timing.baseline_us,
        ratio: timing.ratio,
        normalised_ratio: timing.normalised_ratio,
        threshold: timing.threshold,
        ..row
    }
}

/// A row about a peer: its own times, errors and verdict; the ratio is the candidate's time over its own.
fn beside<'a>(row: Row<'a>, timing: &'a Timing, peer: &'a PeerTiming) -> Row<'a> {
    Row {
        verdict: Some(peer.verdict),
        reason: &peer.reason,
        shape: &timing.shape,
        heat: Some(timing.heat),
        peer: &peer.name,
        median_us: Some(peer.median_us),
        p95_us: peer.p95_us,
        low_us: peer.interval_us.map(|[low, _]| low),
        high_us: peer.interval_us.map(|[_, high]| high),
        samples: Some(peer.samples),
        dropped: Some(peer.dropped),
        clock_mhz: peer.clock_mhz,
        bytes: Some(timing.bytes),
        flops: Some(timing.flops),
        ratio: Some(peer.ratio),
        max_abs: peer.errors.map(|errors| errors.max_abs),
        max_rel: peer.errors.map(|errors| errors.max_rel),
        max_ulp: peer.errors.map(|errors| errors.max_ulp),
        max_of_allowed: peer.errors.map(|errors| errors.max_of_allowed),
        ..row
    }
}

/// What the tests of tables share.
#[cfg(test)]
pub(super) mod samples {
    /// The cells of a table that are not empty, `column=cell`, a list a row.
    pub fn filled(table: &str) -> Vec<Vec<String>> {
        let mut reader = csv::Reader::from_reader(table.as_bytes());
        let header = reader.headers().unwrap().clone();
        let filled = |row: csv::StringRecord| {
            let cells = header.iter().zip(&row).filter(|(_, cell)| !cell.is_empty());
            cells.map(|(column, cell)| format!("{column}={cell}")).collect()
        };
        reader.records().map(|row| filled(row.unwrap())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::samples::filled;
    use super::*;
    use crate::report::record::samples::{failed, passed, slower};
    use crate::report::summary::samples::run;

    #[test]
    fn a_row_a_trial_and_a_row_a_timed_shape() {
        let mut summary = Summary::new(run("r"));
        summary.add(vec![passed(), failed(), slower()]);
        let text = table(&summary).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers().unwrap().clone();
        let column = |name: &str| header.iter().position(|h| h == name).unwrap();
        let (shape, verdict, got) = (column("shape"), column("verdict"), column("got"));
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        let cells: Vec<_> = rows.iter().map(|r| (&r[shape], &r[verdict], &r[got])).collect();
        assert_eq!(
            cells,
            [("n=1024", "same", ""), ("n=4096", "slower", ""), ("", "pass", ""), ("rows=3,cols=5", "fail", "NaN")]
        );
    }

    #[test]
    fn what_a_kernel_says_is_no_formula_and_breaks_no_row() {
        let mut record = passed();
        record.outcome.reason = "=HYPERLINK(\"x\")\n,\u{1b}[2J".into();
        let mut summary = Summary::new(run("r"));
        summary.add(vec![record]);
        let text = table(&summary).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let reason = reader.headers().unwrap().iter().position(|name| name == "reason").unwrap();
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!((rows.len(), &rows[0][reason]), (1, "'=HYPERLINK(\"x\")\n,\\u{1b}[2J"));
    }

    #[test]
    fn all_that_a_record_tells_is_in_its_rows() {
        let summary = Summary::parse(include_str!("../../tests/harness/data/summary-full.json")).unwrap();
        let [timed, peer, failed] = filled(&table(&summary).unwrap()).try_into().unwrap();
        let expect = |found: Vec<String>, expected: &str| {
            assert_eq!(found, expected.split('|').map(str::trim).collect::<Vec<_>>());
        };
        let of_perf = "trial=gelu::fast::bf16::perf | operator=gelu | candidate=fast | dtype=bf16 | check=perf | device=cuda | \
                       fingerprint=nvidia-h200-132";
        let repeat = "repeat=cargo test --release --test gate -- --exact";
        expect(
            timed,
            &format!(
                "{of_perf} | verdict=slower | reason=n=4096: 10.500 µs against 10.000 µs accepted | cases=1 | duration_s=0.5 | \
                 shape=n=4096 | heat=cold | median_us=10.5 | p5_us=10.25 | p95_us=10.75 | low_us=10.4 | high_us=10.6 | \
                 samples=40 | dropped=1 | clock_mhz=1980.0 | bytes=32768 | flops=40960 | copy_us=9.5 | read_us=8.9 | \
                 fma_us=1.5 | floor_us=9.5 | of_ceiling=0.9 | baseline_us=10.0 | ratio=1.05 | normalised_ratio=1.04 | \
                 threshold=0.02 | {repeat} gelu::fast::bf16::perf"
            ),
        );
        expect(
            peer,
            &format!(
                "{of_perf} | verdict=invalid | reason=after it was timed: `y` is wrong in 1 of 4096 elements | cases=1 | \
                 duration_s=0.5 | max_abs=0.0078125 | max_rel=0.001 | max_ulp=0.5 | max_of_allowed=0.5 | shape=n=4096 | \
                 heat=cold | peer=library | median_us=11.0 | p95_us=11.5 | low_us=10.9 | high_us=11.1 | samples=80 | \
                 dropped=1 | clock_mhz=1980.0 | bytes=32768 | flops=40960 | ratio=0.95 | {repeat} gelu::fast::bf16::perf"
            ),
        );
        expect(
            failed,
            &format!(
                "trial=softmax::fast::f16::correctness | operator=softmax | candidate=fast | dtype=f16 | check=correctness | \
                 device=cuda | fingerprint=nvidia-h200-132 | verdict=fail | reason=values: `y` is wrong | cases=3 | \
                 duration_s=0.25 | max_abs=0.5 | max_rel=NaN | max_ulp=512.0 | max_of_allowed=inf | failed_check=values | \
                 shape=rows=3,cols=5 | distribution=large_mean | seed=0xffffffffffffffff | worst_output=y | \
                 worst_index=[2, 4] | expected=5e-1 | got=NaN | allowed=1e-3 | {repeat} softmax::fast::f16::correctness \
                 --shape rows=3,cols=5 --dist large_mean --seed 0xffffffffffffffff --offset 16"
            ),
        );
    }
}
