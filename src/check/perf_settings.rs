//! How the perf check times.

use crate::core::shape::Point;
use crate::device::{DeviceKind, Heat, TimingPlan};
use crate::measure::change::MIN_SAMPLES;
use crate::measure::session::SessionSettings;
use std::time::Duration;

/// Long against a clock's step and the cost of a batch, short against a scheduler's slice of some 3 ms: on a busy host
/// most batches then run to their end undisturbed, and the median knows nothing of the others.
const BATCH_US: f64 = 300.0;

/// The sampling of a time that is taken in brief.
const BRIEF: Duration = Duration::from_millis(25);
const BRIEF_HALF_WIDTH: f64 = 0.02;
/// The operations of a shape that is timed in brief, of the most, and its elements: those that a naive loop on a host does in a
/// tenth of a second.
const BRIEF_OF_MOST_FLOPS: usize = 8;
const BRIEF_MOST_ELEMENTS: usize = 1 << 24;
/// Launches of so long have a buffer set each; they then come round again. Filling the buffers would take longer than
/// all that is timed in them.
const BRIEF_ROTATION: Duration = Duration::from_millis(5);

/// How to time.
#[derive(Clone, Debug, PartialEq)]
pub struct PerfSettings {
    /// Caches cold or hot.
    pub heat: Heat,
    /// Batches to record: each has a small offset of its own.
    pub instances: usize,
    /// Time of a batch at the least, µs.
    pub batch_us: f64,
    /// Order, precision, budget.
    pub session: SessionSettings,
    /// Shapes with more operations are left out: their slow candidates would hold up the gate.
    pub most_flops: usize,
    /// And those with more elements.
    pub most_elements: usize,
    /// A planted slowdown, as a share of the launch time: what a gate must find.
    pub planted: f64,
    /// Whether it is [in brief](PerfSettings::brief).
    pub is_brief: bool,
    /// Only these shapes, whether or not the operator lists them; empty: those that it lists.
    pub only: Vec<Point>,
}

impl PerfSettings {
    /// What suits a kind of device.
    pub fn of(kind: DeviceKind) -> Self {
        let mut settings = PerfSettings {
            heat: Heat::Cold,
            instances: 16,
            batch_us: BATCH_US,
            session: SessionSettings::default(),
            most_flops: 1 << 42,
            most_elements: usize::MAX,
            planted: 0.0,
            is_brief: false,
            only: Vec::new(),
        };
        if kind != DeviceKind::Cuda {
            // A host's scheduler is coarse, and there is a single instance: more rounds.
            settings.session.stopping.min_rounds = 12;
            settings.session.stopping.budget = Duration::from_millis(120);
            settings.most_flops = 1 << 31;
        }
        settings
    }

    /// The same for a run that has little time left: as few samples as make an interval, over few buffers,
    /// the cheapest shapes first. A time to look at, with its interval; none to accept.
    pub fn brief(mut self) -> Self {
        self.is_brief = true;
        self.most_flops /= BRIEF_OF_MOST_FLOPS;
        self.most_elements = BRIEF_MOST_ELEMENTS;
        self.session.stopping.min_rounds = self.session.stopping.min_rounds.min(MIN_SAMPLES);
        self.session.stopping.half_width = BRIEF_HALF_WIDTH;
        self.session.stopping.budget = BRIEF;
        self
    }

    /// How a contestant is armed.
    pub fn plan(&self) -> TimingPlan {
        let PerfSettings { heat, batch_us, instances, .. } = *self;
        let stopping = self.session.stopping;
        let session = if self.is_brief { BRIEF_ROTATION } else { stopping.longest() };
        TimingPlan { heat, chained: false, batch_us, instances, planted_us: 0.0, session }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    fn a_brief_session_never_outlasts_a_full_one(
        #[values(DeviceKind::Cpu, DeviceKind::Cuda)] kind: DeviceKind,
        #[values(1, 5, 6, 11, 12, 200)] rounds: usize,
        #[values(0, 24, 26, 119, 121, 249, 251, 5000)] elapsed_ms: u64,
        #[values(0.001, 0.01, 0.5)] half_width: f64,
    ) {
        let full = PerfSettings::of(kind);
        let ends = |settings: &PerfSettings| {
            settings.session.stopping.ending(rounds, Duration::from_millis(elapsed_ms), [half_width]).is_some()
        };
        let brief = full.clone().brief();
        assert!(ends(&brief) || !ends(&full));
        assert!(brief.session.stopping.longest() < full.session.stopping.longest());
    }

    #[test]
    fn a_host_is_timed_in_more_rounds_of_smaller_shapes_than_a_gpu() {
        let [cpu, cuda] = [DeviceKind::Cpu, DeviceKind::Cuda].map(PerfSettings::of);
        assert!(cpu.session.stopping.min_rounds > cuda.session.stopping.min_rounds);
        assert!(cpu.most_flops < cuda.most_flops);
    }
}
