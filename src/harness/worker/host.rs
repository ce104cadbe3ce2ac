//! The gate's side of a worker: started, asked, given a limit, and killed with all that it started.

use super::super::engine::Reply;
use super::channel::{Channel, Heard, Part};
use super::printed::Printed;
use super::{Answer, Request, Role, random};
use crate::check::outcome::Verdict;
use crate::core::environment;
use crate::protocol::process::{describe_exit, excerpt, from_line};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// How often a worker that does not answer is looked at: one that ended may have left its channel open to a child.
const GLANCE: Duration = Duration::from_millis(50);

/// How long a killed process may take to end. One that is stuck in a driver takes longer, and is left to the system.
const GRACE: Duration = Duration::from_secs(5);

/// Where a worker's output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// It is shown with a failure.
    Captured,
    /// It is also passed on to the standard error.
    PassedOn,
}

/// Why a worker did not answer.
#[derive(Debug)]
pub struct Death {
    /// What happened to the trial.
    pub why: String,
    /// It was killed since its time was up.
    pub hung: bool,
    /// What the trial printed.
    pub printed: Option<String>,
}

/// A running worker, seen from the gate.
pub struct Worker {
    keeper: Child,
    channel: Channel,
    part: Part,
    printed: Printed,
}

impl Worker {
    /// Starts this very program again, as a worker behind its keeper.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn(streams: Streams) -> Result<Self, String> {
        let fail = |e: io::Error| format!("cannot start a worker process: {e}");
        let (channel, theirs) = Channel::pair().map_err(fail)?;
        let (reader, writer) = io::pipe().map_err(fail)?;
        let mut command = Command::new(std::env::current_exe().map_err(fail)?);
        command.args(std::env::args_os().skip(1)).env(environment::WORKER, Role::Keeper.for_child());
        // Streams of its own, and a process group of its own, which is killed as a whole.
        command.stdin(OwnedFd::from(theirs)).process_group(0);
        command.stdout(Stdio::from(writer.try_clone().map_err(fail)?)).stderr(Stdio::from(writer));
        let keeper = start(command).map_err(fail)?;
        let printed = Printed::of(reader, streams == Streams::PassedOn).map_err(fail)?;
        Ok(Worker { keeper, channel, part: Part::default(), printed })
    }

    /// Has a trial run. A failure says what was printed.
    ///
    /// # Errors
    /// How the worker ended, if it did not answer. It is then of no use any more.
    pub fn run(&mut self, trial: &str, share: Option<Duration>, limit: Duration) -> Result<Reply, Death> {
        self.printed.clear();
        let end = Instant::now() + limit;
        match self.ask(trial, share, end) {
            Ok(mut reply) => {
                if reply.outcome.verdict == Verdict::Fail {
                    reply.outcome.notes.extend(self.printed.describe());
                }
                Ok(reply)
            }
            Err(Some(why)) => Err(Death { why, hung: false, printed: self.printed.describe() }),
            Err(None) => {
                let why = format!("still running after {} s: an endless loop or a deadlock", limit.as_secs_f64());
                Err(Death { why, hung: true, printed: self.printed.describe() })
            }
        }
    }

    /// The reply; else how the worker ended, or nothing if it was killed at `end`.
    fn ask(&mut self, trial: &str, share: Option<Duration>, end: Instant) -> Result<Reply, Option<String>> {
        let nonce = random();
        if self.channel.say(&Request { trial: trial.into(), nonce, share }).is_err() {
            return Err(Some(self.end()));
        }
        loop {
            let patience = GLANCE.min(end.saturating_duration_since(Instant::now())).max(Duration::from_millis(1));
            match self.channel.hear(&mut self.part, Some(patience)) {
                Heard::Line(line) => return self.believe(&line, trial, nonce).map_err(Some),
                Heard::TooLong => {
                    self.kill();
                    let why = "the worker process sent a reply without end: something wrote to its channel";
                    return Err(Some(why.into()));
                }
                Heard::Closed => return Err(Some(self.end())),
                Heard::Nothing if Instant::now() >= end => {
                    self.kill();
                    return Err(None);
                }
                Heard::Nothing => {
                    if let Ok(Some(status)) = self.keeper.try_wait() {
                        // Its last word may have come since.
                        return match self.channel.hear(&mut self.part, Some(Duration::from_millis(1))) {
                            Heard::Line(line) => self.believe(&line, trial, nonce).map_err(Some),
                            _ => Err(Some(died(status))),
                        };
                    }
                }
            }
        }
    }

    /// A reply counts if it names the trial and the number of the request.
    fn believe(&mut self, line: &[u8], trial: &str, nonce: u64) -> Result<Reply, String> {
        match from_line::<Answer>(line) {
            Ok(answer) if answer.trial == trial && answer.nonce == nonce => Ok(answer.reply),
            _ => {
                self.kill();
                Err(format!(
                    "the worker process sent something that is no reply to this trial: `{}`; something wrote to its channel",
                    excerpt(line)
                ))
            }
        }
    }

    /// How it ended, once its channel is closed.
    fn end(&mut self) -> String {
        match self.wait() {
            Some(status) => died(status),
            None => {
                self.kill();
                "the trial closed the channel of its process and went on: it was killed".into()
            }
        }
    }

    fn wait(&mut self) -> Option<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < GRACE {
            match self.keeper.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Err(_) => return None,
            }
        }
        None
    }

    /// Kills the whole group. The worker, should it have left the group, dies with its keeper.
    fn kill(&mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        // A group keeps its number until its leader has been waited for.
        if matches!(self.keeper.try_wait(), Ok(None)) {
            let _ = kill_process_group(Pid::from_child(&self.keeper), Signal::KILL);
            let _ = self.keeper.kill();
            let _ = self.wait();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be stuck in a driver call; nothing that it still does is of interest.
        self.kill();
    }
}

fn died(status: ExitStatus) -> String {
    format!("the trial ended its process: {}", describe_exit(status))
}

/// Starts a process from a thread that lives as long as this process: a keeper is killed when the thread that started it
/// ends, and the threads of trials end before the others do.
fn start(command: Command) -> io::Result<Child> {
    type Order = (Command, Sender<io::Result<Child>>);
    static STARTER: OnceLock<Sender<Order>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, started) in orders {
                let _ = started.send(command.spawn());
            }
        });
        sender
    });
    let gone = || io::Error::other("the thread that starts processes is gone");
    let (sender, started) = channel();
    starter.send((command, sender)).map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::outcome::Outcome;

    #[test]
    fn a_reply_to_another_request_is_not_believed_and_ends_the_worker() {
        let (channel, _theirs) = Channel::pair().unwrap();
        let (reader, _writer) = io::pipe().unwrap();
        let answer = |trial: &str, nonce| {
            let reply = Reply::without_device(Outcome::new(Verdict::Pass));
            serde_json::to_vec(&Answer { trial: trial.into(), nonce, reply }).unwrap()
        };
        let keeper = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let printed = Printed::of(reader, false).unwrap();
        let mut worker = Worker { keeper, channel, part: Part::default(), printed };
        assert!(worker.believe(&answer("a", 7), "a", 7).is_ok());
        for other in [answer("b", 7), answer("a", 8)] {
            assert!(worker.believe(&other, "a", 7).unwrap_err().contains("no reply to this trial"));
        }
        assert!(worker.keeper.try_wait().unwrap().is_some());
    }
}
