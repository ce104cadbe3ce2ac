//! Timelines and knowledge that the tests of this module share.

use super::knowledge::Knowledge;
use crate::calibrate::{Bandwidth, Calibration, Level as Place, Peak, Pipe};
use crate::core::dtype::DType;
use crate::core::suite::Suite;
use crate::device::trace::{Event, Kind, Level, Range, RangeId, Timeline, Track, Work, WorkId};
use crate::device::{Device, Heat, cpu::CpuDevice};
use crate::predict::Limits;

/// A timeline under construction.
#[derive(Default)]
pub struct Made {
    pub timeline: Timeline,
}

impl Made {
    /// A range.
    pub fn range(&mut self, level: Level, name: &str, parent: Option<RangeId>, start_ns: u64, end_ns: u64) -> RangeId {
        let name = self.timeline.texts.number(name);
        self.timeline.ranges.push(Range { level, name, parent, work: None, start_ns, end_ns });
        RangeId(self.timeline.ranges.len() as u32 - 1)
    }

    /// A step of `operator::tiled` at one extent.
    pub fn step(&mut self, parent: RangeId, operator: &str, n: usize, start_ns: u64, end_ns: u64) -> RangeId {
        self.step_of(parent, (operator, "tiled"), vec![n], [start_ns, end_ns])
    }

    /// A step of any candidate.
    pub fn step_of(
        &mut self,
        parent: RangeId,
        (operator, candidate): (&str, &str),
        point: Vec<usize>,
        [start_ns, end_ns]: [u64; 2],
    ) -> RangeId {
        let id = self.range(Level::Step, operator, Some(parent), start_ns, end_ns);
        let (operator, candidate) = (operator.into(), candidate.into());
        let work = Work { operator, candidate, point, dtype: DType::F32, reuse_bytes: Some(1 << 16), launches: 1 };
        let known = self.timeline.works.iter().position(|other| *other == work);
        let at = known.unwrap_or_else(|| {
            self.timeline.works.push(work);
            self.timeline.works.len() - 1
        });
        self.timeline.ranges[id.0 as usize].work = Some(WorkId(at as u32));
        id
    }

    /// A step that is one function of the host.
    pub fn kernel(&mut self, parent: RangeId, operator: &str, n: usize, [start_ns, end_ns]: [u64; 2]) {
        let id = self.step(parent, operator, n, start_ns, end_ns);
        let name = self.timeline.texts.number(operator);
        let event = event(Kind::Kernel, Track::Stream(0), [start_ns, end_ns], id.0 + 1, Some(id));
        self.timeline.events.push(Event { name, ..event });
    }

    /// Memory taken or given back.
    pub fn memory(&mut self, kind: Kind, name: &str, bytes: u64, at_ns: u64, range: Option<RangeId>) {
        let name = self.timeline.texts.number(name);
        self.timeline.events.push(Event { name, bytes, ..event(kind, Track::Host(0), [at_ns; 2], 0, range) });
    }
}

/// An event of the first name.
pub fn event(
    kind: Kind,
    track: Track,
    [start_ns, end_ns]: [u64; 2],
    correlation: u32,
    range: Option<RangeId>,
) -> Event {
    let name = crate::device::trace::Text(0);
    Event { kind, name, track, start_ns, end_ns, correlation, range, node: 0, bytes: 0, shape: None }
}

/// The catalogue.
pub fn suites() -> Vec<Suite> {
    crate::ops::catalogue()
}

/// A host that copies 20 GB/s from DRAM, 100 GB/s from its last cache of 32 MiB, and does 200 Gflop/s.
pub fn host_calibration() -> Calibration {
    let bandwidth = |level, heat, reads, writes, footprint_bytes: usize, gb_per_s: f64| Bandwidth {
        level,
        reads,
        writes,
        footprint_bytes,
        heat,
        launch_us: footprint_bytes as f64 / gb_per_s * 1e-3,
        gb_per_s,
    };
    Calibration {
        peaks: vec![Peak {
            pipe: Pipe::Fma,
            dtype: DType::F32,
            burst_tflops: 0.2,
            burst_mhz: None,
            sustained_tflops: 0.2,
            sustained_mhz: None,
        }],
        bandwidths: vec![
            bandwidth(Place::L3, Heat::Hot, 1, 1, 32 << 20, 100.0),
            bandwidth(Place::Dram, Heat::Cold, 1, 0, 1 << 20, 20.0),
            bandwidth(Place::Dram, Heat::Cold, 1, 0, 1 << 28, 20.0),
            bandwidth(Place::Dram, Heat::Cold, 1, 1, 1 << 20, 20.0),
            bandwidth(Place::Dram, Heat::Cold, 1, 1, 1 << 28, 20.0),
        ],
        ..Calibration::begun(CpuDevice::new().fingerprint().clone(), String::new(), None)
    }
}

/// What is known on that host.
pub fn host_knowledge(suites: &[Suite]) -> Knowledge<'_> {
    Knowledge { suites, limits: Limits::of(&host_calibration()).ok(), fitted: None }
}
