//! Thresholds: the relative change that counts, from the noise of the device by length of launch.

use crate::core::dtype::DType;
use crate::device::DeviceKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The version of the file format.
pub const NOISE_VERSION: u32 = 1;

/// No change below this counts, however quiet a device is: it is seldom worth a review.
pub const LEAST_THRESHOLD: f64 = 0.01;

/// How many standard deviations of an A/A ratio a change must exceed: one comparison in thirty thousand does so by
/// chance, and a gate makes hundreds.
pub const DEVIATIONS: f64 = 4.0;

/// How one kernel differs from itself, by length of launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseTable {
    /// [`NOISE_VERSION`].
    pub version: u32,
    /// What it was measured on, and when to measure again.
    pub source: String,
    /// Classes in ascending order of launch time, for cases that were not measured themselves.
    pub classes: Vec<NoiseClass>,
    /// The cases that were, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cases: BTreeMap<String, CaseNoise>,
}

/// The noise of one case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseNoise {
    /// Its launch time, µs.
    pub launch_us: f64,
    /// Standard deviation of the ratio of two medians of one session.
    pub paired_sd: f64,
    /// The same for medians of two sessions.
    pub stored_sd: f64,
    /// How many ratios both come from.
    pub trials: usize,
    /// The smallest slowdown that is found at least 95 times in 100; `None` where not even the largest one that was tried is.
    pub smallest_found: Option<f64>,
}

/// The name of a case in a noise table.
pub fn case_name(operator: &str, candidate: &str, dtype: DType, shape: &str) -> String {
    format!("{operator}::{candidate}::{dtype} {shape}")
}

/// Ratios that make a deviation of a case. From ten on it is within a quarter of the true one nearly always.
const LEAST_TRIALS: usize = 10;

/// A case whose launches now take another time than when its noise was measured is another kernel: as many times longer
/// or shorter, its class decides.
const SAME_KERNEL: f64 = 1.5;

/// The noise of launches of some length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoiseClass {
    /// Launches at least this long, µs, up to the next class.
    pub from_us: f64,
    /// Standard deviation of the ratio of two medians of one session.
    pub paired_sd: f64,
    /// The same for medians of two sessions, as when a time is held against a stored one.
    pub stored_sd: f64,
}

/// What a ratio compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Two contestants of one session.
    Paired,
    /// A session and a stored time.
    Stored,
}

impl Distance {
    fn of(self, paired_sd: f64, stored_sd: f64) -> f64 {
        match self {
            Distance::Paired => paired_sd,
            Distance::Stored => stored_sd,
        }
    }
}

impl NoiseTable {
    /// The table before a device has one of its own.
    pub fn initial(kind: DeviceKind) -> Self {
        let class = |from_us, paired_sd, stored_sd| NoiseClass { from_us, paired_sd, stored_sd };
        match kind {
            // Graphs of 100 launches over rotated buffers, 20 a side in random order, on one H200: 0.20 % at 2.3 µs,
            // 0.11 % at 3.9 µs, 0.08 % at 17.5 µs. Sessions apart were not measured: twice that.
            DeviceKind::Cuda => NoiseTable {
                version: NOISE_VERSION,
                source: "one H200, graph batches in random order".into(),
                classes: vec![class(0.0, 0.0020, 0.0040), class(3.0, 0.0011, 0.0022), class(10.0, 0.0008, 0.0016)],
                cases: BTreeMap::new(),
            },
            // A host with other work on it; a quiet one gets its own table.
            DeviceKind::Cpu | DeviceKind::Sim => NoiseTable {
                version: NOISE_VERSION,
                source: "an assumption, wide on purpose".into(),
                classes: vec![class(0.0, 0.02, 0.05)],
                cases: BTreeMap::new(),
            },
        }
    }

    /// The table of a device from `<folder>/<key>.json`, or the initial one where there is none.
    ///
    /// # Errors
    /// If the file is there and cannot be used; the text says what to do.
    pub fn load(folder: &Path, key: &str, kind: DeviceKind) -> Result<Self, String> {
        let path = folder.join(format!("{key}.json"));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(NoiseTable::initial(kind)),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let unusable = |what: String| {
            let path = path.display();
            format!("{path}: {what}; measure it again with `kernelgate noise` or remove it to use the initial table")
        };
        let table: NoiseTable = serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))?;
        table.check().map_err(unusable)?;
        Ok(table)
    }

    fn check(&self) -> Result<(), String> {
        if self.version != NOISE_VERSION {
            return Err(format!("version {} instead of {NOISE_VERSION}", self.version));
        }
        let is_noise = |sd: f64| (0.0..1.0).contains(&sd);
        let classes = &self.classes;
        if classes.is_empty() || !classes.is_sorted_by(|a, b| a.from_us < b.from_us) {
            return Err("the classes are not in ascending order".into());
        }
        if let Some(class) = classes.iter().find(|class| !is_noise(class.paired_sd) || !is_noise(class.stored_sd)) {
            return Err(format!("the class from {} µs has no sensible deviation", class.from_us));
        }
        let is_sound = |case: &CaseNoise| is_noise(case.paired_sd) && is_noise(case.stored_sd) && case.launch_us > 0.0;
        match self.cases.iter().find(|(_, case)| !is_sound(case)) {
            Some((name, _)) => Err(format!("`{name}` has no sensible deviation or time")),
            None => Ok(()),
        }
    }

    /// The relative change that counts for a case: by its own noise where that was measured, else by that of its class. One
    /// kernel that has two speeds then widens its own threshold and no other.
    pub fn threshold_of(&self, case: &str, launch_us: f64, distance: Distance) -> f64 {
        let is_of_now = |known: &&CaseNoise| {
            let change = launch_us / known.launch_us;
            known.trials >= LEAST_TRIALS && (1.0 / SAME_KERNEL..=SAME_KERNEL).contains(&change)
        };
        match self.cases.get(case).filter(is_of_now) {
            Some(known) => LEAST_THRESHOLD.max(DEVIATIONS * distance.of(known.paired_sd, known.stored_sd)),
            None => self.threshold(launch_us, distance),
        }
    }

    /// The relative change that counts for launches of `launch_us` of any kernel.
    pub fn threshold(&self, launch_us: f64, distance: Distance) -> f64 {
        let class = self.classes.iter().rev().find(|class| launch_us >= class.from_us).or(self.classes.first());
        let sd = class.map_or(0.0, |class| distance.of(class.paired_sd, class.stored_sd));
        LEAST_THRESHOLD.max(DEVIATIONS * sd)
    }
}

/// Launch times at which the classes of a measured table begin, µs.
const CLASS_STARTS_US: [f64; 5] = [0.0, 3.0, 10.0, 30.0, 100.0];

/// One kernel against itself, many times over.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfRatios {
    /// [`case_name`].
    pub case: String,
    /// Its launch time, µs.
    pub launch_us: f64,
    /// Ratios within a session.
    pub paired: Vec<f64>,
    /// Ratios between sessions.
    pub stored: Vec<f64>,
    /// [`CaseNoise::smallest_found`].
    pub smallest_found: Option<f64>,
}

impl NoiseTable {
    /// The table from A/A ratios of several kernels; classes in which nothing was measured are left out.
    pub fn measured(source: String, kernels: &[SelfRatios]) -> Self {
        let case = |kernel: &SelfRatios| {
            let noise = CaseNoise {
                launch_us: kernel.launch_us,
                paired_sd: deviation(&kernel.paired),
                stored_sd: deviation(&kernel.stored),
                trials: kernel.paired.len(),
                smallest_found: kernel.smallest_found,
            };
            (kernel.case.clone(), noise)
        };
        NoiseTable::of_cases(source, kernels.iter().map(case).collect())
    }

    /// This table with the cases of an earlier one that were not measured again; of another driver or compiler none are taken.
    pub fn on_top_of(self, earlier: NoiseTable) -> Self {
        if earlier.source != self.source {
            return self;
        }
        let mut cases = earlier.cases;
        cases.extend(self.cases);
        NoiseTable::of_cases(self.source, cases)
    }

    fn of_cases(source: String, cases: BTreeMap<String, CaseNoise>) -> Self {
        let ends = CLASS_STARTS_US.iter().skip(1).copied().chain([f64::INFINITY]);
        let class = |(&from_us, to_us): (&f64, f64)| {
            let members = || cases.values().filter(|case| (from_us..to_us).contains(&case.launch_us));
            // The noisiest kernel of a class decides: a threshold must hold for every one.
            members().next().map(|_| NoiseClass {
                from_us,
                paired_sd: members().map(|case| case.paired_sd).fold(0.0, f64::max),
                stored_sd: members().map(|case| case.stored_sd).fold(0.0, f64::max),
            })
        };
        let classes = CLASS_STARTS_US.iter().zip(ends).filter_map(class).collect();
        NoiseTable { version: NOISE_VERSION, source, classes, cases }
    }
}

/// The standard deviation of ratios around 1, which is what they would be without noise. A lasting difference between
/// two sides of one kernel counts as noise too.
pub fn deviation(ratios: &[f64]) -> f64 {
    let squares: f64 = ratios.iter().map(|ratio| ratio.ln().powi(2)).sum();
    (squares / ratios.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(DeviceKind::Cuda, 2.0, Distance::Paired, 0.01)] // 4 × 0.2 % is below the least
    #[case(DeviceKind::Cuda, 2.0, Distance::Stored, 0.016)]
    #[case(DeviceKind::Cuda, 3.0, Distance::Stored, 0.01)]
    #[case(DeviceKind::Cuda, 500.0, Distance::Paired, 0.01)]
    #[case(DeviceKind::Cpu, 500.0, Distance::Stored, 0.2)]
    fn initial_thresholds(
        #[case] kind: DeviceKind,
        #[case] us: f64,
        #[case] distance: Distance,
        #[case] expected: f64,
    ) {
        approx::assert_relative_eq!(NoiseTable::initial(kind).threshold(us, distance), expected);
    }

    #[test]
    fn a_measured_table_round_trips_and_sets_thresholds() {
        let kernel = |launch_us: f64, swing: f64| SelfRatios {
            case: format!("f::c::f32 n={launch_us}"),
            launch_us,
            smallest_found: Some(0.02),
            paired: vec![1.0 + swing, 1.0 - swing],
            stored: vec![1.0 + 2.0 * swing, 1.0 - 2.0 * swing],
        };
        let table = NoiseTable::measured("test".into(), &[kernel(2.0, 0.01), kernel(2.5, 0.02), kernel(50.0, 0.001)]);
        assert_eq!(table.classes.iter().map(|class| class.from_us).collect::<Vec<_>>(), [0.0, 30.0]);
        approx::assert_relative_eq!(table.threshold(2.2, Distance::Paired), 0.08, max_relative = 0.01);
        approx::assert_relative_eq!(table.threshold(20.0, Distance::Stored), 0.16, max_relative = 0.01);
        assert_eq!(table.threshold(60.0, Distance::Stored), LEAST_THRESHOLD);

        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gpu-1.json"), serde_json::to_string_pretty(&table).unwrap()).unwrap();
        assert_eq!(NoiseTable::load(folder.path(), "gpu-1", DeviceKind::Cuda), Ok(table));
        assert_eq!(
            NoiseTable::load(folder.path(), "gpu-2", DeviceKind::Cuda),
            Ok(NoiseTable::initial(DeviceKind::Cuda))
        );
    }

    /// One noisy kernel among quiet ones: its class had the same threshold for all.
    #[test]
    fn each_case_has_the_threshold_of_its_own_noise() {
        let kernel = |name: &str, swing: f64, trials: usize| SelfRatios {
            case: case_name("f", name, DType::F32, "n=1"),
            launch_us: 50.0,
            paired: [1.0 + swing, 1.0 - swing].repeat(trials / 2),
            stored: [1.0 + swing, 1.0 - swing].repeat(trials / 2),
            smallest_found: None,
        };
        let table = NoiseTable::measured(
            "test".into(),
            &[kernel("two_speeds", 0.006, 20), kernel("quiet", 0.0004, 20), kernel("seldom", 0.0004, 4)],
        );
        let of =
            |name: &str, us: f64| table.threshold_of(&case_name("f", name, DType::F32, "n=1"), us, Distance::Stored);
        approx::assert_relative_eq!(of("two_speeds", 50.0), 0.024, max_relative = 0.01);
        assert_eq!(of("quiet", 50.0), LEAST_THRESHOLD);
        assert_eq!(of("seldom", 50.0), of("two_speeds", 50.0), "four ratios make no deviation");
        assert_eq!(of("unknown", 50.0), of("two_speeds", 50.0), "the noisiest of the class decides");
        assert_eq!(of("quiet", 90.0), of("two_speeds", 90.0), "another kernel by now");
        let mut damaged = table.clone();
        damaged.cases.get_mut("f::quiet::f32 n=1").unwrap().stored_sd = f64::NAN;
        assert!(damaged.check().is_err() && table.check().is_ok());
    }

    #[test]
    fn cases_that_are_not_measured_again_stay() {
        let kernel = |name: &str, swing: f64| SelfRatios {
            case: name.into(),
            launch_us: 50.0,
            paired: vec![1.0 + swing, 1.0 - swing],
            stored: vec![1.0 + swing, 1.0 - swing],
            smallest_found: None,
        };
        let earlier = NoiseTable::measured("driver 1".into(), &[kernel("a", 0.02), kernel("b", 0.003)]);
        let now = |source: &str| NoiseTable::measured(source.into(), &[kernel("a", 0.004)]);
        let joined = now("driver 1").on_top_of(earlier.clone());
        assert_eq!(joined, NoiseTable::measured("driver 1".into(), &[kernel("a", 0.004), kernel("b", 0.003)]));
        assert_eq!(now("driver 2").on_top_of(earlier), now("driver 2"), "what another driver did says nothing");
    }

    #[rstest]
    #[case::not_json("{", "EOF")]
    #[case::later_version(r#"{"version": 9, "source": "", "classes": []}"#, "version 9")]
    #[case::nothing_in_it(r#"{"version": 1, "source": "", "classes": []}"#, "ascending")]
    #[case::absurd(
        r#"{"version": 1, "source": "", "classes": [{"from_us": 0, "paired_sd": 0.1, "stored_sd": 7}]}"#,
        "deviation"
    )]
    fn a_file_that_cannot_be_used_says_what_to_do(#[case] text: &str, #[case] part: &str) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gpu.json"), text).unwrap();
        let error = NoiseTable::load(folder.path(), "gpu", DeviceKind::Cuda).unwrap_err();
        assert!(error.contains(part) && error.contains("kernelgate noise"), "{error}");
    }
}
