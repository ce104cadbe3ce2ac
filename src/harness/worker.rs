//! Worker processes: trials run in them, so that a crash, an abort or a hang costs one trial and not the run.
//!
//! The protocol is JSON text sequences (RFC 7464) over stdin and stdout: a request in, a reply out. A reply
//! starts with the record separator, so that whatever a candidate prints is told apart and passed on to stderr.

use super::engine::{Engine, Reply};
use super::trial::Trial;
use crate::core::environment;
use crate::protocol::process::describe_exit;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Starts every reply.
const RECORD_SEPARATOR: u8 = 0x1e;

/// What a worker is asked.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    /// The name of the trial to run.
    trial: String,
    /// Its share of the time of the run.
    share: Option<Duration>,
}

/// Whether this process was started as a worker.
pub fn is_worker() -> bool {
    std::env::var_os(environment::WORKER).is_some()
}

/// Answers trials until stdin ends or the device is lost.
///
/// # Errors
/// If stdin or stdout break.
pub fn serve(engine: &Engine, trials: &[Trial]) -> std::io::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let Request { trial: name, share } = serde_json::from_str(&line?)?;
        let trial = trials.iter().find(|trial| trial.name == name);
        let reply = match trial {
            Some(trial) => engine.run(trial, share),
            None => Reply::without_device(crate::check::outcome::Outcome::fail(format!(
                "the worker process knows no trial `{name}`: declare the same suites whenever the gate starts"
            ))),
        };
        let mut text = vec![RECORD_SEPARATOR];
        serde_json::to_writer(&mut text, &reply)?;
        text.push(b'\n');
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&text)?;
        stdout.flush()?;
        if reply.device_lost {
            break;
        }
    }
    Ok(())
}

/// A running worker, seen from the gate.
pub struct Worker {
    child: Child,
    stdin: ChildStdin,
    replies: Receiver<Reply>,
}

impl Worker {
    /// Starts this very program again, as a worker.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn() -> Result<Self, String> {
        let fail = |e: std::io::Error| format!("cannot start a worker process: {e}");
        let mut command = Command::new(std::env::current_exe().map_err(fail)?);
        command.args(std::env::args_os().skip(1)).env(environment::WORKER, "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(fail)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("cannot start a worker process: no pipes".into());
        };
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let (printed, reply) = split(&line);
                let _ = std::io::stderr().write_all(printed);
                if let Some(reply) = reply
                    && sender.send(reply).is_err()
                {
                    break;
                }
                line.clear();
            }
        });
        Ok(Worker { child, stdin, replies })
    }

    /// Has a trial run.
    ///
    /// # Errors
    /// How the worker ended, if it did not answer. It is then of no use any more.
    pub fn run(&mut self, trial: &str, share: Option<Duration>, limit: Duration) -> Result<Reply, String> {
        let request = Request { trial: trial.into(), share };
        let asked = serde_json::to_string(&request).map(|request| writeln!(self.stdin, "{request}"));
        if !matches!(asked, Ok(Ok(()))) {
            return Err(self.end());
        }
        match self.replies.recv_timeout(limit) {
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Disconnected) => Err(self.end()),
            Err(RecvTimeoutError::Timeout) => {
                let _ = self.child.kill();
                let _ = self.child.wait();
                Err(format!("still running after {} s: an endless loop or a deadlock", limit.as_secs_f64()))
            }
        }
    }

    fn end(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => format!("the trial ended its process: {}", describe_exit(status)),
            Err(e) => format!("the worker process is gone: {e}"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be stuck in a driver call; nothing that it still does is of interest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a candidate printed, and the reply behind it if the line holds one.
fn split(line: &[u8]) -> (&[u8], Option<Reply>) {
    let Some(at) = line.iter().position(|&byte| byte == RECORD_SEPARATOR) else { return (line, None) };
    match serde_json::from_slice(&line[at + 1..]) {
        Ok(reply) => (&line[..at], Some(reply)),
        Err(_) => (line, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::outcome::Outcome;

    #[test]
    fn what_a_candidate_prints_is_told_apart() {
        let reply = Reply::without_device(Outcome::skip("none"));
        let mut line = b"half a line".to_vec();
        line.push(RECORD_SEPARATOR);
        line.extend(serde_json::to_vec(&reply).unwrap());
        line.push(b'\n');
        assert_eq!(split(&line), (&b"half a line"[..], Some(reply)));
        assert_eq!(split(b"a line\n"), (&b"a line\n"[..], None));
        assert_eq!(split(b"\x1eodd\n"), (&b"\x1eodd\n"[..], None));
    }
}
