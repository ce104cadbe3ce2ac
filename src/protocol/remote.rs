//! A case at a peer: prepared, run, armed and sampled by messages. To a session it is a problem like any other.

use super::folder::{self, Folder};
use super::message::{Answer, CaseRequest, Request, TensorFile};
use super::misconduct::Misconduct;
use super::peer::{Life, Peer};
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::core::shape::describe;
use crate::core::tensor::Tensor;
use crate::device::fault::Fault;
use crate::device::{Poison, Problem, Sample, TimingPlan};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The inputs of a case in files, which any number of peers read.
pub struct InputFiles {
    _folder: Folder,
    files: Vec<TensorFile>,
}

impl InputFiles {
    /// Writes the inputs of an operator.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(operator: &dyn Operator, inputs: &[Tensor]) -> Result<Self, Fault> {
        let fail = |e: std::io::Error| Fault::Peer(format!("gets no inputs: {e}"));
        let folder = Folder::new().map_err(fail)?;
        let write = |(port, tensor): (&crate::core::port::Port, &Tensor)| {
            let file = folder.file(port.name, tensor);
            folder::write(&file, tensor).map(|()| file)
        };
        let files = operator.inputs().iter().zip(inputs).map(write).collect::<Result<_, _>>().map_err(fail)?;
        Ok(InputFiles { _folder: folder, files })
    }
}

/// A case that a peer holds.
pub struct RemoteCase<'p> {
    peer: &'p Peer,
    life: Life,
    case: u64,
    outputs: Vec<TensorFile>,
    _folder: Option<Folder>,
}

/// What a peer is to compute, and by which of its ways.
#[derive(Clone, Copy)]
pub struct RemoteJob<'a> {
    /// The operator; the peer knows it by its name.
    pub operator: &'a dyn Operator,
    /// The name of the way.
    pub candidate: &'a str,
    /// The shape.
    pub point: &'a [usize],
    /// The dtype.
    pub dtype: DType,
    /// The seed of the inputs.
    pub seed: u64,
}

impl<'p> RemoteCase<'p> {
    /// Gives a peer a case with its inputs.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] when it does not compute such a case, [`Fault::Peer`] for all that it did wrong.
    pub fn prepare(peer: &'p Peer, job: &RemoteJob<'_>, inputs: &InputFiles) -> Result<Self, Fault> {
        let folder = Folder::new().map_err(|e| Fault::Peer(format!("has no room for outputs: {e}")))?;
        let ports = job.operator.outputs().iter().enumerate();
        let file = |(i, port): (usize, &crate::core::port::Port)| TensorFile {
            dtype: port.dtype(job.dtype),
            dims: job.operator.output_dims(i, job.point),
            name: port.name.into(),
            ..folder.file(&format!("{}.out", port.name), &Tensor::zeros(DType::F32, &[0]))
        };
        let outputs: Vec<TensorFile> = ports.map(file).collect();
        let request = CaseRequest {
            case: 0,
            operator: job.operator.name().into(),
            candidate: job.candidate.into(),
            dtype: job.dtype,
            shape: describe(job.operator.axes(), job.point),
            seed: job.seed,
            inputs: Some(inputs.files.clone()),
            outputs,
        };
        RemoteCase::open(peer, request, Some(folder))
    }

    /// Gives a gate a case whose inputs it draws itself and whose outputs it judges itself.
    ///
    /// # Errors
    /// As [`RemoteCase::prepare`].
    pub fn drawn_there(
        peer: &'p Peer,
        operator: &str,
        candidate: &str,
        dtype: DType,
        shape: &str,
        seed: u64,
    ) -> Result<Self, Fault> {
        let (operator, candidate, shape) = (operator.into(), candidate.into(), shape.into());
        let request = CaseRequest { case: 0, operator, candidate, dtype, shape, seed, inputs: None, outputs: vec![] };
        RemoteCase::open(peer, request, None)
    }

    fn open(peer: &'p Peer, request: CaseRequest, folder: Option<Folder>) -> Result<Self, Fault> {
        let (life, case) = peer.new_case()?;
        let outputs = request.outputs.clone();
        let remote = RemoteCase { peer, life, case, outputs, _folder: folder };
        let request = Request::Case(CaseRequest { case, ..request });
        match remote.ask(request.clone())? {
            Answer::Ready => Ok(remote),
            other => Err(remote.unexpected(&request, &other)),
        }
    }

    /// Runs it once.
    ///
    /// # Errors
    /// [`Fault::Peer`].
    pub fn run(&self) -> Result<Vec<Tensor>, Fault> {
        self.written(Request::Run { case: self.case })
    }

    /// Runs the batch of an instance once more: the outputs of its last launch.
    ///
    /// # Errors
    /// [`Fault::Peer`].
    pub fn replay(&self, instance: usize) -> Result<Vec<Tensor>, Fault> {
        self.written(Request::Replay { case: self.case, instance })
    }

    fn written(&self, request: Request) -> Result<Vec<Tensor>, Fault> {
        folder::clear(&self.outputs);
        match self.ask(request.clone())? {
            Answer::Written => folder::outputs(&self.outputs).map_err(|lie| self.peer.end(lie)),
            other => Err(self.unexpected(&request, &other)),
        }
    }

    fn arm(&self, plan: &TimingPlan) -> Result<usize, Fault> {
        let TimingPlan { heat, batch_us, instances, .. } = *plan;
        let request = Request::Arm { case: self.case, heat, batch_us, instances };
        match self.ask(request.clone())? {
            Answer::Armed { instances: armed } if (1..=instances.max(1)).contains(&armed) => Ok(armed),
            Answer::Armed { instances: armed } => {
                Err(self.peer.end(Misconduct::Impossible(format!("{armed} instances, {instances} were asked for"))))
            }
            other => Err(self.unexpected(&request, &other)),
        }
    }

    fn sample(&self, instance: usize) -> Result<Sample, Fault> {
        let request = Request::Sample { case: self.case, instance };
        let asked = Instant::now();
        match self.ask(request.clone())? {
            Answer::Sampled { launch_us, clock_mhz } => match believable(launch_us, asked.elapsed()) {
                Ok(launch_us) => Ok(Sample { launch_us, clock_mhz: clock_mhz.filter(|mhz| mhz.is_finite()) }),
                Err(said) => Err(self.peer.end(Misconduct::Impossible(format!("a launch took {said}")))),
            },
            other => Err(self.unexpected(&request, &other)),
        }
    }

    fn ask(&self, request: Request) -> Result<Answer, Fault> {
        match self.peer.ask(self.life, request)? {
            Answer::Unsupported { reason } => Err(Fault::Unsupported(reason)),
            Answer::Failed { reason, ends: true } => Err(self.peer.end(Misconduct::Ended(reason))),
            Answer::Failed { reason, ends: false } => Err(Fault::Peer(format!("failed: {reason}"))),
            answer => Ok(answer),
        }
    }

    fn unexpected(&self, request: &Request, answer: &Answer) -> Fault {
        self.peer.end(Misconduct::unexpected(request, answer.name()))
    }
}

impl Drop for RemoteCase<'_> {
    fn drop(&mut self) {
        // A peer that is gone has forgotten it already.
        let _ = self.peer.ask(self.life, Request::Release { case: self.case });
    }
}

/// A case at a peer as a problem: what runs is poisoned, guarded and counted by nobody here.
pub struct RemoteProblem<'p> {
    case: Rc<RemoteCase<'p>>,
    last: Vec<Tensor>,
}

impl<'p> RemoteProblem<'p> {
    /// The problem of a case, which others may hold too.
    pub fn of(case: Rc<RemoteCase<'p>>) -> Self {
        RemoteProblem { case, last: Vec::new() }
    }
}

impl Problem for RemoteProblem<'_> {
    fn run(&mut self, _poison: Poison) -> Result<Vec<Tensor>, Fault> {
        self.last = self.case.run()?;
        Ok(self.last.clone())
    }

    fn agrees_under(&mut self, poison: Poison) -> Result<bool, Fault> {
        let before = std::mem::take(&mut self.last);
        Ok(same_bits(&self.run(poison)?, &before))
    }

    fn repeat(&mut self, times: usize) -> Result<usize, Fault> {
        let mut different = 0;
        for _ in 0..times {
            different += usize::from(!same_bits(&self.case.run()?, &self.last));
        }
        Ok(different)
    }

    fn arm(&mut self, plan: &TimingPlan) -> Result<usize, Fault> {
        self.case.arm(plan)
    }

    fn sample(&mut self, instance: usize) -> Result<Sample, Fault> {
        self.case.sample(instance)
    }

    fn timed_outputs_agree(&mut self) -> Result<bool, Fault> {
        Ok(same_bits(&self.case.replay(0)?, &self.last))
    }
}

/// The shortest time that a clock can give for a launch: no clock has smaller steps than a nanosecond, and a batch is no
/// more than a million launches.
const SHORTEST_US: f64 = 1e-9;

/// A time of a launch that the clock can have shown: a number, above zero, and no longer than the answer took, by which it
/// was over.
fn believable(launch_us: Option<f64>, answered_within: Duration) -> Result<f64, String> {
    let Some(launch_us) = launch_us else { return Err("no number".into()) };
    let most = answered_within.as_secs_f64() * 1e6;
    if !launch_us.is_finite() || launch_us < SHORTEST_US {
        Err(format!("{launch_us} µs, which no clock can show"))
    } else if launch_us > most {
        Err(format!("{launch_us} µs, but the answer came {most:.0} µs after the question"))
    } else {
        Ok(launch_us)
    }
}

fn same_bits(a: &[Tensor], b: &[Tensor]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.bytes() == b.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(Some(12.5), true)]
    #[case(Some(20_000.0), true)]
    #[case(Some(20_001.0), false)]
    #[case(Some(0.0), false)]
    #[case(Some(-1.0), false)]
    #[case(Some(1e-300), false)]
    #[case(Some(f64::NAN), false)]
    #[case(Some(f64::INFINITY), false)]
    #[case(None, false)]
    fn a_time_is_one_that_a_clock_can_give(#[case] launch_us: Option<f64>, #[case] expected: bool) {
        assert_eq!(believable(launch_us, Duration::from_millis(20)).is_ok(), expected);
    }
}
