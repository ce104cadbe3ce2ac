//! Candidates that are CUDA kernels.

use super::body::Body;
use super::include::reached;
use super::kernel::{Kernel, Language, Program};
use super::text::Text;
use super::traits::{Declare, Traits};
use super::{Candidate, IntoCandidate};
use crate::core::launch::Plan;
use crate::core::shape::Shape;
use std::sync::Arc;

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
    /// ```
    /// use kernelgate::prelude::*;
    ///
    /// shape! { struct Vector { n: 1..=1 << 20 } }
    ///
    /// const DOUBLE: &str = r#"
    /// #include "kernelgate.cuh"
    ///
    /// extern "C" __global__ void twice(const scalar_t *x, scalar_t *y, int n) {
    ///     const int i = blockIdx.x * blockDim.x + threadIdx.x;
    ///     if (i < n) y[i] = from_float<scalar_t>(2.0f * to_float(x[i]));
    /// }
    /// "#;
    ///
    /// let twice = Cuda::source(DOUBLE, "twice", |s: &Vector| Launch::blocks(s.n.div_ceil(256), 256).scalar(s.n as i32))
    ///     .tile("n", 256);
    /// ```
    pub fn source<P: Into<Plan>>(
        text: impl Into<Text>,
        entry: impl Into<String>,
        plan: impl Fn(&S) -> P + Send + Sync + 'static,
    ) -> Self {
        Cuda::program(text.into(), Language::Cuda, entry.into(), plan)
    }

    /// A kernel in PTX, for one dtype: name it with [`Declare::dtypes`].
    /// ```
    /// use kernelgate::prelude::*;
    ///
    /// shape! { struct Vector { n: 1..=1 << 20 } }
    ///
    /// # const TWICE: &str = ".version 8.7\n.target sm_80\n.address_size 64\n.visible .entry twice() { ret; }";
    /// // include_str!("twice.ptx"), from nvcc --ptx
    /// let twice = Cuda::ptx(TWICE, "twice", |s: &Vector| Launch::blocks(s.n.div_ceil(256), 256).scalar(s.n as i32))
    ///     .dtypes([F32]);
    /// ```
    pub fn ptx<P: Into<Plan>>(
        text: impl Into<Text>,
        entry: impl Into<String>,
        plan: impl Fn(&S) -> P + Send + Sync + 'static,
    ) -> Self {
        Cuda::program(text.into(), Language::Ptx, entry.into(), plan)
    }

    fn program<P: Into<Plan>>(
        text: Text,
        language: Language,
        entry: String,
        plan: impl Fn(&S) -> P + Send + Sync + 'static,
    ) -> Self {
        let file = format!("{entry}.{}", if language == Language::Cuda { "cu" } else { "ptx" });
        Cuda {
            kernel: Kernel {
                candidate: String::new(),
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

    /// Makes headers available, names as `#include` has them and texts; of these, those count as the kernel's code that the source
    /// includes, directly or through others.
    /// ```
    /// use kernelgate::prelude::*;
    ///
    /// shape! { struct Vector { n: 1..=1 << 20 } }
    ///
    /// # const SCALE: &str = "#include \"tile.cuh\"";
    /// # const TILE: &str = "";
    /// # const WARP: &str = "";
    /// // include_str!("../kernels/tile.cuh") and so on
    /// const LIBRARY: [(&str, &str); 2] = [("tile.cuh", TILE), ("warp.cuh", WARP)];
    ///
    /// let scale = Cuda::source(SCALE, "scale", |s: &Vector| Launch::blocks(s.n.div_ceil(256), 256).scalar(s.n as i32))
    ///     .headers(&LIBRARY);
    /// ```
    pub fn headers(mut self, available: &[(&str, &str)]) -> Self {
        let Program { text, headers, .. } = &mut self.kernel.program;
        headers.extend(reached(text, available).into_iter().map(|(name, text)| (name.into(), text.into())));
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

impl<S: Shape> IntoCandidate<S> for Cuda<S> {
    fn named(self, name: &str) -> Candidate {
        let body = Body::Cuda(Kernel { candidate: name.into(), ..self.kernel });
        Candidate { name: name.into(), body, traits: self.traits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;
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
