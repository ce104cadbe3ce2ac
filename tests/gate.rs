//! The gate over the shipped catalogue, and over the tiny models on it.

use kernelgate::prelude::*;

fn main() -> ExitCode {
    let gate = gate!().suites(kernelgate::ops::catalogue());
    #[cfg(feature = "models")]
    let gate = gate.suites(kernelgate::models::suites());
    gate.run()
}
