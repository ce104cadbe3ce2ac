//! The worker's side: trials as they are asked for, until the gate has no more or is gone.

use super::super::engine::{Engine, Reply};
use super::super::trial::Trial;
use super::channel::{Channel, Heard, Part};
use super::{Answer, Request, lifetime};
use crate::check::outcome::{Outcome, Verdict};
use crate::device::DeviceKind;
use crate::protocol::process::from_line;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

/// Answers requests. Does not return but for an error: a worker's end is never a good one.
///
/// # Errors
/// If this process has no channel to a gate.
pub fn serve(engine: impl FnOnce() -> Engine, trials: &[Trial]) -> io::Result<()> {
    lifetime::end_with_parent();
    let channel = Arc::new(Channel::from_stdin()?);
    let requests = listen(Arc::clone(&channel));
    let engine = engine();
    for Request { trial: name, nonce, share } in requests {
        let reply = match trials.iter().find(|trial| trial.name == name) {
            Some(trial) if trial.kind == DeviceKind::Cpu => alone(engine.run(trial, share)),
            Some(trial) => engine.run(trial, share),
            None => Reply::without_device(Outcome::fail(format!(
                "the worker process knows no trial `{name}`: declare the same suites whenever the gate starts"
            ))),
        };
        // What a candidate printed without an end of line belongs to this trial.
        let _ = io::stdout().flush();
        let device_lost = reply.device_lost;
        channel.say(&Answer { trial: name, nonce, reply })?;
        if device_lost {
            break;
        }
    }
    lifetime::end_now()
}

/// A candidate that leaves processes running has failed: they outlive its trial, hold what they have inherited and take
/// time from whatever is timed next.
fn alone(mut reply: Reply) -> Reply {
    let left = lifetime::end_children();
    if left > 0 && !reply.outcome.verdict.is_failure() {
        reply.outcome.verdict = Verdict::Fail;
        reply.outcome.reason =
            format!("it left processes running ({left}), which were killed: a candidate must end what it starts");
    }
    reply
}

/// Reads requests in a thread of its own, which ends the process as soon as the gate is gone, whatever a trial does.
fn listen(channel: Arc<Channel>) -> Receiver<Request> {
    let (sender, requests) = mpsc::channel();
    std::thread::spawn(move || {
        let mut part = Part::default();
        while let Heard::Line(line) = channel.hear(&mut part, None) {
            let sent = from_line(&line).map(|request| sender.send(request));
            if !matches!(sent, Ok(Ok(()))) {
                break;
            }
        }
        lifetime::end_now()
    });
    requests
}
