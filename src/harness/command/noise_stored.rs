//! `noise --stored`: how a session of today stands against the accepted times: how often a kernel that has not
//! changed is called slower, and which planted slowdowns are found.

use super::selection::{Selected, Selection};
use super::{Failure, Workplace, print};
use crate::baseline::{BaselineSettings, Row, Table, read, stand};
use crate::calibrate::versioned;
use crate::check::outcome::{Timing, Verdict};
use crate::check::perf::{self, PerfSettings};
use crate::check::{Context, Subject};
use crate::core::columns::Columns;
use crate::core::shape::parse;
use crate::device::Device;
use crate::harness::terminal::note;
use crate::measure::Change;
use crate::measure::threshold::{Distance, NoiseTable, case_name};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// What is planted, as shares of the launch time.
const PLANTED: [f64; 4] = [0.0, 0.01, 0.02, 0.05];

/// A shape is timed in far less.
const BUDGET: Duration = Duration::from_secs(60);

/// How one case, with one slowdown planted, stands against its accepted time.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Detection {
    device: String,
    case: String,
    accepted_us: f64,
    threshold: f64,
    planted: f64,
    compared: usize,
    slower: usize,
    faster: usize,
    unclear: usize,
    /// Sessions that gave no time which could be compared.
    untimed: usize,
    ratios: Vec<f64>,
}

/// Compares `trials` sessions a case and slowdown with the accepted times; writes all of it to `out`.
pub fn run(workplace: &Workplace<'_>, selection: &Selection, trials: usize, out: &Path) -> Result<(), Failure> {
    let settings = BaselineSettings::new(&workplace.project.folder);
    let mut found: Vec<Detection> = Vec::new();
    selection.each(workplace, |&Selected { trial, ref subject, device, progress, .. }| {
        let fingerprint = device.fingerprint();
        let noise = NoiseTable::load(&settings.noise_folder(), &fingerprint.key(), fingerprint.kind);
        let noise = noise.map_err(Failure::Input)?;
        let accepted = read::<Table>(&settings.snapshot_path(subject, fingerprint)).map_err(Failure::Input)?;
        let Some(accepted) = accepted else {
            eprintln!("{}: no baseline for {}", trial.name, fingerprint.key());
            return Ok(());
        };
        for row in &accepted.rows {
            let (operator, candidate) = (subject.operator.name(), &subject.candidate.name);
            let case = case_name(operator, candidate, subject.dtype, &row.shape);
            let threshold = noise.threshold_of(&case, row.median_us, Distance::Stored);
            eprintln!("{case}");
            for planted in PLANTED {
                let mut detection = Detection {
                    device: fingerprint.key(),
                    case: case.clone(),
                    accepted_us: row.median_us,
                    threshold,
                    planted,
                    compared: 0,
                    slower: 0,
                    faster: 0,
                    unclear: 0,
                    untimed: 0,
                    ratios: Vec::new(),
                };
                progress.say(&case);
                for turn in 0..trials {
                    let seed = selection.seed.wrapping_add(turn as u64);
                    detection.add(|| session(device, subject, row, threshold, planted, seed))?;
                }
                found.push(detection);
            }
        }
        Ok(())
    })?;
    if found.is_empty() {
        return Err(Failure::Missing("no selected candidate has a baseline for this device".into()));
    }
    versioned::write(out, &found).map_err(Failure::Input)?;
    note(format_args!("comparisons: {}", out.display()));
    print(&describe(&found))
}

/// One session of a case against its row. The code that took the accepted time is left out of account: it is what would
/// call a false alarm the environment.
fn session(
    device: &dyn Device,
    subject: &Subject<'_>,
    row: &Row,
    threshold: f64,
    planted: f64,
    seed: u64,
) -> Result<Option<(Change, f64)>, Failure> {
    let point = parse(subject.operator.axes(), &row.shape).map_err(Failure::Input)?;
    let perf = PerfSettings { planted, only: vec![point], ..PerfSettings::of(device.kind()) };
    let outcome = perf::run(&Context::new(device, seed, BUDGET), subject, &perf);
    let timing = outcome.timings.into_iter().find(|timing| timing.verdict == Verdict::Pass);
    Ok(timing.map(|timing| {
        let standing = stand(row, &Timing { code: None, ..timing }, threshold);
        (standing.change, standing.ratio)
    }))
}

impl Detection {
    /// Adds a comparison; one that says slower must say so twice, as in the gate.
    fn add(&mut self, mut session: impl FnMut() -> Result<Option<(Change, f64)>, Failure>) -> Result<(), Failure> {
        let first = session()?;
        let last = if let Some((Change::Slower, _)) = first { session()? } else { first };
        let Some((change, ratio)) = last else {
            self.untimed += 1;
            return Ok(());
        };
        self.compared += 1;
        self.ratios.push(ratio);
        match (first.map(|(change, _)| change), change) {
            (Some(Change::Slower), Change::Slower) => self.slower += 1,
            (Some(Change::Slower), _) | (_, Change::Unclear) => self.unclear += 1,
            (_, Change::Faster) => self.faster += 1,
            _ => {}
        }
        Ok(())
    }
}

fn describe(found: &[Detection]) -> String {
    let heads = ["case", ">µs", ">threshold %", ">planted %", ">slower", ">faster", ">unclear", ">compared"];
    let mut columns = Columns::new(heads);
    for d in found {
        let percent = |share: f64| format!("{:.2}", 100.0 * share);
        let counts = [d.slower, d.faster, d.unclear, d.compared].map(|count| count.to_string());
        let case = [d.case.clone(), format!("{:.2}", d.accepted_us), percent(d.threshold), percent(d.planted)];
        columns.row(case.into_iter().chain(counts));
    }
    let mut text = columns.to_string();
    for planted in PLANTED {
        let of =
            |count: fn(&Detection) -> usize| found.iter().filter(|d| d.planted == planted).map(count).sum::<usize>();
        text += &format!(
            "{} % planted: {} slower, {} faster, {} unclear of {}; {} gave no time\n",
            100.0 * planted,
            of(|d| d.slower),
            of(|d| d.faster),
            of(|d| d.unclear),
            of(|d| d.compared),
            of(|d| d.untimed)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::same(&[Some(Change::Same)], [1, 0, 0, 0, 0])]
    #[case::slower_twice(&[Some(Change::Slower), Some(Change::Slower)], [1, 1, 0, 0, 0])]
    #[case::slower_once(&[Some(Change::Slower), Some(Change::Same)], [1, 0, 0, 1, 0])]
    #[case::faster(&[Some(Change::Faster)], [1, 0, 1, 0, 0])]
    #[case::unclear(&[Some(Change::Unclear)], [1, 0, 0, 1, 0])]
    #[case::no_time(&[None], [0, 0, 0, 0, 1])]
    fn comparisons_are_counted_as_the_gate_judges(#[case] sessions: &[Option<Change>], #[case] counts: [usize; 5]) {
        let mut detection = Detection {
            device: "d".into(),
            case: "c".into(),
            accepted_us: 1.0,
            threshold: 0.01,
            planted: 0.02,
            compared: 0,
            slower: 0,
            faster: 0,
            unclear: 0,
            untimed: 0,
            ratios: Vec::new(),
        };
        let mut left = sessions.iter();
        assert!(detection.add(|| Ok(left.next().unwrap().map(|change| (change, 1.0)))).is_ok());
        assert!(left.next().is_none(), "sessions were left over");
        let d = &detection;
        assert_eq!([d.compared, d.slower, d.faster, d.unclear, d.untimed], counts);
        assert!(describe(&[detection]).contains("2 % planted"));
    }
}
