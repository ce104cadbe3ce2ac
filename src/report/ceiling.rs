//! Ceilings: what a device was measured to reach, from the yardsticks that were timed beside the candidates.

use super::record::Record;
use super::summary::Summary;
use crate::calibrate::{Calibration, Pipe};
use crate::check::outcome::Timing;
use crate::core::dtype::DType;
use crate::device::Heat;
use serde::{Deserialize, Serialize};

/// A measured limit of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// The key of the device.
    pub device: String,
    /// What was measured: `copy` and the like.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what: `GB/s`.
    pub unit: String,
}

impl Ceiling {
    /// Whether both are of one kind on one device.
    pub fn is_like(&self, other: &Ceiling) -> bool {
        (&self.device, &self.name) == (&other.device, &other.name)
    }
}

/// The name of the ceiling that the tensor cores are in a dtype.
pub fn tensor(dtype: DType) -> String {
    format!("tensor_{}", dtype.name())
}

/// Adds the peaks of the tensor cores to a summary of the same devices: no yardstick of a gate tells them. Then corrects the
/// shares of ceilings.
pub fn calibrate(summary: &mut Summary, calibrations: &[Calibration]) {
    calibrations.iter().for_each(|calibration| add_peaks(summary, calibration));
    for record in summary.records.iter_mut().filter(|record| record.dtype != DType::F32) {
        let device = record.fingerprint.as_deref().unwrap_or_default();
        let of = |name: &str| summary.ceilings.iter().find(|c| c.device == device && c.name == name).map(|c| c.value);
        let (bandwidth, fma, peak) = (of("copy").or(of("read")), of("fma"), of(&tensor(record.dtype)));
        for timing in &mut record.outcome.timings {
            correct(timing, bandwidth, fma, peak);
        }
    }
}

/// Floors are made from multiply-adds in f32, which narrower dtypes are faster than. A case of those has its share of their
/// peak where that is known, and none where it is not and arithmetic may bind the case.
fn correct(timing: &mut Timing, bandwidth: Option<f64>, fma: Option<f64>, peak: Option<f64>) {
    if timing.flops == 0 || timing.bytes == 0 {
        return;
    }
    if let Some(peak) = peak {
        let share = timing.flops as f64 / peak * 1e-3 / timing.median_us;
        timing.of_ceiling = Some(timing.of_ceiling.map_or(share, |other| other.max(share)));
    } else if let (Some(bandwidth), Some(fma)) = (bandwidth, fma)
        && timing.flops as f64 / timing.bytes as f64 * bandwidth > fma
    {
        timing.of_ceiling = None;
    }
}

fn add_peaks(summary: &mut Summary, calibration: &Calibration) {
    let device = calibration.device.key();
    if !summary.devices.iter().any(|entry| entry.key == device) {
        return;
    }
    let ceilings = &mut summary.ceilings;
    for peak in calibration.peaks.iter().filter(|peak| peak.pipe == Pipe::Tensor) {
        let (name, value) = (tensor(peak.dtype), peak.burst_tflops * 1e3);
        let new = Ceiling { device: device.clone(), name, value, unit: "Gflop/s".into() };
        ceilings.retain(|old| !old.is_like(&new));
        ceilings.push(new);
    }
    ceilings.sort_by(|a, b| (&a.device, &a.name).cmp(&(&b.device, &b.name)));
}

/// Adds the yardsticks of these records; of several measurements the best counts.
pub fn raise(ceilings: &mut Vec<Ceiling>, records: &[Record]) {
    for record in records {
        let Some(device) = &record.fingerprint else { continue };
        // In the caches a copy is no measure of the memory.
        for timing in record.outcome.timings.iter().filter(|timing| timing.heat == Heat::Cold) {
            for (name, value, unit) in reached(timing, record.dtype) {
                let new = Ceiling { device: device.clone(), name: name.into(), value, unit: unit.into() };
                match ceilings.iter_mut().find(|old| old.is_like(&new)) {
                    Some(old) => old.value = old.value.max(new.value),
                    None => ceilings.push(new),
                }
            }
        }
    }
    ceilings.sort_by(|a, b| (&a.device, &a.name).cmp(&(&b.device, &b.name)));
}

/// What the yardsticks of one timing reached.
fn reached(timing: &Timing, dtype: DType) -> impl Iterator<Item = (&'static str, f64, &'static str)> {
    // Work in units, time in µs: 1e3 of one over the other are 1e9 a second.
    let rate = |work: usize, us: Option<f64>, scale: f64| us.map(|us| work as f64 / us * scale);
    let copy = rate(timing.bytes, timing.copy_us, 1e-3).map(|value| ("copy", value, "GB/s"));
    let read = rate(timing.bytes, timing.read_us, 1e-3).map(|value| ("read", value, "GB/s"));
    // For half types the yardstick does a share of the work.
    let fma = timing.fma_us.filter(|_| dtype == DType::F32);
    let fma = rate(timing.flops, fma, 1e-3).map(|value| ("fma", value, "Gflop/s"));
    copy.into_iter().chain(read).chain(fma).filter(|(_, value, _)| value.is_finite() && *value > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::samples::slower;
    use crate::report::summary::DeviceEntry;
    use crate::report::summary::samples::run;

    fn record(copy_us: f64, fma_us: f64, dtype: DType, heat: Heat) -> Record {
        let mut record = Record { dtype, ..slower() };
        let timing = &mut record.outcome.timings[0];
        (timing.bytes, timing.flops, timing.heat) = (4_000_000, 8_000_000, heat);
        (timing.copy_us, timing.fma_us) = (Some(copy_us), Some(fma_us));
        record
    }

    #[test]
    fn the_best_yardstick_of_a_device_is_its_ceiling() {
        let mut ceilings = Vec::new();
        let records = [
            record(2.0, 4.0, DType::F32, Heat::Cold),
            record(1.0, 1.0, DType::BF16, Heat::Cold),
            record(0.1, 0.1, DType::F32, Heat::Hot),
            record(f64::NAN, 0.0, DType::F32, Heat::Cold),
        ];
        raise(&mut ceilings, &records);
        let found: Vec<_> = ceilings.iter().map(|c| (c.name.as_str(), c.value, c.unit.as_str())).collect();
        assert_eq!(found, [("copy", 4000.0, "GB/s"), ("fma", 2000.0, "Gflop/s")]);
        raise(&mut ceilings, &records);
        assert_eq!(ceilings.len(), 2);
    }

    #[test]
    fn what_only_reads_is_a_ceiling_of_its_own() {
        let mut record = record(2.0, 4.0, DType::BF16, Heat::Cold);
        let timing = &mut record.outcome.timings[0];
        (timing.copy_us, timing.read_us) = (None, Some(1.0));
        let mut ceilings = Vec::new();
        raise(&mut ceilings, &[record]);
        let found: Vec<_> = ceilings.iter().map(|c| (c.name.as_str(), c.value)).collect();
        assert_eq!(found, [("read", 4000.0)]);
    }

    #[test]
    fn a_run_without_timings_has_no_ceiling() {
        let mut ceilings = Vec::new();
        raise(&mut ceilings, &[crate::report::record::samples::passed()]);
        assert_eq!(ceilings, []);
    }

    /// The committed calibration of the device that the sample was timed on.
    fn calibration() -> Calibration {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots/calibration");
        Calibration::read(&folder.join("nvidia-h200-132.json")).unwrap()
    }

    /// A summary of one time in bf16 of 10 µs, of so many operations for 4 MB, which had a tenth of its ceiling.
    fn summary(flops: usize, calibration: &Calibration) -> Summary {
        let mut record = Record { dtype: DType::BF16, ..slower() };
        record.outcome.timings.truncate(1);
        let timing = &mut record.outcome.timings[0];
        (timing.median_us, timing.bytes, timing.flops, timing.of_ceiling) = (10.0, 4_000_000, flops, Some(0.1));
        let mut summary = Summary::new(run("r"));
        let device = calibration.device.clone();
        summary.devices.push(DeviceEntry { key: device.key(), fingerprint: device });
        summary.add(vec![record]);
        summary
    }

    #[test]
    fn a_narrow_dtype_has_its_share_of_the_tensor_cores() {
        let calibration = calibration();
        let of_bf16 = |peak: &&crate::calibrate::Peak| peak.pipe == Pipe::Tensor && peak.dtype == DType::BF16;
        let peak = calibration.peaks.iter().find(of_bf16).unwrap().burst_tflops;
        // Half of what the peak does in 10 µs.
        let mut summary = summary((peak * 1e12 * 5e-6) as usize, &calibration);
        calibrate(&mut summary, &[calibration]);
        let share = summary.records[0].outcome.timings[0].of_ceiling.unwrap();
        assert!((share - 0.5).abs() < 1e-6, "{share}");
        let known = summary.ceilings.iter().find(|ceiling| ceiling.name == "tensor_bf16").unwrap();
        assert!((known.value / (peak * 1e3) - 1.0).abs() < 1e-12 && known.unit == "Gflop/s", "{known:?}");
    }

    #[test]
    fn where_arithmetic_may_bind_a_narrow_case_a_share_of_the_f32_floor_means_nothing() {
        let share = |flops: usize| {
            let mut summary = summary(flops, &calibration());
            let device = summary.devices[0].key.clone();
            // The two meet at half an operation a byte, 2,000,000 of them.
            for (name, value, unit) in [("copy", 1000.0, "GB/s"), ("fma", 500.0, "Gflop/s")] {
                summary.ceilings.push(Ceiling { device: device.clone(), name: name.into(), value, unit: unit.into() });
            }
            calibrate(&mut summary, &[]);
            summary.records[0].outcome.timings[0].of_ceiling
        };
        assert_eq!((share(1_900_000), share(2_100_000)), (Some(0.1), None));
    }
}
