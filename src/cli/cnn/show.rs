//! What the variants reach, as a person reads it.

use super::accuracy::Agreement;
use super::timing::Timed;
use crate::check::outcome::Verdict;
use crate::report::workloads::WorkloadRun;
use std::fmt::Write as _;

/// Lines of disagreements that are shown.
const MOST: usize = 20;

/// How many digits each variant gets right, and of which they differ.
pub fn accuracies(runs: &[WorkloadRun], agreement: &Agreement) -> String {
    let mut text = format!("\n{:<10} {:>20} {:>24}\n", "variant", "right", "right of those kept out");
    for run in runs {
        let _ = match (&run.accuracy, &run.skipped) {
            (Some(a), _) => {
                let share = |right: usize, of: usize| {
                    format!("{right} of {of}  {:.2} %", 100.0 * right as f64 / of.max(1) as f64)
                };
                let (all, kept) = (share(a.right, a.digits), share(a.right_kept_out, a.kept_out));
                writeln!(text, "{:<10} {all:>20} {kept:>24}", run.variant)
            }
            (None, why) => writeln!(text, "{:<10} not here: {}", run.variant, why.as_deref().unwrap_or("no reason")),
        };
    }
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
    let mut text = format!(
        "\nbatch {batch:<14} {:>10} {:>10} {:>14} {:>8}\n",
        "P50 µs",
        "P95 µs",
        "digits/s",
        timed.first.names().0.to_owned() + " /"
    );
    let rate = |us: f64| batch as f64 / us * 1e6;
    let Some(timing) = timed.timing() else {
        return text + &format!("{:<20} {}\n", timed.first.names().0, outcome.reason);
    };
    let _ = writeln!(
        text,
        "{:<20} {:>10.2} {:>10.2} {:>14.0} {:>8}",
        timed.first.names().0,
        timing.median_us,
        timing.p95_us,
        rate(timing.median_us),
        ""
    );
    for peer in &timing.peers {
        let p95 = peer.p95_us.map_or_else(|| "-".into(), |us| format!("{us:.2}"));
        let _ = match peer.verdict {
            Verdict::Pass | Verdict::Unclear => writeln!(
                text,
                "{:<20} {:>10.2} {p95:>10} {:>14.0} {:>8.3}",
                peer.name,
                peer.median_us,
                rate(peer.median_us),
                peer.ratio
            ),
            verdict => writeln!(text, "{:<20} {}: {}", peer.name, verdict.name(), peer.reason),
        };
    }
    if outcome.verdict.is_failure() || outcome.verdict == Verdict::Invalid {
        let _ = writeln!(text, "{}: {}", outcome.verdict.name(), outcome.reason);
    }
    text
}
