//! Problems and a device with a seeded noise model: what the tests of this crate measure.

use crate::core::candidate::Body;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::seed::{Rng, rng, unit};
use crate::core::tensor::Tensor;
use crate::device::fault::Fault;
use crate::device::fingerprint::Fingerprint;
use crate::device::{Capacity, Device, DeviceKind, Job, Poison, Problem, Sample, TimingPlan};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How samples scatter, all as shares of the launch time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// Deviation of the offsets of instances.
    pub instance_sd: f64,
    /// Deviation of samples within an instance.
    pub sample_sd: f64,
    /// How many samples are hit by something else.
    pub outlier_share: f64,
    /// How long such a sample takes.
    pub outlier_factor: f64,
    /// How many samples run at a low clock, 1.6 times as long.
    pub throttled_share: f64,
}

impl Default for Noise {
    fn default() -> Self {
        Noise { instance_sd: 0.001, sample_sd: 0.002, outlier_share: 0.0, outlier_factor: 1.0, throttled_share: 0.0 }
    }
}

impl Noise {
    fn normal(rng: &mut Rng) -> f64 {
        Distribution::Normal.draw(rng, 1, 1, DType::F32, f64::MAX)[0]
    }

    fn offset(&self, rng: &mut Rng) -> f64 {
        1.0 + self.instance_sd * Self::normal(rng)
    }

    fn sample(&self, rng: &mut Rng, launch_us: f64) -> Sample {
        let scatter = 1.0 + self.sample_sd * Self::normal(rng);
        let hit = if unit(rng) < self.outlier_share { self.outlier_factor } else { 1.0 };
        let (slow, clock_mhz) = if unit(rng) < self.throttled_share { (1.6, 1237.0) } else { (1.0, 1980.0) };
        Sample { launch_us: launch_us * scatter * hit * slow, clock_mhz: Some(clock_mhz) }
    }

    /// `samples` times of each of `instances` instances, µs.
    pub(crate) fn series(&self, rng: &mut Rng, launch_us: f64, instances: usize, samples: usize) -> Vec<Vec<f64>> {
        (0..instances)
            .map(|_| {
                let offset = self.offset(rng);
                (0..samples).map(|_| self.sample(rng, launch_us * offset).launch_us).collect()
            })
            .collect()
    }
}

/// Who was sampled, and which instance, in order.
pub(crate) type Journal = Rc<RefCell<Vec<(usize, usize)>>>;

/// A problem that takes `launch_us` and gives a constant output.
pub(crate) struct SimulatedProblem {
    who: usize,
    launch_us: f64,
    noise: Noise,
    planted_us: f64,
    offsets: Vec<f64>,
    rng: Rng,
    journal: Journal,
}

impl SimulatedProblem {
    pub(crate) fn new(who: usize, launch_us: f64, noise: Noise, journal: Journal) -> Self {
        SimulatedProblem {
            who,
            launch_us,
            noise,
            planted_us: 0.0,
            offsets: Vec::new(),
            rng: rng(100 + who as u64),
            journal,
        }
    }
}

impl Problem for SimulatedProblem {
    fn run(&mut self, _poison: Poison) -> Result<Vec<Tensor>, Fault> {
        Ok(vec![Tensor::zeros(DType::F32, &[1])])
    }

    fn agrees_under(&mut self, _poison: Poison) -> Result<bool, Fault> {
        Ok(true)
    }

    fn repeat(&mut self, _times: usize) -> Result<usize, Fault> {
        Ok(0)
    }

    fn arm(&mut self, plan: &TimingPlan) -> Result<usize, Fault> {
        self.planted_us = plan.planted_us;
        self.offsets = (0..plan.instances).map(|_| self.noise.offset(&mut self.rng)).collect();
        Ok(plan.instances)
    }

    fn sample(&mut self, instance: usize) -> Result<Sample, Fault> {
        self.journal.borrow_mut().push((self.who, instance));
        let launch_us = (self.launch_us + self.planted_us) * self.offsets[instance];
        Ok(self.noise.sample(&mut self.rng, launch_us))
    }

    fn timed_outputs_agree(&mut self) -> Result<bool, Fault> {
        Ok(true)
    }
}

/// A device on which everything takes as long as it was told.
pub(crate) struct SimulatedDevice {
    fingerprint: Fingerprint,
    launch_us: f64,
    noise: Noise,
    /// By which share each problem takes longer than the one prepared before it.
    slowing: f64,
    prepared: AtomicUsize,
}

impl SimulatedDevice {
    pub(crate) fn new(launch_us: f64, noise: Noise) -> Self {
        let fingerprint = Fingerprint {
            kind: DeviceKind::Cuda,
            name: "Simulated GPU".into(),
            arch: "sm_90".into(),
            units: 132,
            cache_bytes: 50 << 20,
            memory_bytes: 1 << 36,
            clock_mhz: 1980.0,
            driver: "1".into(),
            compiler: "1".into(),
        };
        SimulatedDevice { fingerprint, launch_us, noise, slowing: 0.0, prepared: AtomicUsize::new(0) }
    }

    pub(crate) fn slowing(self, slowing: f64) -> Self {
        SimulatedDevice { slowing, ..self }
    }
}

impl Device for SimulatedDevice {
    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    fn runs(&self, _body: &Body) -> bool {
        true
    }

    fn prepare(&self, _job: &Job<'_>) -> Result<Box<dyn Problem + '_>, Fault> {
        let who = self.prepared.fetch_add(1, Ordering::Relaxed);
        let launch_us = self.launch_us * (1.0 + self.slowing * who as f64);
        Ok(Box::new(SimulatedProblem::new(who, launch_us, self.noise, Journal::default())))
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            elements: 1 << 20,
            flops: 1 << 30,
            threads: usize::MAX,
            timed: true,
            timed_bytes: 1 << 30,
            asked_bytes: 1 << 30,
        }
    }
}
