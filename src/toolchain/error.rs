//! Why there is no code of a kernel.

use std::fmt;

/// Why there is no code of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It is kept nowhere and there is no compiler; with how to get one.
    NoCompiler(String),
    /// The source does not compile.
    Compile {
        /// The compiler's messages.
        log: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoCompiler(why) => f.write_str(why),
            Error::Compile { log } => write!(f, "the kernel does not compile:\n{}", log.trim_end()),
        }
    }
}

impl std::error::Error for Error {}
