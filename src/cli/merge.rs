//! `kernelgate merge`: summaries of several runs or machines as one.

use super::inputs::Inputs;
use super::{Failure, print};
use crate::check::outcome::Verdict;
use crate::harness::terminal::note;
use crate::report::summary::Summary;
use crate::report::{digest, merge};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `merge`.
#[derive(Args)]
pub struct Merge {
    /// The summaries; what stands in two of them is an error that names both
    #[arg(value_name = "SUMMARY", required = true)]
    paths: Vec<PathBuf>,
    /// Of two results of one trial on one device keep the later file's, of times shape by shape
    #[arg(long)]
    newer: bool,
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
        let merged =
            if self.newer { Inputs::of(&self.paths).merged().map_err(Failure::Input)? } else { shards(&self.paths)? };
        if let Some(out) = &self.out {
            merged.write(out)?;
        }
        if self.json || self.out.is_none() {
            print(&merged.to_json())?;
        }
        note(format_args!("{}", digest::describe(&merged, false).trim_end()));
        let failed = |(verdict, &count): (&Verdict, &usize)| verdict.is_failure() && count > 0;
        if merged.counts.iter().any(failed) { Err(Failure::Verdict) } else { Ok(()) }
    }
}

/// One summary out of files that do not overlap.
fn shards(paths: &[PathBuf]) -> Result<Summary, Failure> {
    let read = |path: &PathBuf| Ok((path.display().to_string(), Summary::read(path)?));
    let parts: Result<Vec<_>, Failure> = paths.iter().map(read).collect();
    merge::shards(parts?).map_err(Failure::Input)
}
