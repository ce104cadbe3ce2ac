//! What is judged, and what is found, depends on what is declared and not on the clock: every fixture is judged twice, the
//! second time by a device that takes its time before each case.

use crate::cuda::Fixture;
use kernelgate::check::property::{self, Limits, Settings};
use kernelgate::check::{Context, Subject, correctness};
use kernelgate::core::candidate::{Body, Candidate};
use kernelgate::core::suite::Suite;
use kernelgate::device::cpu::CpuDevice;
use kernelgate::device::fault::Fault;
use kernelgate::device::fingerprint::Fingerprint;
use kernelgate::device::sim::SimDevice;
use kernelgate::device::{Capacity, Device, Job, Problem};
use kernelgate::prelude::*;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The work of a trial in a gate of some hundred candidates.
const WORK: f64 = 2e6;

/// What a busy machine adds to a case.
const DELAY: Duration = Duration::from_millis(4);

/// Of the CUDA fixtures every so many are judged: each of them takes a second or two in the simulator, twice.
const EVERY: usize = 8;

/// By count alone: what a shape is shrunk to within a time depends on the machine, and so may the check that it fails.
const SHRINKING: Limits = Limits { steps: 12, time: Duration::from_secs(3600) };

/// Cases in the order in which they ran: point, offset, and how each input begins.
type Cases = Vec<(Vec<usize>, usize, Vec<u8>)>;

/// A device that notes every case that it is given.
struct Noting {
    device: Box<dyn Device>,
    delay: Duration,
    cases: Mutex<Cases>,
}

impl Device for Noting {
    fn fingerprint(&self) -> &Fingerprint {
        self.device.fingerprint()
    }
    fn runs(&self, body: &Body) -> bool {
        self.device.runs(body)
    }
    fn prepare(&self, job: &Job<'_>) -> Result<Box<dyn Problem + '_>, Fault> {
        std::thread::sleep(self.delay);
        let start = job.inputs.iter().flat_map(|input| input.bytes().iter().copied().take(16)).collect();
        let case = (job.point.to_vec(), job.offset_bytes, start);
        self.cases.lock().unwrap_or_else(PoisonError::into_inner).push(case);
        self.device.prepare(job)
    }
    fn capacity(&self) -> Capacity {
        self.device.capacity()
    }
    fn search_capacity(&self) -> Capacity {
        self.device.search_capacity()
    }
    fn repeats(&self) -> usize {
        self.device.repeats()
    }
}

/// Judges fixtures on an idle and on a busy machine.
pub fn same_on_a_busy_machine(cuda: &[Fixture]) -> Result<(), String> {
    for fixture in crate::cpu::fixtures() {
        let suite = crate::suite(fixture.operator)?;
        agree(fixture.name, suite, [(fixture.make)(), (fixture.make)()], || Box::new(CpuDevice::new()))?;
    }
    let mut judged = 0;
    for fixture in cuda.iter().filter(|fixture| crate::sim::available(fixture).is_ok()).step_by(EVERY) {
        let twins = [fixture.candidate()?, fixture.candidate()?];
        agree(fixture.name(), crate::suite(&fixture.operator)?, twins, || Box::new(SimDevice::new(None)))?;
        judged += 1;
    }
    if crate::sim::is_required() && judged == 0 {
        return Err("no CUDA fixture was judged".into());
    }
    Ok(())
}

/// Whose own threads race: that it is found does not depend on the machine, the case that shows it does.
const RACING: &str = "update_lost_between_threads";

/// Two of a candidate, since one may keep state from its first judgement to its second.
fn agree(name: &str, suite: &Suite, twins: [Candidate; 2], open: impl Fn() -> Box<dyn Device>) -> Result<(), String> {
    let dtype = twins[0].traits.dtypes[0];
    let [idle, busy] = [(&twins[0], Duration::ZERO), (&twins[1], DELAY)]
        .map(|(candidate, delay)| judge(suite, candidate, dtype, open(), delay));
    if name == RACING {
        let is_found = |(found, _): &(Vec<Option<String>>, Cases)| found.iter().any(Option::is_some);
        return if is_found(&idle) && is_found(&busy) { Ok(()) } else { Err(format!("{name}: not found")) };
    }
    if idle.0 != busy.0 {
        return Err(format!("{name}: {:?} on an idle machine, {:?} on a busy one", idle.0, busy.0));
    }
    if idle.1.len() != busy.1.len() {
        return Err(format!("{name}: {} cases on an idle machine, {} on a busy one", idle.1.len(), busy.1.len()));
    }
    match idle.1.iter().zip(&busy.1).position(|(a, b)| a != b) {
        Some(at) => Err(format!("{name}: case {at} is {:?} when idle and {:?} when busy", idle.1[at].0, busy.1[at].0)),
        None => Ok(()),
    }
}

/// What each check found, and on which cases.
fn judge(
    suite: &Suite,
    candidate: &Candidate,
    dtype: DType,
    device: Box<dyn Device>,
    delay: Duration,
) -> (Vec<Option<String>>, Cases) {
    let device = Noting { device, delay, cases: Mutex::default() };
    let subject = Subject { operator: suite.operator.as_ref(), candidate, dtype };
    let context = Context::without_deadline(&device, 1).planning(WORK, 0.0);
    let settings = Settings { cases: 16, regressions: None, shrinking: SHRINKING };
    let outcomes = [correctness::run(&context, &subject), property::run(&context, &subject, &settings)];
    let found = outcomes.map(|outcome| outcome.failure.map(|failure| failure.check));
    (found.into(), device.cases.into_inner().unwrap_or_else(PoisonError::into_inner))
}
