//! Where trials run: in worker processes, or in this one.

use super::engine::{Engine, Reply};
use super::trial::Trial;
use super::worker::{Streams, Worker};
use crate::check::outcome::Outcome;
use crate::device::DeviceKind;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many workers of host candidates wait for another trial of theirs.
const IDLE_HOSTS: usize = 4;

/// Runs trials somewhere.
pub enum Executor {
    /// In this process.
    Here(Box<Engine>),
    /// In processes of their own.
    Workers(Pool),
}

impl Executor {
    /// Runs a trial, which has `share` of the time of the run; whatever it does, there is a reply.
    pub fn run(&self, trial: &Trial, share: Option<Duration>) -> Reply {
        match self {
            Executor::Here(engine) => engine.run(trial, share),
            Executor::Workers(pool) => pool.run(trial, share),
        }
    }
}

/// Worker processes that wait for their next trial.
pub struct Pool {
    limit: Duration,
    streams: Streams,
    /// The most workers at once, where that is said.
    most: Option<usize>,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    /// The oldest first.
    idle: VecDeque<(Use, Worker)>,
    busy: usize,
}

/// What a worker has been used for: it may run more of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Any trials.
    Any,
    /// Kernels, on the device that it has opened.
    Kernels,
    /// Host code of one candidate, which may have left threads behind: another candidate's trials do not run beside it.
    Host { suite: usize, candidate: usize },
}

/// A worker that is about to run a trial.
struct Taken {
    process: Worker,
    /// It has run others.
    is_used: bool,
}

impl Pool {
    /// A pool that gives each trial so much time. No process is started yet.
    pub fn new(limit: Duration, streams: Streams) -> Self {
        Pool { limit, streams, most: None, state: Mutex::default(), returned: Condvar::new() }
    }

    /// A pool with one worker for all trials.
    pub fn of_one(limit: Duration) -> Self {
        Pool { most: Some(1), ..Pool::new(limit, Streams::PassedOn) }
    }

    fn run(&self, trial: &Trial, share: Option<Duration>) -> Reply {
        let purpose = match (self.most, trial.kind) {
            (Some(_), _) => Use::Any,
            (None, DeviceKind::Cpu) => Use::Host { suite: trial.suite, candidate: trial.candidate },
            (None, _) => Use::Kernels,
        };
        let mut worker = match self.take(purpose) {
            Ok(worker) => worker,
            Err(why) => return self.put_back(purpose, None, Reply::without_device(Outcome::fail(why))),
        };
        let mut ran = worker.process.run(&trial.name, share, self.limit);
        // What ended a process that had run others may have been one of those: alone, a trial answers for itself.
        if worker.is_used && matches!(&ran, Err(death) if !death.hung) {
            match Worker::spawn(self.streams) {
                Ok(fresh) => {
                    worker = Taken { process: fresh, is_used: false };
                    ran = worker.process.run(&trial.name, share, self.limit);
                }
                Err(why) => return self.put_back(purpose, None, Reply::without_device(Outcome::fail(why))),
            }
        }
        match ran {
            Ok(reply) => {
                let kept = (!reply.device_lost).then_some(worker.process);
                self.put_back(purpose, kept, reply)
            }
            Err(death) => {
                let mut outcome = Outcome::fail(death.why);
                outcome.notes.extend(death.printed);
                // Its end may take a while, for which nobody else is to wait.
                let reply = self.put_back(purpose, None, Reply::without_device(outcome));
                drop(worker);
                reply
            }
        }
    }

    /// Counts a worker as busy no longer, and keeps it for the next trial where it is of use.
    fn put_back(&self, purpose: Use, worker: Option<Worker>, reply: Reply) -> Reply {
        let mut state = self.state();
        state.busy -= 1;
        state.idle.extend(worker.map(|worker| (purpose, worker)));
        let forgotten = state.surplus();
        self.returned.notify_one();
        drop(state);
        drop(forgotten);
        reply
    }

    /// An idle worker of the same use, or a new one. It counts as busy from now on, even if there is none.
    fn take(&self, purpose: Use) -> Result<Taken, String> {
        let mut state = self.state();
        while self.most.is_some_and(|most| state.busy >= most) {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.busy += 1;
        let at = state.idle.iter().position(|(of, _)| *of == purpose);
        match at.and_then(|at| state.idle.remove(at)) {
            Some((_, process)) => Ok(Taken { process, is_used: true }),
            None => {
                drop(state);
                Worker::spawn(self.streams).map(|process| Taken { process, is_used: false })
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The oldest worker of host code, if too many wait.
    fn surplus(&mut self) -> Option<(Use, Worker)> {
        let is_host = |(of, _): &&(Use, Worker)| matches!(of, Use::Host { .. });
        if self.idle.iter().filter(is_host).count() <= IDLE_HOSTS {
            return None;
        }
        let oldest = self.idle.iter().position(|entry| is_host(&entry))?;
        self.idle.remove(oldest)
    }
}
