//! Times that summaries have recorded or sweeps have measured: a sweep or a validation without a device.

use crate::check::Subject;
use crate::check::outcome::{Check, Verdict};
use crate::cli::Failure;
use crate::core::shape::parse;
use crate::device::{DeviceKind, Heat};
use crate::predict::{Fitted, Observation};
use crate::report::summary::Summary;
use std::path::PathBuf;

/// The files that are read.
pub struct Recorded {
    summaries: Vec<Summary>,
    sweeps: Vec<Fitted>,
}

impl Recorded {
    /// Reads them: summaries, and what `--sweep` has written.
    pub fn read(paths: &[PathBuf]) -> Result<Self, Failure> {
        let mut recorded = Recorded { summaries: Vec::new(), sweeps: Vec::new() };
        for path in paths {
            match Fitted::read(path) {
                Ok(sweep) => recorded.sweeps.push(sweep),
                Err(_) => recorded.summaries.push(Summary::read(path)?),
            }
        }
        Ok(recorded)
    }

    /// When the last of them was measured.
    pub fn measured(&self) -> String {
        let of_summaries = self.summaries.iter().map(|summary| summary.run.started.as_str());
        let of_sweeps = self.sweeps.iter().map(|sweep| sweep.measured.as_str());
        of_summaries.chain(of_sweeps).max().unwrap_or_default().to_owned()
    }

    /// The cold times of a candidate on the device of that key, its own and those as somebody's peer. `called` are the names
    /// that it had then.
    pub fn of(&self, subject: &Subject<'_>, called: &[String], device: &str) -> Vec<Observation> {
        let (operator, dtype) = (subject.operator, subject.dtype);
        let is_it = |name: &str| {
            if called.is_empty() { name == subject.candidate.name } else { called.iter().any(|called| called == name) }
        };
        let records = self.summaries.iter().flat_map(|summary| &summary.records).filter(|record| {
            record.operator == operator.name()
                && record.dtype == dtype
                && record.check == Check::Perf
                && record.fingerprint.as_deref() == Some(device)
        });
        let sweeps = self.sweeps.iter().filter(|sweep| called.is_empty() && sweep.device.key() == device);
        let swept = sweeps.filter_map(|sweep| sweep.swept(subject)).flat_map(|swept| swept.observations.clone());
        let mut found: Vec<Observation> = swept.collect();
        for record in records {
            for timing in record.outcome.timings.iter().filter(|timing| timing.heat == Heat::Cold) {
                if parse(operator.axes(), &timing.shape).is_err() {
                    continue;
                }
                let mut keep = |us: f64, about: Option<&str>| {
                    if !(us.is_finite() && us > 0.0) {
                        return;
                    }
                    let is_library = subject.candidate.body.is_library();
                    let algorithm = about.filter(|_| is_library).map(str::to_owned);
                    found.push(Observation { algorithm, ..Observation::new(timing.shape.clone(), us) });
                };
                // As sweeps have it: what a scheduler takes away is no property of a host.
                let us = if record.device == DeviceKind::Cpu { timing.p5_us } else { timing.median_us };
                if is_it(&record.candidate) && timing.verdict != Verdict::Invalid {
                    keep(us, None);
                }
                let peers = timing.peers.iter().filter(|peer| peer.verdict == Verdict::Pass && is_it(&peer.name));
                peers.for_each(|peer| keep(peer.median_us, Some(&peer.about)));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn recorded(trial: &str, called: &[&str], file: &str, device: &str) -> Vec<Observation> {
        let suites = crate::ops::catalogue();
        let (operator, candidate) = trial.split_once("::").unwrap();
        let suite = suites.iter().find(|suite| suite.operator.name() == operator).unwrap();
        let candidate = suite.candidates.iter().find(|c| c.name == candidate).unwrap();
        let dtype = crate::core::dtype::DType::BF16;
        let subject = Subject { operator: suite.operator.as_ref(), candidate, dtype };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results").join(file);
        let called: Vec<String> = called.iter().map(|name| (*name).to_owned()).collect();
        Recorded::read(&[path]).unwrap_or_else(|_| panic!("{file}")).of(&subject, &called, device)
    }

    #[test]
    fn times_are_found_by_the_name_of_then_and_on_their_device_alone() {
        let file = "h200-peers.json.xz";
        let found = recorded("gemm::naive", &["cuda"], file, "nvidia-h200-132");
        assert!(found.len() == 9 && found.iter().all(|one| one.algorithm.is_none()), "{found:?}");
        assert!(recorded("gemm::naive", &[], file, "nvidia-h200-132").is_empty());
        assert!(recorded("gemm::naive", &["cuda"], file, "nvidia-h100-132").is_empty());
    }

    #[test]
    fn a_sweep_is_read_as_it_was_measured() {
        let file = "../../snapshots/prediction/nvidia-h200-132.json.xz";
        let found = recorded("softmax::cuda", &[], file, "nvidia-h200-132");
        assert!(found.len() > 20 && found.iter().all(|one| one.us > 0.0), "{found:?}");
        assert!(recorded("softmax::cuda", &[], file, "nvidia-h100-132").is_empty(), "of that device alone");
    }

    #[test]
    #[cfg(feature = "cuda")]
    fn a_library_of_then_is_known_by_its_tiles() {
        let found = recorded("gemm::cublaslt", &[], "h200-peers.json.xz", "nvidia-h200-132");
        let said = |one: &Observation| one.algorithm.as_deref().is_some_and(|algorithm| algorithm.contains("tile "));
        assert!(found.len() == 9 && found.iter().all(said), "{found:?}");
    }
}
