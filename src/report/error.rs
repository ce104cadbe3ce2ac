//! Why a summary was not read or written.

use super::summary::VERSION;
use crate::core::place::NoPlace;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a summary was not read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The text is no summary, or not one of the version that it says.
    Json {
        /// The version, if it could be read.
        version: Option<u32>,
        /// What is wrong with the text.
        source: serde_json::Error,
    },
    /// It is of a version that this crate does not read.
    Version(u32),
    /// Nothing can be written there.
    Place(NoPlace),
    /// A file or a folder that could not be used.
    File {
        /// Which.
        path: PathBuf,
        /// What failed: `cannot read`.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The same of a file.
    In {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<Error>,
    },
}

impl Error {
    /// What failed with a file.
    pub(super) fn file(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Error::File { path: path.to_owned(), what, source }
    }

    /// The same, found in a file.
    pub(super) fn within(self, path: &Path) -> Self {
        Error::In { path: path.to_owned(), source: Box::new(self) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Json { version: None, source } => write!(f, "not a summary: {source}"),
            Error::Json { version: Some(version), source } => {
                write!(f, "not a summary of version {version}: {source}")
            }
            Error::Version(0) => {
                f.write_str("a summary of version 0, which no kernelgate has written: the file is damaged")
            }
            Error::Version(version) => {
                write!(f, "a summary of version {version}, but this kernelgate reads up to {VERSION}: update it")
            }
            Error::Place(place) => place.fmt(f),
            Error::File { path, what, source } => write!(f, "{}: {what}: {source}", path.display()),
            Error::In { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

impl From<NoPlace> for Error {
    fn from(place: NoPlace) -> Self {
        Error::Place(place)
    }
}
