//! Timing on the GPU: graphs of many launches over rotated buffers, behind a kernel that holds the stream.
//!
//! A launch alone cannot be timed to better than a few per cent below 10 µs: events have their own cost, and the gap
//! before a kernel depends on what stood before it. A graph of at least 100 µs has one start and one end for all its
//! launches. Rotating through more buffers than the L2 holds keeps every launch cold. The holding kernel gives the
//! host time to enqueue graph and events, so that no host jitter is inside, and reads the core clock.

use super::driver::{Buffer, Error, Event, Graph};
use super::problem::{CudaProblem, fault, fill, memory_fault, run_support};
use crate::core::launch::Launch;
use crate::device::fault::Fault;
use crate::device::{Device, Heat, Poison, Sample, TimingPlan};

/// The buffers of all sets together are this many times the L2.
const L2_TIMES: usize = 3;

/// Sets at the most: tiny cases are not spread further, since each launch needs its own arguments in the graph.
const MOST_SETS: usize = 512;

/// Launches in a graph at the most.
const MOST_LAUNCHES: usize = 2048;

/// How long the stream is held while the host enqueues.
const GATE_NS: u64 = 40_000;

/// What a timed problem has beyond a problem.
pub struct Timed {
    sets: usize,
    launches: usize,
    graphs: Vec<Graph>,
    start: Event,
    end: Event,
    clock: Buffer,
}

impl CudaProblem<'_> {
    /// Spreads the image over the sets and records the batches.
    pub(super) fn arm_timing(&mut self, plan: &TimingPlan) -> Result<usize, Fault> {
        let device = self.device;
        let cuda = |e: Error| fault(device, e);
        let sets = self.sets(plan.heat);
        self.spread(sets)?;
        let context = &device.context;
        let (start, end) = (context.event().map_err(cuda)?, context.event().map_err(cuda)?);
        let clock = context.allocate(16).map_err(cuda)?;
        self.timed = Some(Timed { sets, launches: sets, graphs: Vec::new(), start, end, clock });

        // A first batch over all sets tells how many launches a batch needs.
        let trial = self.record(0, sets, 0.0)?;
        self.replay(&trial)?;
        let once = self.replay(&trial)?.launch_us;
        let wanted = (plan.batch_us / once.max(0.5)).ceil() as usize;
        let launches = wanted.clamp(1, MOST_LAUNCHES).max(sets.min(MOST_LAUNCHES));
        let planted_us = plan.planted_us * launches as f64;
        let instances = plan.instances.max(1);
        let graphs = (0..instances)
            .map(|instance| self.record(instance * sets / instances, launches, planted_us))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(timed) = &mut self.timed {
            timed.launches = launches;
            timed.graphs = graphs;
        }
        Ok(instances)
    }

    fn sets(&self, heat: Heat) -> usize {
        let footprint = self.image.footprint_bytes().max(1);
        let cold = (L2_TIMES * self.device.fingerprint().cache_bytes).div_ceil(footprint).clamp(2, MOST_SETS);
        let fitting = (self.device.capacity().timed_bytes / self.image.len()).max(1);
        match heat {
            Heat::Cold => cold.min(fitting),
            Heat::Hot => 1,
        }
    }

    /// Makes room for `sets` images, each with the inputs in place and set 0's outputs nowhere else.
    fn spread(&mut self, sets: usize) -> Result<(), Fault> {
        let device = self.device;
        let cuda = |e: Error| fault(device, e);
        let len = self.image.len();
        let memory = device.context.allocate(sets * len).map_err(|e| memory_fault(&self.image, e))?;
        fill(&self.image, &memory, Poison::Nan).map_err(cuda)?;
        for set in 1..sets {
            memory.copy_within(0, set * len, len).map_err(cuda)?;
        }
        self.finish()?;
        self.memory = memory;
        Ok(())
    }

    /// Records `launches` launches that rotate through the sets from `first` on, and a delay of `planted_us`.
    fn record(&self, first: usize, launches: usize, planted_us: f64) -> Result<Graph, Fault> {
        let sets = self.timed.as_ref().map_or(1, |timed| timed.sets);
        self.device.context.record(
            || {
                (0..launches).try_for_each(|i| self.enqueue((first + i) % sets))?;
                if planted_us > 0.0 { self.delay((planted_us * 1e3) as u64) } else { Ok(()) }
            },
            |e| fault(self.device, e),
        )
    }

    /// A kernel that does nothing for some time; its own launch costs about a microsecond, which counts.
    fn delay(&self, nanoseconds: u64) -> Result<(), Fault> {
        const LAUNCH_NS: u64 = 1_000;
        let launch = Launch::blocks(1, 1).scalar(nanoseconds.saturating_sub(LAUNCH_NS)).scalar(0u64);
        run_support(self.device, "kernelgate_gate", &launch)
    }

    pub(super) fn sample_timing(&mut self, instance: usize) -> Result<Sample, Fault> {
        match self.timed.as_ref().and_then(|timed| timed.graphs.get(instance)) {
            Some(graph) => self.replay(graph),
            None => Err(Fault::Launch(format!("instance {instance} was not recorded: arm first"))),
        }
    }

    /// Holds the stream, replays, and reads the events.
    fn replay(&self, graph: &Graph) -> Result<Sample, Fault> {
        let cuda = |e: Error| fault(self.device, e);
        let Some(timed) = &self.timed else {
            return Err(Fault::Launch("not armed".into()));
        };
        let gate = Launch::blocks(1, 1).scalar(GATE_NS).scalar(timed.clock.address());
        run_support(self.device, "kernelgate_gate", &gate)?;
        timed.start.record().map_err(cuda)?;
        self.device.context.replay(graph).map_err(cuda)?;
        timed.end.record().map_err(cuda)?;
        self.finish()?;
        let mut clock = [0; 16];
        timed.clock.download(0, &mut clock).map_err(cuda)?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| clock[at + i])) as f64;
        let (cycles, nanoseconds) = (word(0), word(8));
        let launch_us = timed.start.until_us(&timed.end).map_err(cuda)? / timed.launches as f64;
        Ok(Sample { launch_us, clock_mhz: (nanoseconds > 0.0).then(|| cycles / nanoseconds * 1e3) })
    }

    /// Every set that was launched against the last run.
    pub(super) fn timed_sets_agree(&mut self) -> Result<bool, Fault> {
        let Some(timed) = &self.timed else { return Ok(true) };
        for set in 0..timed.sets.min(timed.launches) {
            if !self.set_agrees(set)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
