//! Timing on the GPU: graphs of many launches over rotated buffers, behind a kernel that holds the stream.
//!
//! A launch alone cannot be timed to better than a few per cent below 10 µs: events have their own cost, and the gap
//! before a kernel depends on what stood before it. A graph of at least 100 µs has one start and one end for all its
//! launches. Rotating through more buffers than the L2 holds keeps every launch cold. The holding kernel gives the host
//! time to enqueue graph and events, so that no host jitter is inside, and reads the core clock.
//!
//! Where buffers lie in device memory counts: two allocations of one case differ by up to a per cent for as long as they
//! live. So there are several, the *placements*, and the instances are spread over them: their spread then shows what the
//! placement does to a time, and their mean averages it.

use super::driver::{Buffer, Error, Event, Graph};
use super::problem::CudaProblem;
use super::refresh::{OfCase, Refresh};
use super::support::{COUNT_BYTES, fault, fill, memory_fault, run_support};
use crate::core::launch::Launch;
use crate::device::fault::Fault;
use crate::device::trace;
use crate::device::{Device, Heat, Poison, Sample, TimingPlan};
use std::ops::Range;

/// The buffers of a placement are this many times the L2, or no launch is cold.
const L2_TIMES: usize = 3;

/// Placements of a timed problem, if the memory is there.
const PLACEMENTS: usize = 8;

/// Sets of buffers in a placement: two at the least, so that none is used twice in a row; tiny cases are not spread over
/// more than the most, since each launch needs its own arguments in the graph.
const LEAST_SETS: usize = 2;
const MOST_SETS: usize = 1024;

/// Placements that must be there before a batch has a set of its own for every launch.
const LEAST_PLACEMENTS: usize = 4;

/// One batch in so many is looked at: waiting for the comparison leaves the GPU idle.
const LOOKED_AT: usize = 4;

/// Launches in a graph at the most.
const MOST_LAUNCHES: usize = 2048;

/// How long the stream is held while the host enqueues.
const GATE_NS: u64 = 40_000;

/// What a chain goes through before it comes round to a set again: the weights of a model. On an H200 the launches of longer
/// chains took 2 to 5 % longer, likely because addresses of pages have to be translated anew.
const CHAIN_BYTES: usize = 2 << 30;

/// What a timed problem has beyond a problem.
pub struct Timed {
    placements: Vec<Buffer>,
    /// In each placement.
    sets: usize,
    launches: usize,
    /// Whether all launches find what a chain passes on in the first set.
    chained: bool,
    graphs: Vec<Graph>,
    start: Event,
    end: Event,
    clock: Buffer,
    refresh: Refresh,
    /// Batches so far.
    batches: usize,
    /// Whether every timed launch that was looked at left the right bits.
    agrees: bool,
}

impl CudaProblem<'_> {
    /// Makes room for the sets and records the batches.
    pub(super) fn arm_timing(&mut self, plan: &TimingPlan) -> Result<usize, Fault> {
        let device = self.device;
        let cuda = |e: Error| fault(device, e);
        // The buffers of an earlier arming make room for these.
        self.timed = None;
        let instances = plan.instances.max(1);
        let (wanted, sets) = self.rotation(plan.heat);
        let first = self.spread(1, sets)?;
        let context = &device.context;
        let (start, end) = (context.event().map_err(cuda)?, context.event().map_err(cuda)?);
        let clock = context.allocate(16).map_err(cuda)?;
        let refresh = Refresh::new(device, &self.image).map_err(|e| memory_fault(device, &self.image, e))?;

        // A first batch tells how many launches the others need; each visits every set of its placement.
        let trial = self.record(&first[0], 0..sets, (sets, plan.chained), 0.0)?;
        let (graphs, placements, chained) = (Vec::new(), first, plan.chained);
        let (launches, batches, agrees) = (sets, 0, true);
        let mut timed =
            Timed { placements, sets, launches, chained, graphs, start, end, clock, refresh, batches, agrees };
        self.refresh(&mut timed, 0)?;
        self.replay(&timed, &trial)?;
        self.refresh(&mut timed, 0)?;
        let once = self.replay(&timed, &trial)?.launch_us;
        let needed = ((plan.batch_us / once.max(0.5)).ceil() as usize).clamp(sets, MOST_LAUNCHES);
        drop(trial);
        timed.placements.clear();
        let (placements, sets) = if plan.chained {
            (1, needed.min(CHAIN_BYTES / self.image.len()).max(sets))
        } else {
            self.room(plan.heat, wanted.min(instances), sets, needed)
        };
        // A second launch on a set would find there what the first one made of its inputs.
        let launches = if self.image.changes_inputs() { needed.min(sets) } else { needed };
        (timed.placements, timed.sets, timed.launches) = (self.spread(placements, sets)?, sets, launches);
        let planted_us = plan.planted_us * timed.launches as f64;
        let record = |instance: usize| {
            let placement = &timed.placements[instance % timed.placements.len()];
            let first = instance * sets / instances;
            self.record(placement, first..first + timed.launches, (sets, plan.chained), planted_us)
        };
        timed.graphs = (0..instances).map(record).collect::<Result<_, _>>()?;
        self.timed = Some(timed);
        Ok(instances)
    }

    /// How many placements, and sets in each.
    fn rotation(&self, heat: Heat) -> (usize, usize) {
        if heat == Heat::Hot {
            return (PLACEMENTS, 1);
        }
        let cold_bytes = L2_TIMES * self.device.fingerprint().cache_bytes;
        let sets = cold_bytes.div_ceil(self.image.touched_bytes().max(1)).clamp(LEAST_SETS, MOST_SETS);
        let fitting = (self.device.capacity().timed_bytes / self.image.len()).max(1);
        let sets = sets.min(fitting);
        (PLACEMENTS.min(fitting / sets), sets)
    }

    /// How many placements, and sets in each, for batches of `launches`: a set a launch where the memory holds that, so that
    /// no launch of a batch finds what another one left there.
    fn room(&self, heat: Heat, placements: usize, sets: usize, launches: usize) -> (usize, usize) {
        if heat == Heat::Hot {
            return (placements, sets);
        }
        let fitting = (self.device.capacity().timed_bytes / self.image.len()).max(1);
        let most = (fitting / LEAST_PLACEMENTS.min(placements)).min(MOST_SETS);
        let sets = launches.min(most).max(sets);
        (placements.min(fitting / sets).max(1), sets)
    }

    /// Gives placement `at` other inputs and poisoned outputs, and sweeps the caches. One set, returned, has the inputs of
    /// the case.
    fn refresh(&self, timed: &mut Timed, at: usize) -> Result<usize, Fault> {
        // Another one each time, and over time all of them; in a chain that whose inputs are passed on.
        let of_case = if timed.chained { 0 } else { timed.batches * (timed.sets / 2 + 1) % timed.sets };
        timed.batches += 1;
        let images = (timed.placements[at].address(), self.image.len(), timed.sets);
        timed.refresh.run(self.device, images, &self.memory, OfCase::One(of_case), Poison::Nan)?;
        timed.refresh.sweep(self.device)?;
        Ok(of_case)
    }

    /// Allocates placements of `sets` images each, with the inputs in place and the outputs nowhere yet.
    fn spread(&mut self, placements: usize, sets: usize) -> Result<Vec<Buffer>, Fault> {
        let cuda = |e: Error| fault(self.device, e);
        let len = self.image.len();
        fill(&self.image, &self.memory, Poison::Nan).map_err(cuda)?;
        let allocate = |_| {
            let memory =
                self.device.context.allocate(sets * len).map_err(|e| memory_fault(self.device, &self.image, e))?;
            (0..sets).try_for_each(|set| memory.copy_from(set * len, &self.memory, 0, len)).map_err(cuda)?;
            Ok(memory)
        };
        let placements = (0..placements).map(allocate).collect::<Result<_, Fault>>()?;
        self.finish()?;
        Ok(placements)
    }

    /// Records a launch for each of `turns`, which rotate through the sets of a placement, and a delay of `planted_us`.
    fn record(
        &self,
        placement: &Buffer,
        mut turns: Range<usize>,
        (sets, chained): (usize, bool),
        planted_us: f64,
    ) -> Result<Graph, Fault> {
        let launch = |turn: usize| {
            let base = self.address_of(placement, turn % sets);
            self.enqueue_passed(base, if chained { placement.address() } else { base })
        };
        self.device.context.record(
            || {
                turns.try_for_each(launch)?;
                if planted_us > 0.0 { self.delay((planted_us * 1e3) as u64) } else { Ok(()) }
            },
            |e| fault(self.device, e),
        )
    }

    fn address_of(&self, placement: &Buffer, set: usize) -> u64 {
        placement.address() + (set * self.image.len()) as u64
    }

    /// A kernel that does nothing for some time; its own launch costs about a microsecond, which counts.
    fn delay(&self, nanoseconds: u64) -> Result<(), Fault> {
        const LAUNCH_NS: u64 = 1_000;
        let launch = Launch::blocks(1, 1).scalar(nanoseconds.saturating_sub(LAUNCH_NS)).scalar(0u64);
        run_support(self.device, "kernelgate_gate", &launch)
    }

    pub(super) fn sample_timing(&mut self, instance: usize) -> Result<Sample, Fault> {
        let Some(mut timed) = self.timed.take().filter(|timed| instance < timed.graphs.len()) else {
            return Err(Fault::Launch(format!("instance {instance} was not recorded: arm first")));
        };
        let sample = self.sample_of(&mut timed, instance);
        self.timed = Some(timed);
        sample
    }

    fn sample_of(&self, timed: &mut Timed, instance: usize) -> Result<Sample, Fault> {
        let at = instance % timed.placements.len();
        let of_case = self.refresh(timed, at)?;
        let sample = self.replay(timed, &timed.graphs[instance])?;
        // A batch shorter than the rotation does not come to all sets.
        let first = instance * timed.sets / timed.graphs.len();
        let is_visited = (of_case + timed.sets - first) % timed.sets < timed.launches;
        if is_visited && timed.batches.is_multiple_of(LOOKED_AT) {
            timed.agrees &= self.images_agree([self.address_of(&timed.placements[at], of_case)])?;
        }
        Ok(sample)
    }

    /// Holds the stream, replays, and reads the events.
    fn replay(&self, timed: &Timed, graph: &Graph) -> Result<Sample, Fault> {
        let cuda = |e: Error| fault(self.device, e);
        let gate = Launch::blocks(1, 1).scalar(GATE_NS).scalar(timed.clock.address());
        run_support(self.device, "kernelgate_gate", &gate)?;
        timed.start.record().map_err(cuda)?;
        {
            let _run = trace::run("launch");
            let _batch = trace::step(false, || self.traced(timed.launches, timed.sets));
            self.device.context.replay(graph).map_err(cuda)?;
        }
        timed.end.record().map_err(cuda)?;
        self.finish()?;
        let mut clock = [0; 16];
        timed.clock.download(0, &mut clock).map_err(cuda)?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| clock[at + i])) as f64;
        let (cycles, nanoseconds) = (word(0), word(8));
        let launch_us = timed.start.until_us(&timed.end).map_err(cuda)? / timed.launches as f64;
        Ok(Sample { launch_us, clock_mhz: (nanoseconds > 0.0).then(|| cycles / nanoseconds * 1e3) })
    }

    /// Whether what was looked at was right, and every batch is when it runs once more on the inputs of the case: with
    /// nothing in the outputs before, and with launches on every other set that leave the sets between them alone.
    pub(super) fn timed_sets_agree(&mut self) -> Result<bool, Fault> {
        let Some(mut timed) = self.timed.take() else { return Ok(true) };
        let agree = self.batches_agree(&mut timed);
        self.timed = Some(timed);
        agree
    }

    fn batches_agree(&self, timed: &mut Timed) -> Result<bool, Fault> {
        let (len, sets) = (self.image.len(), timed.sets);
        let mut agree = timed.agrees;
        for instance in 0..timed.graphs.len() {
            let at = instance % timed.placements.len();
            let images = (timed.placements[at].address(), len, sets);
            timed.refresh.run(self.device, images, &self.memory, OfCase::All, Poison::Huge)?;
            self.replay(timed, &timed.graphs[instance])?;
            let first = instance * sets / timed.graphs.len();
            let visited = (first..first + timed.launches.min(sets)).map(|turn| turn % sets);
            let bases = visited.map(|set| self.address_of(&timed.placements[at], set));
            agree &= self.images_agree(bases)?;
        }
        let images = (timed.placements[0].address(), len, sets);
        timed.refresh.run(self.device, images, &self.memory, OfCase::All, Poison::Huge)?;
        let every_other = (0..sets).step_by(2).map(|set| self.address_of(&timed.placements[0], set));
        every_other.clone().try_for_each(|base| self.enqueue(base))?;
        agree &= self.images_agree(every_other)?;
        let between = (1..sets).step_by(2).map(|set| self.address_of(&timed.placements[0], set));
        Ok(agree && self.are_poisoned(between, Poison::Huge)?)
    }

    /// Whether the outputs of the images at these addresses hold nothing but poison.
    fn are_poisoned(&self, bases: impl IntoIterator<Item = u64>, poison: Poison) -> Result<bool, Fault> {
        let cuda = |e: Error| fault(self.device, e);
        let ranges: Vec<Range<usize>> = self.image.poisoned_ranges().collect();
        let largest = ranges.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        // As wide reads need it, wherever an output starts.
        let (clean, count) = (
            self.device.context.allocate(largest.max(1)).map_err(cuda)?,
            self.device.context.allocate(COUNT_BYTES).map_err(cuda)?,
        );
        clean.fill(0, largest, poison.byte()).map_err(cuda)?;
        count.fill(0, COUNT_BYTES, 0).map_err(cuda)?;
        for base in bases {
            for range in ranges.iter().filter(|range| !range.is_empty()) {
                self.diff(base + range.start as u64, clean.address(), range.len(), count.address())?;
            }
        }
        self.finish()?;
        let mut found = [0; COUNT_BYTES];
        count.download(0, &mut found).map_err(cuda)?;
        Ok(found == [0; COUNT_BYTES])
    }
}
