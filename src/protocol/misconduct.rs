//! What a peer can do wrong, in words that say who, what and how long.

use super::message::Request;
use std::fmt;
use std::time::Duration;

/// Why a conversation with a peer ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Misconduct {
    /// It did not start.
    Absent(String),
    /// Its process ended, or closed its standard output.
    Died {
        /// What it was asked last.
        asked: &'static str,
        /// How it ended.
        how: String,
    },
    /// No answer came in time.
    Silent {
        /// What it was asked last.
        asked: &'static str,
        /// How long it was given.
        within: Duration,
    },
    /// A line that is no message.
    Garbage {
        /// What it was asked last.
        asked: &'static str,
        /// The line, as far as it is shown.
        line: String,
        /// Why it is none.
        why: String,
    },
    /// A message to another question, or of another kind than the question asks for.
    WrongAnswer {
        /// What it was asked.
        asked: String,
        /// What it answered.
        answered: String,
    },
    /// It speaks another version of the protocol.
    Version {
        /// The version that it named.
        theirs: u32,
    },
    /// It failed, and said that it ends with that.
    Ended(String),
    /// It answered something that cannot be.
    Impossible(String),
}

/// The request before the first: a peer speaks unasked then.
pub const HELLO: &str = "hello";

impl Misconduct {
    /// An answer of the wrong kind.
    pub fn unexpected(request: &Request, answered: &str) -> Self {
        Misconduct::WrongAnswer { asked: request.name().into(), answered: answered.into() }
    }
}

impl fmt::Display for Misconduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misconduct::Absent(why) => write!(f, "does not start: {why}"),
            Misconduct::Died { asked, how } => write!(f, "died when asked for `{asked}`: {how}"),
            Misconduct::Silent { asked, within } => {
                write!(f, "gave no answer to `{asked}` within {} s and was killed", within.as_secs_f64())
            }
            Misconduct::Garbage { asked, line, why } => {
                write!(f, "spoke garbage when asked for `{asked}`: {why}, in the line `{line}`")
            }
            Misconduct::WrongAnswer { asked, answered } => {
                write!(f, "was asked for `{asked}` and answered `{answered}`")
            }
            Misconduct::Version { theirs } => write!(
                f,
                "speaks version {theirs} of the protocol, this kernelgate version {}: update the older one",
                super::message::VERSION
            ),
            Misconduct::Ended(why) => write!(f, "failed and ended: {why}"),
            Misconduct::Impossible(what) => write!(f, "lied: {what}"),
        }
    }
}

impl std::error::Error for Misconduct {}
