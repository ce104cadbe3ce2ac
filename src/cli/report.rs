//! `kernelgate report`: summaries as a table.

use super::{Failure, merge::read_all, print};
use crate::report::csv;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `report`.
#[derive(Args)]
pub struct Report {
    /// The summaries; several are merged
    #[arg(value_name = "SUMMARY", required = true)]
    paths: Vec<PathBuf>,
    /// A row a trial, and for perf trials a row a timed shape
    #[arg(long, required = true)]
    csv: bool,
    /// Where the table goes [default: stdout]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

impl Report {
    /// Prints or writes the table.
    pub fn run(self) -> Result<(), Failure> {
        let table = csv::table(&read_all(&self.paths)?).map_err(Failure::Input)?;
        match &self.out {
            Some(out) => std::fs::write(out, table).map_err(|e| Failure::Input(format!("{}: {e}", out.display()))),
            None => print(&table),
        }
    }
}
