//! The summary with every kind of record, and the command that turns it into reports.

use kernelgate::report::summary::Summary;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The file of a test.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports/data").join(name)
}

/// All verdicts, checks and sections, and names with markup, control characters and formulas.
pub fn every_kind() -> Summary {
    Summary::read(&data("every-kind.json")).unwrap()
}

/// A subcommand of the command.
pub fn kernelgate(subcommand: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelgate"));
    command.arg(subcommand);
    command
}

/// `kernelgate report` on that summary.
pub fn report(arguments: &[&str]) -> Output {
    kernelgate("report").arg(data("every-kind.json")).args(arguments).output().unwrap()
}

/// The output of a command that has to end well.
pub fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}
