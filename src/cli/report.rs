//! `kernelgate report`: summaries as tables, CI formats and the dashboard.

use super::dashboard::Dashboard;
use super::inputs::Inputs;
use super::{Failure, print};
use crate::core::place::Place;
use crate::report::formats::{annotations, bmf, gh_benchmark, junit, markdown};
use crate::report::summary::Summary;
use crate::report::{builds, csv, peers, profiles};
use clap::Args;
use std::path::{Path, PathBuf};

/// The forms; several can be asked for at once, of tables one.
#[derive(Args)]
#[group(required = true, multiple = true)]
struct Forms {
    /// A row a trial, and for perf trials a row a timed shape and a row a peer
    #[arg(long, conflicts_with_all = ["peers", "builds"])]
    csv: bool,
    /// CSV of profiles: a row a run, a part, a layer, a class, a cause of idle time, a point of memory, a hint, another way,
    /// and a kernel under counters
    #[arg(long, conflicts_with_all = ["csv", "peers", "builds"])]
    profiles: bool,
    /// Markdown: candidates beside the peers that they were timed with
    #[arg(long, conflicts_with = "builds")]
    peers: bool,
    /// Markdown: two builds against each other, a row a case
    #[arg(long)]
    builds: bool,
    /// JUnit XML, for CI systems that list tests
    #[arg(long, value_name = "PATH")]
    junit: Option<PathBuf>,
    /// Markdown for the page of a job: short, the worst first
    #[arg(long, value_name = "PATH")]
    markdown: Option<PathBuf>,
    /// Print GitHub's workflow commands: each failure at the file of its kernel
    #[arg(long)]
    annotations: bool,
    /// Bencher's metric format
    #[arg(long, value_name = "PATH")]
    bmf: Option<PathBuf>,
    /// The JSON of github-action-benchmark, tool `customSmallerIsBetter`
    #[arg(long, value_name = "PATH")]
    gh_benchmark: Option<PathBuf>,
    /// The dashboard: one file that opens anywhere. Several summaries are compared, not merged
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
    /// Show the dashboard on loopback, and follow the files as a run writes them
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "0")]
    serve: Option<u16>,
    /// Each case over the summaries in this folder: Markdown of what changed, or a view of the dashboard
    #[arg(long, value_name = "FOLDER")]
    history: Option<PathBuf>,
}

/// Arguments of `report`.
#[derive(Args)]
pub struct Report {
    /// The summaries; several are merged. Files of `kernelgate calibrate` among them give tensor cores their ceilings
    #[arg(value_name = "FILE", required_unless_present = "history")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    forms: Forms,
    /// Where the table of --csv, --profiles, --peers, --builds or --history goes [default: stdout]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// The folder of the repository, below which annotations look for the files of kernels
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    root: PathBuf,
}

/// One form, and the path where it goes; `-` is stdout.
struct Written {
    text: String,
    path: PathBuf,
}

impl Report {
    /// Prints or writes every form that was asked for, then serves if that was.
    pub fn run(self) -> Result<(), Failure> {
        let mut written = Vec::new();
        let inputs = Inputs::of(&self.paths);
        if self.wants_merged() {
            if inputs.summaries.is_empty() {
                return Err(Failure::Input("give the summaries that these forms are to be made from".into()));
            }
            written.extend(inputs.merged().and_then(|summary| self.merged(&summary)).map_err(Failure::Input)?);
        }
        let dashboard = Dashboard { inputs, history: self.forms.history };
        if let Some(path) = self.forms.html {
            written.push(Written { text: dashboard.page(None).map_err(Failure::Input)?, path });
        } else if self.forms.serve.is_none() && dashboard.history.is_some() {
            let path = self.out.unwrap_or_else(|| "-".into());
            written.push(Written { text: dashboard.table().map_err(Failure::Input)?, path });
        }
        if written.iter().filter(|form| form.path == Path::new("-")).count() > 1 {
            return Err(Failure::Input(
                "two forms would be mixed on stdout: give all but one the path of a file".into(),
            ));
        }
        written.iter().try_for_each(Written::keep)?;
        self.forms.serve.map_or(Ok(()), |port| dashboard.serve(port))
    }

    /// Whether any form is made from all summaries as one.
    fn wants_merged(&self) -> bool {
        let forms = &self.forms;
        let paths = [&forms.junit, &forms.markdown, &forms.bmf, &forms.gh_benchmark];
        forms.csv
            || forms.profiles
            || forms.peers
            || forms.builds
            || forms.annotations
            || paths.iter().any(|path| path.is_some())
    }

    fn merged(&self, summary: &Summary) -> Result<Vec<Written>, String> {
        let forms = &self.forms;
        let mut written = Vec::new();
        let mut keep = |path: &Path, text: String| written.push(Written { text, path: path.to_owned() });
        let stdout = Path::new("-");
        let table = self.out.as_deref().unwrap_or(stdout);
        if forms.csv {
            keep(table, csv::table(summary)?);
        }
        if forms.profiles {
            keep(table, profiles::table(summary)?);
        }
        if forms.peers {
            keep(table, peers::table(summary));
        }
        if forms.builds {
            keep(table, builds::by_case(&summary.builds));
        }
        if let Some(path) = &forms.junit {
            keep(path, junit::xml(summary)?);
        }
        if let Some(path) = &forms.markdown {
            keep(path, markdown::page(summary));
        }
        if forms.annotations {
            keep(stdout, annotations::commands(summary, &self.root));
        }
        if let Some(path) = &forms.bmf {
            keep(path, bmf::json(summary));
        }
        if let Some(path) = &forms.gh_benchmark {
            keep(path, gh_benchmark::json(summary));
        }
        Ok(written)
    }
}

impl Written {
    fn keep(&self) -> Result<(), Failure> {
        if self.path == Path::new("-") {
            return print(&self.text);
        }
        let mut place = Place::of(&self.path)?;
        place.write(&self.text).map_err(|e| Failure::Input(format!("{}: {e}", self.path.display())))
    }
}
