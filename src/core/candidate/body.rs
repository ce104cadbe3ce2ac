//! The code of a candidate.

use super::enqueue::EnqueueBody;
use super::kernel::Kernel;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::core::tensor::{Inputs, Outputs};
use crate::core::work::HostWork;
use std::sync::Arc;

pub(super) type SharesFn = Arc<dyn Fn(&[usize]) -> HostWork + Send + Sync>;
pub(super) type CpuFn = Arc<dyn Fn(&[usize], &Inputs<'_>, &mut Outputs<'_>) + Send + Sync>;

/// The code of a candidate.
#[derive(Clone)]
pub enum Body {
    /// A host function a dtype.
    Cpu(CpuBody),
    /// A CUDA kernel, for a GPU or the simulator.
    Cuda(Kernel),
    /// Host code that enqueues GPU work: a library. For a GPU only.
    Enqueue(EnqueueBody),
}

impl Body {
    /// The file of the kernel, as compiler messages name it.
    pub fn file(&self) -> Option<&str> {
        if let Body::Cuda(kernel) = self { Some(&kernel.program.file) } else { None }
    }

    /// What host code that enqueues GPU work says of a case that it was prepared for.
    pub fn describe(&self, point: &[usize], dtype: DType) -> Option<String> {
        if let Body::Enqueue(body) = self { body.describe(point, dtype) } else { None }
    }

    /// Whether it is host code that enqueues GPU work.
    pub fn is_library(&self) -> bool {
        matches!(self, Body::Enqueue(_))
    }

    /// Whether it is a library that chooses among algorithms for each case, and says which.
    pub fn chooses_algorithm(&self) -> bool {
        matches!(self, Body::Enqueue(body) if body.describe.is_some())
    }

    /// Whether it runs on the host alone.
    pub fn is_host(&self) -> bool {
        matches!(self, Body::Cpu(_))
    }

    /// What a kernel launches at a point; nothing of host code.
    pub fn launches(&self, point: &[usize]) -> Vec<Launch> {
        if let Body::Cuda(kernel) = self { kernel.plan(point).0 } else { Vec::new() }
    }

    /// Threads that the launches at a point start; none of host code.
    pub fn threads(&self, point: &[usize]) -> usize {
        let threads = |launch: &Launch| {
            let extents = launch.grid.iter().chain(&launch.block);
            extents.fold(1usize, |product, &extent| product.saturating_mul(extent))
        };
        self.launches(point).iter().map(threads).fold(0, usize::saturating_add)
    }

    /// Scratch bytes that the candidate asks for at a point.
    pub fn workspace_bytes(&self, point: &[usize]) -> usize {
        match self {
            Body::Cpu(_) => 0,
            Body::Cuda(kernel) => kernel.workspace_bytes(point),
            Body::Enqueue(body) => (body.workspace_bytes)(point),
        }
    }
}

/// The host functions of a CPU candidate.
#[derive(Clone)]
pub struct CpuBody {
    pub(super) name: Arc<str>,
    pub(super) functions: Vec<(DType, CpuFn)>,
    pub(super) shares: Option<SharesFn>,
}

impl CpuBody {
    /// The name of the candidate.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is a function for `dtype`.
    pub fn computes(&self, dtype: DType) -> bool {
        self.functions.iter().any(|(own, _)| *own == dtype)
    }

    /// How it shares out a case, if it says so.
    pub fn shares(&self, point: &[usize]) -> Option<HostWork> {
        self.shares.as_ref().map(|shares| shares(point))
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
