//! What the commands measure: candidates, dtypes and shapes of a gate, and the devices for them.

use super::{Failure, Workplace};
use crate::check::Subject;
use crate::check::outcome::Check;
use crate::core::dtype::DType;
use crate::core::seed::DEFAULT_SEED;
use crate::core::seed::parse as parse_seed;
use crate::core::shape::{Point, parse};
use crate::core::suite::Suite;
use crate::device::fingerprint::Fingerprint;
use crate::device::{Device, DeviceKind};
use crate::harness::arguments::{DeviceChoice, Options, only_dtypes};
use crate::harness::devices::Devices;
use crate::harness::lane::Lanes;
use crate::harness::progress::{Progress, Quiet};
use crate::harness::terminal::note;
use crate::harness::trial::{Trial, has_hits, trials_of};
use crate::measure::shapes::Limits;
use crate::report::summary::Summary;
use clap::Args;
use std::collections::BTreeSet;
use std::ops::Range;

/// Which cases to measure.
#[derive(Args)]
pub struct Selection {
    /// Only trials whose name contains one of these: gelu, gelu::cuda, ::bf16::
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    /// Leave out trials whose name contains this: with softmax, log_; may be given several times
    #[arg(long, value_name = "FILTER")]
    skip: Vec<String>,
    /// Where kernels run: cpu, cuda or cuda:N; with cpu they are left out
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// Run only these dtypes
    #[arg(long = "dtype", value_name = "DTYPE,…", help = only_dtypes(), value_delimiter = ',')]
    dtypes: Vec<DType>,
    /// Only this shape instead of those that the operator lists: rows=8192,cols=4096; may be given several times
    #[arg(long = "shape", value_name = "AXIS=N,…")]
    shapes: Vec<String>,
    /// So many random shapes of each operator instead, log-uniform around those that it lists, ragged ones among them: what
    /// nobody has tuned for. Every candidate gets the same; another --seed draws others
    #[arg(long, value_name = "N", conflicts_with = "shapes", value_parser = clap::value_parser!(u32).range(1..))]
    random: Option<u32>,
    /// Lessons too: the steps on the way to the best candidate
    #[arg(long)]
    lessons: bool,
    /// The seed of the inputs and of the order of measurements
    #[arg(long, value_name = "N", value_parser = parse_seed, default_value_t = DEFAULT_SEED, hide_default_value = true)]
    pub seed: u64,
    #[command(flatten)]
    /// Whether progress is shown.
    pub quiet: Quiet,
}

/// What to measure now.
pub struct Selected<'a> {
    /// The trial that the gate makes of it.
    pub trial: &'a Trial,
    /// The suite that it is from.
    pub suite: &'a Suite,
    /// What the trial is about.
    pub subject: Subject<'a>,
    /// Where it runs.
    pub device: &'a dyn Device,
    /// The shapes that were asked for; empty: those that the operator lists.
    pub points: &'a [Point],
    /// Steps are shapes; those that were left out count when all of the subject is done.
    pub progress: &'a Progress,
    /// The steps of the subject.
    pub steps: Range<usize>,
}

impl Selected<'_> {
    /// Shows that so much of the subject is done, from 0 to 1.
    pub fn reach(&self, part: f64) {
        self.progress.reach(self.steps.start + (part.clamp(0.0, 1.0) * self.steps.len() as f64) as usize);
    }
}

impl Selection {
    /// The dtypes that were asked for; empty: all.
    pub fn dtypes(&self) -> &[DType] {
        &self.dtypes
    }

    /// What a command line needs beside a candidate, a dtype and a shape to select the same.
    pub fn repeated(&self) -> Vec<String> {
        let device = self.device.map(|choice| match choice.kind {
            DeviceKind::Cuda => format!("cuda:{}", choice.ordinal),
            kind => kind.to_string(),
        });
        let device = device.into_iter().flat_map(|device| ["--device".into(), device]);
        let lessons = self.lessons.then(|| "--lessons".into());
        device.chain(lessons).chain(["--seed".into(), self.seed.to_string(), "--quiet".into()]).collect()
    }

    /// Calls `measure` for each selected subject whose device is there, one after the other and alone on the machine.
    /// Returns an empty summary of this run that knows the devices.
    pub fn each(
        &self,
        workplace: &Workplace<'_>,
        measure: impl FnMut(&Selected<'_>) -> Result<(), Failure>,
    ) -> Result<Summary, Failure> {
        self.each_of(workplace, self.select(workplace.suites)?, measure)
    }

    /// The same for trials that were selected otherwise.
    pub fn each_of(
        &self,
        workplace: &Workplace<'_>,
        selected: Vec<(Trial, Vec<Point>)>,
        mut measure: impl FnMut(&Selected<'_>) -> Result<(), Failure>,
    ) -> Result<Summary, Failure> {
        let suites = workplace.suites;
        // The simulator tells no time.
        let (devices, lanes) = (Devices::new(self.device, self.device.is_none()), Lanes::default());
        let mut summary = Summary::new(workplace.project.describe_run(self.seed));
        let (mut absent, mut used) = (BTreeSet::new(), false);
        let shapes = |(trial, points): &(Trial, Vec<Point>)| match points.len() {
            0 => trial.subject(suites).operator.perf_shapes().len(),
            asked => asked,
        };
        let progress = Progress::of(selected.iter().map(shapes).sum(), self.quiet);
        let mut steps = 0;
        for one @ (trial, points) in &selected {
            progress.say(&trial.name);
            match devices.for_kind(trial.kind) {
                Ok(device) => {
                    let _turn = lanes.enter(Check::Perf, trial.kind).map_err(Failure::Input)?;
                    summary.add_device(device.fingerprint());
                    let (suite, subject) = (&suites[trial.suite], trial.subject(suites));
                    let (progress, steps) = (&progress, steps..steps + shapes(one));
                    measure(&Selected { trial, suite, subject, device, points, progress, steps })?;
                    used = true;
                }
                Err(why) => drop(absent.insert(format!("{} candidates left out: {why}", trial.kind))),
            }
            steps += shapes(one);
            progress.reach(steps);
        }
        absent.iter().for_each(|why| note(format_args!("{why}")));
        if used { Ok(summary) } else { Err(Failure::Missing("no device for any selected candidate".into())) }
    }

    /// The timed trials that were asked for, with the shapes that were; no device is needed to know them.
    pub fn select(&self, suites: &[Suite]) -> Result<Vec<(Trial, Vec<Point>)>, Failure> {
        let of_timed = |why| format!("of the timed candidates: {why}; lessons need --lessons");
        self.select_by(suites, Check::Perf, of_timed).map_err(Failure::Input)
    }

    /// The candidates that were asked for, whether or not the gate times them: a trial each.
    pub fn select_any(&self, suites: &[Suite]) -> Result<Vec<(Trial, Vec<Point>)>, Failure> {
        self.select_by(suites, Check::Correctness, |why| why).map_err(Failure::Input)
    }

    fn select_by(
        &self,
        suites: &[Suite],
        check: Check,
        no_hit: impl FnOnce(String) -> String,
    ) -> Result<Vec<(Trial, Vec<Point>)>, String> {
        let (filters, skip, dtypes) = (self.filters.clone(), self.skip.clone(), self.dtypes.clone());
        let options = Options { filters, skip, dtypes, lessons: self.lessons, ..Options::default() };
        // A shape that is asked for need not be one that the operator lists.
        let mut all = trials_of(suites, |_| true)?;
        all.retain(|trial| trial.check == check);
        has_hits(&all, &options).map_err(no_hit)?;
        all.retain(|trial| trial.is_selected(&options));
        if self.shapes.is_empty() {
            all = listed(suites, all, check)?;
        }
        if self.shapes.is_empty() && self.random.is_none() {
            return Ok(all.into_iter().map(|trial| (trial, Vec::new())).collect());
        }
        let parsed = |trial: &Trial, shape: &str| parse(trial.subject(suites).operator.axes(), shape);
        // A shape may be meant for one operator of several, but it must be meant for one.
        for shape in &self.shapes {
            let mut fits = all.iter().map(|trial| parsed(trial, shape));
            if let Some(Err(why)) = fits.next()
                && !fits.any(|point| point.is_ok())
            {
                return Err(why);
            }
        }
        let named = |trial: &Trial| self.shapes.iter().filter_map(|shape| parsed(trial, shape).ok()).collect();
        let drawn = |trial: &Trial, count| {
            let limits = Limits::of(trial.kind == DeviceKind::Cpu);
            limits.draw_many(trial.subject(suites).operator, trial.dtype, count as usize, self.seed)
        };
        let points = |trial: &Trial| self.random.map_or_else(|| named(trial), |count| drawn(trial, count));
        let asked = all.into_iter().map(|trial| (points(&trial), trial)).map(|(points, trial)| (trial, points));
        Ok(asked.filter(|(_, points): &(Trial, Vec<Point>)| !points.is_empty()).collect())
    }
}

/// Trials at the shapes that their operators list; those of operators that list none cannot be timed.
fn listed(suites: &[Suite], all: Vec<Trial>, check: Check) -> Result<Vec<Trial>, String> {
    let lists = |trial: &Trial| check != Check::Perf || !trial.subject(suites).operator.perf_shapes().is_empty();
    let (timed, others): (Vec<Trial>, Vec<Trial>) = all.into_iter().partition(lists);
    match others.first() {
        Some(other) if timed.is_empty() => {
            let name = other.subject(suites).operator.name();
            Err(format!(
                "{name} lists no shapes to time: list some by `.perf([…])`, or ask for one by --shape AXIS=N,…"
            ))
        }
        _ => Ok(timed),
    }
}

/// `NVIDIA H200 (nvidia-h200-132)`.
pub fn describe_device(fingerprint: &Fingerprint) -> String {
    format!("{} ({})", fingerprint.name, fingerprint.key())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::Cpu;
    use crate::core::operator::Op;
    use clap::Parser;
    use rstest::rstest;

    crate::shape! { struct Vector { n: 1..=8 } }

    #[derive(Parser)]
    struct Asked {
        #[command(flatten)]
        selection: Selection,
    }

    #[rstest]
    #[case::listed(&["gelu"], Ok("gelu::c::f32::perf"))]
    #[case::one_of_them(&[], Ok("gelu::c::f32::perf"))]
    #[case::left_out(&["--shape", "n=3", "--skip", "gelu"], Ok("silu::c::f32::perf n=3"))]
    #[case::asked_for(&["silu", "--shape", "n=3"], Ok("silu::c::f32::perf n=3"))]
    #[case::drawn(&["gelu", "--random", "2"], Ok("gelu::c::f32::perf"))]
    #[case::drawn_around_nothing(&["silu", "--random", "2"], Err("silu lists no shapes to time"))]
    #[case::neither(&["silu"], Err("silu lists no shapes to time: list some by `.perf([…])`, or ask for one by --shape AXIS=N,…"))]
    #[case::unknown(&["tanh"], Err("of the timed candidates: no trial has a name with `tanh`"))]
    fn shapes_to_time_are_listed_or_asked_for(#[case] arguments: &[&str], #[case] expected: Result<&str, &str>) {
        let op = |name: &str| Op::<Vector>::new(name).input("x", |s| [s.n]).output("y", |s| [s.n]);
        let cpu = || Cpu::new::<f32>(|_: &Vector, _, _| {});
        let suites = [
            Suite::of(op("gelu").perf([Vector { n: 4 }])).candidate("c", cpu()).into(),
            Suite::of(op("silu")).candidate("c", cpu()).into(),
        ];
        let asked = Asked::try_parse_from([&["bench"], arguments].concat()).unwrap();
        match (asked.selection.select(&suites), expected) {
            (Ok(found), Ok(expected)) => {
                assert_eq!(found.len(), 1);
                assert!(expected.starts_with(&found[0].0.name), "{}", found[0].0.name);
                assert_eq!(found[0].1.is_empty(), !arguments.contains(&"--shape") && !arguments.contains(&"--random"));
            }
            (Err(Failure::Input(why)), Err(expected)) => assert!(why.starts_with(expected), "{why}"),
            (found, _) => panic!("{:?}", found.map(|found| found.len()).map_err(|_| "another failure")),
        }
    }
}
