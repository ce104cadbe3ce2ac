//! Candidates beside their peers, as a Markdown table: a row a shape, a column a peer.

use super::record::Record;
use super::summary::Summary;
use super::text::markdown;
use crate::check::outcome::{PeerTiming, Timing, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The tables of all devices; empty if no candidate was timed beside a peer.
pub fn table(summary: &Summary) -> String {
    let mut text = String::new();
    for entry in &summary.devices {
        let rows: Vec<(&Record, &Timing)> = summary
            .records
            .iter()
            .filter(|record| record.fingerprint.as_ref() == Some(&entry.key))
            .flat_map(|record| record.outcome.timings.iter().map(move |timing| (record, timing)))
            .filter(|(_, timing)| !timing.peers.is_empty())
            .collect();
        if !rows.is_empty() {
            let _ = writeln!(text, "### {} ({})\n", markdown(&entry.fingerprint.name), markdown(&entry.key));
            device(&mut text, &rows);
        }
    }
    text
}

fn device(text: &mut String, rows: &[(&Record, &Timing)]) {
    let peers: BTreeSet<&str> = rows.iter().flat_map(|(_, t)| &t.peers).map(|peer| peer.name.as_str()).collect();
    let _ = write!(text, "| case | dtype | candidate | µs | of a copy |");
    for peer in &peers {
        let peer = markdown(peer);
        let _ = write!(text, " {peer} µs | over {peer} |");
    }
    let _ = write!(text, "\n|---|---|---|---:|---:|");
    peers.iter().for_each(|_| text.push_str("---:|---:|"));
    text.push('\n');
    let mut notes: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (record, timing) in rows {
        let share = |us: f64| format!("{:.1} %", us / timing.median_us * 100.0);
        let of_reading = timing.read_us.map(|us| share(us) + " of reading");
        let share = timing.copy_us.map(share).or(of_reading).unwrap_or_else(|| "-".into());
        let _ = write!(
            text,
            "| {} {} | {} | {} | {:.2} | {share} |",
            markdown(&record.operator),
            markdown(&timing.shape),
            record.dtype,
            markdown(&record.candidate),
            timing.median_us
        );
        for name in &peers {
            let Some(peer) = timing.peers.iter().find(|peer| peer.name == *name) else {
                text.push_str(" | |");
                continue;
            };
            let mark = if peer.verdict == Verdict::Pass {
                String::new()
            } else {
                let next = notes.len() + 1;
                format!(" [{}]", notes.entry((peer.verdict.name(), &peer.reason)).or_insert(next))
            };
            let _ = write!(text, " {}{mark} | {} |", number(peer.median_us), ratio(peer));
        }
        text.push('\n');
    }
    let mut notes: Vec<_> = notes.into_iter().collect();
    notes.sort_by_key(|&(_, number)| number);
    text.push('\n');
    for ((verdict, reason), number) in notes {
        let _ = writeln!(text, "[{number}] {verdict}: {}\n", markdown(reason));
    }
}

fn number(us: f64) -> String {
    if us.is_finite() { format!("{us:.2}") } else { "-".into() }
}

/// The peer's time over the candidate's, with half its interval: how many times as fast the candidate is.
fn ratio(peer: &PeerTiming) -> String {
    match peer.ratio_interval {
        Some([low, high]) => {
            let times = peer.ratio.recip();
            format!("{times:.3} ± {:.3}", times * (high - low) / (high + low))
        }
        None => "-".into(),
    }
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
        summary.add(vec![record]);
        assert_eq!(
            table(&summary),
            "### CPU (cpu-2)

| case | dtype | candidate | µs | of a copy | a µs | over a | b µs | over b |
|---|---|---|---:|---:|---:|---:|---:|---:|
| gelu n=1024 | f32 | fast | 3.00 | - | 6.00 | 2.000 ± 0.020 | - [1] | - |
| gelu n=4096 | f32 | fast | 10.50 | - | | | - [1] | - |

[1] fail: it \\| &lt;b&gt;died&lt;/b&gt;

"
        );
    }
}
