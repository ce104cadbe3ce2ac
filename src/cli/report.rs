//! `kernelgate report`: summaries as a table.

use super::{Failure, merge::read_all, print};
use crate::report::place::Place;
use crate::report::{builds, csv, peers};
use clap::Args;
use std::path::PathBuf;

/// The form of the table; one must be named.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Form {
    /// A row a trial, and for perf trials a row a timed shape and a row a peer
    #[arg(long)]
    csv: bool,
    /// Markdown: candidates beside the peers that they were timed with
    #[arg(long)]
    peers: bool,
    /// Markdown: two builds against each other, a row a case
    #[arg(long)]
    builds: bool,
}

/// Arguments of `report`.
#[derive(Args)]
pub struct Report {
    /// The summaries; several are merged
    #[arg(value_name = "SUMMARY", required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    form: Form,
    /// Where the table goes [default: stdout]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

impl Report {
    /// Prints or writes the table.
    pub fn run(self) -> Result<(), Failure> {
        let summary = read_all(&self.paths)?;
        let table = match self.form {
            Form { csv: true, .. } => csv::table(&summary).map_err(Failure::Input)?,
            Form { builds: true, .. } => builds::by_case(&summary.builds),
            Form { .. } => peers::table(&summary),
        };
        match &self.out {
            Some(out) => {
                let mut place = Place::of(out).map_err(Failure::Input)?;
                place.write(&table).map_err(|e| Failure::Input(format!("{}: {e}", out.display())))
            }
            None => print(&table),
        }
    }
}
