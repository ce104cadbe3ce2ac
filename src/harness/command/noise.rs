//! `noise`: the A/A test of a kernel on this device: its noise, how often that would be called slower, and the
//! smallest slowdown that is found. Thresholds come from this.

use super::selection::{Selected, Selection};
use super::{Failure, Workplace, noise_stored, print};
use crate::baseline::BaselineSettings;
use crate::check::perf::PerfSettings;
use crate::device::fingerprint::Fingerprint;
use crate::harness::project::Project;
use crate::harness::terminal::note;
use crate::measure::inputs::footprint_bytes;
use crate::measure::noise::{NoiseCase, NoiseReport, NoiseSettings, analyse, describe_reports, table_of};
use crate::measure::threshold::NoiseTable;
use crate::report::summary::{NoiseEntry, Summary};
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `noise`.
#[derive(Args)]
pub struct Noise {
    #[command(flatten)]
    selection: Selection,
    /// Comparisons of each kernel with itself
    #[arg(long, value_name = "N", default_value_t = 20)]
    trials: usize,
    /// Comparisons with the slowdown planted that must be found
    #[arg(long, value_name = "N", default_value_t = 20)]
    planted: usize,
    /// Comparisons at each step of the search for the smallest slowdown that is found; 0 leaves it out
    #[arg(long, value_name = "N", default_value_t = 0)]
    search: usize,
    /// Hold sessions of today against the accepted times instead: false alarms, and which of 1, 2 and 5 % planted are found
    #[arg(long, conflicts_with_all = ["planted", "search", "save", "json"])]
    stored: bool,
    /// Make this the noise table of the device: snapshots/noise/DEVICE.json, from which thresholds then come
    #[arg(long)]
    save: bool,
    /// Print the summary as JSON; the table goes to stderr
    #[arg(long)]
    json: bool,
    /// Where the summary goes [default: target/kernelgate/noise.json]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

/// What was found on one device.
struct OfDevice {
    fingerprint: Fingerprint,
    reports: Vec<NoiseReport>,
}

impl Noise {
    /// Measures and reports.
    pub fn run(self, workplace: &Workplace<'_>) -> Result<(), Failure> {
        let project = workplace.project;
        if self.stored {
            let out = self.out.unwrap_or_else(|| project.summary_path().with_file_name("noise-stored.json"));
            return noise_stored::run(workplace, &self.selection, self.trials, &out);
        }
        let folder = BaselineSettings::new(&project.folder).noise_folder();
        let mut found: Vec<OfDevice> = Vec::new();
        let mut summary =
            self.selection.each(workplace, |&Selected { trial, ref subject, device, points, progress, .. }| {
                let fingerprint = device.fingerprint();
                let table = NoiseTable::load(&folder, &fingerprint.key(), fingerprint.kind).map_err(Failure::Input)?;
                let perf = PerfSettings::of(device.kind());
                let settings = NoiseSettings {
                    plan: perf.plan(),
                    session: perf.session,
                    trials: self.trials,
                    planted_trials: self.planted,
                    search_trials: self.search,
                };
                let points = if points.is_empty() { subject.operator.perf_shapes() } else { points };
                let fits = |point: &&Vec<usize>| {
                    // Both sides of a comparison are on the device at once.
                    2 * footprint_bytes(subject.operator, point, subject.dtype) <= device.capacity().timed_bytes
                        && subject.operator.cost(point, subject.dtype).flops <= perf.most_flops
                };
                for point in points.iter().filter(fits) {
                    let (operator, candidate, dtype) = (subject.operator, subject.candidate, subject.dtype);
                    let case = NoiseCase { operator, candidate, dtype, point };
                    note(format_args!("{}", trial.name));
                    match analyse(device, &case, &table, &settings, self.selection.seed) {
                        Ok(report) => keep(&mut found, fingerprint, report),
                        Err(fault) => note(format_args!("{}: {fault}", trial.name)),
                    }
                    progress.step();
                }
                Ok(())
            })?;
        for device in &found {
            let text = format!("{}\n{}", device.fingerprint.key(), describe_reports(&device.reports));
            if self.json {
                eprint!("{text}")
            } else {
                print(&text)?
            }
            if self.save {
                save(&folder, device)?;
            }
            let entry = |report: &NoiseReport| NoiseEntry { device: device.fingerprint.key(), report: report.clone() };
            summary.noise.extend(device.reports.iter().map(entry));
        }
        self.write(&summary, project)
    }

    fn write(&self, summary: &Summary, project: &Project) -> Result<(), Failure> {
        let out = self.out.clone().unwrap_or_else(|| project.summary_path().with_file_name("noise.json"));
        summary.write(&out).map_err(Failure::Input)?;
        note(format_args!("summary: {}", out.display()));
        if self.json { print(&summary.to_json()) } else { Ok(()) }
    }
}

fn keep(found: &mut Vec<OfDevice>, fingerprint: &Fingerprint, report: NoiseReport) {
    match found.iter_mut().find(|device| device.fingerprint == *fingerprint) {
        Some(device) => device.reports.push(report),
        None => found.push(OfDevice { fingerprint: fingerprint.clone(), reports: vec![report] }),
    }
}

fn save(folder: &Path, device: &OfDevice) -> Result<(), Failure> {
    let Fingerprint { name, driver, compiler, .. } = &device.fingerprint;
    let source = format!("kernelgate noise on {name}, {driver}, {compiler}; measure again when one of them changes");
    let table = table_of(source, &device.reports);
    let path = folder.join(format!("{}.json", device.fingerprint.key()));
    let text = serde_json::to_string_pretty(&table).map_err(|e| Failure::Input(e.to_string()))? + "\n";
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text));
    written.map_err(|e| Failure::Input(format!("{}: {e}", path.display())))?;
    note(format_args!("noise table: {}", path.display()));
    Ok(())
}
