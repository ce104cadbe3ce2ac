//! Candidates whose host code enqueues GPU work: libraries.

use super::{Body, BytesFn, Candidate, Declare, IntoCandidate, Traits};
use crate::core::dtype::DType;
use crate::core::shape::Shape;
use crate::core::work::Work;
use std::sync::Arc;

/// What host code that enqueues GPU work is given: everything must go on the stream, and nothing may wait.
///
/// Only the device of a case makes one, and nobody changes it: the functions that hand its addresses to a library rely on
/// their being those of the buffers.
#[derive(Clone, Debug)]
pub struct Enqueue {
    pub(crate) stream: u64,
    pub(crate) inputs: Vec<u64>,
    pub(crate) outputs: Vec<u64>,
    pub(crate) workspace: u64,
    pub(crate) dtype: DType,
}

impl Enqueue {
    /// The `CUstream`; the context is current.
    pub fn stream(&self) -> u64 {
        self.stream
    }

    /// Device addresses of the inputs.
    pub fn inputs(&self) -> &[u64] {
        &self.inputs
    }

    /// Device addresses of the outputs.
    pub fn outputs(&self) -> &[u64] {
        &self.outputs
    }

    /// Device address of the workspace, 0 for none.
    pub fn workspace(&self) -> u64 {
        self.workspace
    }

    /// The dtype of the case.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
}

type EnqueueFn = Arc<dyn Fn(&[usize], &Enqueue) -> Result<(), String> + Send + Sync>;
type PrepareFn = Arc<dyn Fn(&[usize], DType) -> Result<(), String> + Send + Sync>;
type DescribeFn = Arc<dyn Fn(&[usize], DType) -> Option<String> + Send + Sync>;
type WorkFn = Arc<dyn Fn(&[usize], DType, Option<&str>) -> Option<Work> + Send + Sync>;

/// Host code that enqueues GPU work, with its scratch space.
#[derive(Clone)]
pub struct EnqueueBody {
    function: EnqueueFn,
    prepare: PrepareFn,
    describe: DescribeFn,
    work: WorkFn,
    pub(super) workspace_bytes: BytesFn,
}

impl EnqueueBody {
    /// What it does for a case that it was prepared for, where it can say.
    pub fn describe(&self, point: &[usize], dtype: DType) -> Option<String> {
        (self.describe)(point, dtype)
    }

    /// The tiles that it works off, where it can tell without a run: from what it once [described](Self::describe), or asked
    /// now, which may open the library.
    pub fn work(&self, point: &[usize], dtype: DType, described: Option<&str>) -> Option<Work> {
        (self.work)(point, dtype, described)
    }

    /// Does what must be done before the first launch of a case.
    ///
    /// # Errors
    /// Why the case cannot run here.
    pub fn prepare(&self, point: &[usize], dtype: DType) -> Result<(), String> {
        (self.prepare)(point, dtype)
    }

    /// Enqueues the work of a case.
    ///
    /// # Errors
    /// What the library said.
    pub fn call(&self, point: &[usize], call: &Enqueue) -> Result<(), String> {
        (self.function)(point, call)
    }
}

/// A candidate whose host code enqueues GPU work: a vendor library, or a launcher of your own.
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
            describe: Arc::new(|_, _| None),
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

    /// What it does for a case that it was prepared for: an algorithm that it chose, say. Reports of times show it.
    pub fn describe(mut self, describe: impl Fn(&S, DType) -> Option<String> + Send + Sync + 'static) -> Self {
        self.body.describe = Arc::new(move |point, dtype| describe(&S::from_point(point), dtype));
        self
    }

    /// The tiles that it works off, where it can tell without a run: from a description of its own, or asked now. Predictions
    /// use them.
    pub fn shares(mut self, work: impl Fn(&S, DType, Option<&str>) -> Option<Work> + Send + Sync + 'static) -> Self {
        self.body.work = Arc::new(move |point, dtype, described| work(&S::from_point(point), dtype, described));
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
