//! The checks: what a candidate must satisfy, and what was found when it did not.

pub mod armed;
pub mod beside;
pub mod bias;
pub mod boundary;
pub mod builds;
pub mod case;
pub mod compare;
pub mod correctness;
pub mod counts;
pub mod declaration;
mod errors;
mod failure;
pub mod judge;
pub mod large;
mod metric;
pub mod null;
pub mod outcome;
mod pace;
pub mod perf;
mod perf_settings;
mod plan;
pub mod property;
pub mod reference;
pub mod relation;
pub mod slice;
pub mod spread;
mod state;
pub mod verify;
mod way;

use crate::core::candidate::Candidate;
use crate::core::constraint;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::core::port::Role;
use crate::core::shape::Point;
use crate::device::{Capacity, Device};
use std::time::{Duration, Instant};

/// A candidate in one dtype: what a trial is about.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// What is computed.
    pub operator: &'a dyn Operator,
    /// By whom.
    pub candidate: &'a Candidate,
    /// In which dtype.
    pub dtype: DType,
}

impl Subject<'_> {
    /// The inputs that it is tried on.
    pub fn distributions(&self) -> Vec<Distribution> {
        let spared = &self.candidate.traits.exclude_distributions;
        let of_data = self.operator.inputs().iter().filter(|port| port.role != Role::Index);
        // Integers have neither NaN nor infinities, nor signs of zeros.
        let is_float = of_data.clone().count() == 0 || of_data.clone().any(|port| !port.dtype(self.dtype).is_integer());
        let has = |one: &Distribution| is_float || !one.is_of_floats();
        let is_tried = |one: &Distribution| has(one) && spared.iter().all(|(other, _)| other != one);
        self.operator.distributions().iter().copied().filter(is_tried).collect()
    }

    /// The step of the offsets that its buffers may start at, bytes: its alignment, in whole elements of every tensor.
    pub fn offset_step(&self) -> usize {
        let ports = self.operator.inputs().iter().chain(self.operator.outputs());
        let element_bytes = ports.map(|port| port.dtype(self.dtype).size()).max().unwrap_or(1);
        self.candidate.traits.alignment_in(self.dtype).max(1).next_multiple_of(element_bytes)
    }

    /// Whether two runs give the same bits wherever something is said of them.
    pub fn has_fixed_bits(&self) -> bool {
        self.candidate.traits.deterministic && !self.operator.has_unspecified()
    }

    /// The shape near `point` that the operator has and the candidate takes, if there is one.
    pub fn nearest(&self, point: &[usize]) -> Option<Point> {
        let (operator, limits) = (self.operator, &self.candidate.traits.limits);
        constraint::nearest(operator.axes(), operator.constraints(), limits, point)
    }

    /// Why the operator does not have a shape, or the candidate does not take it.
    pub fn objection(&self, point: &[usize]) -> Option<String> {
        let (operator, limits) = (self.operator, &self.candidate.traits.limits);
        constraint::objection(operator.axes(), operator.constraints(), limits, point)
    }

    /// The inputs that it is spared, and why.
    pub fn spared(&self) -> impl Iterator<Item = String> {
        let spared = self.candidate.traits.exclude_distributions.iter();
        let spared = spared.map(|(distribution, reason)| format!("not tried on {distribution} inputs: {reason}"));
        let limits = self.candidate.traits.limits.iter().map(|limit| format!("tried on fewer shapes: {limit}"));
        spared.chain(limits)
    }
}

/// Where and how thoroughly to check.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The device to run on.
    pub device: &'a dyn Device,
    /// The seed of the run; every case derives its own.
    pub seed: u64,
    /// When to stop starting new cases. What was cut off is said in the outcome.
    pub deadline: Instant,
    /// The work that a check may plan, in the unit of its cases' work: counted, so that no clock decides what is judged.
    pub work: f64,
    /// The work that it may plan beside that for extents that 16 bits do not hold, in the same unit.
    pub past_16_bits: f64,
    /// The most elements of a case, whatever else the device takes.
    pub most_elements: usize,
}

/// Longer than any check takes.
const NO_END: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl<'a> Context<'a> {
    /// A context that ends `budget` from now, in which everything that the device takes is planned.
    pub fn new(device: &'a dyn Device, seed: u64, budget: Duration) -> Self {
        Context {
            device,
            seed,
            deadline: Instant::now() + budget,
            work: f64::INFINITY,
            past_16_bits: 0.0,
            most_elements: usize::MAX,
        }
    }

    /// A context that has all the time that its cases take.
    pub fn without_deadline(device: &'a dyn Device, seed: u64) -> Self {
        Context::new(device, seed, NO_END)
    }

    /// The same in which no more than so much work is planned, and so much beside it for extents that 16 bits do not hold.
    pub fn planning(self, work: f64, past_16_bits: f64) -> Self {
        Context { work, past_16_bits, ..self }
    }

    /// The same in which no case has more elements.
    pub fn of_at_most(self, most_elements: usize) -> Self {
        Context { most_elements, ..self }
    }

    /// What a planned case may have.
    pub fn capacity(&self) -> Capacity {
        self.device.capacity().of_at_most(self.most_elements)
    }

    /// What a random case may have.
    pub fn search_capacity(&self) -> Capacity {
        self.device.search_capacity().of_at_most(self.most_elements)
    }

    /// Whether the budget is spent.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

#[cfg(test)]
mod tests;
