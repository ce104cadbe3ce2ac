//! The host as a device.

use super::fault::Fault;
use super::fingerprint::Fingerprint;
use super::image::{BASE_ALIGNMENT, Image};
use super::trace::{self, Work};
use super::{Capacity, Device, DeviceKind, Heat, Job, Poison, Problem, Sample, TimingPlan};
use crate::core::candidate::{Body, CpuBody};
use crate::core::dtype::DType;
use crate::core::pages::{self, Pages};
use crate::core::tensor::{Inputs, Outputs, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After a pause of so long the threads of the pools are asleep.
const PAUSE: Duration = Duration::from_millis(25);

/// What precedes a sample after a pause: several ticks of the scheduler. Threads that wake up together often find
/// themselves on one processor, and stay there until it looks again. A batch that does not count precedes every sample, as
/// other contestants leave threads asleep; a batch of one launch is too long for that to matter.
const LEAD_IN: Duration = Duration::from_millis(20);

/// When a sample was last taken in this process.
static LAST_SAMPLE: Mutex<Option<Instant>> = Mutex::new(None);

/// The host.
pub struct CpuDevice {
    fingerprint: Fingerprint,
}

impl CpuDevice {
    /// Looks at the processor that this process runs on.
    pub fn new() -> Self {
        let name = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_name(&text));
        let cache_bytes = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size")
            .ok()
            .and_then(|text| text.trim().strip_suffix('K')?.parse::<usize>().ok())
            .map_or(32 << 20, |kib| kib << 10);
        CpuDevice {
            fingerprint: Fingerprint {
                kind: DeviceKind::Cpu,
                name: name.unwrap_or_else(|| std::env::consts::ARCH.into()),
                arch: std::env::consts::ARCH.into(),
                units: rayon::current_num_threads(),
                cache_bytes,
                memory_bytes: 0,
                clock_mhz: 0.0,
                driver: String::new(),
                compiler: String::new(),
            },
        }
    }
}

impl Default for CpuDevice {
    fn default() -> Self {
        CpuDevice::new()
    }
}

fn model_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

impl Device for CpuDevice {
    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    fn runs(&self, body: &Body) -> bool {
        matches!(body, Body::Cpu(_))
    }

    fn prepare(&self, job: &Job<'_>) -> Result<Box<dyn Problem + '_>, Fault> {
        let Body::Cpu(body) = &job.candidate.body else {
            return Err(Fault::Unsupported("a CUDA candidate does not run on the cpu device".into()));
        };
        let image = Image::of(job);
        Ok(Box::new(CpuProblem {
            operator: job.operator.name().to_owned(),
            body: body.clone(),
            point: job.point.to_vec(),
            dtype: job.dtype,
            sets: vec![Set { block: Pages::new(image.len()), shift: 0 }],
            image,
            last: Vec::new(),
            launches: 1,
            heat: Heat::Cold,
            next: 0,
            samples: 0,
            refreshed: 0,
            previous: Vec::new(),
            agrees: true,
            observed: None,
            planted: Duration::ZERO,
            cache_bytes: self.fingerprint.cache_bytes,
        }))
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            elements: 1 << 19,
            flops: 1 << 28,
            threads: usize::MAX,
            timed: true,
            timed_bytes: 64 << 20,
            asked_bytes: 1 << 30,
        }
    }
}

/// Buffers lie in memory as the image lays them out.
const _: () = assert!(pages::ALIGNMENT.is_multiple_of(BASE_ALIGNMENT));

/// The buffers of one launch.
struct Set {
    block: Pages,
    /// How far its inputs are rotated; 0 where they are those of the case.
    shift: usize,
}

struct CpuProblem {
    /// For recordings.
    operator: String,
    body: CpuBody,
    point: Vec<usize>,
    dtype: DType,
    image: Image,
    /// The first set serves correctness; timing rotates through all.
    sets: Vec<Set>,
    last: Vec<Tensor>,
    launches: usize,
    heat: Heat,
    /// The set of the next timed launch: batches shorter than the rotation go on where the last one ended, or they
    /// would find their data in the cache.
    next: usize,
    /// Samples taken since it was armed.
    samples: usize,
    /// Sets that were given other inputs since it was armed: each time others.
    refreshed: usize,
    /// The sets of the last timed batch, and what it left in their outputs; these are poisoned since.
    previous: Vec<(usize, Vec<Tensor>)>,
    /// Whether every timed launch that was looked at left the right bits.
    agrees: bool,
    /// What a timed launch made of the inputs of the case.
    observed: Option<Vec<Tensor>>,
    planted: Duration,
    cache_bytes: usize,
}

impl CpuProblem {
    fn launch(&mut self, set: usize) -> Result<(), Fault> {
        let span = trace::step(true, || self.work());
        let (inputs, outputs) = self.image.split(self.sets[set].block.as_mut_slice());
        let (inputs, mut outputs) = (Inputs(inputs), Outputs(outputs));
        let (body, dtype, point) = (&self.body, self.dtype, &self.point);
        let called = catch_unwind(AssertUnwindSafe(|| body.call(dtype, point, &inputs, &mut outputs)));
        drop(span);
        match called {
            Ok(true) => Ok(()),
            Ok(false) => Err(Fault::Unsupported(format!("no function for {dtype}"))),
            Err(payload) => Err(Fault::Panic(panic_message(&*payload))),
        }
    }

    /// What a launch computes; where buffers rotate, all of them are between two launches on one.
    fn work(&self) -> Work {
        let (candidate, point) = (self.body.name().to_owned(), self.point.clone());
        let reuse_bytes = Some(self.sets.len() * self.image.touched_bytes());
        Work { operator: self.operator.clone(), candidate, point, dtype: self.dtype, reuse_bytes, launches: 1 }
    }

    fn time(&mut self, launches: usize) -> Result<Duration, Fault> {
        let start = Instant::now();
        for _ in 0..launches {
            let set = self.next % self.sets.len();
            self.next = set + 1;
            let _run = trace::run("launch");
            let begun = Instant::now();
            self.launch(set)?;
            if self.planted > Duration::ZERO {
                let until = begun.elapsed() + self.planted;
                while begun.elapsed() < until {
                    std::hint::spin_loop();
                }
            }
        }
        Ok(start.elapsed())
    }

    /// Gives a set inputs that no launch has seen, or now and then those of the case, and poisons its outputs: a
    /// candidate that remembers an answer, or finds it in place, then gains nothing.
    fn refresh(&mut self, set: usize, is_of_case: bool) {
        self.refreshed += 1;
        let shift = if is_of_case { 0 } else { self.refreshed.wrapping_mul(STRIDE) | 1 };
        self.sets[set].shift = shift;
        self.image.refresh(self.sets[set].block.as_mut_slice(), shift, Poison::Nan);
    }

    /// Runs the launches of the last timed batch once more.
    fn launch_again(&mut self) -> Result<(), Fault> {
        (0..self.previous.len()).try_for_each(|i| {
            let set = self.previous[i].0;
            let shift = self.sets[set].shift;
            self.image.restore(self.sets[set].block.as_mut_slice(), shift);
            self.launch(set)
        })
    }

    /// Before a hot batch: what refreshed its set, and whoever was timed meanwhile, have left other data in the caches.
    fn warm(&mut self) -> Result<(), Fault> {
        if self.heat == Heat::Hot {
            self.launch(0)?;
            let Set { block, shift } = &mut self.sets[0];
            self.image.restore(block.as_mut_slice(), *shift);
            // The answer is not to be found in place.
            self.image.poison_outputs(block.as_mut_slice(), Poison::Nan);
        }
        Ok(())
    }

    /// Outside the clock: holds the last but one batch against its repetition (`is_repeated`), gives its sets other
    /// inputs, and keeps what the last batch, which began at set `first`, left behind.
    fn look_back(&mut self, first: usize, is_repeated: bool) {
        let turn = self.samples;
        self.samples += 1;
        let previous = std::mem::take(&mut self.previous);
        let of_case = turn % previous.len().max(RARELY);
        for (at, (set, outputs)) in previous.into_iter().enumerate() {
            self.agrees &= !is_repeated || self.image.holds(self.sets[set].block.as_mut_slice(), &outputs);
            self.refresh(set, at == of_case);
        }
        let sets = self.sets.len();
        let visited = (first..first + self.launches.min(sets)).map(|turn| turn % sets);
        for set in visited {
            let is_of_case = self.sets[set].shift == 0;
            let memory = self.sets[set].block.as_mut_slice();
            let outputs = self.image.outputs(memory);
            self.agrees &= !is_of_case || same_bytes(&outputs, &self.last);
            if is_of_case {
                self.observed = Some(outputs.clone());
            }
            // Another poison: what is not written again then differs.
            self.image.poison_outputs(memory, Poison::Huge);
            self.previous.push((set, outputs));
        }
        if sets == 1 {
            self.previous.clear();
            self.refresh(0, true);
        }
    }
}

/// Spreads the rotations of inputs over the whole of them; odd, so that none comes twice before all have come.
const STRIDE: usize = 0x9E37_79B1;

/// Buffer sets at the most, and at the least: a timed launch has a set that the one before did not touch.
const MOST_SETS: usize = 512;
const LEAST_SETS: usize = 2;

/// What all sets may take: those of a lookup have tables of which a launch touches little.
const SETS_BYTES: usize = 1 << 30;

/// Of batches of one launch, one in so many is run once more, and one in so many has the inputs of the case: long launches
/// would otherwise take twice their time.
const RARELY: usize = 4;

impl Problem for CpuProblem {
    fn run(&mut self, poison: Poison) -> Result<Vec<Tensor>, Fault> {
        self.sets[0].shift = 0;
        self.image.fill(self.sets[0].block.as_mut_slice(), poison);
        self.launch(0)?;
        self.last = self.image.collect(self.sets[0].block.as_mut_slice(), poison)?;
        Ok(self.last.clone())
    }

    fn run_unread(&mut self) -> Result<(), Fault> {
        self.sets[0].shift = 0;
        self.image.fill(self.sets[0].block.as_mut_slice(), Poison::Nan);
        self.launch(0)?;
        self.last = self.image.outputs(self.sets[0].block.as_mut_slice());
        Ok(())
    }

    fn run_on(&mut self, inputs: &[Tensor], poison: Poison) -> Result<Vec<Tensor>, Fault> {
        self.image.replace_inputs(inputs);
        self.run(poison)
    }

    fn agrees_under(&mut self, poison: Poison) -> Result<bool, Fault> {
        let before = std::mem::take(&mut self.last);
        Ok(same_bytes(&self.run(poison)?, &before))
    }

    fn repeat(&mut self, times: usize) -> Result<usize, Fault> {
        let mut different = 0;
        for _ in 0..times {
            self.image.restore(self.sets[0].block.as_mut_slice(), 0);
            self.launch(0)?;
            different += usize::from(!self.image.holds(self.sets[0].block.as_mut_slice(), &self.last));
        }
        Ok(different)
    }

    fn arm(&mut self, plan: &TimingPlan) -> Result<usize, Fault> {
        let enough = match plan.heat {
            Heat::Cold => {
                let sets = (2 * self.cache_bytes).div_ceil(self.image.touched_bytes().max(1));
                sets.min(SETS_BYTES / self.image.len().max(1)).clamp(LEAST_SETS, 64)
            }
            Heat::Hot => 1,
        };
        self.planted = Duration::from_secs_f64(plan.planted_us * 1e-6);
        self.heat = plan.heat;
        (self.samples, self.refreshed, self.agrees, self.observed) = (0, 0, true, None);
        self.previous.clear();
        self.refresh(0, false);
        // Buffers that the session will not come to need not be there: they cost far more than a launch.
        let once = self.time_first(1)?.max(Duration::from_nanos(10));
        let reached = plan.session.as_secs_f64() / once.as_secs_f64();
        let least = LEAST_SETS.min(enough);
        self.make_sets(enough.min(reached as usize + 1).max(least));
        let (mut tried, mut took) = (0, Duration::ZERO);
        while tried < self.sets.len() && (tried == 0 || took.as_secs_f64() * 1e6 < plan.batch_us) {
            took += self.time(1)?;
            tried += 1;
        }
        let once = took.as_secs_f64() * 1e6 / tried as f64;
        self.launches = ((plan.batch_us / once.max(0.01)).ceil() as usize).max(1);
        if plan.heat == Heat::Cold {
            // One half for a batch, the other for the repetition of the one before it.
            self.launches = self.launches.min(MOST_SETS / 2);
            self.make_sets(self.sets.len().max(2 * self.launches));
        }
        if self.image.changes_inputs() {
            // Each launch of a batch needs a set whose inputs are as they should be.
            self.launches = self.launches.min((self.sets.len() / 2).max(1));
            self.make_sets(self.sets.len());
        }
        self.time_first(self.launches)?;
        self.look_back(0, false);
        Ok(1)
    }

    fn sample(&mut self, _instance: usize) -> Result<Sample, Fault> {
        let launches = self.launches;
        let mut last = LAST_SAMPLE.lock().unwrap_or_else(PoisonError::into_inner);
        let paused = last.is_none_or(|last| last.elapsed() > PAUSE);
        let repeats = !self.previous.is_empty() && (launches > 1 || self.samples.is_multiple_of(RARELY));
        let first = self.next % self.sets.len();
        // On a thread of the pool, as launches follow each other in a program: a caller from outside sleeps through each
        // launch, and waking it and one thread more is no part of the kernel's time.
        let recording = trace::handle();
        let took = rayon::scope(|_| {
            let begun = Instant::now();
            while paused && begun.elapsed() < LEAD_IN && !self.previous.is_empty() {
                self.launch_again()?;
            }
            if repeats {
                self.launch_again()?;
            }
            self.warm()?;
            match recording {
                // Launches outside the clock are no part of the batch.
                Some(recording) => recording.carry(|| self.time(launches)),
                None => self.time(launches),
            }
        })?;
        self.look_back(first, repeats);
        *last = Some(Instant::now());
        Ok(Sample { launch_us: took.as_secs_f64() * 1e6 / launches as f64, clock_mhz: None })
    }

    fn timed_outputs_agree(&mut self) -> Result<bool, Fault> {
        self.launch_again()?;
        let image = &self.image;
        let mut previous = std::mem::take(&mut self.previous).into_iter();
        let repeated = previous.all(|(set, outputs)| image.holds(self.sets[set].block.as_mut_slice(), &outputs));
        self.agrees &= repeated;
        Ok(self.agrees)
    }

    fn timed_outputs(&mut self) -> Result<Option<Vec<Tensor>>, Fault> {
        Ok(self.observed.clone())
    }
}

impl CpuProblem {
    /// Times launches from the first set on.
    fn time_first(&mut self, launches: usize) -> Result<Duration, Fault> {
        self.next = 0;
        self.time(launches)
    }

    /// So many sets, each with inputs of its own and nothing in its outputs.
    fn make_sets(&mut self, sets: usize) {
        self.sets.resize_with(sets, || Set { block: Pages::new(self.image.len()), shift: 0 });
        for set in 0..sets {
            self.image.fill(self.sets[set].block.as_mut_slice(), Poison::Nan);
            // The first one has the inputs of the case: every session looks at them once.
            self.refresh(set, set == 0);
        }
        self.next = 0;
    }
}

/// Whether both have the same bits; values would call two NaN different.
fn same_bytes(a: &[Tensor], b: &[Tensor]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.bytes() == b.bytes())
}

/// The text of a panic.
fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests;
