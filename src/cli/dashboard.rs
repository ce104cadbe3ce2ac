//! The dashboard of `kernelgate report`: which files it is made from, and its server.

use super::inputs::Inputs;
use super::{Failure, print};
use crate::harness::terminal::note;
use crate::report::ceiling;
use crate::report::history::History;
use crate::report::html::serve::{Server, Source};
use crate::report::html::{self, Named};
use crate::report::summary::Summary;
use std::fs;
use std::path::{Path, PathBuf};

/// How many runs of a history are shown in full when none is named: the last one, and the one before it to compare with.
const SHOWN: usize = 2;

/// From this many summaries on there is a history.
const RUNS: usize = 3;

/// What the page is made from.
pub struct Dashboard {
    /// The summaries that are shown in full, and calibrations.
    pub inputs: Inputs,
    /// A folder of summaries, for the history.
    pub history: Option<PathBuf>,
}

impl Dashboard {
    /// The page; with `follow` one that asks the server for later versions.
    ///
    /// # Errors
    /// If a file is no summary.
    pub fn page(&self, follow: Option<&str>) -> Result<String, String> {
        let mut shown = read(&self.inputs.summaries)?;
        let calibrations = self.inputs.read_calibrations()?;
        let mut runs = self.runs()?;
        let of = |runs: &[Named]| {
            let named: Vec<(&str, &Summary)> = runs.iter().map(|run| (run.label.as_str(), &run.summary)).collect();
            History::of(&named)
        };
        let history = if !runs.is_empty() {
            Some(of(&runs))
        } else if shown.len() >= RUNS {
            Some(of(&shown))
        } else {
            None
        };
        if shown.is_empty() {
            runs.sort_by(|a, b| a.summary.run.started.cmp(&b.summary.run.started));
            shown = runs.split_off(runs.len().saturating_sub(SHOWN));
        }
        if shown.is_empty() {
            return Err("no summary among these files".into());
        }
        shown.iter_mut().for_each(|named| ceiling::calibrate(&mut named.summary, &calibrations));
        Ok(html::page(&shown, &calibrations, history.as_ref(), follow))
    }

    /// The history as a Markdown table.
    ///
    /// # Errors
    /// If a file is no summary.
    pub fn table(&self) -> Result<String, String> {
        let runs: Vec<Named> = read(&self.inputs.summaries)?.into_iter().chain(self.runs()?).collect();
        let named: Vec<(&str, &Summary)> = runs.iter().map(|run| (run.label.as_str(), &run.summary)).collect();
        Ok(History::of(&named).table())
    }

    /// Serves the page on loopback until the process ends.
    pub fn serve(self, port: u16) -> Result<(), Failure> {
        // What cannot be read is said here, and not to a browser.
        self.page(None).map_err(Failure::Input)?;
        let server = Server::bind(port).map_err(Failure::Input)?;
        print(&format!("http://{}/\n", server.address()))?;
        note(format_args!("the page follows its files; Ctrl-C ends it"));
        server.run(Box::leak(Box::new(self))).map_err(Failure::Input)
    }

    fn runs(&self) -> Result<Vec<Named>, String> {
        let Some(folder) = &self.history else { return Ok(Vec::new()) };
        let files = files_in(folder)?;
        if files.is_empty() {
            return Err(format!("{}: holds no summary: put `<any name>.json` there, a file a run", folder.display()));
        }
        read(&files)
    }
}

impl Source for Dashboard {
    fn version(&self) -> String {
        let folder = self.history.as_ref().and_then(|folder| files_in(folder).ok()).unwrap_or_default();
        let state = |path: &PathBuf| {
            let found = fs::metadata(path).and_then(|found| Ok((found.len(), found.modified()?)));
            format!("{:?}", found.ok())
        };
        self.inputs
            .summaries
            .iter()
            .chain(&self.inputs.calibrations)
            .chain(&folder)
            .map(state)
            .collect::<Vec<_>>()
            .join(";")
    }

    fn page(&self, version: &str) -> Result<String, String> {
        Dashboard::page(self, Some(version))
    }
}

/// The JSON files of a folder, plain and packed, by name.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: cannot read the folder: {e}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file() && [".json", ".json.xz"].iter().any(|end| path.to_string_lossy().ends_with(end)))
        .collect();
    files.sort();
    Ok(files)
}

/// Reads them; files of one name are told apart by their folders.
fn read(paths: &[PathBuf]) -> Result<Vec<Named>, String> {
    let name =
        |path: &Path| path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    let read = |path: &PathBuf| {
        let twice = paths.iter().filter(|other| name(other) == name(path)).count() > 1;
        let label = if twice { path.display().to_string() } else { name(path) };
        let summary = Summary::read(path).map_err(|error| error.to_string())?;
        Ok(Named { label, summary })
    };
    paths.iter().map(read).collect()
}
