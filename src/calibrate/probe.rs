//! A probe: one limit of a device as an operator that can be checked and timed.

use crate::core::candidate::Candidate;
use crate::core::cost::Cost;
use crate::core::dtype::DType;
use crate::core::operator::{Op, Operator};
use crate::core::seed::DEFAULT_SEED;
use crate::core::shape::{Point, Shape, describe};
use crate::core::suite::Suite;
use crate::core::tensor::Tensor;
use crate::device::fault::Fault;
use crate::device::{Device, DeviceKind, Heat, Job, Poison, Problem, TimingPlan};
use crate::measure::inputs::{Pool, draw};
use crate::measure::series::Summary;
use crate::measure::session::{Contestant, SessionSettings, measure};
use std::sync::Arc;

/// Times a case whose kernel is known to be right, on inputs that may be blocks to be repeated. What it left behind while it was
/// timed has the bits of its first run. [Chained](TimingPlan::chained) runs may begin before the one ahead has ended.
///
/// # Errors
/// What the device says of it.
pub fn time_case(
    device: &dyn Device,
    job: &Job<'_>,
    heat: Heat,
    chained: bool,
    settings: &SessionSettings,
) -> Result<Summary, Fault> {
    let mut problem = device.prepare(job)?;
    problem.run_unread()?;
    let session = settings.stopping.longest();
    let batch_us = if chained { CHAIN_US } else { BATCH_US };
    let plan = TimingPlan { heat, chained, batch_us, instances: INSTANCES, planted_us: 0.0, session };
    let mut contestants = [Contestant::arm(problem, &plan)?];
    let measurement = measure(&mut contestants, settings, DEFAULT_SEED)?;
    if job.candidate.traits.deterministic && !contestants[0].problem().timed_outputs_agree()? {
        let case = describe(job.operator.axes(), job.point);
        return Err(Fault::Launch(format!("{} at {case} gave other outputs when timed", job.operator.name())));
    }
    Ok(measurement.summary(0))
}

/// The time that counts on a device: the median, and on a host, whose scheduler takes threads away as it likes, what 5 of 100
/// samples take less than. What it takes away is no property of the machine or the kernel.
pub fn typical_us(device: &dyn Device, found: &Summary) -> f64 {
    if device.kind() == DeviceKind::Cpu { found.p5_us } else { found.median_us }
}

/// Kernels that reach one limit at one size.
pub struct Probe {
    operator: Arc<dyn Operator>,
    candidates: Vec<Candidate>,
    point: Point,
    /// A small size at which the same kernels are checked: the reference of the timed one would take minutes.
    small: Point,
    dtype: DType,
    heat: Heat,
}

impl Probe {
    /// A probe that is timed at one shape and checked at another.
    pub fn new<S: Shape>(
        operator: Op<S>,
        candidates: Vec<Candidate>,
        [timed, small]: [S; 2],
        dtype: DType,
        heat: Heat,
    ) -> Self {
        let (point, small) = (timed.to_point(), small.to_point());
        Probe { operator: Arc::new(operator), candidates, point, small, dtype, heat }
    }

    /// What it moves and computes.
    pub fn cost(&self) -> Cost {
        self.operator.cost(&self.point, self.dtype)
    }

    /// Its name and size, for messages.
    pub fn describe(&self) -> String {
        format!("{} {} {}", self.operator.name(), self.dtype, describe(self.operator.axes(), &self.point))
    }

    fn kernel(&self, device: &dyn Device) -> Result<&Candidate, Fault> {
        let runs =
            |candidate: &&Candidate| device.runs(&candidate.body) && candidate.traits.dtypes.contains(&self.dtype);
        self.candidates.iter().find(runs).ok_or_else(|| {
            Fault::Unsupported(format!("the probe `{}` has no kernel for {}", self.operator.name(), device.kind()))
        })
    }

    /// Its kernels as a suite: they are compiled ahead like any other.
    pub fn suite(&self) -> Suite {
        Suite { operator: self.operator.clone(), dtypes: vec![self.dtype], candidates: self.candidates.clone() }
    }

    /// Checks the outputs at the small size and times the large one.
    ///
    /// # Errors
    /// What the device says of it; [`Fault::Unsupported`] where none of its kernels runs; a probe whose outputs are wrong
    /// measures nothing.
    pub fn measure(&self, device: &dyn Device, settings: &SessionSettings) -> Result<Summary, Fault> {
        self.verify(device)?;
        let candidate = self.kernel(device)?;
        let operator = self.operator.as_ref();
        let inputs = Pool::new(DEFAULT_SEED).blocks(operator, &self.point, self.dtype);
        let (point, dtype) = (&self.point[..], self.dtype);
        time_case(
            device,
            &Job { operator, candidate, point, dtype, inputs: &inputs, offset_bytes: 0 },
            self.heat,
            false,
            settings,
        )
    }

    fn inputs(&self, point: &[usize]) -> Vec<Tensor> {
        draw(self.operator.as_ref(), point, self.dtype, DEFAULT_SEED)
    }

    fn prepare<'d>(
        &self,
        device: &'d dyn Device,
        point: &[usize],
        inputs: &[Tensor],
    ) -> Result<Box<dyn Problem + 'd>, Fault> {
        let candidate = self.kernel(device)?;
        let (operator, dtype) = (self.operator.as_ref(), self.dtype);
        device.prepare(&Job { operator, candidate, point, dtype, inputs, offset_bytes: 0 })
    }

    /// Holds the outputs of the small size against the reference. Chains of many equal roundings lean one way, so the
    /// bound is wide; what is looked for is work left out.
    ///
    /// # Errors
    /// As [`Probe::measure`].
    pub fn verify(&self, device: &dyn Device) -> Result<(), Fault> {
        const RELATIVE: f64 = 2e-2;
        let inputs = self.inputs(&self.small);
        let outputs = self.prepare(device, &self.small, &inputs)?.run(Poison::Nan)?;
        let exact: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
        let exact: Vec<&[f64]> = exact.iter().map(Vec::as_slice).collect();
        let mut expected: Vec<Vec<f64>> = outputs.iter().map(|output| vec![0.0; output.len()]).collect();
        self.operator.reference(&self.small, DType::F32, &exact, &mut expected);
        for (output, expected) in outputs.iter().zip(&expected) {
            let scale = expected.iter().fold(0.0f64, |most, value| most.max(value.abs())).max(1.0);
            let found = output.to_f64();
            // A NaN is no agreement.
            let agrees = |y: f64, e: f64| (y - e).abs() <= RELATIVE * scale;
            let wrong = found.iter().zip(expected).position(|(&y, &e)| !agrees(y, e));
            if let Some(at) = wrong {
                return Err(Fault::Launch(format!(
                    "the probe {} is wrong at {at}: expected {}, got {}",
                    self.describe(),
                    expected[at],
                    found[at]
                )));
            }
        }
        Ok(())
    }
}

const BATCH_US: f64 = 300.0;
/// The same of launches that overlap: how a chain begins and how it ends is no part of what each of them adds.
const CHAIN_US: f64 = 2000.0;
const INSTANCES: usize = 4;
