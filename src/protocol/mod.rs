//! The measurement protocol: JSON lines over the standard streams of another process, by which peers and other builds of
//! a gate are given a case, checked and timed. `docs/protocol.md` describes it for whoever writes a peer.
//!
//! It knows processes, messages and tensors in files, and turns a peer into a [`Problem`](crate::device::Problem) that
//! takes part in a session like any other. What the times mean is judged above.

mod connection;
mod folder;
pub mod message;
mod misconduct;
pub mod peer;
pub mod process;
pub mod remote;
pub mod server;
mod words;

pub use connection::Deadlines;
pub use misconduct::Misconduct;
pub use peer::Peer;
pub use remote::{RemoteCase, RemoteProblem};

/// The JSON Schema of every message; committed as `docs/protocol.schema.json`.
pub const SCHEMA: &str = include_str!("../../docs/protocol.schema.json");
