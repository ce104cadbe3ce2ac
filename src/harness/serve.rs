//! A gate as a server of the measurement protocol: it offers its timed candidates to whoever measures two builds side by
//! side, or its own beside them.

use super::arguments::{Options, Requirement};
use super::devices::Devices;
use super::project::Project;
use super::terminal::note;
use super::trial::Trial;
use crate::check::case::Case;
use crate::check::judge::Rejection;
use crate::check::outcome::Check;
use crate::check::perf::{self, PerfSettings};
use crate::check::verify::verified;
use crate::check::{Context, Subject};
use crate::core::distribution::Distribution;
use crate::core::operator::Operator;
use crate::core::shape::{describe, parse};
use crate::core::suite::Suite;
use crate::core::tensor::Tensor;
use crate::device::{Device, DeviceKind};
use crate::measure::inputs::draw;
use crate::protocol::message::{CaseRequest, DeviceNote, Hello, Offer, VERSION};
use crate::protocol::server::{Host, Refusal, Served, answers, serve};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// A case is one case: it is not cut off here, the other side has its deadlines.
const CASE_BUDGET: Duration = Duration::from_secs(3600);

/// Answers until it is told to end.
///
/// # Errors
/// If the standard streams break.
pub fn run(project: &Project, suites: &[Suite], trials: &[Trial], options: &Options) -> io::Result<()> {
    let devices = Devices::new(options.device, options.requires(Requirement::Cuda)).of_project(&project.folder);
    let trials = trials.iter().filter(|trial| trial.check == Check::Perf).collect();
    let gate = ServingGate { project, suites, trials, devices, options };
    serve(&gate, io::stdin().lock(), answers()?)
}

struct ServingGate<'a> {
    project: &'a Project,
    suites: &'a [Suite],
    trials: Vec<&'a Trial>,
    devices: Devices,
    options: &'a Options,
}

impl ServingGate<'_> {
    /// The device of a kind, if it tells the time.
    fn device(&self, kind: DeviceKind) -> Result<&dyn Device, String> {
        let device = self.devices.for_kind(kind)?;
        if device.capacity().timed {
            Ok(device)
        } else {
            Err(format!("times on the {} device mean nothing", device.kind()))
        }
    }

    fn find(&self, request: &CaseRequest) -> Option<&Trial> {
        let CaseRequest { operator, candidate, dtype, .. } = request;
        let name = format!("{operator}::{candidate}::{dtype}::{}", Check::Perf.name());
        self.trials.iter().copied().find(|trial| trial.name == name)
    }
}

impl Host for ServingGate<'_> {
    fn hello(&self) -> Hello {
        let kinds = self.trials.iter().map(|trial| (trial.kind, self.device(trial.kind)));
        let kinds: BTreeMap<DeviceKind, Result<&dyn Device, String>> = kinds.collect();
        let mut devices = Vec::new();
        for (kind, device) in &kinds {
            match device {
                Ok(device) => {
                    let fingerprint = device.fingerprint().clone();
                    let name = fingerprint.name.clone();
                    devices.push(DeviceNote { kind: device.kind(), name, fingerprint: Some(fingerprint) });
                }
                Err(why) => note(format_args!("{kind} candidates are not offered: {why}")),
            }
        }
        let mut offers: Vec<Offer> = Vec::new();
        for trial in self.trials.iter().filter(|trial| matches!(kinds.get(&trial.kind), Some(Ok(_)))) {
            let Subject { operator, candidate, dtype } = trial.subject(self.suites);
            let same = |offer: &&mut Offer| offer.operator == operator.name() && offer.candidate == candidate.name;
            match offers.iter_mut().find(same) {
                Some(offer) => offer.dtypes.push(dtype),
                None => offers.push(Offer {
                    operator: operator.name().into(),
                    candidate: candidate.name.clone(),
                    device: trial.kind,
                    dtypes: vec![dtype],
                    shapes: operator.perf_shapes().iter().map(|point| describe(operator.axes(), point)).collect(),
                }),
            }
        }
        let run = self.project.describe_run(self.options.run_seed());
        let revision = run.revision.map_or_else(String::new, |revision| format!(", revision {revision}"));
        let about = format!("kernelgate {}{revision}", run.kernelgate);
        Hello { protocol: VERSION, name: run.package, about, devices, offers }
    }

    fn prepare(&self, request: &CaseRequest, inputs: Option<Vec<Tensor>>) -> Result<Served<'_>, Refusal> {
        let trial = self.find(request).ok_or_else(|| {
            Refusal::Unsupported(format!("no {}::{} in {}", request.operator, request.candidate, request.dtype))
        })?;
        let device = self.device(trial.kind).map_err(Refusal::Unsupported)?;
        let subject = trial.subject(self.suites);
        let point = parse(subject.operator.axes(), &request.shape).map_err(Refusal::Unsupported)?;
        let settings = PerfSettings::of(device.kind());
        let most = perf::limits(device.capacity(), &settings);
        if let Some(why) = perf::too_large(&subject, &point, &most) {
            return Err(Refusal::Unsupported(why));
        }
        let inputs = match inputs {
            Some(inputs) => fitting(subject.operator, &point, request, inputs)?,
            None => draw(subject.operator, &point, request.dtype, request.seed),
        };
        let case = Case::new(point, Distribution::Normal, request.seed);
        let context = Context::new(device, request.seed, CASE_BUDGET);
        let (problem, _) = verified(&context, &subject, &case, &inputs).map_err(|rejection| match rejection {
            Rejection::Unsupported(why) => Refusal::Unsupported(why),
            Rejection::Failed(failure) | Rejection::Lost(failure) => {
                Refusal::Failed(format!("{}: {}", failure.check, failure.text.trim_end()))
            }
        })?;
        let planted = self.options.plant.as_ref().map_or(0.0, |plant| plant.share_of(&trial.name));
        Ok(Served { problem, planted })
    }

    fn is_spent(&self) -> bool {
        self.trials.iter().any(|trial| self.device(trial.kind).is_ok_and(Device::is_lost))
    }
}

/// Inputs from outside must be those of the operator.
fn fitting(
    operator: &dyn Operator,
    point: &[usize],
    request: &CaseRequest,
    inputs: Vec<Tensor>,
) -> Result<Vec<Tensor>, Refusal> {
    let expected = operator.inputs().iter().enumerate();
    let expected: Vec<_> =
        expected.map(|(i, port)| (port.dtype(request.dtype), operator.input_dims(i, point))).collect();
    let got: Vec<_> = inputs.iter().map(|tensor| (tensor.dtype(), tensor.dims().to_vec())).collect();
    if got == expected {
        Ok(inputs)
    } else {
        Err(Refusal::Failed(format!("the inputs are {got:?}, {} takes {expected:?}", operator.name())))
    }
}
