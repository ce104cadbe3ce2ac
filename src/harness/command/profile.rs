//! `profile`: where the time of candidates goes, what binds it, what would help, and what that is worth when it is tried.

use super::selection::{Selected, Selection};
use super::{Failure, Workplace, print};
use crate::calibrate::Calibration;
use crate::check::{Subject, armed};
use crate::core::shape::{Point, describe};
use crate::core::suite::Suite;
use crate::device::fingerprint::Fingerprint;
use crate::device::trace::{self, Timeline};
use crate::device::{Device, Heat, Poison};
use crate::harness::project::Project;
use crate::harness::terminal::note;
use crate::measure::inputs::footprint_bytes;
use crate::measure::session::Contestant;
use crate::predict::{Fitted, Limits};
use crate::profile::hints::{Idea, apply};
use crate::profile::{Against, Identity, Knowledge, Pairs, ProfileRun, chrome, known, record, table};
use crate::report::summary::Summary;
use clap::Args;
use std::path::{Path, PathBuf};

/// What every kind of profile can be asked.
#[derive(Args)]
pub struct Options {
    /// Pairs of runs, one with tracing and one without
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..=10_000))]
    pub repeats: u32,
    /// Write a trace that chrome://tracing and ui.perfetto.dev open; of several cases, numbered files
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
    /// Try every hint that the catalogue has something for: what it gains beside what was predicted
    #[arg(long)]
    pub apply: bool,
    /// The calibration to measure against [default: this machine's own, else the one that the project keeps]
    #[arg(long, value_name = "PATH")]
    pub calibration: Option<PathBuf>,
    /// The fitted families by which hints predict [default: as for --calibration]
    #[arg(long, value_name = "PATH")]
    pub fit: Option<PathBuf>,
    /// Print the summary as JSON; the tables go to stderr
    #[arg(long)]
    pub json: bool,
    /// Add the profiles to this summary, or begin it
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

/// Arguments of `profile`.
#[derive(Args)]
pub struct Profile {
    #[command(flatten)]
    selection: Selection,
    /// Compare with this candidate of the operator: time, launches, memory, outputs
    #[arg(long, value_name = "CANDIDATE")]
    against: Option<String>,
    /// Keep the data in the caches between launches
    #[arg(long)]
    hot: bool,
    #[command(flatten)]
    options: Options,
}

/// What is known of a device: its calibration and its fitted families. A file that was named must be readable.
///
/// # Errors
/// If a file that was asked for cannot be read.
pub fn knowledge<'a>(
    options: &Options,
    project: &Project,
    fingerprint: &Fingerprint,
    suites: &'a [Suite],
) -> Result<Knowledge<'a>, Failure> {
    let path = options.calibration.clone().unwrap_or_else(|| project.newest("calibration", fingerprint));
    let limits = Calibration::read(&path).and_then(|calibration| Limits::of(&calibration));
    let limits = match limits {
        Ok(limits) => Some(limits),
        Err(why) if options.calibration.is_some() => return Err(Failure::Input(why)),
        Err(_) => None,
    };
    let path = options.fit.clone().unwrap_or_else(|| project.newest("prediction", fingerprint));
    let fitted = match Fitted::read(&path) {
        Ok(fitted) => Some(fitted),
        Err(why) if options.fit.is_some() => return Err(Failure::Input(why)),
        Err(_) => None,
    };
    Ok(Knowledge { suites, limits, fitted })
}

impl Options {
    /// Tries hints if that was asked for, and puts what came of them into the record.
    pub fn tried(
        &self,
        run: &mut ProfileRun,
        ideas: &mut [Idea],
        device: &dyn Device,
        known: &Knowledge<'_>,
        seed: u64,
    ) {
        if self.apply {
            apply(ideas, device, known, seed, &mut |why| note(format_args!("not applied: {why}")));
            run.hints = ideas.iter().map(|idea| idea.hint.clone()).collect();
        }
    }

    /// Writes the trace if one was asked for; `number` is that of the case, from 1.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep_trace(&self, timeline: &Timeline, knowledge: &Knowledge<'_>, number: usize) -> Result<(), Failure> {
        let Some(path) = &self.trace else { return Ok(()) };
        let path = numbered(path, number);
        let text = chrome::trace(timeline, &known(timeline, knowledge));
        std::fs::write(&path, &text).map_err(|e| Failure::Input(format!("{}: cannot write: {e}", path.display())))?;
        note(format_args!("trace: {} ({:.1} MB); ui.perfetto.dev opens it", path.display(), text.len() as f64 * 1e-6));
        Ok(())
    }

    /// Shows a profile and adds it to the summary.
    ///
    /// # Errors
    /// If the summary cannot be written.
    pub fn keep(&self, run: ProfileRun, summary: &mut Summary) -> Result<(), Failure> {
        let text = table(&run);
        if self.json {
            eprint!("{text}");
        } else {
            print(&text)?;
        }
        crate::profile::merge(&mut summary.profiles, vec![run]);
        // After each: what was measured outlives whatever ends this process.
        self.out.as_ref().map_or(Ok(()), |out| summary.write_into(out)).map_err(Failure::Input)
    }

    /// Prints the summary if it was asked for as JSON.
    ///
    /// # Errors
    /// If stdout cannot be written to.
    pub fn finish(&self, summary: &Summary) -> Result<(), Failure> {
        if self.json { print(&summary.to_json()) } else { Ok(()) }
    }
}

/// `trace.json`, `trace-2.json`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    if number <= 1 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map_or_else(String::new, |extension| format!(".{}", extension.to_string_lossy()));
    path.with_file_name(format!("{stem}-{number}{extension}"))
}

/// What a launch is called among the runs of a timeline.
const LAUNCH: &str = "launch";

/// One candidate at one shape, ready to be run.
struct Side<'d> {
    contestant: Contestant<'d>,
    bytes: usize,
}

impl<'d> Side<'d> {
    fn of(
        device: &'d dyn Device,
        subject: &Subject<'_>,
        point: &Point,
        heat: Heat,
        seed: u64,
    ) -> Result<Self, Failure> {
        let contestant = armed(device, subject, point, heat, seed).map_err(Failure::Input)?;
        let workspace = subject.candidate.body.workspace_bytes(point);
        Ok(Side { contestant, bytes: footprint_bytes(subject.operator, point, subject.dtype) + workspace })
    }

    /// Runs pairs, and returns what was recorded with the times.
    fn record(&mut self, device: &dyn Device, repeats: u32, seed: u64) -> Result<(Timeline, Pairs), Failure> {
        let fault = |fault| Failure::Input(format!("{fault}"));
        let recording = device.recording();
        recording.during(|| trace::held("inputs, outputs, workspace", self.bytes));
        let problem = self.contestant.problem();
        // The first samples find cold code.
        for _ in 0..3 {
            problem.sample(0).map_err(fault)?;
        }
        let [pairs] = Pairs::take(repeats as usize, seed, |traced| {
            let sample = if traced { recording.during(|| problem.sample(0)) } else { problem.sample(0) };
            sample.map(|sample| [sample.launch_us]).map_err(fault)
        })?;
        Ok((recording.end(), pairs))
    }
}

impl Profile {
    /// Profiles case by case, printing each as soon as it is known.
    ///
    /// # Errors
    /// What could not be selected, prepared, or run.
    pub fn run(self, workplace: &Workplace<'_>) -> Result<(), Failure> {
        let mut number = 0;
        let mut kept: Option<Summary> = None;
        let selected = self.selection.select_any(workplace.suites)?;
        let of_run = self.selection.each_of(workplace, selected, |selected| {
            let points =
                if selected.points.is_empty() { selected.subject.operator.perf_shapes() } else { selected.points };
            if points.is_empty() {
                let name = selected.subject.operator.name();
                return Err(Failure::Input(format!(
                    "{name}: the operator lists no shape to time: give one by --shape"
                )));
            }
            let fingerprint = selected.device.fingerprint();
            let knowledge = knowledge(&self.options, workplace.project, fingerprint, workplace.suites)?;
            let run = workplace.project.describe_run(self.selection.seed);
            let summary = kept.get_or_insert_with(|| Summary::new(run));
            summary.add_device(fingerprint);
            for point in points.iter().filter(|point| selected.subject.objection(point).is_none()) {
                number += 1;
                let run = self.case(selected, point, &knowledge, number)?;
                self.options.keep(run, summary)?;
            }
            Ok(())
        })?;
        self.options.finish(&kept.unwrap_or(of_run))
    }

    fn case(
        &self,
        selected: &Selected<'_>,
        point: &Point,
        knowledge: &Knowledge<'_>,
        number: usize,
    ) -> Result<ProfileRun, Failure> {
        let (device, subject, seed) = (selected.device, &selected.subject, self.selection.seed);
        let heat = if self.hot { Heat::Hot } else { Heat::Cold };
        let mut side = Side::of(device, subject, point, heat, seed)?;
        let (timeline, pairs) = side.record(device, self.options.repeats, seed)?;
        let identity = |subject: &Subject<'_>| Identity {
            subject: format!("{} {}", subject.operator.name(), describe(subject.operator.axes(), point)),
            way: subject.candidate.name.clone(),
            device: device.fingerprint().key(),
            dtype: subject.dtype.name().into(),
        };
        let recorded = record(&timeline, LAUNCH, &pairs, knowledge, &identity(subject));
        let (mut run, mut ideas) = recorded.map_err(Failure::Input)?;
        if let Some(other) = &self.against {
            let candidate = selected.suite.candidates.iter().find(|candidate| {
                candidate.name == *other && candidate.traits.computes(subject.dtype) && device.runs(&candidate.body)
            });
            let candidate = candidate.ok_or_else(|| {
                let (operator, dtype) = (subject.operator.name(), subject.dtype);
                Failure::Input(format!("--against {other}: {operator} has no such candidate in {dtype} on this device"))
            })?;
            let other = Subject { candidate, ..*subject };
            let mut beside = Side::of(device, &other, point, heat, seed)?;
            let (timeline, pairs) = beside.record(device, self.options.repeats, seed)?;
            let recorded = record(&timeline, LAUNCH, &pairs, knowledge, &identity(&other));
            let (theirs, _) = recorded.map_err(Failure::Input)?;
            run.against = Some(compared(&run, &theirs, differences(&mut side, &mut beside)?, None));
        }
        self.options.tried(&mut run, &mut ideas, device, knowledge, seed);
        self.options.keep_trace(&timeline, knowledge, number)?;
        Ok(run)
    }
}

/// One way beside another; the differences are the largest of the outputs, and the same over the largest output.
pub fn compared(
    ours: &ProfileRun,
    theirs: &ProfileRun,
    [largest_difference, relative_difference]: [f64; 2],
    perplexity: Option<[f64; 2]>,
) -> Against {
    Against {
        way: theirs.way.clone(),
        untraced_us: theirs.untraced_us,
        launches: [ours.launches(), theirs.launches()],
        peak_bytes: [ours.memory.peak_bytes, theirs.memory.peak_bytes],
        largest_difference: Some(largest_difference).filter(|difference| difference.is_finite()),
        relative_difference: Some(relative_difference).filter(|difference| difference.is_finite()),
        perplexity,
    }
}

/// How far the outputs of both are apart on the same inputs.
fn differences(ours: &mut Side<'_>, theirs: &mut Side<'_>) -> Result<[f64; 2], Failure> {
    let outputs = |side: &mut Side<'_>| side.contestant.problem().run(Poison::Nan);
    let fault = |fault| Failure::Input(format!("{fault}"));
    let (ours, theirs) = (outputs(ours).map_err(fault)?, outputs(theirs).map_err(fault)?);
    let pairs = ours.iter().zip(&theirs).map(|(ours, theirs)| (ours.to_f64(), theirs.to_f64()));
    Ok(pairs.fold([0.0, 0.0], |sums, (ours, theirs)| {
        let [difference, relative] = apart(&ours, &theirs);
        [f64::max(sums[0], difference), f64::max(sums[1], relative)]
    }))
}

/// The largest difference of two lists, and the same over the largest value of the second. What stands on one side alone
/// (a NaN, an infinity) is infinitely far.
pub fn apart(ours: &[f64], theirs: &[f64]) -> [f64; 2] {
    let difference = |(a, b): (&f64, &f64)| {
        let same = a == b || (a.is_nan() && b.is_nan());
        let difference = if same { 0.0 } else { (a - b).abs() };
        if difference.is_nan() { f64::INFINITY } else { difference }
    };
    let most = ours.iter().zip(theirs).map(difference).fold(0.0, f64::max);
    let largest = theirs.iter().filter(|value| value.is_finite()).fold(0.0f64, |most, value| most.max(value.abs()));
    [most, if most == 0.0 { 0.0 } else { most / largest.max(f64::MIN_POSITIVE) }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_several_cases_are_numbered() {
        let path = Path::new("a/trace.json");
        assert_eq!([1, 2].map(|n| numbered(path, n)), ["a/trace.json", "a/trace-2.json"].map(PathBuf::from));
    }

    #[test]
    fn a_nan_on_one_side_is_no_agreement() {
        assert_eq!(apart(&[1.0, -2.5], &[1.0, -2.0]), [0.5, 0.25]);
        assert_eq!(apart(&[f64::NAN, f64::INFINITY], &[f64::NAN, f64::INFINITY]), [0.0, 0.0]);
        assert_eq!(apart(&[f64::NAN, 1.0], &[1.0, 1.0])[0], f64::INFINITY);
        assert_eq!(apart(&[f64::INFINITY, 1.0], &[1.0, 1.0])[0], f64::INFINITY);
    }
}
