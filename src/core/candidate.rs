//! Candidates: the ways to compute an operator that the gate judges.

use super::dtype::{DType, Element};
use super::launch::Plan;
use super::shape::Shape;
use super::tensor::{Inputs, Outputs};
use super::tolerance::Override;
use std::sync::Arc;

/// What every kind of candidate can declare about itself.
#[derive(Clone, Debug)]
pub struct Traits {
    /// Tile extents by axis; boundary shapes are made from them.
    pub tiles: Vec<(&'static str, usize)>,
    /// Base pointers are multiples of this many bytes, and the gate tries every such offset.
    pub alignment: usize,
    /// Two runs give the same bits.
    pub deterministic: bool,
    /// The dtypes it supports.
    pub dtypes: Vec<DType>,
    /// A tolerance of its own, with the reason.
    pub tolerance: Option<Override>,
    /// Whether its speed is held against a baseline.
    pub timed: bool,
}

impl Default for Traits {
    fn default() -> Self {
        Traits {
            tiles: Vec::new(),
            alignment: 16,
            deterministic: true,
            dtypes: DType::FLOATS.to_vec(),
            tolerance: None,
            timed: true,
        }
    }
}

/// Declarations shared by [`Cpu`], [`Cuda`] and [`CudaHost`].
pub trait Declare: Sized {
    /// The declarations so far.
    fn traits_mut(&mut self) -> &mut Traits;

    /// The candidate works in tiles of `extent` along `axis`: shapes around its multiples are tried.
    fn tile(mut self, axis: &'static str, extent: usize) -> Self {
        self.traits_mut().tiles.push((axis, extent));
        self
    }

    /// Base pointers that are multiples of `bytes` suffice (default 16).
    fn alignment(mut self, bytes: usize) -> Self {
        self.traits_mut().alignment = bytes;
        self
    }

    /// Two runs may differ in the last bits (atomics); they must then agree within the tolerance.
    fn nondeterministic(mut self) -> Self {
        self.traits_mut().deterministic = false;
        self
    }

    /// Restricts the dtypes.
    fn dtypes(mut self, dtypes: impl IntoIterator<Item = DType>) -> Self {
        self.traits_mut().dtypes = dtypes.into_iter().collect();
        self
    }

    /// Leaves the candidate out of the perf check: it is kept for its clarity, not its speed.
    fn untimed(mut self) -> Self {
        self.traits_mut().timed = false;
        self
    }

    /// Replaces the derived tolerance; the reason is part of every report.
    fn tolerance(mut self, tolerance: Override) -> Self {
        self.traits_mut().tolerance = Some(tolerance);
        self
    }
}

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

/// Where the machine code of a CUDA candidate comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// CUDA C++ source, or PTX.
    pub text: String,
    /// What `text` is.
    pub language: Language,
    /// The file name in compiler messages.
    pub file: String,
    /// Headers by the name that `#include` uses, besides the crate's own.
    pub headers: Vec<(String, String)>,
    /// Further compiler options.
    pub options: Vec<String>,
    /// The architecture that it is written for; `None` for all.
    pub needs: Option<String>,
}

impl Program {
    /// Whether it can run on a device of architecture `arch`: `sm_90` needs 9.0 or later, `sm_90a` exactly 9.0.
    pub fn runs_on(&self, arch: &str) -> bool {
        let Some(needs) = &self.needs else { return true };
        let number = |arch: &str| -> Option<u32> {
            let digits = arch.trim_start_matches("sm_").trim_start_matches("compute_");
            digits.trim_end_matches(|c: char| c.is_ascii_lowercase()).parse().ok()
        };
        match (number(needs), number(arch)) {
            (Some(needed), Some(there)) if needs.ends_with(|c: char| c.is_ascii_digit()) => there >= needed,
            (needed, there) => needed.is_some() && needed == there,
        }
    }
}

/// The language of a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// Compiled by NVRTC, once a dtype, with `KERNELGATE_F32`, `KERNELGATE_F16` or `KERNELGATE_BF16` defined.
    Cuda,
    /// Taken as it is.
    Ptx,
}

type PlanFn = Arc<dyn Fn(&[usize]) -> Plan + Send + Sync>;
type BytesFn = Arc<dyn Fn(&[usize]) -> usize + Send + Sync>;

/// A CUDA kernel: source, entry and launch rule.
#[derive(Clone)]
pub struct Cuda<S> {
    kernel: Kernel,
    traits: Traits,
    shape: std::marker::PhantomData<fn(&S)>,
}

impl<S: Shape> Cuda<S> {
    /// A kernel in CUDA C++. `#include "kernelgate.cuh"` gives it `scalar_t`, the dtype of the case; a `{dtype}` in
    /// the entry stands for `f32`, `f16` or `bf16`.
    pub fn source<P: Into<Plan>>(
        text: impl Into<String>,
        entry: impl Into<String>,
        plan: impl Fn(&S) -> P + Send + Sync + 'static,
    ) -> Self {
        Cuda::program(text.into(), Language::Cuda, entry.into(), plan)
    }

    /// A kernel in PTX, for one dtype: name it with [`Declare::dtypes`].
    pub fn ptx<P: Into<Plan>>(
        text: impl Into<String>,
        entry: impl Into<String>,
        plan: impl Fn(&S) -> P + Send + Sync + 'static,
    ) -> Self {
        Cuda::program(text.into(), Language::Ptx, entry.into(), plan)
    }

    fn program<P: Into<Plan>>(
        text: String,
        language: Language,
        entry: String,
        plan: impl Fn(&S) -> P + Send + Sync + 'static,
    ) -> Self {
        let file = format!("{entry}.{}", if language == Language::Cuda { "cu" } else { "ptx" });
        Cuda {
            kernel: Kernel {
                program: Program { text, language, file, headers: Vec::new(), options: Vec::new(), needs: None },
                entry,
                plan: Arc::new(move |point| plan(&S::from_point(point)).into()),
                workspace_bytes: Arc::new(|_| 0),
            },
            traits: Traits::default(),
            shape: std::marker::PhantomData,
        }
    }

    /// Makes `text` available to `#include "name"`.
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.kernel.program.headers.push((name.into(), text.into()));
        self
    }

    /// Adds an NVRTC option; kernels are tested with the very options that they ship with.
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.kernel.program.options.push(option.into());
        self
    }

    /// The kernel is written for one architecture: `sm_90` for 9.0 and later, `sm_90a` for the instructions that 9.0
    /// alone has. On other GPUs its trials are skipped with that reason; the simulator runs it.
    pub fn needs(mut self, arch: impl Into<String>) -> Self {
        self.kernel.program.needs = Some(arch.into());
        self
    }

    /// The file name to show in compiler messages and findings.
    pub fn file(mut self, name: impl Into<String>) -> Self {
        self.kernel.program.file = name.into();
        self
    }

    /// Asks for a scratch buffer; it stands after the outputs in the argument list and holds garbage.
    pub fn workspace(mut self, bytes: impl Fn(&S) -> usize + Send + Sync + 'static) -> Self {
        self.kernel.workspace_bytes = Arc::new(move |point| bytes(&S::from_point(point)));
        self
    }
}

impl<S> Declare for Cuda<S> {
    fn traits_mut(&mut self) -> &mut Traits {
        &mut self.traits
    }
}

/// The part of a CUDA candidate that a device needs.
#[derive(Clone)]
pub struct Kernel {
    /// Source or PTX.
    pub program: Program,
    /// The entry, perhaps with `{dtype}` in it.
    pub entry: String,
    plan: PlanFn,
    workspace_bytes: BytesFn,
}

impl Kernel {
    /// The launches at a point.
    pub fn plan(&self, point: &[usize]) -> Plan {
        (self.plan)(point)
    }

    /// The entry that `launch` runs in a case of `dtype`.
    pub fn entry_of(&self, launch: &super::launch::Launch, dtype: DType) -> String {
        launch.entry.as_ref().unwrap_or(&self.entry).replace("{dtype}", dtype.name())
    }
}

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

/// What host code that enqueues GPU work is given: everything must go on `stream`, and nothing may wait.
#[derive(Clone, Debug)]
pub struct Enqueue {
    /// The `CUstream`; the context is current.
    pub stream: u64,
    /// Device addresses of the inputs.
    pub inputs: Vec<u64>,
    /// Device addresses of the outputs.
    pub outputs: Vec<u64>,
    /// Device address of the workspace, 0 for none.
    pub workspace: u64,
    /// The dtype of the case.
    pub dtype: DType,
}

type EnqueueFn = Arc<dyn Fn(&[usize], &Enqueue) -> Result<(), String> + Send + Sync>;
type PrepareFn = Arc<dyn Fn(&[usize], DType) -> Result<(), String> + Send + Sync>;
type DescribeFn = Arc<dyn Fn(&[usize], DType) -> Option<String> + Send + Sync>;

/// Host code that enqueues GPU work, with its scratch space.
#[derive(Clone)]
pub struct EnqueueBody {
    function: EnqueueFn,
    prepare: PrepareFn,
    describe: DescribeFn,
    workspace_bytes: BytesFn,
}

impl EnqueueBody {
    /// What it does for a case that it was prepared for, where it can say.
    pub fn describe(&self, point: &[usize], dtype: DType) -> Option<String> {
        (self.describe)(point, dtype)
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

impl Body {
    /// What host code that enqueues GPU work says of a case that it was prepared for.
    pub fn describe(&self, point: &[usize], dtype: DType) -> Option<String> {
        if let Body::Enqueue(body) = self { body.describe(point, dtype) } else { None }
    }

    /// Whether it is host code that enqueues GPU work.
    pub fn is_library(&self) -> bool {
        matches!(self, Body::Enqueue(_))
    }

    /// Whether it runs on the host alone.
    pub fn is_host(&self) -> bool {
        matches!(self, Body::Cpu(_))
    }

    /// Threads that the launches at a point start; none of host code.
    pub fn threads(&self, point: &[usize]) -> usize {
        let Body::Cuda(kernel) = self else { return 0 };
        let threads = |launch: &super::launch::Launch| {
            let extents = launch.grid.iter().chain(&launch.block);
            extents.fold(1usize, |product, &extent| product.saturating_mul(extent))
        };
        kernel.plan(point).0.iter().map(threads).fold(0, usize::saturating_add)
    }

    /// Scratch bytes that the candidate asks for at a point.
    pub fn workspace_bytes(&self, point: &[usize]) -> usize {
        match self {
            Body::Cpu(_) => 0,
            Body::Cuda(kernel) => (kernel.workspace_bytes)(point),
            Body::Enqueue(body) => (body.workspace_bytes)(point),
        }
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
            workspace_bytes: Arc::new(|_| 0),
        };
        CudaHost { body, traits: Traits::default(), shape: std::marker::PhantomData }
    }

    /// What must be done before the first launch of a case, and may wait: load a library, choose an algorithm. The
    /// context is current. An error skips the trial with that reason.
    pub fn prepare(mut self, prepare: impl Fn(&S, DType) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.body.prepare = Arc::new(move |point, dtype| prepare(&S::from_point(point), dtype));
        self
    }

    /// What it does for a case that it was prepared for: an algorithm that it chose, say. Reports of times show it.
    pub fn describe(mut self, describe: impl Fn(&S, DType) -> Option<String> + Send + Sync + 'static) -> Self {
        self.body.describe = Arc::new(move |point, dtype| describe(&S::from_point(point), dtype));
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

/// The host functions of a CPU candidate.
#[derive(Clone)]
pub struct CpuBody(Vec<(DType, CpuFn)>);

impl CpuBody {
    /// Runs the function for `dtype`; `false` if there is none.
    pub fn call(&self, dtype: DType, point: &[usize], x: &Inputs<'_>, y: &mut Outputs<'_>) -> bool {
        match self.0.iter().find(|(d, _)| *d == dtype) {
            Some((_, function)) => {
                function(point, x, y);
                true
            }
            None => false,
        }
    }
}

/// A candidate as the gate holds it: named, its shape type erased.
#[derive(Clone)]
pub struct Candidate {
    /// The second part of the trial name.
    pub name: String,
    /// Its code.
    pub body: Body,
    /// Its declarations.
    pub traits: Traits,
}

/// A candidate of an operator with shape `S`, before it has a name.
pub trait IntoCandidate<S> {
    /// Gives it its name.
    fn named(self, name: &str) -> Candidate;
}

impl<S: Shape> IntoCandidate<S> for Cpu<S> {
    fn named(self, name: &str) -> Candidate {
        Candidate { name: name.into(), body: Body::Cpu(CpuBody(self.functions)), traits: self.traits }
    }
}

impl<S: Shape> IntoCandidate<S> for Cuda<S> {
    fn named(self, name: &str) -> Candidate {
        Candidate { name: name.into(), body: Body::Cuda(self.kernel), traits: self.traits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::launch::Launch;
    use rstest::rstest;

    crate::shape! { struct Vector { n: 1..=64 } }

    #[rstest]
    #[case(None, "sm_80", true)]
    #[case(Some("sm_90"), "sm_90a", true)]
    #[case(Some("sm_90"), "sm_120a", true)]
    #[case(Some("sm_90"), "sm_89", false)]
    #[case(Some("sm_90a"), "sm_90a", true)]
    #[case(Some("sm_90a"), "compute_90a", true)]
    #[case(Some("sm_90a"), "sm_100a", false)]
    #[case(Some("hopper"), "sm_90a", false)]
    fn a_program_runs_where_its_architecture_is(#[case] needs: Option<&str>, #[case] arch: &str, #[case] runs: bool) {
        let cuda = Cuda::source("", "f", |s: &Vector| Launch::blocks(s.n, 32));
        let Body::Cuda(mut kernel) = cuda.named("c").body else { panic!("a CUDA body") };
        kernel.program.needs = needs.map(Into::into);
        assert_eq!(kernel.program.runs_on(arch), runs);
    }

    #[test]
    fn the_dtype_stands_in_the_entry() {
        let cuda = Cuda::source("", "f_{dtype}", |s: &Vector| Launch::blocks(s.n, 32));
        let Body::Cuda(kernel) = cuda.named("c").body else { panic!("a CUDA body") };
        let plan = kernel.plan(&[5]);
        assert_eq!(plan.0[0].grid, [5, 1, 1]);
        assert_eq!(kernel.entry_of(&plan.0[0], DType::BF16), "f_bf16");
    }
}
