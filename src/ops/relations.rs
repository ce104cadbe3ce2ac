//! Every relation of the catalogue holds for the naive candidate, changes something, and is able to fail.

use super::catalogue;
use crate::check::boundary::base;
use crate::check::case::Case;
use crate::check::judge::Rejection;
use crate::check::relation::hold;
use crate::check::{Context, Subject};
use crate::core::candidate::Body;
use crate::core::distribution::Distribution;
use crate::core::relation::Relation;
use crate::core::seed::{DEFAULT_SEED, rng};
use crate::core::tensor::Tensor;
use crate::device::cpu::CpuDevice;
use crate::device::fault::Fault;
use crate::device::fingerprint::Fingerprint;
use crate::device::{Capacity, Device, Job, Poison, Problem, Sample, TimingPlan};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A CPU whose every second problem has one element of its first output off by a quarter and a bit: what holds a
/// relation runs two.
struct Unsteady {
    device: CpuDevice,
    problems: AtomicUsize,
}

impl Device for Unsteady {
    fn fingerprint(&self) -> &Fingerprint {
        self.device.fingerprint()
    }
    fn runs(&self, body: &Body) -> bool {
        self.device.runs(body)
    }
    fn prepare(&self, job: &Job<'_>) -> Result<Box<dyn Problem + '_>, Fault> {
        let is_second = self.problems.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        Ok(Box::new(Wrong { problem: self.device.prepare(job)?, is_wrong: is_second }))
    }
    fn capacity(&self) -> Capacity {
        self.device.capacity()
    }
}

struct Wrong<'d> {
    problem: Box<dyn Problem + 'd>,
    is_wrong: bool,
}

impl Problem for Wrong<'_> {
    fn run(&mut self, poison: Poison) -> Result<Vec<Tensor>, Fault> {
        let mut outputs = self.problem.run(poison)?;
        if self.is_wrong {
            let mut values = outputs[0].to_f64();
            let middle = values.len() / 2;
            values[middle] = 1.25 * values[middle] + 0.25;
            outputs[0] = Tensor::from_f64(outputs[0].dtype(), outputs[0].dims(), &values);
        }
        Ok(outputs)
    }
    fn agrees_under(&mut self, poison: Poison) -> Result<bool, Fault> {
        self.problem.agrees_under(poison)
    }
    fn repeat(&mut self, times: usize) -> Result<usize, Fault> {
        self.problem.repeat(times)
    }
    fn arm(&mut self, plan: &TimingPlan) -> Result<usize, Fault> {
        self.problem.arm(plan)
    }
    fn sample(&mut self, instance: usize) -> Result<Sample, Fault> {
        self.problem.sample(instance)
    }
    fn timed_outputs_agree(&mut self) -> Result<bool, Fault> {
        self.problem.timed_outputs_agree()
    }
}

/// Calls `check` for every relation in every dtype, with the naive candidate.
fn each(check: impl Fn(&Subject<'_>, &Relation)) {
    for suite in catalogue() {
        let (operator, candidate) = (suite.operator.as_ref(), &suite.candidates[0]);
        for relation in operator.relations() {
            suite.dtypes.iter().for_each(|&dtype| check(&Subject { operator, candidate, dtype }, relation));
        }
    }
}

fn held(device: &dyn Device, subject: &Subject<'_>, relation: &Relation) -> Result<(), Rejection> {
    let context = Context::new(device, DEFAULT_SEED, Duration::from_secs(60));
    hold(&context, subject, relation, &base(subject.operator, &[]))
}

#[test]
fn every_relation_holds() {
    each(|subject, relation| {
        let held = held(&CpuDevice::new(), subject, relation);
        assert_eq!(held, Ok(()), "{}: {}", subject.operator.name(), relation.name);
    });
}

#[test]
fn every_relation_can_fail() {
    each(|subject, relation| {
        let unsteady = Unsteady { device: CpuDevice::new(), problems: AtomicUsize::new(0) };
        let held = held(&unsteady, subject, relation);
        let is_violated = matches!(&held, Err(Rejection::Failed(failure)) if failure.check == "relation");
        assert!(is_violated, "{}: {}: {held:?}", subject.operator.name(), relation.name);
    });
}

#[test]
fn every_relation_changes_its_inputs() {
    each(|subject, relation| {
        let point = base(subject.operator, &[]);
        let case = Case::new(point.clone(), Distribution::Grid, DEFAULT_SEED);
        let before: Vec<Vec<f64>> = case.inputs(subject).iter().map(Tensor::to_f64).collect();
        let mut changed = before.clone();
        (relation.transform)(&point, &mut changed, &mut rng(1));
        assert_ne!(before, changed, "{}: {}", subject.operator.name(), relation.name);
    });
}
