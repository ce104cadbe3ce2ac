//! How a command speaks and ends.

use crate::harness::progress::without_line;
use crate::harness::terminal::note;
use std::process::ExitCode;

/// How a command ends when it does not end well.
#[derive(Debug)]
pub enum Failure {
    /// A verdict failed; it has been said already.
    Verdict,
    /// Wrong input, with what is wrong.
    Input(String),
    /// Something required is not there.
    Missing(String),
    /// Nothing failed, but the time that there was left something out: what.
    Cut(String),
    /// Another process has said it, and ended with this code.
    Code(u8),
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Input(error.to_string())
    }
}

impl Failure {
    /// Says what there is to say, and gives the exit code.
    pub fn exit_code(self) -> ExitCode {
        match self {
            Failure::Verdict => ExitCode::from(1),
            Failure::Input(why) => {
                note(format_args!("error: {why}"));
                ExitCode::from(2)
            }
            Failure::Missing(why) => {
                note(format_args!("missing: {why}"));
                ExitCode::from(3)
            }
            Failure::Cut(what) => {
                note(format_args!("cut: {what}"));
                ExitCode::from(4)
            }
            Failure::Code(code) => ExitCode::from(code),
        }
    }
}

/// Prints to stdout; a reader that has gone away is no reason to panic.
///
/// # Errors
/// If stdout cannot be written to.
pub fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    match without_line(|| std::io::stdout().write_all(text.as_bytes())) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::Input(format!("stdout: {e}"))),
        _ => Ok(()),
    }
}
