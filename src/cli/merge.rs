//! `kernelgate merge`: summaries of several runs or machines as one.

use super::{Failure, print};
use crate::check::outcome::Verdict;
use crate::harness::terminal::note;
use crate::report::digest;
use crate::report::summary::Summary;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `merge`.
#[derive(Args)]
pub struct Merge {
    /// The summaries; of two results of one trial on one device the later file's stays, of times shape by shape
    #[arg(value_name = "SUMMARY", required = true)]
    paths: Vec<PathBuf>,
    /// Where the merged summary goes [default: stdout]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Print the merged summary as JSON, also with --out
    #[arg(long)]
    json: bool,
}

impl Merge {
    /// Merges; a failed verdict among the records is a failure of the whole.
    pub fn run(self) -> Result<(), Failure> {
        let merged = read_all(&self.paths)?;
        if let Some(out) = &self.out {
            merged.write(out).map_err(Failure::Input)?;
        }
        if self.json || self.out.is_none() {
            print(&merged.to_json())?;
        }
        note(format_args!("{}", digest::describe(&merged, false).trim_end()));
        let failed = |(verdict, &count): (&Verdict, &usize)| verdict.is_failure() && count > 0;
        if merged.counts.iter().any(failed) { Err(Failure::Verdict) } else { Ok(()) }
    }
}

/// One summary out of all files.
pub fn read_all(paths: &[PathBuf]) -> Result<Summary, Failure> {
    let mut summaries = paths.iter().map(|path| Summary::read(path).map_err(Failure::Input));
    let mut merged = summaries.next().ok_or_else(|| Failure::Input("no summary given".into()))??;
    for summary in summaries {
        merged.merge(summary?);
    }
    Ok(merged)
}
