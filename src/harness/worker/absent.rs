//! Stands for worker processes on systems that are no Unix: there are none.

use super::engine::{Engine, Reply};
use super::trial::Trial;
use std::time::Duration;

/// What this process was started as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// By a person or a test runner.
    Gate,
    /// Never here.
    Keeper,
    /// Never here.
    Worker,
}

impl Role {
    /// The role of this process.
    ///
    /// # Errors
    /// None here.
    pub fn of_this_process() -> Result<Self, String> {
        Ok(Role::Gate)
    }
}

/// Where a worker's output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// It is shown with a failure.
    Captured,
    /// It is also passed on to the standard error.
    PassedOn,
}

/// A worker process, of which there is none.
pub struct Worker(std::convert::Infallible);

impl Worker {
    /// Starts none.
    ///
    /// # Errors
    /// Always.
    pub fn spawn(_streams: Streams) -> Result<Self, String> {
        Err("worker processes need a Unix system: run with --unsupervised".into())
    }

    /// Runs nothing.
    ///
    /// # Errors
    /// None: there is no worker.
    pub fn run(&mut self, _: &str, _: Option<Duration>, _: Duration) -> Result<Reply, (String, Option<String>)> {
        match self.0 {}
    }
}

/// Answers nobody.
///
/// # Errors
/// Always.
pub fn serve(_engine: impl FnOnce() -> Engine, _trials: &[Trial]) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Keeps nobody.
pub fn keep() -> ! {
    std::process::abort()
}
