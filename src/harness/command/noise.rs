//! `noise`: the A/A test of a kernel on this device: its noise, how often that would be called slower, and the
//! smallest slowdown that is found. Thresholds come from this.

use super::selection::{Selected, Selection};
use super::{Failure, Workplace, noise_stored, print};
use crate::baseline::BaselineSettings;
use crate::calibrate::versioned;
use crate::check::perf::PerfSettings;
use crate::device::fingerprint::Fingerprint;
use crate::harness::terminal::note;
use crate::measure::inputs::footprint_bytes;
use crate::measure::noise::{NoiseCase, NoiseReport, NoiseSettings, analyse, describe_reports, table_of};
use crate::measure::threshold::NoiseTable;
use crate::report::summary::{NoiseEntry, Summary};
use clap::Args;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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
    /// Keep this in the noise table of the device, snapshots/noise/DEVICE.json, from which thresholds then come
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
        let out = self.out.clone().unwrap_or_else(|| project.summary_path().with_file_name("noise.json"));
        let mut found: Vec<OfDevice> = Vec::new();
        let mut tables = BTreeMap::new();
        let mut summary = Summary::new(project.describe_run(self.selection.seed));
        self.selection.each(workplace, |&Selected { trial, ref subject, device, points, progress, .. }| {
            let fingerprint = device.fingerprint();
            summary.add_device(fingerprint);
            // As it was before this run: what is saved on the way decides of nothing here.
            let table = match tables.entry(fingerprint.key()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let table = NoiseTable::load(&folder, new.key(), fingerprint.kind).map_err(Failure::Input)?;
                    new.insert(table)
                }
            };
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
                match analyse(device, &case, table, &settings, self.selection.seed) {
                    Ok(report) => {
                        summary.noise.push(NoiseEntry { device: fingerprint.key(), report: report.clone() });
                        let of_device = keep(&mut found, fingerprint, report);
                        // After each case: what was measured outlives whatever ends this process.
                        summary.write(&out)?;
                        if self.save {
                            save(&folder, of_device)?;
                        }
                    }
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
                note(format_args!("noise table: {}", table_path(&folder, &device.fingerprint).display()));
            }
        }
        summary.write(&out)?;
        note(format_args!("summary: {}", out.display()));
        if self.json { print(&summary.to_json()) } else { Ok(()) }
    }
}

fn keep<'a>(found: &'a mut Vec<OfDevice>, fingerprint: &Fingerprint, report: NoiseReport) -> &'a OfDevice {
    let at = found.iter().position(|device| device.fingerprint == *fingerprint).unwrap_or_else(|| {
        found.push(OfDevice { fingerprint: fingerprint.clone(), reports: Vec::new() });
        found.len() - 1
    });
    found[at].reports.push(report);
    &found[at]
}

fn table_path(folder: &Path, device: &Fingerprint) -> PathBuf {
    folder.join(format!("{}.json", device.key()))
}

/// Makes what was measured part of the device's table.
fn save(folder: &Path, device: &OfDevice) -> Result<(), Failure> {
    let Fingerprint { name, driver, compiler, kind, .. } = &device.fingerprint;
    let source = format!("kernelgate noise on {name}, {driver}, {compiler}; measure again when one of them changes");
    let earlier = NoiseTable::load(folder, &device.fingerprint.key(), *kind).map_err(Failure::Input)?;
    let table = table_of(source, &device.reports).on_top_of(earlier);
    versioned::write(&table_path(folder, &device.fingerprint), &table).map_err(Failure::Input)
}
