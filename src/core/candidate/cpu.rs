//! Candidates that run on the host.

use super::{Body, Candidate, Declare, IntoCandidate, Traits};
use crate::core::dtype::{DType, Element};
use crate::core::shape::Shape;
use crate::core::tensor::{Inputs, Outputs};
use std::sync::Arc;

type CpuFn = Arc<dyn Fn(&[usize], &Inputs<'_>, &mut Outputs<'_>) + Send + Sync>;

/// A candidate that runs on the host: one function a dtype.
#[derive(Clone)]
pub struct Cpu<S> {
    functions: Vec<(DType, CpuFn)>,
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
            traits: Traits { dtypes: Vec::new(), ..Traits::default() },
            shape: std::marker::PhantomData,
        };
        none.and::<T>(function)
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

/// The host functions of a CPU candidate.
#[derive(Clone)]
pub struct CpuBody {
    name: Arc<str>,
    functions: Vec<(DType, CpuFn)>,
}

impl CpuBody {
    /// Whether there is a function for `dtype`.
    pub fn computes(&self, dtype: DType) -> bool {
        self.functions.iter().any(|(own, _)| *own == dtype)
    }

    /// The name of the candidate.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the function for `dtype`; `false` if there is none.
    pub fn call(&self, dtype: DType, point: &[usize], x: &Inputs<'_>, y: &mut Outputs<'_>) -> bool {
        match self.functions.iter().find(|(d, _)| *d == dtype) {
            Some((_, function)) => {
                function(point, x, y);
                true
            }
            None => false,
        }
    }
}

impl<S: Shape> IntoCandidate<S> for Cpu<S> {
    fn named(self, name: &str) -> Candidate {
        let body = Body::Cpu(CpuBody { name: name.into(), functions: self.functions });
        Candidate { name: name.into(), body, traits: self.traits }
    }
}
