//! The other side: answers requests about cases that a host prepares.

use super::folder;
use super::message::{Answer, Answered, Asked, CaseRequest, Hello, Request, TensorFile};
use crate::core::tensor::Tensor;
use crate::device::fault::Fault;
use crate::device::{Poison, Problem, TimingPlan};
use crate::measure::session::Contestant;
use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::time::Duration;

/// What a client may sample at the most, as far as buffers are prepared for it: it does not say.
const LONGEST_SESSION: Duration = Duration::from_secs(1);

/// Who prepares the cases.
pub trait Host {
    /// What it says first.
    fn hello(&self) -> Hello;

    /// Prepares and verifies a case; `inputs` are those that came with it.
    ///
    /// # Errors
    /// Why not.
    fn prepare(&self, request: &CaseRequest, inputs: Option<Vec<Tensor>>) -> Result<Served<'_>, Refusal>;

    /// Whether this process is of no more use: its device is lost.
    fn is_spent(&self) -> bool {
        false
    }
}

/// Why a request is not met.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// There is no such case here: a skip.
    Unsupported(String),
    /// It went wrong.
    Failed(String),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unsupported(why) => Refusal::Unsupported(why),
            fault => Refusal::Failed(fault.to_string()),
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unsupported(reason) => Answer::Unsupported { reason },
            Refusal::Failed(reason) => Answer::Failed { reason, ends: false },
        }
    }
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

/// Where answers go: the standard output, which what candidates print no longer reaches.
///
/// # Errors
/// If the streams cannot be exchanged.
#[cfg(unix)]
pub fn answers() -> io::Result<impl Write> {
    use std::os::fd::AsFd;
    let own = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(std::fs::File::from(own))
}

/// Where answers go: the standard output.
///
/// # Errors
/// None here.
#[cfg(not(unix))]
pub fn answers() -> io::Result<impl Write> {
    Ok(io::stdout())
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
                say(&mut answers, &Answered { id: 0, case: None, answer: Answer::Failed { reason, ends: false } })?;
                continue;
            }
        };
        let (id, case) = (asked.id, asked.request.case());
        let mut answer = answer(host, &mut cases, asked.request).unwrap_or_else(Answer::from);
        if let Answer::Failed { ends, .. } = &mut answer {
            *ends = host.is_spent();
        }
        let is_last = matches!(answer, Answer::Goodbye | Answer::Failed { ends: true, .. });
        say(&mut answers, &Answered { id, case, answer })?;
        if is_last {
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

fn answer<'h>(host: &'h dyn Host, cases: &mut HashMap<u64, OpenCase<'h>>, request: Request) -> Result<Answer, Refusal> {
    match request {
        Request::Goodbye => return Ok(Answer::Goodbye),
        Request::Release { case } => {
            cases.remove(&case);
            return Ok(Answer::Released);
        }
        Request::Case(request) => {
            let unreadable = |e: io::Error| Refusal::Failed(format!("an input cannot be read: {e}"));
            let inputs = request.inputs.as_ref().map(|files| files.iter().map(folder::read).collect());
            let served = host.prepare(&request, inputs.transpose().map_err(unreadable)?)?;
            let (contestant, planted) = (Contestant::unarmed(served.problem), served.planted);
            cases.insert(request.case, OpenCase { contestant, planted, outputs: request.outputs });
            return Ok(Answer::Ready);
        }
        _ => {}
    }
    let number = request.case().unwrap_or_default();
    let open = cases.get_mut(&number).ok_or_else(|| Refusal::Failed(format!("there is no case {number}")))?;
    match request {
        Request::Run { .. } => open.write().map(|()| Answer::Written),
        Request::Arm { heat, batch_us, instances, .. } => {
            let plan =
                TimingPlan { heat, chained: false, batch_us, instances, planted_us: 0.0, session: LONGEST_SESSION };
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
        _ => Err(Refusal::Failed("the outputs changed while being timed: not the verified work was timed".into())),
    }
}

impl OpenCase<'_> {
    /// Runs once more and writes the outputs, where somebody reads them.
    fn write(&mut self) -> Result<(), Refusal> {
        if self.outputs.is_empty() {
            return Ok(());
        }
        let outputs = self.contestant.problem().run(Poison::Nan)?;
        let unwritable = |e: io::Error| Refusal::Failed(format!("an output cannot be written: {e}"));
        self.outputs.iter().zip(&outputs).try_for_each(|(file, output)| folder::write(file, output)).map_err(unwritable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;
    use crate::measure::simulated::{Journal, Noise, SimulatedProblem};
    use crate::protocol::message::VERSION;

    /// Has one case; `broken` fails and takes the device with it.
    struct OneCase;

    impl Host for OneCase {
        fn hello(&self) -> Hello {
            Hello { protocol: VERSION, name: "one".into(), about: String::new(), devices: vec![], offers: vec![] }
        }

        fn prepare(&self, request: &CaseRequest, _: Option<Vec<Tensor>>) -> Result<Served<'_>, Refusal> {
            match request.operator.as_str() {
                "known" => {
                    let problem = SimulatedProblem::new(0, 10.0, Noise::default(), Journal::default());
                    Ok(Served { problem: Box::new(problem), planted: 0.0 })
                }
                "broken" => Err(Refusal::Failed("the device crashed".into())),
                other => Err(Refusal::Unsupported(format!("no {other}"))),
            }
        }

        fn is_spent(&self) -> bool {
            true
        }
    }

    fn case(operator: &str) -> Request {
        Request::Case(CaseRequest {
            case: 1,
            operator: operator.into(),
            candidate: "c".into(),
            dtype: DType::F32,
            shape: "n=1".into(),
            seed: 1,
            inputs: None,
            outputs: vec![],
        })
    }

    fn converse(requests: Vec<Request>) -> Vec<Answer> {
        let asked = requests.into_iter().zip(1..).map(|(request, id)| Asked { id, request });
        let lines: Vec<String> = asked.map(|asked| serde_json::to_string(&asked).unwrap()).collect();
        let mut said = Vec::new();
        serve(&OneCase, lines.join("\n").as_bytes(), &mut said).unwrap();
        let answered = said.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let answered: Vec<Answered> = answered.map(|line| serde_json::from_slice(line).unwrap()).collect();
        assert!(answered.iter().enumerate().all(|(id, answered)| answered.id == id as u64), "{answered:?}");
        answered.into_iter().skip(1).map(|answered| answered.answer).collect()
    }

    #[test]
    fn a_case_from_its_beginning_to_its_end() {
        let heat = crate::device::Heat::Cold;
        let arm = Request::Arm { case: 1, heat, batch_us: 100.0, instances: 4 };
        let answers = converse(vec![
            case("known"),
            arm,
            Request::Sample { case: 1, instance: 3 },
            Request::Replay { case: 1, instance: 0 },
            Request::Release { case: 1 },
            case("unknown"),
            Request::Goodbye,
            case("known"),
        ]);
        let names: Vec<_> = answers.iter().map(Answer::name).collect();
        assert_eq!(names, ["ready", "armed", "sampled", "written", "released", "unsupported", "goodbye"]);
        assert!(matches!(answers[2], Answer::Sampled { launch_us: Some(us), .. } if (9.0..11.0).contains(&us)));
    }

    #[test]
    fn a_lost_device_ends_the_process() {
        let answers = converse(vec![case("broken"), case("known")]);
        assert_eq!(answers, [Answer::Failed { reason: "the device crashed".into(), ends: true }]);
        let unknown = converse(vec![Request::Run { case: 7 }]);
        assert!(matches!(&unknown[0], Answer::Failed { reason, .. } if reason.contains("no case 7")));
    }
}
