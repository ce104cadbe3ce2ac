//! Candidates whose host code enqueues GPU work: libraries.

use super::body::Body;
use super::enqueue::{Enqueue, EnqueueBody, EnqueueFn};
use super::traits::{Declare, Traits};
use super::{Candidate, IntoCandidate};
use crate::core::dtype::DType;
use crate::core::shape::Shape;
use crate::core::work::Work;
use std::sync::Arc;

/// A candidate whose host code enqueues GPU work: a vendor library, or a launcher of your own.
/// ```
/// use kernelgate::prelude::*;
///
/// shape! { struct Vector { n: 1..=1 << 20 } }
///
/// /// What the C interface of a library takes.
/// fn enqueue_twice(_stream: u64, _x: u64, _y: u64, _n: usize) -> i32 {
///     0
/// }
///
/// let library = CudaHost::new(|s: &Vector, call: &Enqueue| {
///     match enqueue_twice(call.stream(), call.inputs()[0], call.outputs()[0], s.n) {
///         0 => Ok(()),
///         status => Err(format!("the library said {status}")),
///     }
/// })
/// .dtypes([F32]);
/// ```
#[derive(Clone)]
pub struct CudaHost<S> {
    body: EnqueueBody,
    traits: Traits,
    shape: std::marker::PhantomData<fn(&S)>,
}

impl<S: Shape> CudaHost<S> {
    /// Host code that enqueues the work of a case on the given stream.
    pub fn new(function: impl Fn(&S, &Enqueue) -> Result<(), String> + Send + Sync + 'static) -> Self {
        let function: EnqueueFn = Arc::new(move |point, call| function(&S::from_point(point), call));
        let body = EnqueueBody {
            function,
            prepare: Arc::new(|_, _| Ok(())),
            describe: None,
            propose: Arc::new(|_, _| None),
            work: Arc::new(|_, _, _| None),
            workspace_bytes: Arc::new(|_| 0),
        };
        CudaHost { body, traits: Traits::default(), shape: std::marker::PhantomData }
    }

    /// What must be done before the first launch of a case, and may wait: load a library, choose an algorithm. The
    /// context is current. An error leaves the case out with that reason, and skips the trial where no case is left; a GPU
    /// that is unusable after it has crashed.
    pub fn prepare(mut self, prepare: impl Fn(&S, DType) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.body.prepare = Arc::new(move |point, dtype| prepare(&S::from_point(point), dtype));
        self
    }

    /// What it does for a case that it was prepared for: the algorithm that it chose. Reports of times show it. Another
    /// choice takes another time, so that a stored time does not fail such a candidate: it is `unclear` then.
    pub fn describe(mut self, describe: impl Fn(&S, DType) -> Option<String> + Send + Sync + 'static) -> Self {
        self.body.describe = Some(Arc::new(move |point, dtype| describe(&S::from_point(point), dtype)));
        self
    }

    /// What it would do for a case, where it can tell without a run: the same words, of the algorithm that it would begin with.
    /// Predictions tell the kernels of a library apart by it.
    pub fn propose(mut self, propose: impl Fn(&S, DType) -> Option<String> + Send + Sync + 'static) -> Self {
        self.body.propose = Arc::new(move |point, dtype| propose(&S::from_point(point), dtype));
        self
    }

    /// The tiles that it works off, by what [`CudaHost::describe`] or [`CudaHost::propose`] said. Predictions use them.
    pub fn shares(mut self, work: impl Fn(&S, DType, &str) -> Option<Work> + Send + Sync + 'static) -> Self {
        self.body.work = Arc::new(move |point, dtype, said| work(&S::from_point(point), dtype, said));
        self
    }

    /// Asks for a scratch buffer; it holds garbage.
    pub fn workspace(mut self, bytes: impl Fn(&S) -> usize + Send + Sync + 'static) -> Self {
        self.body.workspace_bytes = Arc::new(move |point| bytes(&S::from_point(point)));
        self
    }
}

impl<S> Declare for CudaHost<S> {
    fn traits_mut(&mut self) -> &mut Traits {
        &mut self.traits
    }
}

impl<S: Shape> IntoCandidate<S> for CudaHost<S> {
    fn named(self, name: &str) -> Candidate {
        Candidate { name: name.into(), body: Body::Enqueue(self.body), traits: self.traits }
    }
}
