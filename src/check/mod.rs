//! The checks: what a candidate must satisfy, and what was found when it did not.

pub mod beside;
pub mod bias;
pub mod boundary;
pub mod builds;
pub mod case;
pub mod compare;
pub mod correctness;
pub mod counts;
pub mod judge;
pub mod large;
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
pub mod verify;
mod way;

use crate::core::candidate::Candidate;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::device::Device;
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
        let spared = &self.candidate.traits.not_under;
        let is_tried = |one: &Distribution| spared.iter().all(|(other, _)| other != one);
        self.operator.distributions().iter().copied().filter(is_tried).collect()
    }

    /// The inputs that it is spared, and why.
    pub fn spared(&self) -> impl Iterator<Item = String> {
        let spared = self.candidate.traits.not_under.iter();
        spared.map(|(distribution, reason)| format!("not tried on {distribution} inputs: {reason}"))
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
}

impl<'a> Context<'a> {
    /// A context that ends `budget` from now.
    pub fn new(device: &'a dyn Device, seed: u64, budget: Duration) -> Self {
        Context { device, seed, deadline: Instant::now() + budget }
    }

    /// The same with half the time that is left.
    fn halved(self) -> Self {
        let now = Instant::now();
        Context { deadline: now + self.deadline.saturating_duration_since(now) / 2, ..self }
    }

    /// Whether the budget is spent.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }
}
