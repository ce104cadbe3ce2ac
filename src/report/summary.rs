//! The summary of a run: `summary.json`, its version, how it is read, merged and written.
//!
//! JSON has no NaN and no infinity: a number that is not finite is written as `null` and read back as NaN.

use super::ceiling::{self, Ceiling};
use super::error::Error;
use super::models::{self, ModelRun};
use super::record::Record;
use super::workloads::{self, WorkloadRun};
use crate::check::builds::BuildComparison;
use crate::check::outcome::Verdict;
use crate::core::dtype::DType;
use crate::core::packed;
use crate::core::place::{Place, beside};
use crate::device::fingerprint::Fingerprint;
use crate::measure::lock::{self, Kind};
use crate::measure::noise::NoiseReport;
use crate::profile::{self, ProfileRun};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

/// The version of the format. It grows when a reader of the version before would misunderstand a file. Version 2 writes
/// down peers that failed, with a verdict and without a time, and comparisons of two builds.
pub const VERSION: u32 = 2;

/// How long another process may take to write down its part.
const LOCK_LIMIT: Duration = Duration::from_secs(60);

/// All that a run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The version of this format.
    pub version: u32,
    /// The run.
    pub run: Run,
    /// The devices that were used.
    pub devices: Vec<DeviceEntry>,
    /// What the devices were measured to reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ceilings: Vec<Ceiling>,
    /// How far one kernel is from itself when measured again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noise: Vec<NoiseEntry>,
    /// Two builds against each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub builds: Vec<BuildComparison>,
    /// Language models that were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelRun>,
    /// Workloads that were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadRun>,
    /// Where the time of runs went.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<ProfileRun>,
    /// How many trials ended with each verdict; every verdict is there.
    pub counts: BTreeMap<Verdict, usize>,
    /// One entry a trial, ordered by operator, candidate, dtype and check.
    pub records: Vec<Record>,
}

/// What was run, when and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Shared by all processes of one run.
    pub id: String,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// The seed that all cases derive from; text in JSON, whose readers round large numbers.
    #[serde(with = "crate::core::seed::text")]
    pub seed: u64,
    /// The command line, without folders.
    pub command: String,
    /// The package whose gate this is.
    pub package: String,
    /// The version of kernelgate.
    pub kernelgate: String,
    /// The commit of the package, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The operating system.
    pub os: String,
    /// The instruction set of the host.
    pub arch: String,
    /// The ids of other runs whose records were merged into this summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<String>,
}

/// A device under its key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceEntry {
    /// What records refer to.
    pub key: String,
    /// The device.
    #[serde(flatten)]
    pub fingerprint: Fingerprint,
}

/// The noise of one case on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseEntry {
    /// The key of the device.
    pub device: String,
    /// What was found.
    #[serde(flatten)]
    pub report: NoiseReport,
}

impl NoiseEntry {
    /// Which case it is of, for people.
    pub fn name(&self) -> String {
        let (device, operator, candidate, dtype, shape) = self.identity();
        format!("`{operator}::{candidate}::{dtype}` {shape} on {device}")
    }

    fn identity(&self) -> (&str, &str, &str, DType, &str) {
        let report = &self.report;
        (&self.device, &report.operator, &report.candidate, report.dtype, &report.shape)
    }
}

impl Summary {
    /// A summary without records.
    pub fn new(run: Run) -> Self {
        let mut summary = Summary {
            version: VERSION,
            run,
            devices: Vec::new(),
            ceilings: Vec::new(),
            noise: Vec::new(),
            builds: Vec::new(),
            models: Vec::new(),
            workloads: Vec::new(),
            profiles: Vec::new(),
            counts: BTreeMap::new(),
            records: Vec::new(),
        };
        summary.settle();
        summary
    }

    /// Adds a device that was used.
    pub fn add_device(&mut self, fingerprint: &Fingerprint) {
        let key = fingerprint.key();
        if !self.devices.iter().any(|entry| entry.key == key) {
            self.devices.push(DeviceEntry { key, fingerprint: fingerprint.clone() });
        }
    }

    /// Adds records; each replaces an older one of the same trial on the same device.
    pub fn add(&mut self, records: Vec<Record>) {
        let newer: HashSet<_> = records.iter().map(Record::identity).collect();
        self.records.retain(|old| !newer.contains(&old.identity()));
        drop(newer);
        self.records.extend(records);
        self.settle();
    }

    /// Takes over everything from `other`, whose records are the newer ones; shapes that only the older one has times of
    /// stay.
    pub fn merge(&mut self, mut other: Summary) {
        if other.run.id != self.run.id {
            self.run.merged.push(other.run.id);
        }
        self.run.merged.extend(other.run.merged);
        self.version = self.version.max(other.version);
        self.run.merged.sort();
        self.run.merged.dedup();
        self.run.started = self.run.started.clone().min(other.run.started);
        other.devices.iter().for_each(|entry| self.add_device(&entry.fingerprint));
        self.ceilings.retain(|old| !other.ceilings.iter().any(|new| new.is_like(old)));
        self.ceilings.extend(other.ceilings);
        self.noise.retain(|old| !other.noise.iter().any(|new| new.identity() == old.identity()));
        self.noise.extend(other.noise);
        let same =
            |a: &BuildComparison, b: &BuildComparison| (&a.device, &a.case, a.turn) == (&b.device, &b.case, b.turn);
        self.builds.retain(|old| !other.builds.iter().any(|new| same(new, old)));
        self.builds.extend(other.builds);
        models::merge(&mut self.models, other.models);
        workloads::merge(&mut self.workloads, other.workloads);
        profile::merge(&mut self.profiles, other.profiles);
        let older: HashMap<_, _> = self.records.iter().map(|record| (record.identity(), record)).collect();
        for record in &mut other.records {
            if let Some(older) = older.get(&record.identity()) {
                record.complete(older);
            }
        }
        self.add(other.records);
    }

    /// Restores the order and the counts.
    fn settle(&mut self) {
        use Verdict::{Fail, Faster, Invalid, Pass, Same, Skip, Slower, Unclear};
        self.records.sort_by(|a, b| {
            let names = (&a.operator, &a.candidate).cmp(&(&b.operator, &b.candidate));
            names.then((a.dtype, a.check, &a.fingerprint).cmp(&(b.dtype, b.check, &b.fingerprint)))
        });
        self.devices.sort_by(|a, b| a.key.cmp(&b.key));
        ceiling::raise(&mut self.ceilings, &self.records);
        self.counts = [Pass, Fail, Skip, Same, Faster, Slower, Unclear, Invalid].map(|verdict| (verdict, 0)).into();
        for record in &self.records {
            *self.counts.entry(record.outcome.verdict).or_default() += 1;
        }
    }

    /// Reads the text of a summary.
    ///
    /// # Errors
    /// If it is not a summary, or one of an unknown version.
    pub fn parse(text: &str) -> Result<Summary, Error> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } =
            serde_json::from_str(text).map_err(|source| Error::Json { version: None, source })?;
        if version == 0 || version > VERSION {
            return Err(Error::Version(version));
        }
        let mut summary: Summary =
            serde_json::from_str(text).map_err(|source| Error::Json { version: Some(version), source })?;
        // Counts are made from the records, never believed.
        summary.settle();
        Ok(summary)
    }

    /// Reads a file, plain or packed with xz.
    ///
    /// # Errors
    /// As [`Summary::parse`], or if the file cannot be read.
    pub fn read(path: &Path) -> Result<Summary, Error> {
        let text = fs::read(path).and_then(packed::text);
        Summary::parse(&text.map_err(Error::file(path, "cannot read"))?).map_err(|error| error.within(path))
    }

    /// The JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a summary has string keys and no failing serializer") + "\n"
    }

    /// Writes it to a place, packed with xz if its name ends in `.xz`. A reader of a file sees the old one or the new one,
    /// never a part; a device or a pipe is written through.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        create_folder_of(path)?;
        self.write_to(&mut Place::of(path)?, path)
    }

    /// Writes it to a file on top of what an earlier run has written there.
    ///
    /// # Errors
    /// As [`Summary::write`], or if what is there is no summary.
    pub fn write_into(&self, path: &Path) -> Result<(), Error> {
        if !path.exists() {
            return self.write(path);
        }
        let mut all = Summary::read(path)?;
        all.merge(self.clone());
        all.write(path)
    }

    fn write_to(&self, place: &mut Place, path: &Path) -> Result<(), Error> {
        let json = self.to_json();
        let is_packed = path.extension().is_some_and(|extension| extension == "xz");
        let written = if is_packed {
            packed::pack(json.as_bytes()).and_then(|file| place.write(file))
        } else {
            place.write(json)
        };
        written.map_err(Error::file(path, "cannot write the summary"))
    }

    /// Writes a file that processes of the same run share: what they have written before stays. Records of another
    /// binary stay even where it has a trial of the same name.
    ///
    /// # Errors
    /// As [`Summary::write`], or if somebody keeps the file locked.
    pub fn gather(mut self, path: &Path) -> Result<Summary, Error> {
        create_folder_of(path)?;
        let mut place = Place::of(path)?;
        if let Place::File(real) = &place {
            let lock_path = beside(real, "lock");
            let lock = File::options().append(true).create(true).open(&lock_path);
            let lock = lock.map_err(Error::file(&lock_path, "cannot create"))?;
            lock::wait(&lock, Kind::Exclusive, LOCK_LIMIT).map_err(Error::file(&lock_path, "cannot lock"))?;
            // A file of another run, or one that cannot be read any more, is replaced.
            if let Ok(mut gathered) = Summary::read(real)
                && gathered.run.id == self.run.id
            {
                let ours: HashSet<String> = self.records.iter().map(|record| record.binary().to_owned()).collect();
                let (mine, others) = gathered.records.into_iter().partition(|old| ours.contains(old.binary()));
                gathered.records = mine;
                gathered.merge(self);
                gathered.records.extend::<Vec<Record>>(others);
                gathered.settle();
                self = gathered;
            }
            self.write_to(&mut place, path)?;
            drop(lock);
        } else {
            self.write_to(&mut place, path)?;
        }
        Ok(self)
    }
}

fn create_folder_of(path: &Path) -> Result<(), Error> {
    let Some(folder) = path.parent() else { return Ok(()) };
    fs::create_dir_all(folder).map_err(Error::file(folder, "cannot create"))
}

/// Runs that the tests of this module's neighbours share.
#[cfg(test)]
pub(super) mod samples {
    use super::Run;

    /// A run with a given id.
    pub fn run(id: &str) -> Run {
        Run {
            id: id.into(),
            started: "2026-11-21T04:05:06Z".into(),
            seed: 7,
            command: "gate".into(),
            package: "demo".into(),
            kernelgate: "0.1.0".into(),
            revision: None,
            os: "linux".into(),
            arch: "x86_64".into(),
            merged: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::run;
    use super::*;
    use crate::check::outcome::Outcome;
    use crate::report::record::samples::{failed, passed, record, slower};

    #[test]
    fn a_summary_round_trips_and_survives_infinity() {
        let mut summary = Summary::new(run("a"));
        summary.add(vec![failed(), passed()]);
        let read = Summary::parse(&summary.to_json()).unwrap();
        assert!(read.records[0].outcome.errors.unwrap().max_rel.is_nan(), "an infinity is read back as NaN");
        assert_eq!(read.records[1], summary.records[1]);
        assert_eq!(read.counts[&Verdict::Pass], 1);
    }

    #[test]
    fn the_newer_record_of_a_trial_stays() {
        let mut first = Summary::new(run("a"));
        first.add(vec![failed(), passed()]);
        let mut second = Summary::new(run("b"));
        second.add(vec![record(&failed().trial, Outcome::new(Verdict::Pass))]);
        first.merge(second);
        assert_eq!((first.records.len(), first.counts[&Verdict::Pass], first.counts[&Verdict::Fail]), (2, 2, 0));
        assert_eq!(first.run.merged, ["b"]);
    }

    #[test]
    fn a_newer_record_keeps_the_shapes_that_it_has_no_times_of() {
        let (mut first, mut second) = (Summary::new(run("a")), Summary::new(run("b")));
        let (older, mut newer) = (slower(), slower());
        newer.outcome.timings.remove(1);
        newer.outcome.timings[0].median_us = 2.5;
        newer.outcome.verdict = Verdict::Same;
        newer.outcome.reason.clear();
        newer.outcome.cases = 1;
        first.add(vec![older.clone()]);
        second.add(vec![newer.clone()]);
        let merged = |mut first: Summary, second: Summary| {
            first.merge(second);
            first.records.remove(0).outcome
        };
        let both = merged(first.clone(), second.clone());
        let medians = |outcome: &Outcome| -> Vec<f64> { outcome.timings.iter().map(|t| t.median_us).collect() };
        assert_eq!(medians(&both), [older.outcome.timings[1].median_us, 2.5]);
        assert_eq!((both.verdict, both.cases), (Verdict::Slower, 2), "the verdict is that of all shapes");
        assert_eq!(
            medians(&merged(second.clone(), first.clone())),
            medians(&older.outcome),
            "the later file's times stay"
        );
        assert_eq!(both.reason, older.outcome.reason);
        second.records[0].outcome.verdict = Verdict::Fail;
        second.records[0].outcome.reason = "values".into();
        let both = merged(first.clone(), second.clone());
        assert_eq!((both.verdict, both.reason.as_str()), (Verdict::Fail, "values"), "a failure stays one");
        second.records[0].outcome = Outcome::skip("no such device");
        assert_eq!(medians(&merged(first, second)), [] as [f64; 0], "what could not be timed has no times");
    }

    #[test]
    fn processes_of_one_run_share_a_file_and_another_run_replaces_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/summary.json");
        std::thread::scope(|scope| {
            for i in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    let mut summary = Summary::new(run("a"));
                    summary.add(vec![record(&format!("op{i}::c::f32::perf"), Outcome::skip("none"))]);
                    summary.gather(path).unwrap();
                });
            }
        });
        assert_eq!(Summary::read(&path).unwrap().counts[&Verdict::Skip], 8);
        Summary::new(run("b")).gather(&path).unwrap();
        assert_eq!(Summary::read(&path).unwrap().records, []);
    }

    #[test]
    fn a_later_version_is_refused_by_name() {
        let text = Summary::new(run("a")).to_json().replace(&format!("\"version\": {VERSION}"), "\"version\": 99");
        assert!(Summary::parse(&text).unwrap_err().to_string().contains("version 99"));
        assert!(Summary::parse("{}").unwrap_err().to_string().contains("not a summary"));
        let text = Summary::new(run("a")).to_json().replace(&format!("\"version\": {VERSION}"), "\"version\": 0");
        assert!(Summary::parse(&text).unwrap_err().to_string().contains("version 0"));
    }

    #[test]
    fn a_name_that_ends_in_xz_is_written_packed_and_read_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let [packed, other] = ["summary.json.xz", "summary.json"].map(|name| folder.path().join(name));
        let mut summary = Summary::new(run("a"));
        summary.add(vec![passed()]);
        summary.write(&packed).unwrap();
        let file = fs::read(&packed).unwrap();
        assert!(file.starts_with(b"\xFD7zXZ"), "{} bytes", file.len());
        fs::write(&other, &file).unwrap();
        for path in [&packed, &other] {
            assert_eq!(Summary::read(path).unwrap().to_json(), summary.to_json());
        }
        summary.add(vec![failed()]);
        summary.gather(&packed).unwrap();
        assert_eq!(Summary::read(&packed).unwrap().records.len(), 2, "what lies there is packed too");

        fs::write(&packed, &file[..file.len() / 2]).unwrap();
        let why = Summary::read(&packed).unwrap_err().to_string();
        assert!(why.contains("summary.json.xz: cannot read: it is packed with xz, and cut or damaged"), "{why}");
    }

    #[test]
    fn counts_are_those_of_the_records() {
        let mut summary = Summary::new(run("a"));
        summary.add(vec![failed(), passed()]);
        summary.counts = [(Verdict::Pass, 2)].into();
        let read = Summary::parse(&summary.to_json()).unwrap();
        assert_eq!((read.counts[&Verdict::Fail], read.counts[&Verdict::Pass]), (1, 1));
    }

    #[test]
    fn two_binaries_of_one_run_keep_both_their_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.json");
        let of = |test: &str, verdict: Verdict| {
            let mut summary = Summary::new(run("a"));
            let record = record("op::c::f32::correctness", Outcome::new(verdict));
            let repeat = format!("cargo test --test {test} -- --exact op::c::f32::correctness");
            summary.add(vec![Record { repeat, ..record }]);
            summary.gather(&path).unwrap()
        };
        of("one", Verdict::Fail);
        let both = of("two", Verdict::Pass);
        assert_eq!((both.counts[&Verdict::Fail], both.counts[&Verdict::Pass]), (1, 1));
        let both = of("two", Verdict::Skip);
        assert_eq!((both.counts[&Verdict::Fail], both.counts[&Verdict::Pass], both.records.len()), (1, 0, 2));
    }
}
