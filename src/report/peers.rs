//! Candidates beside their peers, as Markdown: a table an operator, a row a shape, a column a step on the way and a peer.

use super::record::Record;
use super::summary::Summary;
use super::text::markdown;
use crate::check::outcome::{PeerTiming, Timing, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// A shape at which a candidate was timed.
type Row<'s> = (&'s Record, &'s Timing);

/// The tables of all devices; empty if no candidate was timed beside a peer.
pub fn table(summary: &Summary) -> String {
    let mut text = String::new();
    for entry in &summary.devices {
        let of_device = |record: &&Record| record.fingerprint.as_ref() == Some(&entry.key);
        let rows = summary.records.iter().filter(of_device);
        let rows = rows.flat_map(|record| record.outcome.timings.iter().map(move |timing| (record, timing)));
        let (beside, alone): (Vec<Row<'_>>, Vec<Row<'_>>) = rows.partition(|(_, timing)| !timing.peers.is_empty());
        let mut operators: Vec<&str> = Vec::new();
        for (record, _) in &beside {
            if !operators.contains(&record.operator.as_str()) {
                operators.push(&record.operator);
            }
        }
        if !operators.is_empty() {
            let _ = writeln!(text, "### {} ({})\n", markdown(&entry.fingerprint.name), markdown(&entry.key));
        }
        for operator in operators {
            let is_its = |row: &&Row<'_>| row.0.operator == operator;
            let [beside, alone] = [&beside, &alone].map(|rows| rows.iter().filter(is_its).copied().collect());
            Table::of(operator, beside, alone).write(&mut text);
        }
    }
    text
}

/// The table of an operator.
struct Table<'s> {
    operator: &'s str,
    rows: Vec<Row<'s>>,
    /// What was timed by itself.
    alone: Vec<Row<'s>>,
    /// Who that is but the candidates and their peers, in the order of the records: the steps that lead to a candidate.
    steps: Vec<&'s str>,
    peers: BTreeSet<&'s str>,
    /// Axes that have one value throughout.
    constant: Vec<&'s str>,
}

impl<'s> Table<'s> {
    fn of(operator: &'s str, rows: Vec<Row<'s>>, alone: Vec<Row<'s>>) -> Self {
        let peers: BTreeSet<&str> = rows.iter().flat_map(|(_, t)| &t.peers).map(|peer| peer.name.as_str()).collect();
        let mut steps: Vec<&str> = Vec::new();
        for name in alone.iter().map(|(record, _)| record.candidate.as_str()) {
            let is_column = peers.contains(name) || rows.iter().any(|(record, _)| record.candidate == name);
            if !is_column && !steps.contains(&name) {
                steps.push(name);
            }
        }
        let axes = |shape: &'s str| shape.split(',');
        let first = rows.first().map_or("", |(_, timing)| timing.shape.as_str());
        let is_constant = |axis: &&str| rows.len() > 1 && rows.iter().all(|(_, t)| axes(&t.shape).any(|a| a == *axis));
        Table { operator, alone, steps, peers, constant: axes(first).filter(is_constant).collect(), rows }
    }

    fn write(&self, text: &mut String) {
        let _ = writeln!(text, "#### {}\n", markdown(self.operator));
        if !self.constant.is_empty() {
            let _ = writeln!(text, "With {}.\n", markdown(&self.constant.join(",")));
        }
        let several = self.rows.iter().any(|(record, _)| record.candidate != self.rows[0].0.candidate);
        let candidate = markdown(&self.rows[0].0.candidate);
        let candidate = if several { "candidate | µs".into() } else { format!("{candidate} µs") };
        let steps = self.steps.iter().map(|step| format!("{} µs", markdown(step)));
        let peers = self.peers.iter().map(|peer| format!("{} µs (over it)", markdown(peer)));
        let columns: Vec<String> = steps.chain(peers).collect();
        let names = columns.iter().map(|column| format!(" {column} |")).collect::<String>();
        let _ = writeln!(text, "| shape | dtype | {candidate} | of a copy |{names}");
        let ends = if several { "---|---:" } else { "---:" };
        let _ = writeln!(text, "|---|---|{ends}|---:|{}", "---:|".repeat(columns.len()));
        let mut notes = Notes::default();
        for row in &self.rows {
            self.row(text, row, several, &mut notes);
        }
        text.push('\n');
        notes.write(text);
    }

    fn row(&self, text: &mut String, &(record, timing): &Row<'s>, several: bool, notes: &mut Notes<'s>) {
        let share = |us: f64| format!("{:.1} %", us / timing.median_us * 100.0);
        let of_reading = timing.read_us.map(|us| share(us) + " of reading");
        let share = timing.copy_us.map(share).or(of_reading).unwrap_or_else(|| "-".into());
        let shape: Vec<&str> = timing.shape.split(',').filter(|axis| !self.constant.contains(axis)).collect();
        let candidate = if several { format!(" {} |", markdown(&record.candidate)) } else { String::new() };
        let (shape, us) = (markdown(&shape.join(",")), timing.median_us);
        let _ = write!(text, "| {shape} | {} |{candidate} {us:.2} | {share} |", record.dtype);
        let by_itself = |name: &str| {
            let is_it = |(other, timed): &&Row<'_>| {
                other.candidate == name && other.dtype == record.dtype && timed.shape == timing.shape
            };
            self.alone.iter().find(is_it).map_or_else(String::new, |(_, timed)| format!(" {}", number(timed.median_us)))
        };
        for step in &self.steps {
            let _ = write!(text, "{} |", by_itself(step));
        }
        for name in &self.peers {
            let peer = timing.peers.iter().find(|peer| peer.name == *name);
            let mut beside =
                |peer: &'s PeerTiming| format!(" {}{}{}", number(peer.median_us), notes.mark(peer), ratio(peer));
            let _ = write!(text, "{} |", peer.map_or_else(|| by_itself(name), &mut beside));
        }
        text.push('\n');
    }
}

/// What is said below a table of its peers, once each.
#[derive(Default)]
struct Notes<'s>(BTreeMap<(&'s str, &'s str), usize>);

impl<'s> Notes<'s> {
    fn mark(&mut self, peer: &'s PeerTiming) -> String {
        if peer.verdict == Verdict::Pass {
            return String::new();
        }
        let next = self.0.len() + 1;
        format!(" [{}]", self.0.entry((peer.verdict.name(), &peer.reason)).or_insert(next))
    }

    fn write(self, text: &mut String) {
        let mut notes: Vec<_> = self.0.into_iter().collect();
        notes.sort_by_key(|&(_, number)| number);
        for ((verdict, reason), number) in notes {
            let _ = writeln!(text, "[{number}] {verdict}: {}\n", markdown(reason));
        }
    }
}

fn number(us: f64) -> String {
    if us.is_finite() { format!("{us:.2}") } else { "-".into() }
}

/// The peer's time over the candidate's, with half its interval: how many times as fast the candidate is.
fn ratio(peer: &PeerTiming) -> String {
    let Some([low, high]) = peer.ratio_interval else { return String::new() };
    let times = peer.ratio.recip();
    format!(" ({times:.3} ± {:.3})", times * (high - low) / (high + low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::samples::slower;
    use crate::report::summary::samples::run;

    #[test]
    fn a_row_a_shape_and_a_note_a_reason() {
        let mut record = slower();
        record.fingerprint = Some("cpu-2".into());
        let timed = |name: &str, median_us: f64, ratio: f64| PeerTiming {
            median_us,
            ratio,
            ratio_interval: Some([ratio * 0.99, ratio * 1.01]),
            samples: 9,
            ..PeerTiming::untimed(name.into(), String::new(), Verdict::Pass, String::new())
        };
        let absent = PeerTiming::untimed("b".into(), String::new(), Verdict::Fail, "it | <b>died</b>".into());
        record.outcome.timings[0].peers = vec![timed("a", 6.0, 0.5), absent.clone()];
        record.outcome.timings[1].peers = vec![absent];
        let mut summary = Summary::new(run("r"));
        summary.devices = serde_json::from_str(
            r#"[{"key": "cpu-2", "kind": "cpu", "name": "CPU", "arch": "", "units": 2, "cache_bytes": 0,
                "memory_bytes": 0, "clock_mhz": 0, "driver": "", "compiler": ""}]"#,
        )
        .unwrap();
        let mut step = slower();
        (step.fingerprint, step.candidate) = (record.fingerprint.clone(), "first".into());
        summary.add(vec![step, record]);
        assert_eq!(
            table(&summary),
            "### CPU (cpu-2)

#### gelu

| shape | dtype | fast µs | of a copy | first µs | a µs (over it) | b µs (over it) |
|---|---|---:|---:|---:|---:|---:|
| n=1024 | f32 | 3.00 | - | 3.00 | 6.00 (2.000 ± 0.020) | - [1] |
| n=4096 | f32 | 10.50 | - | 10.50 | | - [1] |

[1] fail: it \\| &lt;b&gt;died&lt;/b&gt;

"
        );
    }
}
