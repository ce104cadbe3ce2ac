//! What a device is: the facts that a timing depends on.

use super::DeviceKind;
use crate::core::gpu::Gpu;
use serde::{Deserialize, Serialize};

/// Identifies a device in reports; its [`Fingerprint::key`] names the folder of its baselines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// cpu, sim or cuda.
    pub kind: DeviceKind,
    /// The vendor's name.
    pub name: String,
    /// `sm_90` and the like; the instruction set on a CPU.
    pub arch: String,
    /// Multiprocessors, or threads used on a CPU.
    pub units: usize,
    /// Last-level cache, bytes.
    pub cache_bytes: usize,
    /// Device memory, bytes; 0 if unknown.
    pub memory_bytes: usize,
    /// Highest core clock, MHz; 0 if unknown.
    pub clock_mhz: f64,
    /// Driver version; empty on a CPU.
    pub driver: String,
    /// Version of the compiler that made the kernels; empty if none was needed.
    pub compiler: String,
}

impl Fingerprint {
    /// A folder name: the vendor's name and the units in lower case, `nvidia-h200-132`.
    pub fn key(&self) -> String {
        let mut key = String::new();
        for c in self.name.chars() {
            if c.is_ascii_alphanumeric() {
                key.push(c.to_ascii_lowercase());
            } else if !key.ends_with('-') && !key.is_empty() {
                key.push('-');
            }
        }
        format!("{}-{}", key.trim_end_matches('-'), self.units)
    }

    /// The GPU as launch rules know it.
    pub fn gpu(&self) -> Gpu {
        let gpu = Gpu::with_multiprocessors(self.units);
        let number: Option<u32> = self.arch.strip_prefix("sm_").and_then(|digits| digits.parse().ok());
        number.map_or(gpu, |number| gpu.of_capability(number / 10, number % 10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("NVIDIA H200", 132, "nvidia-h200-132")]
    #[case("AMD EPYC (tm) 9V74  80-Core", 2, "amd-epyc-tm-9v74-80-core-2")]
    #[case("../../etc", 1, "etc-1")]
    fn keys_are_plain_folder_names(#[case] name: &str, #[case] units: usize, #[case] expected: &str) {
        assert_eq!(of(name, "", units).key(), expected);
    }

    #[rstest]
    #[case("sm_80", 108, (8, 0))]
    #[case("sm_90", 132, (9, 0))]
    #[case("sm_121", 48, (12, 1))]
    #[case("avx512", 2, (9, 0))]
    fn launch_rules_know_multiprocessors_and_capability(
        #[case] arch: &str,
        #[case] units: usize,
        #[case] capability: (u32, u32),
    ) {
        let gpu = of("x", arch, units).gpu();
        assert_eq!((gpu.multiprocessors, gpu.compute_capability), (units, capability));
    }

    fn of(name: &str, arch: &str, units: usize) -> Fingerprint {
        Fingerprint {
            kind: DeviceKind::Cuda,
            name: name.into(),
            arch: arch.into(),
            units,
            cache_bytes: 0,
            memory_bytes: 0,
            clock_mhz: 0.0,
            driver: String::new(),
            compiler: String::new(),
        }
    }
}
