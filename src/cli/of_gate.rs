//! What the command asks of the catalogue, or of the gate of another project.

use super::{Failure, project};
use crate::core::suite::Suite;
use crate::harness::command::{Command, FLAG, Workplace};
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A question, and to whom.
#[derive(Args)]
pub struct OfGate<T: Args> {
    /// Ask the gate in this test binary, and not the catalogue: `cargo test --release --no-run` says where it is. Folders are
    /// then those of its project
    #[arg(long, value_name = "BINARY")]
    gate: Option<PathBuf>,
    #[command(flatten)]
    question: T,
}

impl<T: Args> OfGate<T> {
    /// Asks; a gate answers in its own process.
    pub fn run(self, command: impl FnOnce(T) -> Command) -> Result<(), Failure> {
        self.run_over(crate::ops::catalogue, command)
    }

    /// The same over other suites than the catalogue.
    pub fn run_over(
        self,
        suites: impl FnOnce() -> Vec<Suite>,
        command: impl FnOnce(T) -> Command,
    ) -> Result<(), Failure> {
        match &self.gate {
            Some(gate) => ask(gate),
            None => {
                let project = project().run_by("kernelgate check");
                command(self.question).run(&Workplace { project: &project, suites: &suites() })
            }
        }
    }
}

/// Hands the arguments of this process on, and ends as the gate does.
fn ask(gate: &Path) -> Result<(), Failure> {
    let not_started = |e| Failure::Input(format!("--gate {}: cannot be started: {e}", gate.display()));
    // Anything that starts and ends well would look like an answer.
    let listed = std::process::Command::new(gate).arg("--list").output().map_err(not_started)?;
    if listed.status.success() && !String::from_utf8_lossy(&listed.stdout).contains("::") {
        let why =
            "is no gate: `--list` names no trial of it; `cargo test --release --no-run` says where a gate's binary is";
        return Err(Failure::Input(format!("--gate {}: {why}", gate.display())));
    }
    let arguments = without_gate(std::env::args_os().skip(1));
    let ran = std::process::Command::new(gate).arg(FLAG).args(arguments).status();
    let status = ran.map_err(not_started)?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::Code(u8::try_from(code).unwrap_or(2))),
        None => Err(Failure::Input(format!("--gate {}: ended by a signal ({status})", gate.display()))),
    }
}

/// The arguments but `--gate` and its value.
fn without_gate(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut is_value = false;
    for argument in arguments {
        let is_flag = argument == "--gate";
        if !is_flag && !is_value && !argument.as_encoded_bytes().starts_with(b"--gate=") {
            kept.push(argument);
        }
        is_value = is_flag;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_gets_all_arguments_but_its_own_place() {
        let kept = |words: &[&str]| without_gate(words.iter().map(OsString::from));
        assert_eq!(kept(&["bench", "--gate", "a/b", "gelu", "--hot"]), ["bench", "gelu", "--hot"]);
        assert_eq!(kept(&["--gate=x", "list", "--json"]), ["list", "--json"]);
    }
}
