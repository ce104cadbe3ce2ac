//! The file of a device's families: what was swept, what was fitted.

use super::family::Family;
use super::features::Features;
use super::limits::Limits;
use super::model::Parameters;
use super::process::Process;
use super::sweep::{known, with_features};
use super::swept::Swept;
use crate::calibrate::versioned;
use crate::check::Subject;
use crate::device::fingerprint::Fingerprint;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The version of the format. It grows when a reader of the version before would misunderstand a file.
///
/// 1: waves were those of the grid, and tiles had no traffic of their own. 2: the nearest cases corrected the model. What was
/// measured is still good: see [`Fitted::read_to_refit`].
pub const VERSION: u32 = 3;

/// What was fitted on a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fitted {
    /// The version of this format.
    pub version: u32,
    /// The device of the sweep.
    pub device: Fingerprint,
    /// When it was swept, RFC 3339 in UTC.
    pub measured: String,
    /// The commit of the code, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// When the calibration that it was fitted with was measured.
    pub calibrated: String,
    /// The families.
    pub families: Vec<Swept>,
    /// Those of runs that begin before the launch ahead has ended, and take what they add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chained: Vec<Swept>,
}

/// Where the files of known devices are, below the root of a project: packed where there is one that is, else plain.
pub fn stored(root: &Path, kind: &str, fingerprint: &Fingerprint) -> PathBuf {
    let plain = root.join("snapshots").join(kind).join(format!("{}.json", fingerprint.key()));
    let packed = plain.with_extension("json.xz");
    if packed.exists() && !plain.exists() { packed } else { plain }
}

impl Fitted {
    /// The family of a subject, with the limits of a device: that of the sweep, or another one that was calibrated.
    pub fn family(&self, subject: &Subject<'_>, limits: &Limits) -> Option<Family> {
        let swept = self.swept(subject)?;
        let cases = self.device.gpu().during(|| known(subject, &swept.observations).collect::<Vec<_>>());
        Family::with(swept, cases.into_iter(), (limits, self.device.units.max(1) as f64))
    }

    /// The measured cases of one of its families with what the model knows of them.
    pub fn cases(&self, subject: &Subject<'_>, swept: &Swept) -> Vec<(Features, f64)> {
        self.device.gpu().during(|| with_features(subject, &swept.observations))
    }

    /// The same with the families of chained runs in the place of the others, and the other way round.
    pub fn exchanged(self) -> Self {
        Fitted { families: self.chained, chained: self.families, ..self }
    }

    /// What was measured and fitted of a subject.
    pub fn swept(&self, subject: &Subject<'_>) -> Option<&Swept> {
        let name = (subject.operator.name(), subject.candidate.name.as_str(), subject.dtype);
        self.families.iter().find(|swept| (swept.operator.as_str(), swept.candidate.as_str(), swept.dtype) == name)
    }

    /// Puts a family in the place of an older one. Times are kept to four digits: more is noise, and does not pack.
    pub fn keep(&mut self, mut swept: Swept) {
        let kept = |us: f64| format!("{us:.3e}").parse().unwrap_or(us);
        for observation in &mut swept.observations {
            observation.us = kept(observation.us);
            observation.modelled_us = observation.modelled_us.map(kept);
            observation.unasked_us = observation.unasked_us.map(kept);
        }
        for process in std::iter::once(&mut swept.process).chain(&mut swept.unasked) {
            let kept = |number: &mut f64, digits: usize| {
                *number = format!("{number:.*e}", digits - 1).parse().unwrap_or(*number);
            };
            process.weights.iter_mut().for_each(|weight| kept(weight, 5));
            process.scales.iter_mut().chain(&mut process.apart).for_each(|scale| kept(scale, 7));
        }
        let name = |one: &Swept| (one.operator.clone(), one.candidate.clone(), one.dtype);
        self.families.retain(|other| name(other) != name(&swept));
        self.families.push(swept);
        self.families.sort_by_key(name);
    }

    /// Writes the file.
    ///
    /// # Errors
    /// With the path, what went wrong.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        versioned::write(path, self)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A file that is not there, is of another version, or holds times that nothing takes.
    pub fn read(path: &Path) -> Result<Self, String> {
        versioned::read(path, Self::parse)
    }

    /// Reads a file of this or an older version whose families are to be fitted again, and says whether it is an older one: its
    /// parameters may be any.
    ///
    /// # Errors
    /// As [`Fitted::read`].
    pub fn read_to_refit(path: &Path) -> Result<(Self, bool), String> {
        versioned::read(path, |text| {
            let mut value: Value =
                serde_json::from_str(text).map_err(|error| format!("no fitted families: {error}"))?;
            let version = value.get("version").and_then(Value::as_u64);
            if version.is_none_or(|version| !(1..u64::from(VERSION)).contains(&version)) {
                return Ok((Self::parse(text)?, false));
            }
            value["version"] = VERSION.into();
            for family in value["families"].as_array_mut().into_iter().flatten() {
                let cases = family["observations"].as_array().map_or(0, Vec::len);
                let process = Process { weights: vec![0.0; cases], ..Process::default() };
                let json = |error: serde_json::Error| error.to_string();
                family["parameters"] = serde_json::to_value(Parameters::IDEAL).map_err(json)?;
                family["process"] = serde_json::to_value(process).map_err(json)?;
            }
            Ok((Self::parse(&value.to_string())?, true))
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let again = "fit what it holds again by `kernelgate predict --refit`, or run `kernelgate predict --sweep`";
        let fitted: Fitted = versioned::parse(text, VERSION, ["fitted families", again])?;
        for swept in fitted.families.iter().chain(&fitted.chained) {
            let numbers = swept.parameters.as_array().into_iter().zip(Parameters::BOUNDS);
            if let Some((number, _)) =
                numbers.into_iter().find(|(number, (low, high))| !(*low..=*high).contains(number))
            {
                return Err(format!("{}: the parameter {number} is none that a fit gives", swept.operator));
            }
            let (weights, times) = (swept.process.weights.len(), swept.observations.len());
            if weights != times {
                return Err(format!("{}: {weights} weights of {times} times", swept.operator));
            }
            let times = swept.observations.iter().flat_map(|one| [Some(one.us), one.modelled_us, one.unasked_us]);
            if let Some(us) = times.flatten().find(|us| !(us.is_finite() && *us > 0.0 && *us < 1e9)) {
                return Err(format!("{}: {us} µs is no time that a launch takes", swept.operator));
            }
        }
        Ok(fitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;
    use crate::device::DeviceKind;
    use crate::predict::Observation;
    use rstest::rstest;

    fn fitted() -> Fitted {
        let device = Fingerprint {
            kind: DeviceKind::Cuda,
            name: "NVIDIA H200".into(),
            arch: "sm_90".into(),
            units: 132,
            cache_bytes: 60 << 20,
            memory_bytes: 140 << 30,
            clock_mhz: 1980.0,
            driver: "580".into(),
            compiler: String::new(),
        };
        let observations = vec![Observation::new("m=1,n=2,k=3".into(), 4.5)];
        let swept = Swept::new(("gemm", "cuda", DType::BF16), Parameters::IDEAL, observations);
        let (measured, calibrated) = ("2026-01-01T00:00:00Z".into(), "2026-01-01T00:00:00Z".into());
        Fitted {
            version: VERSION,
            device,
            measured,
            revision: None,
            calibrated,
            families: vec![swept],
            chained: Vec::new(),
        }
    }

    #[test]
    fn what_an_older_file_measured_can_be_fitted_again() {
        let text = serde_json::to_string(&fitted()).unwrap();
        let older = text.replace("\"version\":3", "\"version\":1").replace("\"memory\":1.0", "\"memory\":0.5");
        let older = older.replace(",\"cache\":0.5,\"copy\":1.0,\"unaligned\":0.0,\"straddling\":0.0", "");
        assert!(!older.contains("cache\":0") && older.contains("\"memory\":0.5"), "{older}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("older.json");
        std::fs::write(&path, &older).unwrap();
        assert_eq!(Fitted::read_to_refit(&path), Ok((fitted(), true)));
        assert!(Fitted::read(&path).unwrap_err().contains("version 1"));
        std::fs::write(&path, text.replace("\"version\":3", "\"version\":9")).unwrap();
        assert!(Fitted::read_to_refit(&path).unwrap_err().contains("version 9"));
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = stored(folder.path(), "prediction", &fitted().device);
        fitted().write(&path).unwrap();
        assert_eq!(Fitted::read(&path), Ok(fitted()));
        assert!(path.ends_with("snapshots/prediction/nvidia-h200-132.json"));
        let packed = path.with_extension("json.xz");
        fitted().write(&packed).unwrap();
        assert_eq!(stored(folder.path(), "prediction", &fitted().device), path, "the plain one while it is there");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(stored(folder.path(), "prediction", &fitted().device), packed);
        assert!(std::fs::read(&packed).unwrap().starts_with(b"\xFD7zXZ") && Fitted::read(&packed) == Ok(fitted()));
        let mut twice = fitted();
        twice.keep(fitted().families.remove(0));
        assert_eq!(twice, fitted(), "a family is there once");
        let mut swept = fitted().families.remove(0);
        (swept.observations[0].us, swept.observations[0].modelled_us) = (12.3456789, Some(0.0123456789));
        twice.keep(swept);
        let kept = &twice.families[0].observations[0];
        assert_eq!((kept.us, kept.modelled_us), (12.35, Some(0.01235)));
    }

    #[rstest]
    #[case::version(
        "\"version\":3",
        "\"version\":2",
        "`kernelgate predict --refit`, or run `kernelgate predict --sweep`"
    )]
    #[case::later("\"version\":3", "\"version\":4", "this program reads 3")]
    #[case::weights("\"weights\":[0.0]", "\"weights\":[]", "0 weights of 1 times")]
    #[case::time("4.5", "-4.5", "-4.5 µs is no time")]
    #[case::parameter("\"memory\":1.0", "\"memory\":0.0", "the parameter 0 is none")]
    #[case::torn("\"families\"", "\"fam", "no fitted families")]
    fn a_damaged_file_is_refused(#[case] from: &str, #[case] to: &str, #[case] why: &str) {
        let text = serde_json::to_string(&fitted()).unwrap();
        assert!(text.contains(from), "{text}");
        let said = Fitted::parse(&text.replace(from, to)).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}
