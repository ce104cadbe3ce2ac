//! What every kind of profile can be asked, and what is done with it: knowledge, traces, tables, the summary.

use super::counters::counted;
use crate::calibrate::Calibration;
use crate::core::place::Place;
use crate::core::suite::Suite;
use crate::device::Device;
use crate::device::fingerprint::Fingerprint;
use crate::device::trace::Timeline;
use crate::harness::arguments::parse_seconds;
use crate::harness::command::{Failure, print};
use crate::harness::interrupt::keep_results;
use crate::harness::progress::without_line;
use crate::harness::project::Project;
use crate::harness::terminal::note;
use crate::predict::{Fitted, Limits};
use crate::profile::hints::{Idea, apply};
use crate::profile::{
    Knowledge, ProfileRun, chrome, counter_table, end_all, hint_table, known, last_repeat, merge, notes, table,
};
use crate::report::summary::Summary;
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What every kind of profile can be asked.
#[derive(Args)]
pub struct Options {
    /// Pairs of runs, one with tracing and one without
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..=10_000))]
    pub repeats: u32,
    /// Write a trace of the last traced repeat, which chrome://tracing and ui.perfetto.dev open; of several cases, numbered
    /// files
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
    /// Have all traced repeats in the trace, which may be a large file
    #[arg(long, requires = "trace")]
    pub trace_all: bool,
    /// Try every hint that the catalogue has something for: what it gains beside what was predicted
    #[arg(long)]
    pub apply: bool,
    /// The calibration to measure against [default: this machine's own, else the one that the project keeps]
    #[arg(long, value_name = "PATH")]
    pub calibration: Option<PathBuf>,
    /// The fitted families by which hints predict [default: as for --calibration]
    #[arg(long, value_name = "PATH")]
    pub fit: Option<PathBuf>,
    /// Ask Nsight Compute for the counters of the same kernels [default path: ncu]
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = "ncu")]
    pub ncu: Option<PathBuf>,
    /// How long Nsight Compute may take for a candidate at a shape
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "30", requires = "ncu")]
    pub ncu_limit: Duration,
    /// Print the summary as JSON; the tables go to stderr
    #[arg(long)]
    pub json: bool,
    /// Add the profiles to this summary, or begin it
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

/// What is known of a device: its calibration and its fitted families. A file that was named must be readable.
///
/// # Errors
/// If a file that was asked for cannot be read.
pub fn knowledge<'a>(
    options: &Options,
    project: &Project,
    fingerprint: &Fingerprint,
    suites: &'a [Suite],
) -> Result<Knowledge<'a>, Failure> {
    let path = options.calibration.clone().unwrap_or_else(|| project.newest("calibration", fingerprint));
    let limits = Calibration::read(&path).and_then(|calibration| Limits::of(&calibration));
    let limits = match limits {
        Ok(limits) => Some(limits),
        Err(why) if options.calibration.is_some() => return Err(Failure::Input(why)),
        Err(_) => None,
    };
    let path = options.fit.clone().unwrap_or_else(|| project.newest("prediction", fingerprint));
    let fitted = match Fitted::read(&path) {
        Ok(fitted) => Some(fitted),
        Err(why) if options.fit.is_some() => return Err(Failure::Input(why)),
        Err(_) => None,
    };
    Ok(Knowledge { suites, limits, fitted })
}

impl Options {
    /// A device by the name of its files, and what is known of it.
    ///
    /// # Errors
    /// If it was not calibrated, or a file cannot be read.
    pub fn known_of<'a>(
        &self,
        project: &Project,
        on: &str,
        suites: &'a [Suite],
    ) -> Result<(Fingerprint, Knowledge<'a>), Failure> {
        if !on.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(Failure::Input(format!("--on {on}: expected a name such as nvidia-h200-132")));
        }
        let kept = project.folder.join("snapshots/calibration").join(format!("{on}.json"));
        let path = self.calibration.clone().unwrap_or(kept);
        let device = Calibration::read(&path).map_err(Failure::Input)?.device;
        let known = knowledge(self, project, &device, suites)?;
        Ok((device, known))
    }

    /// Has a signal leave nothing behind but the summary, which knows all that was measured before.
    pub fn survive_signals(&self) {
        let out = self.out.clone();
        keep_results(move |signal| {
            end_all();
            let place = out.map_or_else(|| "above".into(), |out| format!("in {}", out.display()));
            note(format_args!("ended by {signal}: what was measured is {place}"));
        });
    }

    /// Shows a profile and adds it to the summary; then does what else was asked for, which may take long, and shows and adds
    /// what came of that. `command` is what Nsight Compute runs.
    ///
    /// # Errors
    /// If the summary cannot be written.
    pub fn keep_and_go_on(
        &self,
        (mut run, mut ideas): (ProfileRun, Vec<Idea>),
        (device, known, seed): (&dyn Device, &Knowledge<'_>, u64),
        command: impl FnOnce() -> Vec<OsString>,
        tell: &dyn Fn(&str),
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        self.keep(run.clone(), summary)?;
        let name = format!("{} {} {}", run.subject, run.way, run.dtype);
        if let Some(ncu) = &self.ncu {
            tell(&format!("{name}: under Nsight Compute, for {} s at the most", self.ncu_limit.as_secs_f64()));
            let before = run.notes.len();
            counted(&mut run, ncu, &command(), self.ncu_limit);
            let counters = run.counters.as_ref().map(counter_table).unwrap_or_default();
            self.show(&(counters + &notes(&run.notes[before..])))?;
            self.add(run.clone(), summary)?;
        }
        if self.apply && !ideas.is_empty() {
            tell(&format!("{name}: its hints are tried"));
            apply(&mut ideas, device, known, seed, &mut |why| note(format_args!("not applied: {why}")));
            run.hints = ideas.into_iter().map(|idea| idea.hint).collect();
            self.show(&hint_table(&run.hints))?;
            self.add(run, summary)?;
        }
        Ok(())
    }

    /// Writes the trace if one was asked for; `number` is that of the case, from 1.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep_trace(&self, timeline: &Timeline, knowledge: &Knowledge<'_>, number: usize) -> Result<(), Failure> {
        let Some(path) = &self.trace else { return Ok(()) };
        let path = numbered(path, number);
        let known = known(timeline, knowledge);
        let text = if self.trace_all {
            chrome::trace(timeline, &known)
        } else {
            chrome::trace(&last_repeat(timeline), &known)
        };
        let kept = Place::of(&path)?.write(&text);
        kept.map_err(|e| Failure::Input(format!("{}: cannot write: {e}", path.display())))?;
        note(format_args!("trace: {} ({:.1} MB); ui.perfetto.dev opens it", path.display(), text.len() as f64 * 1e-6));
        Ok(())
    }

    /// Shows a profile and adds it to the summary.
    ///
    /// # Errors
    /// If the summary cannot be written.
    pub fn keep(&self, run: ProfileRun, summary: &mut Summary) -> Result<(), Failure> {
        self.show(&table(&run))?;
        self.add(run, summary)
    }

    fn show(&self, text: &str) -> Result<(), Failure> {
        if self.json {
            without_line(|| eprint!("{text}"));
            return Ok(());
        }
        print(text)
    }

    /// After each step: what was measured outlives whatever ends this process.
    fn add(&self, run: ProfileRun, summary: &mut Summary) -> Result<(), Failure> {
        merge(&mut summary.profiles, vec![run]);
        self.out.as_ref().map_or(Ok(()), |out| Ok(summary.write_into(out)?))
    }

    /// Prints the summary if it was asked for as JSON.
    ///
    /// # Errors
    /// If stdout cannot be written to.
    pub fn finish(&self, summary: &Summary) -> Result<(), Failure> {
        if self.json { print(&summary.to_json()) } else { Ok(()) }
    }
}

/// `trace.json`, `trace-2.json`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    if number <= 1 {
        return path.to_owned();
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map_or_else(String::new, |extension| format!(".{}", extension.to_string_lossy()));
    path.with_file_name(format!("{stem}-{number}{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_several_cases_are_numbered() {
        let path = Path::new("a/trace.json");
        assert_eq!([1, 2].map(|n| numbered(path, n)), ["a/trace.json", "a/trace-2.json"].map(PathBuf::from));
    }
}
