//! A case on the GPU: its image in device memory, its launches, what they left behind.

use super::device::CudaDevice;
use super::driver::{Buffer, Error};
use super::support::{COUNT_BYTES, fault, fill, memory_fault, put, run_support, run_support_on};
use super::timing::Timed;
use super::watch::Watch;
use super::work::Work;
use crate::core::launch::Launch;
use crate::core::tensor::Tensor;
use crate::device::fault::{Escape, Fault};
use crate::device::image::Image;
use crate::device::trace;
use crate::device::{Device, Job, Poison, Problem, Sample, TimingPlan};
use std::ops::Range;

/// Repeated launches meet fresh load this often, for this long.
const LOAD_EVERY: usize = 5;
const LOAD_NS: u64 = 300_000;

/// A case on the GPU.
pub struct CudaProblem<'d> {
    pub(super) device: &'d CudaDevice,
    pub(super) image: Image,
    pub(super) memory: Buffer,
    work: Work,
    /// The outputs of the last run, one behind the other: compared on the device, they need not travel.
    kept: Buffer,
    /// Where differences are counted, a word an output.
    count: Buffer,
    /// For work that could end up on another stream.
    watch: Option<Watch>,
    pub(super) timed: Option<Timed>,
    /// What a launch computes, for recordings.
    traced: trace::Work,
}

impl<'d> CudaProblem<'d> {
    /// Compiles, checks the launches against the signatures, allocates.
    pub fn new(device: &'d CudaDevice, job: &Job<'_>) -> Result<Self, Fault> {
        let image = Image::of(job);
        device.context.bind().map_err(|e| fault(device, e))?;
        let work = Work::of(device, job, &image)?;
        let allocate = |bytes| device.context.allocate(bytes).map_err(|e| memory_fault(device, &image, e));
        let outputs = image.output_ranges().map(|range| kept_bytes(&range)).sum();
        let (memory, kept) = (allocate(image.len())?, allocate(outputs)?);
        let count = allocate(COUNT_BYTES * image.output_ranges().count())?;
        let watched = work.may_escape().then(|| Watch::of(device, &image));
        let watch = watched.transpose().map_err(|e| memory_fault(device, &image, e))?;
        let traced = trace::Work {
            operator: job.operator.name().into(),
            candidate: job.candidate.name.clone(),
            point: job.point.to_vec(),
            dtype: job.dtype,
            reuse_bytes: None,
            launches: 1,
        };
        Ok(CudaProblem { device, image, memory, work, kept, count, watch, timed: None, traced })
    }

    /// Enqueues one launch on the image at `base`.
    pub(super) fn enqueue(&self, base: u64) -> Result<(), Fault> {
        self.enqueue_passed(base, base)
    }

    /// The same with what a chain passes on where it is in the image at `passed`.
    pub(super) fn enqueue_passed(&self, base: u64, passed: u64) -> Result<(), Fault> {
        self.work.enqueue(self.device, &self.image, base, passed)
    }

    /// A batch of launches, which rotate over so many sets of buffers, as a step of a recording.
    pub(super) fn traced(&self, launches: usize, sets: usize) -> trace::Work {
        let reuse_bytes = (sets == 1).then(|| self.image.touched_bytes());
        trace::Work { reuse_bytes, launches, ..self.traced.clone() }
    }

    /// Waits for what was enqueued.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        self.device.context.wait(self.device.launch_limit()).map_err(|e| fault(self.device, e))
    }

    /// Puts what a run must not depend on into shared memory.
    fn dirty(&self, poison: Poison) -> Result<(), Fault> {
        let word = u32::from_le_bytes([poison.byte(); 4]);
        let bytes = self.device.shared_bytes();
        let blocks = self.device.fingerprint().units;
        let launch = Launch::blocks(blocks, 1024).shared(bytes).scalar(word).scalar((bytes / 4) as i32);
        run_support(self.device, "kernelgate_dirty", &launch)
    }

    /// The whole image.
    fn download(&self) -> Result<Vec<u8>, Fault> {
        let mut memory = vec![0; self.image.len()];
        let copied = self.memory.download(0, &mut memory);
        copied.map(|()| memory).map_err(|e| fault(self.device, e))
    }
}

/// The room of an output among the kept ones: the next one starts aligned for wide reads.
fn kept_bytes(range: &Range<usize>) -> usize {
    range.len().next_multiple_of(16)
}

impl Problem for CudaProblem<'_> {
    fn run(&mut self, poison: Poison) -> Result<Vec<Tensor>, Fault> {
        self.run_once(poison, || self.keep())?;
        if self.watch.is_some() {
            self.device.context.wait_for_all().map_err(|e| fault(self.device, e))?;
            if let Some(output) = self.differing_output([self.memory.address()])? {
                return Err(self.escaped(output, Escape::Late));
            }
        }
        self.image.collect(&self.download()?, poison)
    }

    fn run_unread(&mut self) -> Result<(), Fault> {
        self.run_once(Poison::Nan, || self.keep())
    }

    fn run_on(&mut self, inputs: &[Tensor], poison: Poison) -> Result<Vec<Tensor>, Fault> {
        self.image.replace_inputs(inputs);
        if let Some(watch) = &self.watch {
            self.device
                .context
                .bind()
                .and_then(|()| watch.replace_inputs(&self.image))
                .map_err(|e| fault(self.device, e))?;
        }
        self.run(poison)
    }

    fn agrees_under(&mut self, poison: Poison) -> Result<bool, Fault> {
        self.run_once(poison, || Ok(()))?;
        self.images_agree([self.memory.address()])
    }

    fn repeat(&mut self, times: usize) -> Result<usize, Fault> {
        let device = self.device;
        device.context.bind().map_err(|e| fault(device, e))?;
        let beside = device.context.beside().map_err(|e| fault(device, e))?;
        let mut different = 0;
        for i in 0..times {
            // Some multiprocessors are kept busy, never the same number twice in a row: blocks then run in other
            // orders and on other neighbours than on an idle GPU.
            if i % LOAD_EVERY == 0 {
                let busy = (1 + i / LOAD_EVERY % 7) * device.fingerprint().units / 8;
                let load = Launch::blocks(busy.max(1), 32).shared(device.shared_bytes());
                run_support_on(&beside, device, "kernelgate_gate", &load.scalar(LOAD_NS).scalar(0u64))?;
            }
            let restored = self.image.changed_in_place();
            let mut restored = restored.map(|(range, content)| put(&self.memory, range.start, content));
            restored.try_for_each(|done| done).map_err(|e| fault(device, e))?;
            self.enqueue(self.memory.address())?;
            self.finish()?;
            different += usize::from(!self.images_agree([self.memory.address()])?);
        }
        Ok(different)
    }

    fn code(&self) -> Option<String> {
        self.work.code()
    }

    fn arm(&mut self, plan: &TimingPlan) -> Result<usize, Fault> {
        self.device.context.bind().map_err(|e| fault(self.device, e))?;
        self.work.chain(plan.chained);
        self.arm_timing(plan)
    }

    fn sample(&mut self, instance: usize) -> Result<Sample, Fault> {
        self.device.context.bind().map_err(|e| fault(self.device, e))?;
        self.sample_timing(instance)
    }

    fn timed_outputs_agree(&mut self) -> Result<bool, Fault> {
        self.device.context.bind().map_err(|e| fault(self.device, e))?;
        self.timed_sets_agree()
    }
}

impl CudaProblem<'_> {
    /// Poisons, restores the inputs, and runs; what `behind` enqueues stands right behind the candidate's work.
    fn run_once(&self, poison: Poison, behind: impl FnOnce() -> Result<(), Error>) -> Result<(), Fault> {
        let device = self.device;
        let cuda = |e: Error| fault(device, e);
        device.context.bind().map_err(cuda)?;
        fill(&self.image, &self.memory, poison).map_err(cuda)?;
        self.dirty(poison)?;
        if let Some(watch) = &self.watch {
            watch.produce(device, &self.image, &self.memory, poison)?;
        }
        self.enqueue(self.memory.address())?;
        behind().map_err(cuda)?;
        let early = self.watch.as_ref().map(|watch| watch.written_early(&self.image, &self.memory, poison));
        let early = early.transpose().map_err(cuda)?.flatten();
        self.finish()?;
        early.map_or(Ok(()), |output| Err(self.escaped(output, Escape::Early)))
    }

    fn escaped(&self, output: usize, how: Escape) -> Fault {
        Fault::Escaped { output: self.image.output_name(output), how }
    }

    /// Puts the outputs aside.
    fn keep(&self) -> Result<(), Error> {
        let mut at = 0;
        for range in self.image.output_ranges().filter(|range| !range.is_empty()) {
            self.kept.copy_from(at, &self.memory, range.start, range.len())?;
            at += kept_bytes(&range);
        }
        Ok(())
    }

    /// Whether the outputs of the images at these addresses have the bits of the last run.
    pub(super) fn images_agree(&self, bases: impl IntoIterator<Item = u64>) -> Result<bool, Fault> {
        Ok(self.differing_output(bases)?.is_none())
    }

    /// The first output that has other bits than that of the last run in any of the images at these addresses.
    fn differing_output(&self, bases: impl IntoIterator<Item = u64>) -> Result<Option<usize>, Fault> {
        let cuda = |e: Error| fault(self.device, e);
        let mut counts = vec![0; COUNT_BYTES * self.image.output_ranges().count()];
        self.count.fill(0, counts.len(), 0).map_err(cuda)?;
        for base in bases {
            self.count_differences(base)?;
        }
        self.finish()?;
        self.count.download(0, &mut counts).map_err(cuda)?;
        Ok(counts.chunks(COUNT_BYTES).position(|count| count.iter().any(|&byte| byte != 0)))
    }

    /// Enqueues the comparison of the image at `base` with the last run.
    fn count_differences(&self, base: u64) -> Result<(), Fault> {
        let mut kept = self.kept.address();
        for (i, range) in self.image.output_ranges().enumerate().filter(|(_, range)| !range.is_empty()) {
            let count = self.count.address() + (COUNT_BYTES * i) as u64;
            self.diff(base + range.start as u64, kept, range.len(), count)?;
            kept += kept_bytes(&range) as u64;
        }
        Ok(())
    }

    /// Enqueues a count of the bytes in which two ranges differ.
    pub(super) fn diff(&self, a: u64, b: u64, bytes: usize, count: u64) -> Result<(), Fault> {
        let launch = Launch::blocks((bytes / 4096).clamp(1, 2 * self.device.fingerprint().units), 256);
        let launch = launch.scalar(a).scalar(b).scalar(bytes as u64).scalar(count);
        run_support(self.device, "kernelgate_diff", &launch)
    }
}
