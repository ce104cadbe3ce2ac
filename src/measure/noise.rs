//! What this device's noise is: one kernel against itself, many times, with and without a planted slowdown.

use super::change::{Change, Comparison, Estimate, paired};
use super::inputs::draw;
use super::series::typical;
use super::session::{Contestant, SessionSettings, measure};
use super::stored::Stored;
use super::threshold::{Distance, NoiseTable, SelfRatios, case_name, deviation};
use super::yardstick::Yardstick;
use crate::core::candidate::Candidate;
use crate::core::columns::Columns;
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::core::seed::derive;
use crate::core::shape::describe;
use crate::core::stats::{median, quantile_sorted, sorted};
use crate::device::fault::Fault;
use crate::device::{Device, Heat, Job, Poison, TimingPlan};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::time::Instant;

/// How to look at the noise of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct NoiseSettings {
    /// How each trial is timed; planted slowdowns are added to one side.
    pub plan: TimingPlan,
    /// Order, precision, budget of each trial.
    pub session: SessionSettings,
    /// Comparisons of the kernel with itself.
    pub trials: usize,
    /// Comparisons with the slowdown that must be found planted.
    pub planted_trials: usize,
    /// Comparisons at each step of the search for the smallest slowdown that is found; 0 leaves the search out.
    pub search_trials: usize,
}

impl Default for NoiseSettings {
    fn default() -> Self {
        let session = SessionSettings::default();
        let longest = session.stopping.longest();
        NoiseSettings {
            plan: TimingPlan {
                heat: Heat::Cold,
                chained: false,
                batch_us: 300.0,
                instances: 16,
                planted_us: 0.0,
                session: longest,
            },
            session,
            trials: 20,
            planted_trials: 20,
            search_trials: 20,
        }
    }
}

/// The case to look at.
#[derive(Clone, Copy)]
pub struct NoiseCase<'a> {
    /// What is computed.
    pub operator: &'a dyn Operator,
    /// By whom.
    pub candidate: &'a Candidate,
    /// In which dtype.
    pub dtype: DType,
    /// At which shape.
    pub point: &'a [usize],
}

/// What was found; a record of the summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseReport {
    /// The operator.
    pub operator: String,
    /// The candidate.
    pub candidate: String,
    /// The dtype.
    pub dtype: DType,
    /// The shape.
    pub shape: String,
    /// Median time of a launch, µs.
    pub launch_us: f64,
    /// The threshold of paired comparisons that was applied.
    pub threshold: f64,
    /// Comparisons of the kernel with itself.
    pub trials: usize,
    /// How many called it slower.
    pub false_slower: usize,
    /// How many called it faster.
    pub false_faster: usize,
    /// How many could not tell.
    pub unclear: usize,
    /// Deviation of the ratios of one session.
    pub paired_sd: f64,
    /// Deviation of the ratios between sessions.
    pub stored_sd: f64,
    /// 1st and 99th percentile of the ratios of one session.
    pub paired_p1_p99: [f64; 2],
    /// Detection of planted slowdowns.
    pub planted: Vec<Detection>,
    /// The smallest slowdown that is found at least 95 times in 100: planted in a search or, without one, put into the
    /// comparisons of the kernel with itself by arithmetic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest_found: Option<f64>,
    /// The ratios themselves, for the table of the device.
    #[serde(skip)]
    pub ratios: Vec<[f64; 2]>,
    /// How long it all took, s.
    pub seconds: f64,
}

/// How often one slowdown was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// The slowdown, as a share of the launch time.
    pub planted: f64,
    /// Comparisons.
    pub trials: usize,
    /// How many called it slower.
    pub found: usize,
}

impl Detection {
    /// Whether it was found often enough to rely on.
    pub fn is_reliable(&self) -> bool {
        self.found * 100 >= self.trials * 95
    }
}

/// The slowdown that a gate must find: 2 %, and 5 % of launches so short that most of their time is the launch itself.
pub fn slowdown_to_find(launch_us: f64) -> f64 {
    if launch_us < 3.0 { 0.05 } else { 0.02 }
}

/// The slowdowns among which the smallest detectable is searched.
const LADDER: [f64; 8] = [0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1];

/// Compares the case with itself. Each trial records fresh instances on both sides.
///
/// # Errors
/// The fault of the candidate.
pub fn analyse(
    device: &dyn Device,
    case: &NoiseCase<'_>,
    table: &NoiseTable,
    settings: &NoiseSettings,
    seed: u64,
) -> Result<NoiseReport, Fault> {
    let begun = Instant::now();
    let shape = describe(case.operator.axes(), case.point);
    let seed = derive(seed, &["noise", case.operator.name(), &case.candidate.name, case.dtype.name(), &shape]);
    let mut pair = Pair::prepare(device, case, settings, seed)?;

    let mut sessions = Vec::new();
    let mut paired_ratios = Vec::new();
    let mut changes = Vec::new();
    let first = pair.trial(0.0)?;
    let name = case_name(case.operator.name(), &case.candidate.name, case.dtype, &shape);
    let threshold = table.threshold_of(&name, typical(&first.base), Distance::Paired);
    let mut estimates = Vec::new();
    let rest: Result<Vec<Sides>, Fault> = (1..settings.trials.max(1)).map(|_| pair.trial(0.0)).collect();
    for sides in std::iter::once(first).chain(rest?) {
        let comparison = paired(&sides.base, &sides.head, threshold);
        sessions.push(Times::of(&sides));
        estimates.extend(Estimate::of(&sides.base).zip(Estimate::of(&sides.head)));
        paired_ratios.push(comparison.ratio);
        changes.push(comparison.change);
    }
    let stored_ratios = between_sessions(&sessions);
    let launch_us = median(&sessions.iter().map(|session| session.base_us).collect::<Vec<_>>());

    let mut detect = |planted: f64, trials: usize| -> Result<Detection, Fault> {
        let mut found = 0;
        for _ in 0..trials {
            let sides = pair.trial(planted * launch_us)?;
            found += usize::from(paired(&sides.base, &sides.head, threshold).change == Change::Slower);
        }
        Ok(Detection { planted, trials, found })
    };
    let must = slowdown_to_find(launch_us);
    let planted = if settings.planted_trials > 0 { vec![detect(must, settings.planted_trials)?] } else { Vec::new() };
    let smallest_found = match settings.search_trials {
        0 => smallest_computed(&estimates, changes.len(), threshold),
        trials => smallest_found(trials, &mut detect)?,
    };

    let count = |change: Change| changes.iter().filter(|&&c| c == change).count();
    let ordered = sorted(&paired_ratios);
    Ok(NoiseReport {
        operator: case.operator.name().into(),
        candidate: case.candidate.name.clone(),
        dtype: case.dtype,
        shape,
        launch_us,
        threshold,
        trials: changes.len(),
        false_slower: count(Change::Slower),
        false_faster: count(Change::Faster),
        unclear: count(Change::Unclear),
        paired_sd: deviation(&paired_ratios),
        stored_sd: deviation(&stored_ratios),
        paired_p1_p99: [quantile_sorted(&ordered, 0.01), quantile_sorted(&ordered, 0.99)],
        planted,
        smallest_found,
        ratios: paired_ratios.iter().zip(&stored_ratios).map(|(&paired, &stored)| [paired, stored]).collect(),
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// The smallest step of the ladder that the comparisons of the kernel with itself would find, were their heads slower by it.
fn smallest_computed(estimates: &[(Estimate, Estimate)], trials: usize, threshold: f64) -> Option<f64> {
    let found = |planted: f64| {
        let slowed = |head: &Estimate| Estimate { us: head.us * (1.0 + planted), ..*head };
        let changes = estimates.iter().map(|(base, head)| Comparison::of(*base, slowed(head), threshold).change);
        changes.filter(|&change| change == Change::Slower).count()
    };
    LADDER.into_iter().find(|&planted| Detection { planted, trials, found: found(planted) }.is_reliable())
}

/// Halves the ladder until one step is left; detection grows with the slowdown.
fn smallest_found(
    trials: usize,
    detect: &mut impl FnMut(f64, usize) -> Result<Detection, Fault>,
) -> Result<Option<f64>, Fault> {
    let (mut low, mut high) = (0, LADDER.len());
    while low < high {
        let middle = (low + high) / 2;
        if detect(LADDER[middle], trials)?.is_reliable() {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(LADDER.get(low).copied())
}

/// What a session says of its sides.
#[derive(Clone, Copy)]
struct Times {
    base_us: f64,
    head_us: f64,
    yardstick_us: Option<f64>,
}

impl Times {
    fn of(sides: &Sides) -> Self {
        Times {
            base_us: typical(&sides.base),
            head_us: typical(&sides.head),
            yardstick_us: sides.yardstick.as_deref().map(typical),
        }
    }
}

/// The head of a session over the base of one half the run away, as a stored time is judged.
fn between_sessions(sessions: &[Times]) -> Vec<f64> {
    let n = sessions.len();
    let exact = |us| Estimate { us, half_width: 0.0 };
    let ratio = |i: usize| {
        let (then, now) = (sessions[i], sessions[(i + n.div_ceil(2)) % n]);
        let yardsticks_us = then.yardstick_us.zip(now.yardstick_us);
        Stored::of(exact(then.base_us), exact(now.head_us), yardsticks_us, 0.0).least_ratio()
    };
    (0..n).map(ratio).collect()
}

/// The times of one trial that count, by instance.
struct Sides {
    base: Vec<Vec<f64>>,
    head: Vec<Vec<f64>>,
    yardstick: Option<Vec<Vec<f64>>>,
}

/// The same case prepared twice, and a copy of as many bytes where the device has one.
struct Pair<'d, 's> {
    contestants: Vec<Contestant<'d>>,
    settings: &'s NoiseSettings,
    seed: u64,
    trials: u64,
}

/// The places of the contestants.
const BASE: usize = 0;
const HEAD: usize = 1;
const YARDSTICK: usize = 2;

impl<'d, 's> Pair<'d, 's> {
    fn prepare(
        device: &'d dyn Device,
        case: &NoiseCase<'_>,
        settings: &'s NoiseSettings,
        seed: u64,
    ) -> Result<Self, Fault> {
        let inputs = draw(case.operator, case.point, case.dtype, seed);
        let side = || {
            let mut problem = device.prepare(&Job {
                operator: case.operator,
                candidate: case.candidate,
                point: case.point,
                dtype: case.dtype,
                inputs: &inputs,
                offset_bytes: 0,
            })?;
            problem.run(Poison::Nan)?;
            Contestant::arm(problem, &settings.plan)
        };
        let mut contestants = vec![side()?, side()?];
        let bytes = case.operator.cost(case.point, case.dtype).bytes;
        match Yardstick::copy(bytes).prepare(device) {
            Ok(copy) => contestants.push(Contestant::arm(copy, &settings.plan)?),
            Err(Fault::Unsupported(_)) => {}
            Err(fault) => return Err(fault),
        }
        Ok(Pair { contestants, settings, seed, trials: 0 })
    }

    fn trial(&mut self, planted_us: f64) -> Result<Sides, Fault> {
        let plan = self.settings.plan;
        for (who, contestant) in self.contestants.iter_mut().enumerate() {
            let planted_us = if who == HEAD { planted_us } else { 0.0 };
            contestant.arm_again(&TimingPlan { planted_us, ..plan })?;
        }
        self.trials += 1;
        let measurement = measure(&mut self.contestants, &self.settings.session, self.seed.wrapping_add(self.trials))?;
        Ok(Sides {
            base: measurement.kept_us(BASE),
            head: measurement.kept_us(HEAD),
            yardstick: (self.contestants.len() > YARDSTICK).then(|| measurement.kept_us(YARDSTICK)),
        })
    }
}

/// The noise table of a device from what was found on it.
pub fn table_of(source: String, reports: &[NoiseReport]) -> NoiseTable {
    let kernels: Vec<SelfRatios> = reports
        .iter()
        .map(|report| SelfRatios {
            case: case_name(&report.operator, &report.candidate, report.dtype, &report.shape),
            smallest_found: report.smallest_found,
            launch_us: report.launch_us,
            paired: report.ratios.iter().map(|&[paired, _]| paired).collect(),
            stored: report.ratios.iter().map(|&[_, stored]| stored).collect(),
        })
        .collect();
    NoiseTable::measured(source, &kernels)
}

/// The reports as a table for a person, with the totals.
pub fn describe_reports(reports: &[NoiseReport]) -> String {
    let percent = |share: f64| format!("{:.2}", share * 100.0);
    let mut columns = Columns::new([
        "case",
        ">launch µs",
        ">threshold %",
        ">A/A",
        ">slower",
        ">unclear",
        ">paired sd %",
        ">found planted",
        ">least %",
    ]);
    for report in reports {
        let found: Vec<String> =
            report.planted.iter().map(|d| format!("{}% {}/{}", d.planted * 100.0, d.found, d.trials)).collect();
        columns.row([
            format!("{}::{}::{} {}", report.operator, report.candidate, report.dtype, report.shape),
            format!("{:.2}", report.launch_us),
            percent(report.threshold),
            report.trials.to_string(),
            report.false_slower.to_string(),
            report.unclear.to_string(),
            percent(report.paired_sd),
            found.join(" "),
            report.smallest_found.map_or("-".into(), percent),
        ]);
    }
    let mut text = columns.to_string();
    let total = |count: fn(&NoiseReport) -> usize| reports.iter().map(count).sum::<usize>();
    let planted = reports.iter().flat_map(|report| &report.planted);
    let (tries, found) = planted.fold((0, 0), |(tries, found), d| (tries + d.trials, found + d.found));
    let _ = writeln!(
        text,
        "{} comparisons of a kernel with itself: {} slower, {} faster, {} unclear; {found} of {tries} planted slowdowns found",
        total(|r| r.trials),
        total(|r| r.false_slower),
        total(|r| r.false_faster),
        total(|r| r.unclear),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Cpu, IntoCandidate};
    use crate::core::operator::Op;
    use crate::device::DeviceKind;
    use crate::measure::simulated::{Noise, SimulatedDevice};
    use crate::measure::stopping::StoppingRule;
    use std::time::Duration;

    crate::shape! { struct Vector { n: 1..=64 } }

    fn report(launch_us: f64, noise: Noise, trials: usize) -> NoiseReport {
        report_on(&SimulatedDevice::new(launch_us, noise), trials)
    }

    fn report_on(device: &SimulatedDevice, trials: usize) -> NoiseReport {
        let operator = Op::<Vector>::new("f").input("x", |s| [s.n]).output("y", |s| [s.n]);
        let candidate = Cpu::new::<f32>(|_: &Vector, _, _| {}).named("c");
        let case = NoiseCase { operator: &operator, candidate: &candidate, dtype: DType::F32, point: &[8] };
        let stopping =
            StoppingRule { half_width: 0.005, min_rounds: 5, max_rounds: 10, budget: Duration::from_secs(3600) };
        let settings = NoiseSettings {
            session: SessionSettings { warm_up: Duration::ZERO, stopping },
            trials,
            planted_trials: 200,
            search_trials: 50,
            ..NoiseSettings::default()
        };
        analyse(device, &case, &NoiseTable::initial(DeviceKind::Cuda), &settings, 1).unwrap()
    }

    #[test]
    fn a_quiet_device_finds_what_it_must_and_raises_no_alarm() {
        let report = report(4.0, Noise { instance_sd: 0.002, sample_sd: 0.004, ..Noise::default() }, 1000);
        assert_eq!((report.trials, report.false_slower), (1000, 0));
        assert!(report.planted[0].is_reliable(), "{:?}", report.planted);
        assert!(report.smallest_found.is_some_and(|least| (0.01..=0.02).contains(&least)), "{report:?}");
        assert!((0.0005..0.002).contains(&report.paired_sd), "{}", report.paired_sd);
    }

    #[test]
    fn what_is_found_is_known_without_a_search_too() {
        let sure = |us| Estimate { us, half_width: 0.001 };
        let quiet: Vec<_> = [9.99, 10.0, 10.01].map(|us| (sure(10.0), sure(us))).to_vec();
        assert_eq!(smallest_computed(&quiet, 3, 0.01), Some(0.015));
        assert_eq!(smallest_computed(&quiet, 3, 0.06), Some(0.1));
        assert_eq!(smallest_computed(&quiet, 4, 0.01), None, "a comparison without samples finds nothing");
        let blind: Vec<_> = quiet.iter().map(|(base, head)| (*base, Estimate { half_width: 0.2, ..*head })).collect();
        assert_eq!(smallest_computed(&blind, 3, 0.01), None);
    }

    /// Where one side is slower for as long as it lives, every comparison says so, and is counted.
    #[test]
    fn false_alarms_are_counted() {
        let of = |slowing: f64| report_on(&SimulatedDevice::new(10.0, Noise::default()).slowing(slowing), 20);
        let (slower, faster) = (of(0.05), of(-0.05));
        assert_eq!((slower.false_slower, slower.false_faster, slower.unclear), (20, 0, 0), "{slower:?}");
        assert_eq!((faster.false_slower, faster.false_faster, faster.unclear), (0, 20, 0), "{faster:?}");
    }

    #[test]
    fn a_noisy_device_says_so() {
        let report = report(4.0, Noise { instance_sd: 0.05, sample_sd: 0.05, ..Noise::default() }, 50);
        assert!(report.unclear > 25 && report.false_slower <= 2, "{report:?}");
        assert!(!report.planted[0].is_reliable());
        assert!(report.smallest_found.is_none_or(|least| least >= 0.05), "{:?}", report.smallest_found);
    }

    #[test]
    fn the_table_of_a_device_follows_from_its_reports() {
        let quiet = report(4.0, Noise::default(), 40);
        let text = describe_reports(std::slice::from_ref(&quiet));
        assert!(text.contains("f::c::f32 n=8") && text.contains("40 comparisons"), "{text}");
        let planted = quiet.planted.iter().fold((0, 0), |(found, tries), d| (found + d.found, tries + d.trials));
        assert!(
            planted.0 > 0 && text.contains(&format!("; {} of {} planted slowdowns found", planted.0, planted.1)),
            "{text}"
        );
        let table = table_of("test".into(), &[quiet]);
        assert_eq!(table.classes.len(), 1);
        assert!(table.classes[0].paired_sd > 0.0 && table.classes[0].from_us == 3.0, "{table:?}");
    }

    #[test]
    fn a_report_is_a_record() {
        let report = NoiseReport { ratios: Vec::new(), ..report(4.0, Noise::default(), 2) };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<NoiseReport>(&text).unwrap(), report);
    }
}
