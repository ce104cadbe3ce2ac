//! The parameters of a family, and the time that they give.

use super::features::Features;
use super::limits::Limits;
use super::tiling::Tiling;
use serde::{Deserialize, Serialize};

/// What a family has of its own. All of them are relative to the device, so that they carry over to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// What a launch costs, in empty launches.
    pub launch: f64,
    /// Time on the memory over that of a plain stream of the compulsory bytes.
    pub memory: f64,
    /// Time on the pipe over that of the operations of all tiles at its sustained peak.
    pub pipe: f64,
    /// What a wave of tiles costs beside, in empty launches.
    pub wave: f64,
    /// How much of a last, partial wave is waited for: 0 none, 1 all of it.
    pub quantisation: f64,
    /// How memory, pipe and cache overlap: the exponent of the norm of their times, 1 for one after the other.
    pub overlap: f64,
    /// Time of what tiles bring in over that of the same bytes read from the second cache.
    pub cache: f64,
    /// Time of copies in the workspace over that of a plain stream.
    pub copy: f64,
    /// What rows cost in addition, in plain streams of them, if they begin off a 16-byte boundary.
    pub unaligned: f64,
    /// How much longer tiles take whose rows begin off a line of 128 bytes, as a share.
    pub straddling: f64,
}

impl Parameters {
    /// Where a fit begins: a kernel as good as the probes of the calibration.
    pub const IDEAL: Parameters = Parameters {
        launch: 1.0,
        memory: 1.0,
        pipe: 1.0,
        wave: 0.0,
        quantisation: 0.5,
        overlap: 3.0,
        cache: 0.5,
        copy: 1.0,
        unaligned: 0.0,
        straddling: 0.0,
    };

    /// The time of a case, µs: in the tiles that take the least, where there are several ways.
    pub fn time_us(&self, features: &Features, limits: &Limits) -> f64 {
        self.time_us_from(features, limits, None)
    }

    /// The same where its data was touched `reuse_bytes` others ago, and may be in a cache.
    pub fn time_us_from(&self, features: &Features, limits: &Limits, reuse_bytes: Option<f64>) -> f64 {
        let memory =
            self.memory * limits.memory_of(features, reuse_bytes) * (1.0 + self.unaligned * features.unaligned);
        let half = features.copied_bytes / 2.0;
        let copied = self.copy * limits.memory_us(half, half);
        let tiled = features.tilings.iter().map(|tiling| self.tiled_us(tiling, memory, features, limits));
        let tiled = tiled.fold(f64::INFINITY, f64::min);
        limits.launch_us * self.launch * features.launches + copied + if tiled.is_finite() { tiled } else { memory }
    }

    /// The time of a case, and of the same if a library is not asked for its algorithm, µs.
    pub fn times_us(&self, features: &Features, limits: &Limits) -> [f64; 2] {
        let us = self.time_us(features, limits);
        [us, features.unasked().map_or(us, |unasked| self.time_us(&unasked, limits))]
    }

    /// The norm of the times on the memory, the pipe and the cache, and what waves cost beside.
    fn tiled_us(&self, tiling: &Tiling, memory: f64, features: &Features, limits: &Limits) -> f64 {
        let waves = tiling.waves(limits.units);
        let quantised = (tiling.whole_waves(limits.units) / waves.max(f64::MIN_POSITIVE)).powf(self.quantisation);
        let quantised = quantised * (1.0 + self.straddling * features.straddling);
        let pipe = limits.pipe_us(tiling.flops, features.on_tensor_cores, features.dtype);
        let pipe = pipe.map_or(0.0, |us| self.pipe * us * quantised);
        let cache = self.cache * limits.cache_us(tiling.cache_bytes) * quantised;
        let powers = [memory, pipe, cache].map(|us| us.powf(self.overlap));
        powers.iter().sum::<f64>().powf(1.0 / self.overlap) + limits.launch_us * self.wave * waves
    }

    /// The parameters as numbers that may be stepped, and the bounds of each.
    pub(super) fn as_array(&self) -> [f64; Self::COUNT] {
        [
            self.launch,
            self.memory,
            self.pipe,
            self.wave,
            self.quantisation,
            self.overlap,
            self.cache,
            self.copy,
            self.unaligned,
            self.straddling,
        ]
    }

    pub(super) const COUNT: usize = 10;

    /// No kernel is much faster than the plain stream: what a row takes is not all the pipe's, whose operations are
    /// proportional to its bytes.
    pub(super) const BOUNDS: [(f64, f64); Self::COUNT] = [
        (0.0, 50.0),
        (0.9, 10.0),
        (0.02, 50.0),
        (0.0, 5.0),
        (0.0, 1.0),
        (1.0, 12.0),
        (0.0, 3.0),
        (0.0, 20.0),
        (0.0, 10.0),
        (0.0, 3.0),
    ];

    /// The same for cases that are all on tensor cores: tiles compute no faster than those do.
    #[cfg(feature = "catalogue")]
    pub(super) const BOUNDS_ON_TENSOR_CORES: [(f64, f64); Self::COUNT] = {
        let mut bounds = Self::BOUNDS;
        bounds[2].0 = 0.9;
        bounds
    };

    #[cfg(feature = "catalogue")]
    pub(super) fn from_array(
        [launch, memory, pipe, wave, quantisation, overlap, cache, copy, unaligned, straddling]: [f64; Self::COUNT],
    ) -> Self {
        Parameters { launch, memory, pipe, wave, quantisation, overlap, cache, copy, unaligned, straddling }
    }
}
