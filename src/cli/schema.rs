//! `kernelgate schema`: the JSON Schema of the summary.

use super::{Failure, print};

/// Prints it.
pub fn run() -> Result<(), Failure> {
    print(crate::report::SCHEMA)
}
