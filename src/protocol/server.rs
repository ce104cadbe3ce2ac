//! The other side: answers requests about cases that a host prepares.

use super::folder;
use super::message::{Answer, Answered, Asked, CaseRequest, Hello, Request, TensorFile};
use crate::core::tensor::Tensor;
use crate::device::fault::Fault;
use crate::device::{Poison, Problem, TimingPlan};
use crate::measure::session::Contestant;
use std::collections::HashMap;
use std::io::{self, BufRead, Write};

/// Who prepares the cases.
pub trait Host {
    /// What it says first.
    fn hello(&self) -> Hello;

    /// Prepares and verifies a case; `inputs` are those that came with it.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] for a case that it does not have, any other fault for one that went wrong.
    fn prepare(&self, request: &CaseRequest, inputs: Option<Vec<Tensor>>) -> Result<Served<'_>, Fault>;
}

/// A prepared case.
pub struct Served<'h> {
    /// Ready to run.
    pub problem: Box<dyn Problem + 'h>,
    /// A slowdown to plant when it is timed, as a share of its time.
    pub planted: f64,
}

struct OpenCase<'h> {
    contestant: Contestant<'h>,
    planted: f64,
    outputs: Vec<TensorFile>,
}

/// Says hello and answers until it is told to end or nobody asks any more.
///
/// # Errors
/// If the streams break.
pub fn serve(host: &dyn Host, requests: impl BufRead, mut answers: impl Write) -> io::Result<()> {
    say(&mut answers, &Answered { id: 0, case: None, answer: Answer::Hello(host.hello()) })?;
    let mut cases = HashMap::new();
    for line in requests.lines() {
        let line = line?;
        let asked: Asked = match serde_json::from_str(&line) {
            Ok(asked) => asked,
            Err(e) => {
                let reason = format!("this is no request: {e}");
                say(&mut answers, &Answered { id: 0, case: None, answer: Answer::Failed { reason } })?;
                continue;
            }
        };
        let (id, case, ends) = (asked.id, asked.request.case(), asked.request == Request::Goodbye);
        let answer = answer(host, &mut cases, asked.request).unwrap_or_else(|fault| match fault {
            Fault::Unsupported(reason) => Answer::Unsupported { reason },
            fault => Answer::Failed { reason: fault.to_string() },
        });
        say(&mut answers, &Answered { id, case, answer })?;
        if ends {
            break;
        }
    }
    Ok(())
}

fn say(answers: &mut impl Write, answered: &Answered) -> io::Result<()> {
    let mut text = serde_json::to_vec(answered)?;
    text.push(b'\n');
    answers.write_all(&text)?;
    answers.flush()
}

fn answer<'h>(host: &'h dyn Host, cases: &mut HashMap<u64, OpenCase<'h>>, request: Request) -> Result<Answer, Fault> {
    match request {
        Request::Goodbye => return Ok(Answer::Goodbye),
        Request::Release { case } => {
            cases.remove(&case);
            return Ok(Answer::Released);
        }
        Request::Case(request) => {
            let unreadable = |e: io::Error| Fault::Launch(format!("an input cannot be read: {e}"));
            let inputs = request.inputs.as_ref().map(|files| files.iter().map(folder::read).collect());
            let served = host.prepare(&request, inputs.transpose().map_err(unreadable)?)?;
            let (contestant, planted) = (Contestant::unarmed(served.problem), served.planted);
            cases.insert(request.case, OpenCase { contestant, planted, outputs: request.outputs });
            return Ok(Answer::Ready);
        }
        _ => {}
    }
    let number = request.case().unwrap_or_default();
    let open = cases.get_mut(&number).ok_or_else(|| Fault::Launch(format!("there is no case {number}")))?;
    match request {
        Request::Run { .. } => open.write().map(|()| Answer::Written),
        Request::Arm { heat, batch_us, instances, .. } => {
            let plan = TimingPlan { heat, batch_us, instances, planted_us: 0.0 };
            open.contestant.arm_planted(&plan, open.planted)?;
            Ok(Answer::Armed { instances: open.contestant.instances() })
        }
        Request::Sample { instance, .. } => {
            let sample = open.contestant.problem().sample(instance)?;
            let launch_us = sample.launch_us.is_finite().then_some(sample.launch_us);
            Ok(Answer::Sampled { launch_us, clock_mhz: sample.clock_mhz })
        }
        // Every set is looked at; what is written then has the bits that all of them have.
        Request::Replay { .. } if open.contestant.problem().timed_outputs_agree()? => {
            open.write().map(|()| Answer::Written)
        }
        _ => {
            Err(Fault::Launch("the outputs changed while being timed, so that not the verified work was timed".into()))
        }
    }
}

impl OpenCase<'_> {
    /// Runs once more and writes the outputs, where somebody reads them.
    fn write(&mut self) -> Result<(), Fault> {
        if self.outputs.is_empty() {
            return Ok(());
        }
        let outputs = self.contestant.problem().run(Poison::Nan)?;
        let unwritable = |e: io::Error| Fault::Launch(format!("an output cannot be written: {e}"));
        self.outputs.iter().zip(&outputs).try_for_each(|(file, output)| folder::write(file, output)).map_err(unwritable)
    }
}
