//! Models as operators of the gate.

mod host;
mod language;
mod launches;
mod signature;
mod workloads;

pub use workloads::{CHAINS, STAGES, Stages, Tier};

use super::catalogue::Operators;
use crate::core::suite::Suite;

/// The tiny language models and the workloads, a suite each.
pub fn suites() -> Vec<Suite> {
    language::suites(&Operators::new()).into_iter().chain([cnn_suite(), chain_suite()]).collect()
}

/// The classifier of digits with its variants.
pub fn cnn_suite() -> Suite {
    workloads::cnn_suite(&Operators::new()).unwrap_or_else(|why| panic!("the classifier: {why}"))
}

/// The inference chain with its variants.
pub fn chain_suite() -> Suite {
    workloads::chain_suite(&Operators::new()).unwrap_or_else(|why| panic!("the chain: {why}"))
}
