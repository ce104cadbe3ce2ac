//! Candidates that run on the host.

use super::body::{Body, CpuBody, CpuFn, SharesFn};
use super::traits::{Declare, Traits};
use super::{Candidate, IntoCandidate};
use crate::core::dtype::{DType, Element};
use crate::core::shape::Shape;
use crate::core::tensor::{Inputs, Outputs};
use crate::core::work::HostWork;
use std::sync::Arc;

/// A candidate that runs on the host: one function a dtype.
#[derive(Clone)]
pub struct Cpu<S> {
    functions: Vec<(DType, CpuFn)>,
    shares: Option<SharesFn>,
    traits: Traits,
    shape: std::marker::PhantomData<fn(&S)>,
}

impl<S: Shape> Cpu<S> {
    /// A function for the case dtype `T`.
    ///
    /// ```
    /// use kernelgate::prelude::*;
    /// shape! { struct Vector { n: 1..=1024 } }
    /// fn relu<T: Element>(_: &Vector, x: &Inputs, y: &mut Outputs) {
    ///     for (y, x) in y.slice::<T>(0).iter_mut().zip(x.slice::<T>(0)) {
    ///         *y = T::from_f64(x.to_f64().max(0.0));
    ///     }
    /// }
    /// let candidate = Cpu::new::<f32>(relu::<f32>).and::<f16>(relu::<f16>).and::<bf16>(relu::<bf16>);
    /// ```
    pub fn new<T: Element>(function: impl Fn(&S, &Inputs<'_>, &mut Outputs<'_>) + Send + Sync + 'static) -> Self {
        let none = Cpu {
            functions: Vec::new(),
            shares: None,
            traits: Traits { dtypes: Vec::new(), ..Traits::default() },
            shape: std::marker::PhantomData,
        };
        none.and::<T>(function)
    }

    /// Says how the functions share out a case, for those who predict times: where waking other threads is not worth it, a case
    /// takes as long as on one.
    pub fn shares(mut self, shares: impl Fn(&S) -> HostWork + Send + Sync + 'static) -> Self {
        self.shares = Some(Arc::new(move |point| shares(&S::from_point(point))));
        self
    }

    /// A function for one more dtype.
    pub fn and<T: Element>(
        mut self,
        function: impl Fn(&S, &Inputs<'_>, &mut Outputs<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.functions.push((T::DTYPE, Arc::new(move |point, x, y| function(&S::from_point(point), x, y))));
        self.traits.dtypes.push(T::DTYPE);
        self
    }
}

impl<S> Declare for Cpu<S> {
    fn traits_mut(&mut self) -> &mut Traits {
        &mut self.traits
    }
}

impl<S: Shape> IntoCandidate<S> for Cpu<S> {
    fn named(self, name: &str) -> Candidate {
        let body = Body::Cpu(CpuBody { name: name.into(), functions: self.functions, shares: self.shares });
        Candidate { name: name.into(), body, traits: self.traits }
    }
}
