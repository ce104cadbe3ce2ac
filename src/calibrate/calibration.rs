//! The file of a calibration: what was measured, its version, how it is read and written.

use super::versioned;
use crate::core::dtype::DType;
use crate::device::fingerprint::Fingerprint;
use crate::device::{Heat, RoundTrip};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the format. It grows when a reader of the version before would misunderstand a file.
pub const VERSION: u32 = 1;

/// What one device was measured to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The version of this format.
    pub version: u32,
    /// The device.
    pub device: Fingerprint,
    /// When it was measured, RFC 3339 in UTC.
    pub measured: String,
    /// The commit of the code that measured, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// How long it took, s.
    pub seconds: f64,
    /// Peaks of arithmetic.
    pub peaks: Vec<Peak>,
    /// Bandwidths.
    pub bandwidths: Vec<Bandwidth>,
    /// Latencies of dependent loads.
    pub latencies: Vec<Latency>,
    /// Launches that do nothing.
    pub launches: Vec<Launch>,
    /// The time of the tensor cores' kernel over its blocks: the staircase of waves.
    pub waves: Vec<Wave>,
    /// Access that is not contiguous.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accesses: Vec<Access>,
    /// A launch that waits for what the one before has written, in a graph, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependent_us: Option<f64>,
    /// An empty kernel that the host launches and waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<RoundTrip>,
    /// What disturbed the measurement, and what could not be measured.
    pub notes: Vec<String>,
}

/// A pipe of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pipe {
    /// Fused multiply-adds of the vector units; an FMA counts as two operations.
    Fma,
    /// Special functions; one operation each.
    Special,
    /// Tensor cores; a multiply-add counts as two operations.
    Tensor,
}

/// The most operations a second of a pipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// The pipe.
    pub pipe: Pipe,
    /// The dtype of its operands; f32 on tensor cores is tf32.
    pub dtype: DType,
    /// Tera-operations a second in a short burst.
    pub burst_tflops: f64,
    /// The core clock of the burst, MHz.
    pub burst_mhz: Option<f64>,
    /// Tera-operations a second after two seconds of the same work: where the power limit is reached, it is lower.
    pub sustained_tflops: f64,
    /// The core clock then, MHz.
    pub sustained_mhz: Option<f64>,
}

/// A level of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Shared memory of a multiprocessor.
    Shared,
    /// The first cache.
    L1,
    /// The second cache; the last one of a GPU.
    L2,
    /// The third cache of a CPU.
    L3,
    /// Device memory, or that of the host.
    Dram,
}

/// The bytes a second of one access.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Where the data lies; a footprint that no level holds alone is given to the one that holds it all.
    pub level: Level,
    /// Streams that are read and written.
    pub reads: usize,
    /// See `reads`.
    pub writes: usize,
    /// Bytes of all streams.
    pub footprint_bytes: usize,
    /// Whether the data was in the caches before each launch, as far as it fits.
    pub heat: Heat,
    /// Time of a launch, µs.
    pub launch_us: f64,
    /// 10⁹ bytes a second, read and written together.
    pub gb_per_s: f64,
}

/// The time of a load that the next one depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Where the data lies.
    pub level: Level,
    /// Bytes that are chased through.
    pub footprint_bytes: usize,
    /// Nanoseconds a load, with the arithmetic of the next address.
    pub load_ns: f64,
}

/// The cost of a launch in a CUDA graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Blocks of 128 threads that return at once.
    pub blocks: usize,
    /// Time of a node, µs.
    pub node_us: f64,
    /// 5th and 95th percentile, µs: graphs differ for as long as they live.
    pub p5_p95_us: [f64; 2],
}

/// How an access is not contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Elements of four bytes, so many bytes apart.
    Strided,
    /// Rows of so many bytes, in random order.
    Gathered,
}

/// The bytes a second of an access that is not contiguous.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// How.
    pub pattern: Pattern,
    /// Bytes from an element to the next, or of a row.
    pub step_bytes: usize,
    /// Bytes of what is read from.
    pub footprint_bytes: usize,
    /// Time of a cold launch, µs.
    pub launch_us: f64,
    /// 10⁹ bytes a second of those that were asked for, not of those that were moved.
    pub gb_per_s: f64,
}

/// The time of equal blocks, one of which fills a multiprocessor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wave {
    /// Blocks.
    pub blocks: usize,
    /// Time of a launch, µs.
    pub launch_us: f64,
    /// Operations a second over those of full waves.
    pub of_full: f64,
}

/// Where a kernel turns from memory bound to compute bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Ridge {
    /// The peak's pipe.
    pub pipe: Pipe,
    /// Its dtype.
    pub dtype: DType,
    /// The level of memory.
    pub level: Level,
    /// Operations a byte, in a burst.
    pub burst: f64,
    /// Operations a byte, sustained.
    pub sustained: f64,
}

impl Calibration {
    /// A calibration of a device in which nothing is measured yet.
    pub fn begun(device: Fingerprint, measured: String, revision: Option<String>) -> Self {
        Calibration {
            version: VERSION,
            device,
            measured,
            revision,
            seconds: 0.0,
            peaks: Vec::new(),
            bandwidths: Vec::new(),
            latencies: Vec::new(),
            launches: Vec::new(),
            waves: Vec::new(),
            accesses: Vec::new(),
            dependent_us: None,
            host: None,
            notes: Vec::new(),
        }
    }

    /// The best bandwidth of a level; `None` where it was not measured.
    pub fn best_gb_per_s(&self, level: Level) -> Option<f64> {
        let of_level = self.bandwidths.iter().filter(|bandwidth| bandwidth.level == level);
        of_level.map(|bandwidth| bandwidth.gb_per_s).reduce(f64::max)
    }

    /// The ridge point of every peak over every level.
    pub fn ridges(&self) -> Vec<Ridge> {
        let levels = [Level::Shared, Level::L1, Level::L2, Level::L3, Level::Dram];
        let levels: Vec<_> = levels.iter().filter_map(|&level| Some((level, self.best_gb_per_s(level)?))).collect();
        let ridge = |peak: &Peak, (level, gb_per_s): (Level, f64)| Ridge {
            pipe: peak.pipe,
            dtype: peak.dtype,
            level,
            burst: peak.burst_tflops * 1e3 / gb_per_s,
            sustained: peak.sustained_tflops * 1e3 / gb_per_s,
        };
        self.peaks.iter().flat_map(|peak| levels.iter().map(move |&level| ridge(peak, level))).collect()
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
    /// A file that is not there, is of another version, or holds numbers that no device reaches.
    pub fn read(path: &Path) -> Result<Self, String> {
        versioned::read(path, Self::parse)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let calibration: Calibration = versioned::parse(text, VERSION, ["calibration", "calibrate again"])?;
        let peaks = calibration.peaks.iter().flat_map(|peak| [peak.burst_tflops, peak.sustained_tflops]);
        let rates = peaks.chain(calibration.bandwidths.iter().map(|bandwidth| bandwidth.gb_per_s));
        let rates = rates.chain(calibration.accesses.iter().map(|access| access.gb_per_s));
        let times = calibration.latencies.iter().map(|latency| latency.load_ns);
        let times = times.chain(calibration.launches.iter().map(|launch| launch.node_us));
        let times = times.chain(calibration.dependent_us);
        let times = times.chain(calibration.host.iter().flat_map(|host| [host.launch_us, host.synchronised_us]));
        let longer = calibration.host.iter().flat_map(|host| {
            let empty = [host.over_node_us, host.dependent_over_node_us];
            empty.into_iter().chain([host.reading_over_node_us, host.dependent_reading_over_node_us])
        });
        // A queue may be as fast as a graph.
        let times = times.chain(longer.flatten().filter(|us| *us != 0.0));
        match rates.chain(times).find(|number| !(number.is_finite() && *number > 0.0 && *number < 1e9)) {
            Some(number) => Err(format!("{number} is no rate and no time that a device has: it was changed by hand")),
            None => Ok(calibration),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::device::DeviceKind;

    /// A small calibration with round numbers.
    pub fn sample() -> Calibration {
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
        let bandwidth = |level, gb_per_s| Bandwidth {
            level,
            reads: 1,
            writes: 1,
            footprint_bytes: 1 << 28,
            heat: Heat::Cold,
            launch_us: 60.0,
            gb_per_s,
        };
        Calibration {
            version: VERSION,
            device,
            measured: "2026-01-01T00:00:00Z".into(),
            revision: None,
            seconds: 1.0,
            peaks: vec![Peak {
                pipe: Pipe::Tensor,
                dtype: DType::BF16,
                burst_tflops: 800.0,
                burst_mhz: Some(1980.0),
                sustained_tflops: 700.0,
                sustained_mhz: Some(1700.0),
            }],
            bandwidths: vec![
                bandwidth(Level::L2, 8000.0),
                bandwidth(Level::Dram, 3900.0),
                bandwidth(Level::Dram, 4000.0),
            ],
            latencies: vec![Latency { level: Level::L2, footprint_bytes: 1 << 22, load_ns: 150.0 }],
            launches: vec![Launch { blocks: 1, node_us: 1.0, p5_p95_us: [0.9, 1.1] }],
            waves: vec![Wave { blocks: 132, launch_us: 10.0, of_full: 1.0 }],
            accesses: Vec::new(),
            dependent_us: None,
            host: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_ridge_is_a_peak_over_the_best_bandwidth_of_a_level() {
        let ridges = sample().ridges();
        let found: Vec<_> = ridges.iter().map(|r| (r.level, r.burst, r.sustained)).collect();
        assert_eq!(found, [(Level::L2, 100.0, 87.5), (Level::Dram, 200.0, 175.0)]);
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/device.json");
        sample().write(&path).unwrap();
        assert_eq!(Calibration::read(&path), Ok(sample()));
    }

    #[test]
    fn the_files_that_ship_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots/calibration");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let calibration = Calibration::read(&entry.path()).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(entry.file_name().to_str(), Some(format!("{}.json", calibration.device.key()).as_str()));
            assert!(calibration.best_gb_per_s(Level::Dram).is_some() && !calibration.peaks.is_empty());
            count += 1;
        }
        assert!(count >= 1);
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        let text = serde_json::to_string(&sample()).unwrap();
        let refused = |text: &str| Calibration::parse(text).unwrap_err();
        assert!(refused("{}").contains("missing field `version`"));
        assert!(refused(&text.replace("\"version\":1", "\"version\":7")).contains("version 7"));
        assert!(refused(&text.replace("800.0", "1e300")).contains("changed by hand"));
        assert!(refused(&text.replace("150.0", "-1.0")).contains("changed by hand"));
        assert!(refused(&text[..text.len() / 2]).contains("no calibration"));
    }
}
