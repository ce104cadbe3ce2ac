//! How a run ended, and the exit codes that say so.

use std::process::ExitCode;

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// Nothing failed, or nothing was to be run.
    Good,
    /// Nothing failed in a run whose process nobody watched.
    Unsupervised,
    /// A trial failed.
    Failed,
    /// Trials failed, but only for want of something that was required.
    Missing,
    /// Nothing failed, but cases were cut by what was asked for: a time, or a size.
    Cut,
    /// The arguments or the declarations are wrong.
    Usage(String),
    /// The results could not be kept.
    Broken(String),
}

impl Conclusion {
    /// The exit code of a test binary: 101 for every failure, as libtest has it.
    pub fn of_gate(&self) -> ExitCode {
        match self {
            Conclusion::Good => ExitCode::SUCCESS,
            Conclusion::Usage(_) => ExitCode::from(2),
            Conclusion::Unsupervised => ExitCode::from(3),
            Conclusion::Cut => ExitCode::from(4),
            Conclusion::Failed | Conclusion::Missing | Conclusion::Broken(_) => ExitCode::from(101),
        }
    }

    /// The exit code of the `kernelgate` command.
    pub fn of_command(&self) -> ExitCode {
        match self {
            Conclusion::Good => ExitCode::SUCCESS,
            Conclusion::Failed => ExitCode::from(1),
            Conclusion::Usage(_) | Conclusion::Broken(_) => ExitCode::from(2),
            Conclusion::Missing | Conclusion::Unsupervised => ExitCode::from(3),
            Conclusion::Cut => ExitCode::from(4),
        }
    }
}
