//! `tune`: all candidates of an operator timed beside each other, shape by shape, and the fastest of each written down:
//! what a launcher that dispatches by shape is made from.

use super::selection::{Selected, Selection};
use super::{Failure, Workplace, print};
use crate::calibrate::versioned;
use crate::check::beside::Competition;
use crate::check::outcome::{Timing, Verdict};
use crate::check::perf::{self, PerfSettings};
use crate::check::{Context, Subject};
use crate::core::candidate::Candidate;
use crate::core::dtype::DType;
use crate::core::suite::Suite;
use crate::harness::terminal::note;
use clap::Args;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `tune`.
#[derive(Args)]
pub struct Tune {
    #[command(flatten)]
    selection: Selection,
    /// Seconds that an operator may spend on starting new shapes
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    budget: u64,
    /// Where the table goes [default: target/kernelgate/tuned.json]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

/// The fastest candidate of a shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Choice {
    device: String,
    operator: String,
    dtype: DType,
    shape: String,
    fastest: String,
    /// Whether the interval of its time overlaps with that of no other candidate.
    is_clear: bool,
    /// Median times of all that are right, the fastest first.
    times_us: Vec<(String, f64)>,
}

impl Tune {
    /// Measures, printing a row as soon as it is known.
    pub fn run(self, workplace: &Workplace<'_>) -> Result<(), Failure> {
        let out = self.out.unwrap_or_else(|| workplace.project.summary_path().with_file_name("tuned.json"));
        let mut chosen: Vec<Choice> = Vec::new();
        let mut done: BTreeSet<(String, DType)> = BTreeSet::new();
        self.selection.each(workplace, |&Selected { suite, ref subject, device, points, progress, .. }| {
            // The first selected candidate stands for its operator: the others are timed beside it.
            if !done.insert((subject.operator.name().to_owned(), subject.dtype)) {
                return Ok(());
            }
            let others = others(suite, subject);
            let points = if points.is_empty() { subject.operator.perf_shapes() } else { points };
            let context = Context::new(device, self.selection.seed, Duration::from_secs(self.budget));
            for point in points {
                let settings = PerfSettings { only: vec![point.clone()], ..PerfSettings::of(device.kind()) };
                let outcome =
                    perf::run_beside(&context, subject, &settings, Competition { peers: &[], candidates: &others });
                progress.step();
                if outcome.verdict.is_failure() {
                    note(format_args!("{}: {}", subject.candidate.name, outcome.reason));
                    return Err(Failure::Verdict);
                }
                if outcome.timings.is_empty() {
                    note(format_args!("{}: {}", subject.operator.name(), outcome.reason));
                }
                let key = device.fingerprint().key();
                let found: Vec<Choice> =
                    outcome.timings.iter().map(|timing| choice(subject, timing, key.clone())).collect();
                let rows: Vec<String> = found.iter().map(row).collect();
                chosen.extend(found);
                // Kept after each shape, before its rows are shown: what was said outlives whatever ends this process.
                versioned::write(&out, &chosen).map_err(Failure::Input)?;
                rows.iter().try_for_each(|row| print(row))?;
            }
            Ok(())
        })?;
        note(format_args!("table: {}", out.display()));
        Ok(())
    }
}

/// The other candidates of the operator that run where the subject does.
fn others<'a>(suite: &'a Suite, subject: &Subject<'_>) -> Vec<&'a Candidate> {
    let on_host = subject.candidate.body.is_host();
    let is_other = |other: &&Candidate| {
        let traits = &other.traits;
        let competes = traits.timed && !traits.lesson && traits.computes(subject.dtype);
        other.name != subject.candidate.name && other.body.is_host() == on_host && competes
    };
    suite.candidates.iter().filter(is_other).collect()
}

fn choice(subject: &Subject<'_>, timing: &Timing, device: String) -> Choice {
    let own = (subject.candidate.name.clone(), timing.median_us, [timing.low_us, timing.high_us]);
    let peers = timing.peers.iter().filter(|peer| peer.verdict == Verdict::Pass && peer.samples > 0);
    let peers = peers.map(|peer| {
        let name = peer.name.rsplit("::").next().unwrap_or(&peer.name).to_owned();
        (name, peer.median_us, peer.interval_us.unwrap_or([0.0, f64::INFINITY]))
    });
    let mut all: Vec<(String, f64, [f64; 2])> = std::iter::once(own).chain(peers).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    let is_clear = all.len() < 2 || all[0].2[1] < all[1].2[0];
    Choice {
        device,
        operator: subject.operator.name().into(),
        dtype: subject.dtype,
        shape: timing.shape.clone(),
        fastest: all[0].0.clone(),
        is_clear,
        times_us: all.into_iter().map(|(name, us, _)| (name, us)).collect(),
    }
}

fn row(choice: &Choice) -> String {
    let times: Vec<String> = choice.times_us.iter().map(|(name, us)| format!("{name} {us:.3} µs")).collect();
    let doubt = if choice.is_clear { "" } else { "  (too close to call)" };
    format!("{:<16} {:<5} {:<32} {}{doubt}\n", choice.operator, choice.dtype, choice.shape, times.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::command::samples::suite;

    #[test]
    fn the_fastest_is_looked_for_among_those_that_run_in_one_place() {
        let suite = suite();
        let beside = |candidate: usize| -> Vec<&str> {
            let candidate = &suite.candidates[candidate];
            let subject = Subject { operator: suite.operator.as_ref(), candidate, dtype: DType::F32 };
            others(&suite, &subject).iter().map(|other| other.name.as_str()).collect()
        };
        assert_eq!((beside(1), beside(3)), (vec!["host"], vec!["kernel"]));
    }
}
