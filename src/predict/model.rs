//! The parameters of a family, and the time that they give.

use super::features::Features;
use super::limits::Limits;
use serde::{Deserialize, Serialize};

/// What a family has of its own. All of them are relative to the device, so that they carry over to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// What a launch costs, in empty launches.
    pub launch: f64,
    /// Time on the memory over that of a plain stream of the compulsory bytes.
    pub memory: f64,
    /// Time on the pipe over that of the compulsory operations at its sustained peak.
    pub pipe: f64,
    /// What a wave of one block a unit costs beside, in empty launches.
    pub wave: f64,
    /// How much of a last, partial wave is waited for: 0 none, 1 all of it.
    pub quantisation: f64,
    /// How memory and pipe overlap: the exponent of the norm of both times, 1 for one after the other.
    pub overlap: f64,
}

impl Parameters {
    /// Where a fit begins: a kernel as good as the probes of the calibration.
    pub const IDEAL: Parameters =
        Parameters { launch: 1.0, memory: 1.0, pipe: 1.0, wave: 0.0, quantisation: 0.5, overlap: 3.0 };

    /// The time of a case, µs.
    pub fn time_us(&self, features: &Features, limits: &Limits) -> f64 {
        self.time_us_from(features, limits, None)
    }

    /// The same where its data was touched `reuse_bytes` others ago, and may be in a cache.
    pub fn time_us_from(&self, features: &Features, limits: &Limits, reuse_bytes: Option<f64>) -> f64 {
        let memory = self.memory * limits.memory_us_from(features.read_bytes, features.written_bytes, reuse_bytes);
        let waves = features.blocks / limits.units;
        let quantised = (waves.max(1.0).ceil() / waves.max(f64::MIN_POSITIVE)).powf(self.quantisation);
        let pipe = limits.pipe_us(features.flops, features.on_tensor_cores, features.dtype);
        let pipe = pipe.map_or(0.0, |us| self.pipe * us * quantised);
        let overlapped = (memory.powf(self.overlap) + pipe.powf(self.overlap)).powf(1.0 / self.overlap);
        let launched = limits.launch_us * (self.launch * features.launches + self.wave * waves);
        launched + overlapped
    }

    /// The parameters as numbers that may be stepped, and the bounds of each.
    pub(super) fn as_array(&self) -> [f64; Self::COUNT] {
        [self.launch, self.memory, self.pipe, self.wave, self.quantisation, self.overlap]
    }

    pub(super) const COUNT: usize = 6;

    pub(super) const BOUNDS: [(f64, f64); Self::COUNT] =
        [(0.0, 50.0), (0.5, 10.0), (0.02, 50.0), (0.0, 1.0), (0.0, 1.0), (1.0, 12.0)];

    pub(super) fn from_array([launch, memory, pipe, wave, quantisation, overlap]: [f64; Self::COUNT]) -> Self {
        Parameters { launch, memory, pipe, wave, quantisation, overlap }
    }
}
