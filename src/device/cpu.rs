//! The host as a device.

use super::fault::Fault;
use super::fingerprint::Fingerprint;
use super::image::{BASE_ALIGNMENT, Image};
use super::{Capacity, Device, DeviceKind, Heat, Job, Poison, Problem, Sample, TimingPlan};
use crate::core::candidate::{Body, CpuBody};
use crate::core::dtype::DType;
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
            body: body.clone(),
            point: job.point.to_vec(),
            dtype: job.dtype,
            sets: vec![Block::new(image.len())],
            image,
            last: Vec::new(),
            launches: 1,
            next: 0,
            reached: 0,
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

/// Bytes that start at a multiple of [`BASE_ALIGNMENT`].
struct Block {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Block {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + BASE_ALIGNMENT];
        let address = bytes.as_ptr() as usize;
        Block { start: address.next_multiple_of(BASE_ALIGNMENT) - address, bytes, len }
    }

    fn memory(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

struct CpuProblem {
    body: CpuBody,
    point: Vec<usize>,
    dtype: DType,
    image: Image,
    /// The first set serves correctness; timing rotates through all.
    sets: Vec<Block>,
    last: Vec<Tensor>,
    launches: usize,
    /// The set of the next timed launch: batches shorter than the rotation go on where the last one ended, or they
    /// would find their data in the cache.
    next: usize,
    /// The sets that timed launches have written to.
    reached: usize,
    planted: Duration,
    cache_bytes: usize,
}

impl CpuProblem {
    fn launch(&mut self, set: usize) -> Result<(), Fault> {
        let (inputs, outputs) = self.image.split(self.sets[set].memory());
        let (inputs, mut outputs) = (Inputs(inputs), Outputs(outputs));
        let (body, dtype, point) = (&self.body, self.dtype, &self.point);
        match catch_unwind(AssertUnwindSafe(|| body.call(dtype, point, &inputs, &mut outputs))) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Fault::Unsupported(format!("no function for {dtype}"))),
            Err(payload) => Err(Fault::Panic(panic_message(&*payload))),
        }
    }

    fn time(&mut self, launches: usize) -> Result<Duration, Fault> {
        let start = Instant::now();
        for _ in 0..launches {
            let set = self.next % self.sets.len();
            self.next = set + 1;
            self.reached = self.reached.max(self.next);
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
}

impl Problem for CpuProblem {
    fn run(&mut self, poison: Poison) -> Result<Vec<Tensor>, Fault> {
        self.image.fill(self.sets[0].memory(), poison);
        self.launch(0)?;
        self.last = self.image.collect(self.sets[0].memory(), poison)?;
        Ok(self.last.clone())
    }

    fn agrees_under(&mut self, poison: Poison) -> Result<bool, Fault> {
        let before = std::mem::take(&mut self.last);
        Ok(same_bytes(&self.run(poison)?, &before))
    }

    fn repeat(&mut self, times: usize) -> Result<usize, Fault> {
        let mut different = 0;
        for _ in 0..times {
            self.launch(0)?;
            different += usize::from(!self.image.holds(self.sets[0].memory(), &self.last));
        }
        Ok(different)
    }

    fn arm(&mut self, plan: &TimingPlan) -> Result<usize, Fault> {
        let enough = match plan.heat {
            Heat::Cold => (2 * self.cache_bytes).div_ceil(self.image.footprint_bytes().max(1)).clamp(1, 64),
            Heat::Hot => 1,
        };
        self.planted = Duration::from_secs_f64(plan.planted_us * 1e-6);
        // Buffers that the session will not come to need not be there: they cost far more than a launch.
        let once = self.time(1)?.max(Duration::from_nanos(10));
        let reached = plan.session.as_secs_f64() / once.as_secs_f64();
        self.sets.resize_with(enough.min(reached as usize + 1), || Block::new(self.image.len()));
        for set in &mut self.sets {
            self.image.fill(set.memory(), Poison::Nan);
        }
        (self.next, self.reached) = (0, 0);
        let (mut tried, begun) = (0, Instant::now());
        while tried < self.sets.len() && (tried == 0 || begun.elapsed().as_secs_f64() * 1e6 < plan.batch_us) {
            self.time(1)?;
            tried += 1;
        }
        let once = begun.elapsed().as_secs_f64() * 1e6 / tried as f64;
        self.launches = ((plan.batch_us / once.max(0.01)).ceil() as usize).max(1);
        Ok(1)
    }

    fn sample(&mut self, _instance: usize) -> Result<Sample, Fault> {
        let launches = self.launches;
        let mut last = LAST_SAMPLE.lock().unwrap_or_else(PoisonError::into_inner);
        let paused = last.is_none_or(|last| last.elapsed() > PAUSE);
        // On a thread of the pool, as launches follow each other in a program: a caller from outside sleeps through each
        // launch, and waking it and one thread more is no part of the kernel's time.
        let took = rayon::scope(|_| {
            let begun = Instant::now();
            while paused && begun.elapsed() < LEAD_IN {
                self.time(1)?;
            }
            if launches > 1 {
                self.time(launches)?;
            }
            self.time(launches)
        })?;
        *last = Some(Instant::now());
        Ok(Sample { launch_us: took.as_secs_f64() * 1e6 / launches as f64, clock_mhz: None })
    }

    fn timed_outputs_agree(&mut self) -> Result<bool, Fault> {
        for set in 0..self.reached {
            if !self.image.holds(self.sets[set].memory(), &self.last) {
                return Ok(false);
            }
        }
        Ok(true)
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
mod tests {
    use super::*;
    use crate::core::candidate::{Candidate, Cpu, IntoCandidate};
    use crate::core::operator::Op;

    crate::shape! { struct Vector { n: 0..=1024 } }

    fn with_problem<R>(
        f: impl Fn(&Vector, &Inputs<'_>, &mut Outputs<'_>) + Send + Sync + 'static,
        test: impl FnOnce(&mut dyn Problem) -> R,
    ) -> R {
        let op = Op::<Vector>::new("copy").input("x", |s| [s.n]).output("y", |s| [s.n]);
        let candidate: Candidate = Cpu::new::<f32>(f).named("c");
        let inputs = [Tensor::from_f64(DType::F32, &[3], &[1.0, 2.0, 3.0])];
        let job = Job {
            operator: &op,
            candidate: &candidate,
            point: &[3],
            dtype: DType::F32,
            inputs: &inputs,
            offset_bytes: 16,
        };
        let device = CpuDevice::new();
        let mut problem = device.prepare(&job).unwrap();
        test(problem.as_mut())
    }

    #[test]
    fn a_candidate_runs_and_is_timed() {
        let plan = TimingPlan {
            heat: Heat::Hot,
            batch_us: 10.0,
            instances: 1,
            planted_us: 0.0,
            session: Duration::from_secs(1),
        };
        with_problem(
            |_, x, y| y.slice::<f32>(0).copy_from_slice(x.slice(0)),
            |problem| {
                assert_eq!(problem.run(Poison::Nan).unwrap()[0].to_f64(), [1.0, 2.0, 3.0]);
                assert_eq!(problem.repeat(3), Ok(0));
                assert_eq!(problem.arm(&plan), Ok(1));
                assert!(problem.sample(0).unwrap().launch_us > 0.0);
                assert_eq!(problem.timed_outputs_agree(), Ok(true));
            },
        );
    }

    #[test]
    fn short_batches_rotate_too() {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let addresses = std::sync::Arc::clone(&seen);
        let plan = TimingPlan {
            heat: Heat::Cold,
            batch_us: 0.0,
            instances: 1,
            planted_us: 0.0,
            session: Duration::from_secs(1),
        };
        with_problem(
            move |_, x, _| addresses.lock().unwrap().push(x.slice::<f32>(0).as_ptr() as usize),
            |problem| {
                problem.arm(&plan).unwrap();
                seen.lock().unwrap().clear();
                (0..3).for_each(|_| assert!(problem.sample(0).is_ok()));
            },
        );
        let mut seen = seen.lock().unwrap().clone();
        seen.sort_unstable();
        seen.dedup();
        // More, where the scheduler made a pause: the launches before a sample that follows one do not count.
        assert!(seen.len() >= 3, "every batch of one launch ran on the same buffers");
    }

    #[test]
    fn a_panic_is_a_fault() {
        let fault = with_problem(|_, x, _| assert!(x.slice::<f32>(7).is_empty()), |problem| problem.run(Poison::Nan));
        assert!(matches!(fault, Err(Fault::Panic(_))), "{fault:?}");
    }

    #[test]
    fn state_between_launches_is_seen() {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let different = with_problem(
            move |_, _, y| {
                let value = (count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) / 3) as f32;
                y.slice::<f32>(0).fill(value);
            },
            |problem| {
                problem.run(Poison::Nan).unwrap();
                problem.repeat(4)
            },
        );
        assert_eq!(different, Ok(2));
    }
}
