//! Time on the memory and on a pipe, from a calibration.

use super::features::Features;
use crate::calibrate::{Bandwidth, Calibration, Level, Pipe};
use crate::core::dtype::DType;
use crate::core::gpu::Gpu;
use crate::device::{Heat, READ_BYTES, RoundTrip};

/// What a device does at best.
#[derive(Clone, Debug)]
pub struct Limits {
    /// A launch in a graph, µs.
    pub launch_us: f64,
    /// What launches take longer where the host makes them, µs; and where they may begin before the one ahead has ended.
    pub queue: Queue,
    /// Multiprocessors, or threads of a host.
    pub units: f64,
    /// The device as launch rules know it, if it is a GPU.
    pub gpu: Gpu,
    /// Reading alone: bytes and µs of a cold launch, launch included, by bytes.
    read: Vec<(f64, f64)>,
    /// Reading and writing as much.
    copy: Vec<(f64, f64)>,
    /// The same two with the data in the last cache.
    hot_read: Vec<(f64, f64)>,
    hot_copy: Vec<(f64, f64)>,
    /// By the share that is written: µs over what `read` and `copy` say between them, at the size where mixes were measured.
    mix: Vec<(f64, f64)>,
    /// The best bandwidth of the second cache, 10⁹ bytes a second, where it was measured.
    cache_gb_per_s: Option<f64>,
    /// By bytes that are touched again and again: the level that holds them, and µs a byte from there.
    caches: Vec<(f64, Level, f64)>,
    peaks: Vec<(Pipe, DType, f64)>,
}

/// What a launch takes longer in a queue of the host than in a graph, µs: usually, and where it may begin before the one ahead
/// has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue {
    /// Of a launch that is empty.
    pub empty: [f64; 2],
    /// Of one that reads [`READ_BYTES`].
    pub reading: [f64; 2],
}

impl Queue {
    fn of(host: RoundTrip) -> Self {
        let empty = [host.over_node_us, host.dependent_over_node_us].map(Option::unwrap_or_default);
        // Older calibrations have empty ones alone.
        let reading = [host.reading_over_node_us, host.dependent_reading_over_node_us];
        Queue { empty, reading: [0, 1].map(|at| reading[at].unwrap_or(empty[at])) }
    }

    /// Of a launch that reads so much. Between the two by the root of the bytes, as launches that read 1 and 4 MiB take.
    pub fn over_node_us(&self, bytes: f64) -> [f64; 2] {
        let share = (bytes / READ_BYTES as f64).min(1.0).sqrt();
        [0, 1].map(|at| self.empty[at] + share * (self.reading[at] - self.empty[at]))
    }
}

impl Limits {
    /// Those of a calibrated device.
    ///
    /// # Errors
    /// If it holds no cold reads and copies.
    pub fn of(calibration: &Calibration) -> Result<Self, String> {
        let with = |heat: Heat| calibration.bandwidths.iter().filter(move |bandwidth| bandwidth.heat == heat);
        let cold = || with(Heat::Cold);
        // The probes of the caches read their windows again and again: theirs is no time of a stream.
        let is_stream = |b: &Bandwidth| b.gb_per_s * b.launch_us * 1e3 < 1.5 * b.footprint_bytes as f64;
        let curve = |heat, reads, writes| {
            let of_mix = with(heat).filter(|b| (b.reads, b.writes) == (reads, writes) && is_stream(b));
            let mut points: Vec<(f64, f64)> = of_mix.map(|b| (b.footprint_bytes as f64, b.launch_us)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points.dedup_by(|a, b| a.0 == b.0);
            // A function of the host is not launched: what has no bytes takes no time.
            if calibration.launches.is_empty() && !points.is_empty() {
                points.insert(0, (0.0, 0.0));
            }
            points
        };
        let (read, copy) = (curve(Heat::Cold, 1, 0), curve(Heat::Cold, 1, 1));
        if read.is_empty() || copy.is_empty() {
            return Err(format!(
                "the calibration of {} has no cold reads and copies: run `kernelgate calibrate`",
                calibration.device.name
            ));
        }
        let launch_us = calibration.launches.iter().map(|launch| launch.node_us).fold(f64::INFINITY, f64::min);
        let mut limits = Limits {
            launch_us: if launch_us.is_finite() { launch_us } else { 0.0 },
            queue: calibration.host.map(Queue::of).unwrap_or_default(),
            units: calibration.device.units.max(1) as f64,
            gpu: calibration.device.gpu(),
            read,
            copy,
            hot_read: curve(Heat::Hot, 1, 0),
            hot_copy: curve(Heat::Hot, 1, 1),
            mix: Vec::new(),
            cache_gb_per_s: calibration.best_gb_per_s(Level::L2),
            caches: caches(calibration),
            peaks: calibration.peaks.iter().map(|peak| (peak.pipe, peak.dtype, peak.sustained_tflops)).collect(),
        };
        let largest = cold().filter(|b| b.writes > 0 && b.reads != b.writes).map(|b| b.footprint_bytes).max();
        let mixes = cold().filter(|b| Some(b.footprint_bytes) == largest);
        let mut mix: Vec<(f64, f64)> = mixes
            .map(|b| {
                let share = b.writes as f64 / (b.reads + b.writes) as f64;
                (share, b.launch_us / limits.between(b.footprint_bytes as f64, share))
            })
            .collect();
        mix.sort_by(|a, b| a.0.total_cmp(&b.0));
        mix.dedup_by(|a, b| a.0 == b.0);
        limits.mix = mix;
        Ok(limits)
    }

    /// Between reading and copying, by the share that is written.
    fn between(&self, bytes: f64, written: f64) -> f64 {
        between(&self.read, &self.copy, bytes, written)
    }

    /// The memory's part of a launch by where its bytes are.
    pub(super) fn memory_of(&self, features: &Features, reuse_bytes: Option<f64>) -> f64 {
        let (cached, cold) = (features.cached, 1.0 - features.cached);
        let (read, written) = (features.read_bytes, features.written_bytes);
        if cached <= 0.0 {
            return self.memory_us_from(read, written, reuse_bytes);
        }
        // By share: both are asked for at once, and what the first byte takes is not taken twice.
        cold * self.memory_us(read, written) + cached * self.cached_us(read, written)
    }

    /// The same with all data in the last cache; as long as from memory where that was not measured.
    fn cached_us(&self, read: f64, written: f64) -> f64 {
        let bytes = read + written;
        if self.hot_read.is_empty() || self.hot_copy.is_empty() || bytes <= 0.0 {
            return self.memory_us(read, written);
        }
        let us = between(&self.hot_read, &self.hot_copy, bytes, written / bytes);
        (us - self.launch_us).clamp(0.0, self.memory_us(read, written))
    }

    /// The memory's part of a launch with cold caches, the launch itself left out, µs.
    pub fn memory_us(&self, read: f64, written: f64) -> f64 {
        let bytes = read + written;
        if bytes <= 0.0 {
            return 0.0;
        }
        let share = written / bytes;
        let factor = if self.mix.is_empty() { 1.0 } else { level(&self.mix, share) };
        (self.between(bytes, share) - self.launch_us).max(0.0) * factor
    }

    /// The same as one number: bytes over the best bandwidth of a large copy, as a plain roofline has it.
    pub fn roofline_memory_us(&self, bytes: f64) -> f64 {
        self.copy.last().map_or(0.0, |(most, us)| bytes * us / most)
    }

    /// The time of bytes that are read from the second cache, µs; 0 where that was not measured.
    pub fn cache_us(&self, bytes: f64) -> f64 {
        self.cache_gb_per_s.map_or(0.0, |gb_per_s| bytes / (gb_per_s * 1e3))
    }

    /// Where bytes are found that are touched again after `reuse_bytes` others; in DRAM, where caches were made cold.
    pub fn level(&self, reuse_bytes: Option<f64>) -> Level {
        self.cache(reuse_bytes).map_or(Level::Dram, |(_, level, _)| level)
    }

    /// A plain stream of so many bytes out of that level, µs: the launch and what small streams take longer are left out.
    pub fn stream_us(&self, read: f64, written: f64, reuse_bytes: Option<f64>) -> f64 {
        let bytes = read + written;
        if let Some((_, _, us)) = self.cache(reuse_bytes) {
            return bytes * us;
        }
        let most =
            self.read.last().into_iter().chain(self.copy.last()).map(|point| point.0).fold(f64::INFINITY, f64::min);
        let share = if bytes > 0.0 { written / bytes } else { 0.0 };
        bytes * self.between(most, share) / most
    }

    fn cache(&self, reuse_bytes: Option<f64>) -> Option<(f64, Level, f64)> {
        let reuse = reuse_bytes?;
        self.caches.iter().find(|(holds, _, _)| *holds >= reuse).copied()
    }

    /// The memory's part of a launch whose data is found there: as [`Limits::memory_us`], less what a nearer level saves.
    pub fn memory_us_from(&self, read: f64, written: f64, reuse_bytes: Option<f64>) -> f64 {
        let cold = self.memory_us(read, written);
        match self.cache(reuse_bytes) {
            Some(_) => cold.min(self.stream_us(read, written, reuse_bytes)),
            None => cold,
        }
    }

    /// The time of operations at the sustained peak of a pipe, µs; `None` where that was not measured.
    pub fn pipe_us(&self, flops: f64, on_tensor_cores: bool, dtype: DType) -> Option<f64> {
        let wanted = if on_tensor_cores { (Pipe::Tensor, dtype) } else { (Pipe::Fma, DType::F32) };
        let peak = self.peaks.iter().find(|(pipe, dtype, _)| (*pipe, *dtype) == wanted)?;
        Some(flops / (peak.2 * 1e6))
    }
}

/// Between two curves, by the share that is written.
fn between(read: &[(f64, f64)], copy: &[(f64, f64)], bytes: f64, written: f64) -> f64 {
    let (read, copy) = (line(read, bytes), line(copy, bytes));
    read + (copy - read) * (2.0 * written).min(1.0)
}

/// What each level of caches holds and how fast it is at best, the smallest first.
fn caches(calibration: &Calibration) -> Vec<(f64, Level, f64)> {
    let hot = calibration.bandwidths.iter().filter(|b| b.heat == Heat::Hot && b.level != Level::Dram);
    // Shared memory holds what a kernel puts there, never what another one has left.
    let hot = hot.filter(|b| b.level != Level::Shared);
    let mut all: Vec<(f64, Level, f64)> = hot.map(|b| (b.footprint_bytes as f64, b.level, 1e-3 / b.gb_per_s)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.total_cmp(&b.2)));
    // Of one size the best mix.
    all.dedup_by(|a, b| a.0 == b.0);
    all
}

/// On the line through the points, and through the last two of them beyond their ends; never below zero.
fn line(points: &[(f64, f64)], x: f64) -> f64 {
    let at = points.partition_point(|point| point.0 < x).clamp(1, points.len().max(2) - 1);
    match points {
        [] => 0.0,
        [only] => only.1 * x / only.0,
        _ => {
            let ((x0, y0), (x1, y1)) = (points[at - 1], points[at]);
            (y0 + (y1 - y0) * (x - x0) / (x1 - x0)).max(0.0)
        }
    }
}

/// The same, level beyond the ends.
fn level(points: &[(f64, f64)], x: f64) -> f64 {
    match (points.first(), points.last()) {
        (Some(first), Some(last)) => line(points, x.clamp(first.0, last.0)),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [(f64, f64); 3] = [(1.0, 2.0), (2.0, 3.0), (4.0, 7.0)];

    #[test]
    fn lines_go_through_their_points_and_on() {
        for (x, y) in [(1.0, 2.0), (1.5, 2.5), (2.0, 3.0), (3.0, 5.0), (4.0, 7.0), (5.0, 9.0), (0.0, 1.0)] {
            approx::assert_relative_eq!(line(&POINTS, x), y);
        }
        approx::assert_relative_eq!(level(&POINTS, 9.0), 7.0);
        approx::assert_relative_eq!(line(&[(2.0, 4.0)], 4.0), 8.0);
    }

    #[test]
    fn a_launch_that_reads_more_takes_longer_in_a_queue() {
        let (over_node_us, dependent_over_node_us) = (Some(0.75), Some(0.125));
        let (reading_over_node_us, dependent_reading_over_node_us) = (Some(1.5), Some(0.5));
        let host = RoundTrip {
            launch_us: 5.0,
            synchronised_us: 5.0,
            over_node_us,
            dependent_over_node_us,
            reading_over_node_us,
            dependent_reading_over_node_us,
        };
        let queue = Queue::of(host);
        assert_eq!(queue.over_node_us(0.0), [0.75, 0.125]);
        assert_eq!(queue.over_node_us(READ_BYTES as f64 / 4.0), [1.125, 0.3125]);
        assert_eq!(queue.over_node_us(READ_BYTES as f64 * 9.0), [1.5, 0.5]);
        let older = Queue::of(RoundTrip { reading_over_node_us: None, dependent_reading_over_node_us: None, ..host });
        assert_eq!(older.over_node_us(1e9), [0.75, 0.125]);
    }

    #[test]
    fn a_function_of_the_host_takes_no_time_for_no_bytes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/calibration/nvidia-h200-132.json");
        let mut calibration = Calibration::read(std::path::Path::new(path)).unwrap();
        calibration.launches.clear();
        let limits = Limits::of(&calibration).unwrap();
        let us = |bytes: f64| limits.memory_us(bytes, 0.0);
        approx::assert_relative_eq!(us(1e5), 10.0 * us(1e4), max_relative = 1e-9);
        assert!(us(1e4) > 0.0 && us(1e4) < 0.01 * us(1e8), "{} {}", us(1e4), us(1e8));
    }

    #[test]
    fn the_mix_decides_between_reading_and_copying() {
        let limits = Limits {
            launch_us: 1.0,
            queue: Queue::default(),
            units: 132.0,
            gpu: Gpu::SIMULATED,
            read: vec![(1e6, 2.0), (1e8, 26.0)],
            copy: vec![(1e6, 2.0), (1e8, 31.0)],
            hot_read: vec![(1e6, 1.5), (1e8, 13.5)],
            hot_copy: vec![(1e6, 1.5), (1e8, 16.0)],
            mix: vec![(0.0, 1.0), (0.5, 1.0), (1.0, 1.1)],
            cache_gb_per_s: Some(8000.0),
            caches: vec![(1e6, Level::L2, 1e-7)],
            peaks: vec![(Pipe::Fma, DType::F32, 60.0), (Pipe::Tensor, DType::BF16, 800.0)],
        };
        approx::assert_relative_eq!(limits.memory_us(1e8, 0.0), 25.0);
        approx::assert_relative_eq!(limits.memory_us(5e7, 5e7), 30.0);
        approx::assert_relative_eq!(limits.memory_us(0.0, 1e8), 33.0);
        approx::assert_relative_eq!(limits.memory_us(0.0, 0.0), 0.0);
        approx::assert_relative_eq!(limits.cached_us(5e7, 5e7), 15.0);
        approx::assert_relative_eq!(limits.pipe_us(8e8, true, DType::BF16).unwrap(), 1.0);
        approx::assert_relative_eq!(limits.cache_us(16e6), 2.0);
        assert_eq!(limits.pipe_us(1.0, true, DType::F16), None, "not measured");
        assert_eq!(
            [None, Some(1e7), Some(1e5)].map(|reuse| limits.level(reuse)),
            [Level::Dram, Level::Dram, Level::L2]
        );
        approx::assert_relative_eq!(limits.stream_us(1e6, 0.0, None), 0.26);
        approx::assert_relative_eq!(limits.stream_us(5e5, 5e5, Some(1e7)), 0.31);
        approx::assert_relative_eq!(limits.stream_us(5e5, 5e5, Some(1e5)), 0.1);
        approx::assert_relative_eq!(limits.memory_us_from(1e8, 0.0, None), 25.0);
        approx::assert_relative_eq!(limits.memory_us_from(1e8, 0.0, Some(1e6)), 10.0);
        // The shipped calibrations have what is needed.
        for file in ["nvidia-h200-132", "nvidia-h100-80gb-hbm3-132"] {
            let path =
                std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("snapshots/calibration/{file}.json"));
            let limits = Limits::of(&Calibration::read(&path).unwrap()).unwrap();
            let copied = limits.memory_us(128e6, 128e6);
            assert!((55.0..90.0).contains(&copied), "{file}: {copied} µs for 256 MB");
            assert!(limits.memory_us(256e6, 0.0) < copied);
        }
    }
}
