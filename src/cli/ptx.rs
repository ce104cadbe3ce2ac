//! `kernelgate ptx`: which kernels of PTX files the simulator runs, and what stands in the way of the others.

use super::{Failure, print};
use crate::harness::progress::{Progress, Quiet};
use crate::sim::{Error, Module};
use clap::Args;
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Arguments of `ptx`.
#[derive(Args)]
pub struct Ptx {
    /// PTX files, or folders with PTX files at any depth
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    quiet: Quiet,
}

/// A kernel that cannot be simulated.
#[derive(Serialize)]
struct Refused {
    entry: String,
    /// The opcode, directive or special register that is not modelled, where that is the reason.
    unsupported: Option<String>,
    error: String,
}

/// One file.
#[derive(Serialize)]
struct Text {
    file: String,
    /// Why none of it could be read.
    error: Option<String>,
    entries: usize,
    refused: Vec<Refused>,
}

/// Everything, as `--json` prints it.
#[derive(Serialize)]
struct Account {
    version: u32,
    files: Vec<Text>,
    /// Files of which nothing could be read.
    unreadable: usize,
    entries: usize,
    loadable: usize,
    /// How many kernels each reason costs.
    reasons: BTreeMap<String, usize>,
}

impl Ptx {
    /// Reads and prints; kernels that cannot be simulated are a failed verdict.
    pub fn run(self) -> Result<(), Failure> {
        let mut files = Vec::new();
        for path in &self.paths {
            collect(path, path.is_file(), &mut files)?;
        }
        if files.is_empty() {
            return Err(Failure::Input("no file that ends in .ptx is there".into()));
        }
        files.sort();
        let progress = Progress::of(files.len(), self.quiet);
        let one = |file: &PathBuf| {
            progress.say(&file.display().to_string());
            let text = read(file);
            progress.step();
            text
        };
        let texts = files.par_iter().map(one).collect::<Result<Vec<Text>, Failure>>();
        progress.end();
        let texts = texts?;
        let account = account(texts);
        if self.json {
            let json = serde_json::to_string_pretty(&account).map_err(|e| Failure::Input(e.to_string()))?;
            print(&(json + "\n"))?;
        } else {
            print(&describe(&account))?;
        }
        if account.unreadable == 0 && account.loadable == account.entries { Ok(()) } else { Err(Failure::Verdict) }
    }
}

/// A file that is named is read whatever it is called; in folders those that end in `.ptx` are.
fn collect(path: &Path, named: bool, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if !path.is_dir() {
        if named || path.extension().is_some_and(|extension| extension == "ptx") {
            files.push(path.to_owned());
        }
        return Ok(());
    }
    let refuse = |e: std::io::Error| Failure::Input(format!("{}: {e}", path.display()));
    for entry in std::fs::read_dir(path).map_err(refuse)? {
        collect(&entry.map_err(refuse)?.path(), false, files)?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<Text, Failure> {
    let bytes = std::fs::read(file).map_err(|e| Failure::Input(format!("{}: {e}", file.display())))?;
    let text = String::from_utf8_lossy(&bytes);
    let name = file.display().to_string();
    let module = match Module::parse(&text) {
        Ok(module) => module,
        Err(error) => return Ok(Text { file: name, error: Some(error.to_string()), entries: 0, refused: Vec::new() }),
    };
    let refused = module.entries().filter_map(|entry| {
        let error = module.check(entry).err()?;
        let unsupported = if let Error::Unsupported { opcode, .. } = &error { Some(opcode.clone()) } else { None };
        Some(Refused { entry: entry.to_owned(), unsupported, error: error.to_string() })
    });
    Ok(Text { file: name, error: None, refused: refused.collect(), entries: module.entries().count() })
}

fn account(files: Vec<Text>) -> Account {
    let entries = files.iter().map(|text| text.entries).sum();
    let mut reasons = BTreeMap::new();
    for refused in files.iter().flat_map(|text| &text.refused) {
        // Without its line, an error that is no opcode groups by what is wrong.
        let without_line = || refused.error.split_once(": ").map_or(refused.error.as_str(), |(_, rest)| rest);
        let reason = refused.unsupported.as_deref().unwrap_or_else(without_line);
        *reasons.entry(reason.to_owned()).or_default() += 1;
    }
    Account {
        version: 1,
        unreadable: files.iter().filter(|text| text.error.is_some()).count(),
        entries,
        loadable: entries - files.iter().map(|text| text.refused.len()).sum::<usize>(),
        reasons,
        files,
    }
}

fn describe(account: &Account) -> String {
    let mut text = String::new();
    for file in &account.files {
        if let Some(error) = &file.error {
            let _ = writeln!(text, "{}: {error}", file.file);
        }
        for refused in &file.refused {
            let _ = writeln!(text, "{}, {}: {}", file.file, refused.entry, refused.error);
        }
    }
    let mut reasons: Vec<(&String, &usize)> = account.reasons.iter().collect();
    reasons.sort_by_key(|(reason, count)| (std::cmp::Reverse(**count), *reason));
    for (reason, count) in reasons {
        let _ = writeln!(text, "{count:>8}  {reason}");
    }
    let _ = writeln!(
        text,
        "{} of {} kernels in {} files can be simulated; {} files could not be read",
        account.loadable,
        account.entries,
        account.files.len(),
        account.unreadable
    );
    text
}
