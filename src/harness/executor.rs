//! Where trials run: in worker processes, or in this one.

use super::engine::{Engine, Reply};
use super::trial::Trial;
use super::worker::Worker;
use crate::check::outcome::Outcome;
use crate::device::DeviceKind;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
    idle: Mutex<Vec<(DeviceKind, Worker)>>,
}

impl Pool {
    /// A pool that gives each trial so much time. No process is started yet.
    pub fn new(limit: Duration) -> Self {
        Pool { limit, idle: Mutex::new(Vec::new()) }
    }

    fn run(&self, trial: &Trial, share: Option<Duration>) -> Reply {
        let mut worker = match self.take(trial.kind) {
            Ok(worker) => worker,
            Err(why) => return Reply::without_device(Outcome::fail(why)),
        };
        match worker.run(&trial.name, share, self.limit) {
            Ok(reply) => {
                if !reply.device_lost {
                    self.idle().push((trial.kind, worker));
                }
                reply
            }
            Err(death) => Reply::without_device(Outcome::fail(death)),
        }
    }

    /// An idle worker that has opened this kind of device before, or a new one.
    fn take(&self, kind: DeviceKind) -> Result<Worker, String> {
        let mut idle = self.idle();
        match idle.iter().position(|(of, _)| *of == kind) {
            Some(at) => Ok(idle.swap_remove(at).1),
            None => {
                drop(idle);
                Worker::spawn()
            }
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(DeviceKind, Worker)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
