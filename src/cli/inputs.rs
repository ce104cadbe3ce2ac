//! The files that `report` and `plot` are given: summaries, and calibrations beside them.

use crate::calibrate::Calibration;
use crate::core::packed;
use crate::report::ceiling;
use crate::report::summary::Summary;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::path::{Path, PathBuf};

/// Files by what they hold.
pub struct Inputs {
    /// The summaries.
    pub summaries: Vec<PathBuf>,
    /// The calibrations.
    pub calibrations: Vec<PathBuf>,
}

impl Inputs {
    /// Tells them apart by their content; what is neither counts as a summary, whose reader says what is wrong.
    pub fn of(paths: &[PathBuf]) -> Self {
        let (calibrations, summaries) = paths.iter().cloned().partition(|path| is_calibration(path));
        Inputs { summaries, calibrations }
    }

    /// Reads the calibrations.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn read_calibrations(&self) -> Result<Vec<Calibration>, String> {
        self.calibrations.iter().map(|path| Calibration::read(path)).collect()
    }

    /// All summaries as one, of which later files win, with the peaks of the calibrations among its ceilings.
    ///
    /// # Errors
    /// If a file cannot be read, or none of them is a summary.
    pub fn merged(&self) -> Result<Summary, String> {
        let mut summaries = self.summaries.iter().map(|path| Summary::read(path).map_err(|error| error.to_string()));
        let mut merged = summaries.next().ok_or("no summary given")??;
        for summary in summaries {
            merged.merge(summary?);
        }
        ceiling::calibrate(&mut merged, &self.read_calibrations()?);
        Ok(merged)
    }
}

fn is_calibration(path: &Path) -> bool {
    /// What a calibration has and a summary has not, and the other way round.
    #[derive(Deserialize)]
    struct Fields {
        peaks: Option<IgnoredAny>,
        records: Option<IgnoredAny>,
    }
    let text = std::fs::read(path).and_then(packed::text).ok();
    let fields = text.and_then(|text| serde_json::from_str::<Fields>(&text).ok());
    fields.is_some_and(|fields| fields.peaks.is_some() && fields.records.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_is_told_from_a_summary_and_gives_it_peaks() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let gate = root.join("docs/results/h200-gate.json.xz");
        let calibration = root.join("snapshots/calibration/nvidia-h200-132.json");
        let other = root.join("snapshots/calibration/nvidia-h100-80gb-hbm3-132.json");
        let inputs = Inputs::of(&[calibration.clone(), gate.clone(), other]);
        assert_eq!((&inputs.summaries, inputs.calibrations.len()), (&vec![gate.clone()], 2));
        let names = |summary: &Summary| summary.ceilings.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&Inputs::of(&[gate]).merged().unwrap()), ["copy", "fma", "read"]);
        let with = names(&inputs.merged().unwrap());
        let tensor = |name: &&String| name.starts_with("tensor_");
        assert_eq!((with.len(), with.iter().filter(tensor).count()), (7, 4), "those of its own device: {with:?}");
        let share = |summary: &Summary, trial: &str| {
            let record = summary.records.iter().find(|record| record.trial == trial).unwrap();
            record.outcome.timings.iter().map(|timing| timing.of_ceiling).next_back().unwrap()
        };
        let (plain, with) = (Inputs::of(&inputs.summaries).merged().unwrap(), inputs.merged().unwrap());
        let product = "gemm::cuda::bf16::perf";
        assert_eq!(share(&plain, product), None, "arithmetic binds it, and its peak is not known");
        assert!((0.5..1.0).contains(&share(&with, product).unwrap()), "{:?}", share(&with, product));
        for trial in ["gelu::cuda::bf16::perf", "gemm::cuda::f32::perf"] {
            assert!(share(&plain, trial).is_some() && share(&plain, trial) == share(&with, trial), "{trial}");
        }
        assert_eq!(Inputs::of(&[calibration]).merged().unwrap_err(), "no summary given");
    }
}
