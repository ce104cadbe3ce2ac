//! Worker processes: trials run in them, so that a crash, an abort or a hang costs one trial and not the run.
//!
//! The gate starts a keeper, and the keeper starts the worker. Both are this very program again. A candidate that kills
//! its parent kills the keeper; when the keeper or the gate dies, by whatever signal, the worker dies too.
//!
//! Requests and replies are lines of JSON over a socket of which a candidate knows nothing: the worker finds it as its
//! standard input and moves it away before it does anything else. A reply repeats the trial and a random number of its
//! request. What a candidate prints goes into a pipe, and its beginning and end are shown with the failure.

use super::engine::Reply;
use crate::core::environment;
use serde::{Deserialize, Serialize};
use std::time::Duration;

mod channel;
mod host;
mod inside;
mod keeper;
mod lifetime;
mod printed;

pub use host::{Streams, Worker};
pub use inside::serve;
pub use keeper::keep;

/// What a worker is asked.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    /// The name of the trial to run.
    trial: String,
    /// A random number, which the reply repeats.
    nonce: u64,
    /// Its share of the time of the run.
    share: Option<Duration>,
}

/// What a worker answers.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    /// The trial that was asked for.
    trial: String,
    /// The number of the request.
    nonce: u64,
    /// What came of it.
    reply: Reply,
}

/// What this process was started as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// By a person or a test runner.
    Gate,
    /// By a gate, to start a worker and wait for it.
    Keeper,
    /// By a keeper, to run trials.
    Worker,
}

impl Role {
    /// The role of this process.
    ///
    /// # Errors
    /// If the variable is set, but not by the parent of this process: nobody would judge what it does.
    pub fn of_this_process() -> Result<Self, String> {
        match std::env::var(environment::WORKER) {
            Ok(text) => Role::parse(&text, lifetime::parent()),
            Err(_) => Ok(Role::Gate),
        }
    }

    fn parse(text: &str, parent: u32) -> Result<Self, String> {
        let (role, started_by) = text.split_once(' ').unwrap_or((text, ""));
        match role {
            "keeper" if started_by == parent.to_string() => Ok(Role::Keeper),
            "worker" if started_by == parent.to_string() => Ok(Role::Worker),
            _ => Err(format!(
                "{}=`{text}` was not set by the parent of this process: a gate sets it for its worker processes. Unset it",
                environment::WORKER
            )),
        }
    }

    /// The value of the variable for a child of this process.
    fn for_child(self) -> String {
        let role = if self == Role::Keeper { "keeper" } else { "worker" };
        format!("{role} {}", std::process::id())
    }
}

/// A number that nobody can guess.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_given_by_the_parent_only() {
        let child = |role: Role| Role::parse(&role.for_child(), std::process::id());
        assert_eq!((child(Role::Keeper), child(Role::Worker)), (Ok(Role::Keeper), Ok(Role::Worker)));
        for text in ["1", "", "worker", "worker 1", "gate 7", "keeper 77"] {
            assert!(Role::parse(text, 7).unwrap_err().contains("Unset it"), "{text}");
        }
    }

    #[test]
    fn no_number_comes_twice() {
        let numbers: std::collections::HashSet<u64> = (0..1000).map(|_| random()).collect();
        assert_eq!(numbers.len(), 1000);
    }
}
