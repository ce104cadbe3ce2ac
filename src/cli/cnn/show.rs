//! What the variants reach, as a person reads it.

use super::accuracy::Agreement;
use super::timing::Timed;
use crate::check::outcome::Verdict;
use crate::core::columns::Columns;
use crate::report::workloads::WorkloadRun;
use std::fmt::Write as _;

/// Lines of disagreements that are shown.
const MOST: usize = 20;

/// How many digits each variant gets right, and of which they differ.
pub fn accuracies(runs: &[WorkloadRun], agreement: &Agreement) -> String {
    let mut absent = Vec::new();
    let mut columns = Columns::new(["variant", ">right", ">", ">right of those kept out", ">"]);
    for run in runs {
        match (&run.accuracy, &run.skipped) {
            (Some(a), _) => {
                let share = |right: usize, of: usize| format!("{:.2} %", 100.0 * right as f64 / of.max(1) as f64);
                columns.row([
                    run.variant.clone(),
                    format!("{} of {}", a.right, a.digits),
                    share(a.right, a.digits),
                    format!("{} of {}", a.right_kept_out, a.kept_out),
                    share(a.right_kept_out, a.kept_out),
                ]);
            }
            (None, why) => {
                absent.push(format!("{}: not here: {}\n", run.variant, why.as_deref().unwrap_or("no reason")));
            }
        }
    }
    let mut text = format!("\n{columns}{}", absent.concat());
    let accurate = runs.iter().filter(|run| run.accuracy.is_some()).count();
    if agreement.disagreements.is_empty() && accurate > 1 {
        text += "the variants agree on every digit\n";
    }
    for one in agreement.disagreements.iter().take(MOST) {
        let class = |class: Option<usize>| class.map_or_else(|| "NaN".into(), |class| class.to_string());
        let said: Vec<String> = one.said.iter().map(|(v, c)| format!("{} {}", v.names().0, class(*c))).collect();
        let what = if agreement.is_tie(one) { "a tie within the tolerance" } else { "WRONG" };
        let _ = writeln!(
            text,
            "digit {} (a {}): {}; {:.1e} apart, {:.1e} allowed: {what}",
            one.digit,
            one.label,
            said.join(", "),
            one.gap,
            one.allowed
        );
    }
    if agreement.disagreements.len() > MOST {
        let _ = writeln!(text, "and {} more", agreement.disagreements.len() - MOST);
    }
    text
}

/// The times of a batch.
pub fn times(timed: &Timed) -> String {
    let (batch, outcome) = (timed.batch, &timed.record.outcome);
    let first = timed.first.names().0;
    let Some(timing) = timed.timing() else {
        return format!("\nbatch {batch}\n{first}: {}\n", outcome.reason);
    };
    let rate = |us: f64| format!("{:.0}", batch as f64 / us * 1e6);
    let heads =
        [format!("batch {batch}"), ">P50 µs".into(), ">P95 µs".into(), ">digits/s".into(), format!(">{first} /")];
    let mut columns = Columns::new(heads.iter().map(String::as_str));
    let us = |us: f64| format!("{us:.2}");
    columns.row([first.to_owned(), us(timing.median_us), us(timing.p95_us), rate(timing.median_us)]);
    let mut untimed = String::new();
    for peer in &timing.peers {
        match peer.verdict {
            Verdict::Pass | Verdict::Unclear => columns.row([
                peer.name.clone(),
                us(peer.median_us),
                peer.p95_us.map_or_else(|| "-".into(), us),
                rate(peer.median_us),
                format!("{:.3}", peer.ratio),
            ]),
            verdict => untimed += &format!("{}: {}: {}\n", peer.name, verdict.name(), peer.reason),
        }
    }
    let mut text = format!("\n{columns}{untimed}");
    if outcome.verdict.is_failure() || outcome.verdict == Verdict::Invalid {
        let _ = writeln!(text, "{}: {}", outcome.verdict.name(), outcome.reason);
    }
    text
}
