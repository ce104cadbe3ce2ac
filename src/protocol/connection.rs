//! A conversation with a peer: its hello, then one answer to each request, each within its deadline.

use super::message::{Answer, Answered, Asked, Hello, Request, VERSION};
use super::misconduct::{HELLO, Misconduct};
use super::process::{CommandLine, Process, excerpt, from_line};
use serde::Deserialize;
use std::time::Duration;

/// How long a peer may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deadlines {
    /// To start, to get ready for a case, to compute it, to record its batches: compilers may run.
    pub prepare: Duration,
    /// To time a batch, to repeat one, to forget a case, to end.
    pub sample: Duration,
}

impl Default for Deadlines {
    /// Two minutes, and twenty seconds.
    fn default() -> Self {
        Deadlines { prepare: Duration::from_secs(120), sample: Duration::from_secs(20) }
    }
}

impl Deadlines {
    /// So long for everything, but no longer than usual for a sample.
    pub fn of(prepare: Duration) -> Self {
        Deadlines { prepare, sample: prepare.min(Deadlines::default().sample) }
    }

    fn of_request(&self, request: &Request) -> Duration {
        match request {
            Request::Case(_) | Request::Run { .. } | Request::Arm { .. } => self.prepare,
            Request::Sample { .. } | Request::Replay { .. } | Request::Release { .. } | Request::Goodbye => self.sample,
        }
    }
}

/// A peer that has said hello. Dropping it kills the process.
pub struct Connection {
    process: Process,
    deadlines: Deadlines,
    last_id: u64,
    /// What it said.
    pub hello: Hello,
}

impl Connection {
    /// Starts a peer and hears its hello.
    ///
    /// # Errors
    /// What it did instead.
    pub fn open(command: &CommandLine, deadlines: Deadlines) -> Result<Self, Misconduct> {
        let mut process = Process::start(command)?;
        let line = process.hear(HELLO, deadlines.prepare)?;
        check_version(&line)?;
        let answered: Answered = parse(&line, HELLO)?;
        match answered.answer {
            Answer::Hello(hello) => Ok(Connection { process, deadlines, last_id: 0, hello }),
            other => Err(Misconduct::WrongAnswer { asked: HELLO.into(), answered: other.name().into() }),
        }
    }

    /// Asks, and hears the answer to just this.
    ///
    /// # Errors
    /// What the peer did instead; nothing more is to be asked of it then.
    pub fn ask(&mut self, request: Request) -> Result<Answer, Misconduct> {
        self.last_id += 1;
        let (name, case, within) = (request.name(), request.case(), self.deadlines.of_request(&request));
        let asked = Asked { id: self.last_id, request };
        let text = serde_json::to_string(&asked).map_err(|e| Misconduct::Impossible(e.to_string()))?;
        self.process.say(&text, name)?;
        let answered: Answered = parse(&self.process.hear(name, within)?, name)?;
        if (answered.id, answered.case) != (asked.id, case) {
            let numbered = |id: u64, case: Option<u64>, what: &str| match case {
                Some(case) => format!("{what} of case {case} (message {id})"),
                None => format!("{what} (message {id})"),
            };
            return Err(Misconduct::WrongAnswer {
                asked: numbered(asked.id, case, name),
                answered: numbered(answered.id, answered.case, answered.answer.name()),
            });
        }
        Ok(answered.answer)
    }

    /// Ends it in peace; a peer that does not want to is killed all the same.
    pub fn close(mut self) {
        if self.ask(Request::Goodbye).is_ok() {
            self.process.let_end();
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8], asked: &'static str) -> Result<T, Misconduct> {
    from_line(line).map_err(|e| Misconduct::Garbage { asked, line: excerpt(line), why: e.to_string() })
}

/// Before anything else: a hello of another version may have another form.
fn check_version(line: &[u8]) -> Result<(), Misconduct> {
    #[derive(Deserialize)]
    struct Versioned {
        protocol: u32,
    }
    match from_line::<Versioned>(line) {
        Ok(Versioned { protocol: theirs }) if theirs != VERSION => Err(Misconduct::Version { theirs }),
        _ => Ok(()),
    }
}
