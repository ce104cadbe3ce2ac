//! Whose operators a command is about.

use crate::core::suite::Suite;
use crate::harness::project::Project;

/// Whose operators are meant.
#[derive(Clone, Copy)]
pub struct Workplace<'a> {
    /// The project: its baselines, its folders.
    pub project: &'a Project,
    /// Its operators with their candidates.
    pub suites: &'a [Suite],
}
