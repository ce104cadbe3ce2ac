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
        let ran = self.take(purpose).map(|mut worker| {
            let ran = worker.run(&trial.name, share, self.limit);
            (ran, worker)
        });
        let mut state = self.state();
        state.busy -= 1;
        self.returned.notify_one();
        match ran {
            Ok((Ok(reply), worker)) => {
                if !reply.device_lost {
                    state.idle.push_back((purpose, worker));
                    let forgotten = state.surplus();
                    drop(state);
                    drop(forgotten);
                }
                reply
            }
            Ok((Err((death, printed)), dead)) => {
                // Its end may take a while, for which nobody else is to wait.
                drop(state);
                drop(dead);
                let mut outcome = Outcome::fail(death);
                outcome.notes.extend(printed);
                Reply::without_device(outcome)
            }
            Err(why) => Reply::without_device(Outcome::fail(why)),
        }
    }

    /// An idle worker of the same use, or a new one. It counts as busy from now on, even if there is none.
    fn take(&self, purpose: Use) -> Result<Worker, String> {
        let mut state = self.state();
        while self.most.is_some_and(|most| state.busy >= most) {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.busy += 1;
        let at = state.idle.iter().position(|(of, _)| *of == purpose);
        match at.and_then(|at| state.idle.remove(at)) {
            Some((_, worker)) => Ok(worker),
            None => {
                drop(state);
                Worker::spawn(self.streams)
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
