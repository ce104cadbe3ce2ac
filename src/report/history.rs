//! Each case over several runs: its times, its baseline, changes of driver, compiler and clock, and where its time
//! changed for good.

use super::clock;
use super::summary::Summary;
use super::text::markdown;
use crate::check::outcome::{Timing, Verdict};
use crate::core::stats::median;
use crate::device::Heat;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How many runs there must be on each side of a change point: the first run after a change is confirmed by the next.
pub const SEGMENT: usize = 3;

/// The change that counts where no run says what the noise of its device is.
const THRESHOLD: f64 = 0.02;

/// How many times the scatter within the segments a change must be.
const SCATTERS: f64 = 3.0;

/// A clock that moved by this share is marked.
const CLOCK: f64 = 0.01;

/// What makes two timings times of the same thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    name: String,
    shape: String,
    heat: &'static str,
    device: String,
}

/// One run of one case.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    /// Seconds since 1970.
    at: u64,
    /// The number of the run.
    run: usize,
    timing: Timing,
    driver: String,
}

/// From here on the time is another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The first point after it.
    pub at: usize,
    /// The median after over the median before.
    pub ratio: f64,
}

/// Something else that changed, by the first point with it.
#[derive(Clone, Debug, PartialEq)]
struct Mark {
    at: usize,
    what: String,
}

struct Case {
    key: Key,
    points: Vec<Point>,
    changes: Vec<Change>,
    marks: Vec<Mark>,
}

/// All cases that were timed at least twice.
pub struct History {
    runs: Vec<String>,
    cases: Vec<Case>,
}

impl History {
    /// The history of these runs, each with its name; they are put in the order of their start.
    pub fn of(summaries: &[(&str, &Summary)]) -> Self {
        let mut order: Vec<&(&str, &Summary)> = summaries.iter().collect();
        order.sort_by(|a, b| (&a.1.run.started, a.0).cmp(&(&b.1.run.started, b.0)));
        let mut cases: BTreeMap<Key, Vec<Point>> = BTreeMap::new();
        for (run, (_, summary)) in order.iter().enumerate() {
            let at = clock::seconds(&summary.run.started).unwrap_or_default();
            for record in &summary.records {
                let device = record.fingerprint.clone().unwrap_or_default();
                let entry = summary.devices.iter().find(|entry| entry.key == device);
                let driver =
                    entry.map_or(String::new(), |e| format!("{} {}", e.fingerprint.driver, e.fingerprint.compiler));
                for timing in &record.outcome.timings {
                    if timing.verdict == Verdict::Invalid || timing.median_us.is_nan() || timing.median_us <= 0.0 {
                        continue;
                    }
                    let key = Key {
                        name: format!("{}::{}::{}", record.operator, record.candidate, record.dtype),
                        shape: timing.shape.clone(),
                        heat: if timing.heat == Heat::Hot { "hot" } else { "cold" },
                        device: device.clone(),
                    };
                    let point = Point { at, run, timing: timing.clone(), driver: driver.trim().to_owned() };
                    cases.entry(key).or_default().push(point);
                }
            }
        }
        let cases = cases.into_iter().filter(|(_, points)| points.len() > 1).map(|(key, points)| {
            let (changes, marks) = (changes(&points), marks(&points));
            Case { key, points, changes, marks }
        });
        History { runs: order.iter().map(|(label, _)| (*label).to_owned()).collect(), cases: cases.collect() }
    }

    /// Change points to slower and to faster.
    pub fn tally(&self) -> (usize, usize) {
        let all = || self.cases.iter().flat_map(|case| &case.changes);
        (all().filter(|change| change.ratio > 1.0).count(), all().filter(|change| change.ratio < 1.0).count())
    }

    /// Improvements over regressions, in words: `4 faster : 5 slower over 12 runs`.
    fn ratio(&self) -> String {
        let (slower, faster) = self.tally();
        format!("{faster} faster : {slower} slower over {} runs", self.runs.len())
    }

    /// What the ratio says of false alarms.
    fn noise(&self) -> &'static str {
        match self.tally() {
            (0, 0) => "No time changed for good.",
            _ => {
                "Noise makes as many changes to faster as to slower: a ratio of improvements to regressions near 1 looks \
                 like noise, and the farther it is from 1, the fewer of them are false alarms."
            }
        }
    }

    /// A Markdown table: cases whose time changed, the largest change first.
    pub fn table(&self) -> String {
        let mut text = format!(
            "**{}**, {} cases\n\n{} A change has {SEGMENT} runs on each side; measure it again before acting on it.\n",
            self.ratio(),
            self.cases.len(),
            self.noise(),
        );
        let mut rows: Vec<(&Case, &Change)> =
            self.cases.iter().flat_map(|case| case.changes.iter().map(move |change| (case, change))).collect();
        rows.sort_by(|a, b| b.1.ratio.ln().abs().total_cmp(&a.1.ratio.ln().abs()));
        if !rows.is_empty() {
            text.push_str(
                "\n| change | case | shape | device | since | at the same time |\n|---:|---|---|---|---|---|\n",
            );
        }
        for (case, change) in rows {
            let marks = case.marks.iter().filter(|mark| mark.at == change.at).map(|mark| mark.what.as_str());
            let _ = writeln!(
                text,
                "| {:+.1} % | {} | {} | {} | {} | {} |",
                (change.ratio - 1.0) * 100.0,
                markdown(&case.key.name),
                markdown(&case.key.shape),
                markdown(&case.key.device),
                markdown(&self.runs[case.points[change.at].run]),
                markdown(&marks.collect::<Vec<_>>().join(", ")),
            );
        }
        text
    }

    /// What the page shows of it.
    pub(super) fn to_json(&self) -> Value {
        let short = |x: Option<f64>| x.and_then(|x| format!("{x:.5e}").parse::<f64>().ok()).filter(|x| x.is_finite());
        let point = |p: &Point| {
            let t = &p.timing;
            let times = [t.median_us, t.p5_us, t.p95_us].map(|us| short(Some(us)));
            json!([p.at, times[0], times[1], times[2], short(t.baseline_us), short(t.clock_mhz), p.run])
        };
        let case = |case: &Case| {
            let hot = if case.key.heat == "hot" { " hot" } else { "" };
            json!({
                "name": case.key.name,
                "shape": format!("{}{hot}", case.key.shape),
                "device": case.key.device,
                "points": case.points.iter().map(point).collect::<Vec<_>>(),
                "changes": case.changes.iter().map(|c| json!({ "at": c.at, "ratio": short(Some(c.ratio)) })).collect::<Vec<_>>(),
                "marks": case.marks.iter().map(|m| json!({ "at": m.at, "what": m.what })).collect::<Vec<_>>(),
            })
        };
        let cases: Vec<Value> = self.cases.iter().map(case).collect();
        json!({ "runs": self.runs, "segment": SEGMENT, "ratio": self.ratio(), "noise": self.noise(), "cases": cases })
    }
}

/// What else changed from one point to the next.
fn marks(points: &[Point]) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (at, pair) in points.windows(2).enumerate() {
        let (before, after) = (&pair[0], &pair[1]);
        let mut mark = |what: String| marks.push(Mark { at: at + 1, what });
        if before.driver != after.driver {
            mark(format!("driver: {}", after.driver));
        }
        if let (Some(old), Some(new)) = (before.timing.clock_mhz, after.timing.clock_mhz)
            && (new / old - 1.0).abs() > CLOCK
        {
            mark(format!("clock: {new:.0} MHz"));
        }
        match (before.timing.baseline_us, after.timing.baseline_us) {
            (Some(old), Some(new)) if (new / old - 1.0).abs() > 1e-4 => mark("new baseline".into()),
            (None, Some(_)) => mark("first baseline".into()),
            _ => {}
        }
    }
    marks
}

/// Where the time changed for good: the best split of a stretch of points, and again on both sides of it.
fn changes(points: &[Point]) -> Vec<Change> {
    let logs: Vec<f64> = points.iter().map(|point| point.timing.median_us.ln()).collect();
    let known = points.iter().filter_map(|point| point.timing.threshold).fold(f64::NAN, f64::max);
    let least = (1.0 + if known.is_nan() { THRESHOLD } else { known }).ln();
    let mut found = Vec::new();
    split(&logs, 0, least, &mut found);
    found.sort_by_key(|change| change.at);
    found
}

fn split(logs: &[f64], offset: usize, least: f64, found: &mut Vec<Change>) {
    if logs.len() < 2 * SEGMENT {
        return;
    }
    let scatter = |part: &[f64]| {
        let middle = median(part);
        part.iter().map(|x| (x - middle).abs()).sum::<f64>()
    };
    let splits = SEGMENT..=logs.len() - SEGMENT;
    let cost = |at: usize| scatter(&logs[..at]) + scatter(&logs[at..]);
    let Some(at) = splits.min_by(|&a, &b| cost(a).total_cmp(&cost(b))) else { return };
    let (before, after) = (median(&logs[..at]), median(&logs[at..]));
    let step = after - before;
    // The runs next to it confirm it: each is nearer to its own side.
    let is_confirmed = logs[at - SEGMENT..at].iter().all(|x| (x - before).abs() < (x - after).abs())
        && logs[at..at + SEGMENT].iter().all(|x| (x - after).abs() < (x - before).abs());
    if is_confirmed && step.abs() > least && step.abs() > SCATTERS * cost(at) / logs.len() as f64 {
        found.push(Change { at: offset + at, ratio: step.exp() });
        split(&logs[..at], offset, least, found);
        split(&logs[at..], offset + at, least, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::samples::slower;
    use crate::report::summary::samples::run;
    use rstest::rstest;

    fn points(us: &[f64]) -> Vec<Point> {
        let timing = slower().outcome.timings.remove(0);
        let point = |(run, &median_us): (usize, &f64)| Point {
            at: run as u64,
            run,
            timing: Timing { median_us, ..timing.clone() },
            driver: "1".into(),
        };
        us.iter().enumerate().map(point).collect()
    }

    #[rstest]
    #[case::step(&[10.0, 10.1, 9.9, 11.0, 11.1, 10.9], &[3])]
    #[case::outlier(&[10.0, 10.0, 10.1, 14.0, 10.0, 10.1, 10.0], &[])]
    #[case::not_confirmed(&[10.0, 10.0, 10.1, 10.0, 11.0, 11.0], &[])]
    #[case::confirmed(&[10.0, 10.0, 10.1, 10.0, 11.0, 11.0, 11.0], &[4])]
    #[case::noise(&[10.0, 10.3, 9.8, 10.4, 9.7, 10.2, 10.1, 9.9], &[])]
    #[case::within_the_threshold(&[10.0, 10.0, 10.0, 10.1, 10.1, 10.1], &[])]
    #[case::outlier_long_before(&[10.0, 10.0, 10.0, 14.0, 10.0, 10.0, 10.0, 14.0, 14.0, 14.0], &[7])]
    #[case::outlier_behind_the_step(&[10.0, 10.0, 10.0, 12.0, 10.0, 12.0, 12.0], &[])]
    #[case::two_steps(&[10.0, 10.0, 10.0, 12.0, 12.0, 12.1, 9.0, 9.0, 9.1], &[3, 6])]
    fn a_change_is_one_that_stays(#[case] us: &[f64], #[case] expected: &[usize]) {
        let found: Vec<usize> = changes(&points(us)).iter().map(|change| change.at).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_changed_with_it_is_marked() {
        let mut all = points(&[10.0, 10.0, 10.0, 10.0]);
        all[1].driver = "2".into();
        all[2].driver = "2".into();
        all[3].driver = "2".into();
        all[2].timing.clock_mhz = Some(1700.0);
        all[3].timing.clock_mhz = Some(1700.0);
        all[3].timing.baseline_us = Some(9.0);
        all[0].timing.baseline_us = None;
        let found: Vec<_> = marks(&all).into_iter().map(|mark| (mark.at, mark.what)).collect();
        let expected = [(1, "driver: 2"), (1, "first baseline"), (2, "clock: 1700 MHz"), (3, "new baseline")];
        assert_eq!(found, expected.map(|(at, what)| (at, what.to_owned())));
    }

    #[test]
    fn runs_are_put_in_order_and_a_change_is_named() {
        let summaries: Vec<(String, Summary)> = (0..6)
            .map(|day| {
                let mut record = slower();
                record.outcome.timings.truncate(1);
                record.outcome.timings[0].median_us = if day < 3 { 10.0 } else { 12.0 };
                let mut summary = Summary::new(run(&format!("r{day}")));
                summary.run.started = format!("2026-11-0{}T00:00:00Z", day + 1);
                summary.add(vec![record]);
                (format!("day|{day}"), summary)
            })
            .collect();
        let shuffled = [4, 0, 5, 2, 1, 3].map(|i: usize| (summaries[i].0.as_str(), &summaries[i].1));
        let history = History::of(&shuffled);
        assert_eq!(history.tally(), (1, 0));
        assert!(history.table().starts_with("**0 faster : 1 slower over 6 runs**, 1 cases\n\n"), "{}", history.table());
        assert!(history.table().contains("a ratio of improvements to regressions near 1 looks like noise"));
        let row = history.table().lines().last().unwrap().to_owned();
        assert_eq!(row, "| +20.0 % | gelu::fast::f32 | n=1024 | nvidia-h200-132 | day\\|3 |  |");
    }
}
