//! The gate over the shipped catalogue.

use kernelgate::prelude::*;

fn main() -> ExitCode {
    gate!().suites(kernelgate::ops::catalogue()).run()
}
