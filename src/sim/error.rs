//! Everything that can go wrong before a kernel runs: text that is no PTX, an opcode that is not modelled, a launch
//! that does not fit.

use std::fmt;

/// Why a module could not be read or a launch could not start.
///
/// What a running kernel does wrong is no error of this type: it is a [`Finding`](crate::sim::report::Finding) of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The text is not PTX as the simulator knows it.
    Parse {
        /// Line of the PTX text, from 1.
        line: u32,
        /// What was expected and what stands there.
        message: String,
    },
    /// Valid as far as can be told, but not modelled. A caller must skip the case, never pass it.
    Unsupported {
        /// The opcode with its modifiers, or the directive or special register.
        opcode: String,
        /// Line of the PTX text, from 1.
        line: u32,
    },
    /// The launch does not fit the kernel or the limits of the machine.
    Launch(String),
}

impl Error {
    pub(crate) fn parse(line: u32, message: impl Into<String>) -> Self {
        Error::Parse { line, message: message.into() }
    }

    pub(crate) fn unsupported(line: u32, opcode: impl Into<String>) -> Self {
        Error::Unsupported { opcode: opcode.into(), line }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Parse { line, message } => write!(f, "PTX line {line}: {message}"),
            Error::Unsupported { opcode, line } => {
                write!(f, "PTX line {line}: `{opcode}` is not modelled by the simulator; run this kernel on a GPU")
            }
            Error::Launch(message) => write!(f, "launch refused: {message}"),
        }
    }
}

impl std::error::Error for Error {}

pub(crate) type Result<T> = std::result::Result<T, Error>;
