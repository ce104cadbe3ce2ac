//! The procedure: which probes are measured on which device, and what is made of their times.

use super::calibration::{Access, Bandwidth, Calibration, Latency, Launch, Level, Pattern, Peak, Pipe, Wave};
use super::probe::{Probe, typical_us};
use super::{access, latency, launch, levels, math, stream, tensor};
use crate::core::dtype::DType;
use crate::core::suite::Suite;
use crate::device::fault::Fault;
use crate::device::{Device, DeviceKind, Heat};
use crate::measure::series::Summary;
use crate::measure::session::SessionSettings;
use crate::measure::stopping::StoppingRule;
use std::time::{Duration, Instant};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// How much time is spent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Sampling of a probe.
    pub sampling: Duration,
    /// Work before a sustained peak is measured.
    pub saturation: Duration,
    /// Bytes of the largest footprint.
    pub most_bytes: usize,
}

impl Default for Effort {
    fn default() -> Self {
        let (sampling, saturation) = (Duration::from_millis(150), Duration::from_secs(2));
        Effort { sampling, saturation, most_bytes: 1024 * MIB }
    }
}

impl Effort {
    fn session(&self, warm_up: Duration) -> SessionSettings {
        let stopping = StoppingRule { half_width: 0.003, min_rounds: 5, max_rounds: 400, budget: self.sampling };
        SessionSettings { warm_up, stopping }
    }
}

/// The kernels of all probes, for machines that have no compiler.
pub fn suites() -> Vec<Suite> {
    let levels = [Level::Shared, Level::L1, Level::L2].map(|level| levels::probe(level, 1, 16 * KIB, 1));
    let tensor = tensor::DTYPES.map(|dtype| tensor::probe(dtype, 1, 1));
    let others = [
        stream::probe((1, 1), MIB, Heat::Hot),
        latency::probe(1, KIB, 1),
        math::fma(1, 1),
        math::special(1, 1),
        launch::probe(1),
        launch::dependent(),
        access::strided(1, MIB),
        access::gathered(64, MIB),
    ];
    levels.iter().chain(&tensor).chain(&others).map(Probe::suite).collect()
}

/// How many probes a calibration of this device measures: `say` of [`calibrate`] is called so often.
pub fn probes(device: &dyn Device, effort: &Effort) -> usize {
    let footprints = (20..).take_while(|shift| 1usize << shift <= effort.most_bytes).count();
    let of_memory = LATENCIES + CACHES + 1 + stream::MIXES.len() + 4 * footprints + STRIDES.len() + ROW_BYTES.len();
    match device.kind() {
        DeviceKind::Cuda => of_memory + LAUNCHES + WAVES + 2 * (2 + tensor::DTYPES.len()),
        _ => of_memory + 2,
    }
}

/// Measures everything that the device has. `say` is told each time as soon as it is known.
///
/// # Errors
/// A fault that is not the absence of a kernel for this device.
pub fn calibrate(
    device: &dyn Device,
    effort: &Effort,
    measured: String,
    revision: Option<String>,
    say: &mut dyn FnMut(&str),
) -> Result<Calibration, Fault> {
    let begun = Instant::now();
    let calibration = Calibration::begun(device.fingerprint().clone(), measured, revision);
    let mut run = Run { device, effort, calibration, say };
    run.launches()?;
    run.latencies()?;
    run.caches()?;
    run.mixes()?;
    run.footprints()?;
    run.accesses()?;
    run.waves()?;
    // Last: what follows on a hot card would be slower.
    run.peaks()?;
    run.calibration.seconds = begun.elapsed().as_secs_f64();
    Ok(run.calibration)
}

struct Run<'a> {
    device: &'a dyn Device,
    effort: &'a Effort,
    calibration: Calibration,
    say: &'a mut dyn FnMut(&str),
}

impl Run<'_> {
    fn is_gpu(&self) -> bool {
        self.device.kind() == DeviceKind::Cuda
    }

    fn units(&self) -> usize {
        self.calibration.device.units.max(1)
    }

    fn cache_bytes(&self) -> usize {
        self.calibration.device.cache_bytes.max(MIB)
    }

    /// What counts of a time.
    fn us(&self, found: &Summary) -> f64 {
        typical_us(self.device, found)
    }

    /// The time of a probe; `None`, with a note, where this device has no kernel for it.
    fn time(&mut self, probe: &Probe, warm_up: Duration) -> Result<Option<Summary>, Fault> {
        match probe.measure(self.device, &self.effort.session(warm_up)) {
            Ok(found) => {
                (self.say)(&format!("{:<56} {:>12.3} µs", probe.describe(), found.median_us));
                self.note_disturbance(probe, &found);
                Ok(Some(found))
            }
            Err(Fault::Unsupported(why)) => {
                let note = format!("{}: not measured: {why}", probe.describe());
                (self.say)(&note);
                self.calibration.notes.push(note);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    fn note_disturbance(&mut self, probe: &Probe, found: &Summary) {
        /// Above, a median is no ceiling.
        const WIDE: f64 = 0.02;
        const DROPPED: f64 = 0.2;
        let width = found.interval_us.relative_half_width();
        if width.is_nan() || width > WIDE {
            let percent = width * 100.0;
            self.calibration.notes.push(format!(
                "{}: disturbed: ± {percent:.1} % after {} samples",
                probe.describe(),
                found.samples
            ));
        }
        let all = (found.samples + found.dropped).max(1);
        if found.dropped as f64 > DROPPED * all as f64 {
            let note = format!(
                "{}: throttled: {} of {all} samples at a low clock were left out",
                probe.describe(),
                found.dropped
            );
            self.calibration.notes.push(note);
        }
    }

    fn launches(&mut self) -> Result<(), Fault> {
        if !self.is_gpu() {
            return Ok(());
        }
        for blocks in [1, self.units(), 8 * self.units()] {
            let Some(found) = self.time(&launch::probe(blocks), BRIEFLY)? else { continue };
            let p5_p95_us = [found.p5_us, found.p95_us];
            self.calibration.launches.push(Launch { blocks, node_us: found.median_us, p5_p95_us });
        }
        let row = self.time(&launch::dependent(), BRIEFLY)?;
        self.calibration.dependent_us = row.map(|row| self.us(&row) / launch::HANDS as f64);
        self.calibration.host = self.device.round_trip()?;
        Ok(())
    }

    fn accesses(&mut self) -> Result<(), Fault> {
        let footprint_bytes = (4 * self.cache_bytes()).max(256 * MIB).min(self.effort.most_bytes);
        let strided = STRIDES.map(|stride| (Pattern::Strided, stride * 4, access::strided(stride, footprint_bytes)));
        let gathered = ROW_BYTES.map(|bytes| (Pattern::Gathered, bytes, access::gathered(bytes, footprint_bytes)));
        for (pattern, step_bytes, probe) in strided.into_iter().chain(gathered) {
            let Some(found) = self.time(&probe, BRIEFLY)? else { continue };
            let launch_us = self.us(&found);
            let gb_per_s = probe.cost().bytes as f64 / launch_us * 1e-3;
            self.calibration.accesses.push(Access { pattern, step_bytes, footprint_bytes, launch_us, gb_per_s });
        }
        Ok(())
    }

    fn latencies(&mut self) -> Result<(), Fault> {
        let cache = self.cache_bytes();
        // Every line is visited before one is visited again: in steady state a footprint that a cache does not hold misses.
        let chases: &[(Level, usize, usize)] = if self.is_gpu() {
            &[(Level::L1, 1, 16 * KIB), (Level::L2, 1, 2 * MIB), (Level::Dram, 64, 4 * cache)]
        } else {
            &[(Level::L1, 1, 16 * KIB), (Level::L2, 1, 512 * KIB), (Level::Dram, 1, 4 * cache)]
        };
        for &(level, segments, footprint) in chases {
            let footprint_bytes = footprint.min(self.effort.most_bytes).next_power_of_two();
            let lines = footprint_bytes / segments / 128;
            let steps = if level == Level::Dram { lines } else { (4 * lines).max(4096) };
            let Some(found) = self.time(&latency::probe(segments, footprint_bytes, steps), Duration::ZERO)? else {
                continue;
            };
            // A GPU chases through all segments at once; a host has one.
            let load_ns = self.us(&found) * 1e3 / steps as f64;
            self.calibration.latencies.push(Latency { level, footprint_bytes, load_ns });
        }
        Ok(())
    }

    fn caches(&mut self) -> Result<(), Fault> {
        let (units, cache) = (self.units(), self.cache_bytes());
        // A GPU has eight blocks of 256 threads a multiprocessor, whose windows fit its L1 together.
        let windows: Vec<(Level, usize, usize, usize)> = if self.is_gpu() {
            [Level::Shared, Level::L1, Level::L2].map(|level| (level, 8 * units, 16 * KIB, 200)).into()
        } else {
            let of_l3 = (cache / 2 / units).min(8 * MIB);
            vec![
                (Level::L1, units, 16 * KIB, 20_000),
                (Level::L2, units, 512 * KIB, 500),
                (Level::L3, units, of_l3, 32),
            ]
        };
        for (level, count, window, repeats) in windows {
            let probe = levels::probe(level, count, window, repeats);
            let Some(found) = self.time(&probe, BRIEFLY)? else { continue };
            self.keep_bandwidth(level, (1, 0), count * window, Heat::Hot, probe.cost().bytes, &found);
        }
        Ok(())
    }

    fn mixes(&mut self) -> Result<(), Fault> {
        let bytes = (4 * self.cache_bytes()).max(256 * MIB).min(self.effort.most_bytes);
        self.bandwidth(&stream::reading(bytes, Heat::Cold), (1, 0), bytes, Heat::Cold)?;
        for mix in stream::MIXES {
            self.stream(mix, bytes, Heat::Cold)?;
        }
        Ok(())
    }

    fn footprints(&mut self) -> Result<(), Fault> {
        for shift in 20.. {
            let bytes = 1 << shift;
            if bytes > self.effort.most_bytes {
                return Ok(());
            }
            for heat in [Heat::Hot, Heat::Cold] {
                self.bandwidth(&stream::reading(bytes, heat), (1, 0), bytes, heat)?;
                self.stream((1, 1), bytes, heat)?;
            }
        }
        Ok(())
    }

    fn stream(&mut self, mix: (usize, usize), bytes: usize, heat: Heat) -> Result<(), Fault> {
        self.bandwidth(&stream::probe(mix, bytes, heat), mix, bytes, heat)
    }

    fn bandwidth(&mut self, probe: &Probe, mix: (usize, usize), bytes: usize, heat: Heat) -> Result<(), Fault> {
        let Some(found) = self.time(probe, BRIEFLY)? else { return Ok(()) };
        let last = if self.is_gpu() { Level::L2 } else { Level::L3 };
        let level = if heat == Heat::Hot && bytes <= self.cache_bytes() { last } else { Level::Dram };
        self.keep_bandwidth(level, mix, bytes, heat, probe.cost().bytes, &found);
        Ok(())
    }

    fn keep_bandwidth(
        &mut self,
        level: Level,
        (reads, writes): (usize, usize),
        footprint_bytes: usize,
        heat: Heat,
        moved: usize,
        found: &Summary,
    ) {
        let launch_us = self.us(found);
        let gb_per_s = moved as f64 / launch_us * 1e-3;
        self.calibration.bandwidths.push(Bandwidth {
            level,
            reads,
            writes,
            footprint_bytes,
            heat,
            launch_us,
            gb_per_s,
        });
    }

    fn waves(&mut self) -> Result<(), Fault> {
        if !self.is_gpu() {
            return Ok(());
        }
        let units = self.units();
        let mut found: Vec<(usize, f64)> = Vec::new();
        for waves in 1..=4 {
            for blocks in [waves * units - units / 2, waves * units, waves * units + 1] {
                let probe = tensor::probe(DType::BF16, blocks, TENSOR_STEPS / 8);
                let Some(time) = self.time(&probe, BRIEFLY)? else { return Ok(()) };
                found.push((blocks, time.median_us));
            }
        }
        let rate = |&(blocks, us): &(usize, f64)| blocks as f64 / us;
        let full = found.iter().map(rate).fold(0.0, f64::max);
        let wave = |pair: &(usize, f64)| Wave { blocks: pair.0, launch_us: pair.1, of_full: rate(pair) / full };
        self.calibration.waves = found.iter().map(wave).collect();
        Ok(())
    }

    fn peaks(&mut self) -> Result<(), Fault> {
        let units = self.units();
        // A GPU's multiprocessor holds eight blocks of 256 threads; several waves of them.
        let (threads, steps) = if self.is_gpu() { (64 * 256 * units, 2048) } else { (4096 * units, 512) };
        let fma = (Pipe::Fma, DType::F32, math::fma(threads, steps));
        let mut probes = vec![fma];
        if self.is_gpu() {
            probes.push((Pipe::Special, DType::F32, math::special(threads, steps)));
            let tensor = |dtype| (Pipe::Tensor, dtype, tensor::probe(dtype, 4 * units, TENSOR_STEPS));
            probes.extend(tensor::DTYPES.map(tensor));
        }
        for (pipe, dtype, probe) in probes {
            let Some(burst) = self.time(&probe, BRIEFLY)? else { continue };
            let Some(sustained) = self.time(&probe, self.effort.saturation)? else { continue };
            let tflops = |found: &Summary| probe.cost().flops as f64 / self.us(found) * 1e-6;
            let peak = Peak {
                pipe,
                dtype,
                burst_tflops: tflops(&burst),
                burst_mhz: burst.clock_mhz,
                sustained_tflops: tflops(&sustained),
                sustained_mhz: sustained.clock_mhz,
            };
            self.calibration.peaks.push(peak);
        }
        Ok(())
    }
}

/// Probes of launches, latencies, caches and waves.
const LAUNCHES: usize = 4;
const LATENCIES: usize = 3;
const CACHES: usize = 3;
const WAVES: usize = 12;

/// Elements from one that is read to the next, and bytes of rows that are read in random order.
const STRIDES: [usize; 6] = [1, 2, 4, 8, 16, 32];
const ROW_BYTES: [usize; 4] = [32, 128, 512, 4096];

const BRIEFLY: Duration = Duration::from_millis(5);
/// Steps of the tensor cores' kernel: 128 clocks each, some 130 µs.
const TENSOR_STEPS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::stream::MIXES;
    use crate::device::cpu::CpuDevice;
    use crate::device::sim::SimDevice;

    fn is_required(what: &str) -> bool {
        std::env::var("KERNELGATE_REQUIRE").is_ok_and(|all| all.split(',').any(|word| word.trim() == what))
    }

    /// Every kernel.
    fn all() -> Vec<Probe> {
        let levels = [Level::Shared, Level::L1, Level::L2].map(|level| levels::probe(level, 1, 1, 1));
        let streams = MIXES.map(|mix| stream::probe(mix, MIB, Heat::Hot));
        let tensor = tensor::DTYPES.map(|dtype| tensor::probe(dtype, 1, 1));
        let others = [
            stream::reading(MIB, Heat::Hot),
            latency::probe(1, KIB, 1),
            math::fma(1, 1),
            math::special(1, 1),
            launch::probe(1),
            launch::dependent(),
        ];
        let accesses = STRIDES.map(|stride| access::strided(stride, MIB));
        let accesses = accesses.into_iter().chain(ROW_BYTES.map(|bytes| access::gathered(bytes, MIB)));
        levels.into_iter().chain(accesses).chain(streams).chain(tensor).chain(others).collect()
    }

    #[test]
    fn every_probe_computes_what_it_says_in_the_simulator() {
        let device = SimDevice::new(None);
        for probe in all() {
            match probe.verify(&device) {
                Ok(_) => {}
                // No compiler at hand, and nobody who requires one.
                Err(Fault::Unsupported(_)) if !is_required("nvrtc") => {}
                Err(fault) => panic!("{}: {fault}", probe.describe()),
            }
        }
    }

    #[test]
    fn a_cpu_has_probes_of_memory_latency_and_arithmetic() {
        let device = CpuDevice::new();
        let found = all().into_iter().filter(|probe| match probe.verify(&device) {
            Ok(_) => true,
            Err(Fault::Unsupported(_)) => false,
            Err(fault) => panic!("{}: {fault}", probe.describe()),
        });
        assert_eq!(found.count(), 3 + MIXES.len() + 3 + STRIDES.len() + ROW_BYTES.len());
    }

    #[test]
    fn a_calibration_of_the_host_has_every_part() {
        let effort =
            Effort { sampling: Duration::from_millis(1), saturation: Duration::from_millis(1), most_bytes: 2 * MIB };
        let mut said = 0;
        let found = calibrate(&CpuDevice::new(), &effort, String::new(), None, &mut |_| said += 1).unwrap();
        assert_eq!(found.latencies.len(), 3);
        assert_eq!(found.peaks.len(), 1);
        assert_eq!(found.bandwidths.len(), 3 + 1 + MIXES.len() + 2 * 2 * 2);
        assert!(found.launches.is_empty() && found.waves.is_empty() && found.host.is_none(), "a host has none");
        assert_eq!(found.accesses.len(), STRIDES.len() + ROW_BYTES.len());
        assert_eq!(said, probes(&CpuDevice::new(), &effort), "foreseen");
        assert!(found.ridges().len() >= 3);
        assert!(found.latencies[0].load_ns < found.latencies[2].load_ns, "{:?}", found.latencies);
    }
}
