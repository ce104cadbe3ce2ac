//! `profile`: where the time of candidates goes, what binds it, what would help, and what that is worth when it is tried.

mod beside;
mod counters;
mod foreseen;
mod options;

pub use beside::{apart, compared};
pub use counters::plain_command;
pub use options::{Options, knowledge};

use super::selection::{Selected, Selection};
use super::{FLAG, Failure, Workplace};
use crate::check::Subject;
use crate::check::armed::armed;
use crate::core::dtype::DType;
use crate::core::shape::{Point, describe};
use crate::device::trace::{self, Timeline};
use crate::device::{Device, DeviceKind, Heat, Poison};
use crate::measure::inputs::footprint_bytes;
use crate::measure::session::Contestant;
use crate::profile::{Clock, Identity, Knowledge, Pairs, record};
use crate::report::summary::Summary;
use clap::Args;
use counters::command_of;

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
    /// Say what can be said of kernels on a GPU that is not here, by its calibration: nvidia-h200-132
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["against", "apply", "ncu", "device"])]
    on: Option<String>,
    #[command(flatten)]
    options: Options,
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
        if let Some(on) = &self.on {
            return foreseen::run(&self.options, &self.selection, workplace, on);
        }
        self.options.survive_signals();
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
                self.case(selected, point, &knowledge, number, summary)?;
                selected.progress.step();
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
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        let (device, subject, seed) = (selected.device, &selected.subject, self.selection.seed);
        let shape = describe(subject.operator.axes(), point);
        let tell = |what: &str| selected.progress.tell(what);
        let name = format!("{}::{}::{}", subject.operator.name(), subject.candidate.name, subject.dtype);
        tell(&format!("{name} {shape}"));
        let heat = if self.hot { Heat::Hot } else { Heat::Cold };
        let mut side = Side::of(device, subject, point, heat, seed)?;
        let (timeline, pairs) = side.record(device, self.options.repeats, seed)?;
        let identity = |subject: &Subject<'_>| Identity {
            subject: format!("{} {shape}", subject.operator.name()),
            way: subject.candidate.name.clone(),
            device: device.fingerprint().key(),
            dtype: subject.dtype.name().into(),
            clock: if device.kind() == DeviceKind::Cpu { Clock::Run } else { Clock::Batch },
        };
        let recorded = record(&timeline, LAUNCH, &pairs, knowledge, &identity(subject));
        let (mut run, ideas) = recorded.map_err(Failure::Input)?;
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
        self.options.keep_trace(&timeline, knowledge, number)?;
        let command = || command_of(FLAG, self.alone(&name, subject.dtype, &shape));
        self.options.keep_and_go_on((run, ideas), (device, knowledge, seed), command, &tell, summary)
    }

    /// The arguments that profile one candidate at one shape, as often as it takes to see its kernels.
    fn alone(&self, name: &str, dtype: DType, shape: &str) -> Vec<String> {
        let mut words = vec![format!("{name}::"), "--dtype".into(), dtype.to_string(), "--shape".into(), shape.into()];
        words.extend(["--repeats".into(), "3".into()]);
        words.extend(self.hot.then(|| "--hot".into()));
        words.extend(self.selection.repeated());
        words
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
