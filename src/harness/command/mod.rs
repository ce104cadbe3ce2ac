//! What a gate can be asked beside its trials: what it has, how fast that is, how noisy, which candidate is the fastest for a
//! shape. `cargo test --test gate -- --command bench …` asks a project's own gate; the `kernelgate` command asks the catalogue,
//! or with `--gate` any gate.

mod bench;
mod choose;
mod list;
mod noise;
mod noise_stored;
mod profile;
mod selection;

pub use bench::{Bench, header, peer_row, row};
pub use choose::Choose;
pub use list::List;
pub use noise::Noise;
pub use profile::{Options as ProfileOptions, Profile, apart, compared, knowledge};
pub use selection::{Selected, Selection, describe_device};

use super::project::Project;
use super::terminal::note;
use crate::core::suite::Suite;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// The first argument of a gate that is asked for something else than its trials.
pub const FLAG: &str = "--command";

/// Whose operators are meant.
#[derive(Clone, Copy)]
pub struct Workplace<'a> {
    /// The project: its baselines, its folders.
    pub project: &'a Project,
    /// Its operators with their candidates.
    pub suites: &'a [Suite],
}

/// How a command ends when it does not end well.
#[derive(Debug)]
pub enum Failure {
    /// A verdict failed; it has been said already.
    Verdict,
    /// Wrong input, with what is wrong.
    Input(String),
    /// Something required is not there.
    Missing(String),
    /// Another process has said it, and ended with this code.
    Code(u8),
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
            Failure::Code(code) => ExitCode::from(code),
        }
    }
}

/// What a gate can be asked.
#[derive(Subcommand)]
pub enum Command {
    /// List the operators and candidates
    List(List),
    /// Time candidates, without judging them against a baseline
    Bench(Bench),
    /// A/A test: noise and smallest detectable slowdown of kernels on this device
    Noise(Noise),
    /// Time all candidates of an operator shape by shape, and write down which one is the fastest
    Choose(Choose),
    /// Say where the time of candidates goes, what binds it, and what would help
    Profile(Profile),
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    /// Whatever ends it early; what was measured until then is kept.
    pub fn run(self, workplace: &Workplace<'_>) -> Result<(), Failure> {
        match self {
            Command::List(list) => list.run(workplace),
            Command::Bench(bench) => bench.run(workplace),
            Command::Noise(noise) => noise.run(workplace),
            Command::Choose(choose) => choose.run(workplace),
            Command::Profile(profile) => profile.run(workplace),
        }
    }
}

#[derive(Parser)]
#[command(
    name = "gate --command",
    disable_version_flag = true,
    after_help = "Exit codes: 0 good, 1 a verdict failed, 2 usage or input error, 3 something required is missing."
)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// What a gate with these arguments is asked, if it is not its trials.
pub fn asked(mut arguments: impl Iterator<Item = OsString>) -> Option<Command> {
    let program = arguments.next()?;
    (arguments.next()? == FLAG).then(|| Line::parse_from(std::iter::once(program).chain(arguments)).command)
}

/// Prints to stdout; a reader that has gone away is no reason to panic.
///
/// # Errors
/// If stdout cannot be written to.
pub fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::Input(format!("stdout: {e}"))),
        _ => Ok(()),
    }
}
