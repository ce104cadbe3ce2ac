//! What can be wrong with a model, its files or a prompt: where it is, what was expected, what was found.

use crate::device::fault::Fault;
use std::path::Path;

/// Why a model cannot be loaded or run.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// Something in a file or a request is not as it must be.
    Input {
        /// The file and the tensor or key in it, or what was asked for.
        place: String,
        /// What was expected there.
        expected: String,
        /// What was found.
        found: String,
    },
    /// A device could not do it.
    Device(Fault),
}

impl Error {
    /// Something that was asked for, or that stands in no file.
    pub fn input(place: impl Into<String>, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Error::Input { place: place.into(), expected: expected.into(), found: found.into() }
    }

    /// Something in a file.
    pub fn in_file(file: &Path, what: &str, expected: impl Into<String>, found: impl Into<String>) -> Self {
        let place = if what.is_empty() { file.display().to_string() } else { format!("{}: {what}", file.display()) };
        Error::input(place, expected, found)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Error::Device(fault)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Input { place, expected, found } => write!(f, "{place}: expected {expected}, found {found}"),
            Error::Device(fault) => write!(f, "{fault}"),
        }
    }
}

impl std::error::Error for Error {}
