//! A suite: one operator, the dtypes to run it in, and its candidates.

use super::candidate::{Candidate, Cpu, Cuda, Declare, IntoCandidate};
use super::dtype::DType;
use super::operator::{Op, Operator};
use super::shape::Shape;
use std::sync::Arc;

/// One operator with all its candidates: what a gate is made of.
#[derive(Clone)]
/// ```
/// use kernelgate::prelude::*;
///
/// shape! { struct Vector { n: 1..=1 << 20 } }
///
/// let op = Op::<Vector>::new("twice")
///     .input("x", |s| [s.n])
///     .output("y", |s| [s.n])
///     .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = 2.0 * x));
/// let cpu = Cpu::new::<f32>(|_, x, y| y.slice(0).iter_mut().zip(x.slice(0)).for_each(|(y, x): (&mut f32, &f32)| *y = 2.0 * x));
/// let suite: Suite = Suite::of(op).dtypes([F32]).candidate("cpu", cpu).into();
/// assert_eq!(suite.candidates.len(), 1);
/// ```
pub struct Suite {
    /// What is computed.
    pub operator: Arc<dyn Operator>,
    /// The dtypes to run; a candidate runs those of them that it supports.
    pub dtypes: Vec<DType>,
    /// The ways to compute it, in trial order.
    pub candidates: Vec<Candidate>,
}

impl Suite {
    /// Starts a suite for `op`, in f32, f16 and bf16.
    pub fn of<S: Shape>(op: Op<S>) -> SuiteOf<S> {
        let suite = Suite { operator: Arc::new(op), dtypes: DType::FLOATS.to_vec(), candidates: Vec::new() };
        SuiteOf { suite, shape: std::marker::PhantomData }
    }

    /// The dtypes that a candidate of the suite runs in.
    pub fn dtypes_of(&self, candidate: &Candidate) -> impl Iterator<Item = DType> {
        self.dtypes.iter().copied().filter(|&dtype| candidate.traits.computes(dtype))
    }
}

/// A suite under construction: its candidates must have the operator's shape type.
pub struct SuiteOf<S> {
    suite: Suite,
    shape: std::marker::PhantomData<fn(&S)>,
}

impl<S: Shape> SuiteOf<S> {
    /// Replaces the dtypes.
    pub fn dtypes(mut self, dtypes: impl IntoIterator<Item = DType>) -> Self {
        self.suite.dtypes = dtypes.into_iter().collect();
        self
    }

    /// Adds a candidate under a name, the second part of its trial names. Two may share a name if they share no dtype: one
    /// candidate whose dtypes have programs of their own.
    pub fn candidate(mut self, name: &str, candidate: impl IntoCandidate<S>) -> Self {
        self.suite.candidates.push(candidate.named(name));
        self
    }

    /// Adds loops on the CPU as `naive` and what is fast there as `tiled`. The first, which is there to be read, is not
    /// timed.
    pub fn cpu_tiers(self, naive: Cpu<S>, tiled: Cpu<S>) -> Self {
        self.candidate("naive", naive.untimed()).candidate("tiled", tiled)
    }

    /// Adds the versions of a CUDA kernel as `cuda_v1` and so on. The first, which is there to be read, is not timed.
    pub fn ladder(self, versions: usize, version: impl Fn(usize) -> Cuda<S>) -> Self {
        (1..=versions).fold(self, |suite, n| {
            let kernel = if n == 1 { version(n).untimed() } else { version(n) };
            suite.candidate(&format!("cuda_v{n}"), kernel)
        })
    }
}

impl<S> From<SuiteOf<S>> for Suite {
    fn from(typed: SuiteOf<S>) -> Self {
        typed.suite
    }
}
