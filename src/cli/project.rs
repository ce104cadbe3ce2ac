//! The gate that the command carries: the catalogue and the project that it belongs to.

use crate::harness::{Gate, Project};

/// The project that the catalogue belongs to.
pub(super) fn project() -> Project {
    Project::new(env!("CARGO_MANIFEST_DIR"), env!("CARGO_PKG_NAME")).run_by("kernelgate check")
}

/// The gate over the catalogue.
pub(super) fn gate() -> Gate {
    Gate::new(project()).suites(crate::ops::catalogue())
}
