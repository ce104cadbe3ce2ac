//! All fixtures as one gate, which runs as that of any project does. `ci/default-run.py` holds its runs against each other: on
//! an idle and on a busy machine, with and without compiled kernels.

use crate::cuda::{self, Fixture};
use crate::{cpu, suite};
use kernelgate::core::candidate::Candidate;
use kernelgate::core::suite::Suite;
use kernelgate::harness::{Gate, Project};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// What has the tests of this folder run as a gate.
pub const VARIABLE: &str = "KERNELGATE_TEST_GATE";

/// Runs it, as the command line says.
pub fn run() -> ExitCode {
    match suites() {
        Ok(suites) => Gate::new(Project::new(env!("CARGO_MANIFEST_DIR"), "faults")).suites(suites).run(),
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

/// Each operator with the fixtures that compute it, behind candidates of the catalogue.
fn suites() -> Result<Vec<Suite>, String> {
    let mut candidates: BTreeMap<String, Vec<Candidate>> = BTreeMap::new();
    for fixture in cpu::fixtures() {
        candidates.entry(fixture.operator.into()).or_default().push((fixture.make)());
    }
    for fixture in cuda::fixtures()?.iter().filter(|fixture| is_simulated(fixture)) {
        // Some defects are there on the CPU too.
        let name = format!("{}_kernel", fixture.name());
        candidates.entry(fixture.operator.clone()).or_default().push(Candidate { name, ..fixture.candidate()? });
    }
    candidates.into_iter().map(|(operator, fixtures)| with_right_ones(suite(&operator)?, fixtures)).collect()
}

/// What shows on a GPU alone would pass, or be skipped, without one.
fn is_simulated(fixture: &Fixture) -> bool {
    crate::sim::available(fixture).is_ok()
}

fn with_right_ones(of: &Suite, fixtures: Vec<Candidate>) -> Result<Suite, String> {
    let right = of.candidates.iter().filter(|candidate| ["naive", "tiled", "cuda"].contains(&candidate.name.as_str()));
    let right = right.cloned().map(|candidate| Candidate { name: format!("right_{}", candidate.name), ..candidate });
    Ok(Suite { candidates: right.chain(fixtures).collect(), ..of.clone() })
}
