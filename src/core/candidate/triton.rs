//! Triton programs that were compiled ahead of time: how one is launched, from the metadata that Triton writes beside its PTX.

use super::cuda::Cuda;
use super::kernel::target_of;
use crate::core::launch::{Launch, Scalar};
use crate::core::shape::Shape;
use serde::Deserialize;
use std::fmt;
use std::sync::Arc;

/// Threads of a warp.
const WARP: usize = 32;

/// What Triton says of a compiled program, `<kernel>.json` in its cache, or beside the PTX that
/// `kernels/triton/ahead_of_time.py` writes. What is not needed to launch the program is passed over.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TritonMetadata {
    /// The entry.
    pub name: String,
    /// Warps of a program.
    pub num_warps: usize,
    /// Blocks that one program is spread over, which form a cluster.
    #[serde(default = "one")]
    pub num_ctas: usize,
    /// Bytes of dynamic shared memory.
    #[serde(rename = "shared", default)]
    pub shared_bytes: usize,
    /// Bytes of global scratch memory that a block needs; `None` where the program has no pointer to it.
    #[serde(rename = "global_scratch_size", default)]
    pub global_scratch_bytes: Option<usize>,
    /// Bytes of a profiler's scratch memory; `None` where the program has no pointer to it.
    #[serde(rename = "profile_scratch_size", default)]
    pub profile_scratch_bytes: Option<usize>,
}

fn one() -> usize {
    1
}

/// Why a text is not what Triton says of a program.
/// ```
/// use kernelgate::prelude::*;
/// let error = TritonMetadata::parse(r#"{"name": "k", "num_warps": 3}"#).unwrap_err();
/// assert!(matches!(error, TritonError::Impossible { field: "num_warps", value: 3, .. }));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum TritonError {
    /// It is no JSON, or lacks a field.
    Json(serde_json::Error),
    /// No program can be launched with a number.
    Impossible {
        /// The field that has it.
        field: &'static str,
        /// The number.
        value: usize,
        /// The largest that is possible.
        most: usize,
    },
}

impl fmt::Display for TritonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TritonError::Json(error) => write!(f, "no metadata as Triton writes it beside its PTX: {error}"),
            TritonError::Impossible { field, value, most } => {
                write!(f, "{field} is {value}; powers of two up to {most} are possible")
            }
        }
    }
}

impl std::error::Error for TritonError {}

impl TritonMetadata {
    /// Reads Triton's JSON.
    /// ```
    /// use kernelgate::prelude::*;
    /// let metadata = TritonMetadata::parse(r#"{"name": "add_kernel", "num_warps": 4, "shared": 0}"#);
    /// assert!(metadata.is_ok());
    /// assert!(TritonMetadata::parse(r#"{"num_warps": 4}"#).is_err());
    /// ```
    ///
    /// # Errors
    /// JSON that says not enough to launch the program, or what cannot be.
    pub fn parse(json: &str) -> Result<Self, TritonError> {
        let metadata: TritonMetadata = serde_json::from_str(json).map_err(TritonError::Json)?;
        for (field, value, most) in [("num_warps", metadata.num_warps, 32), ("num_ctas", metadata.num_ctas, 16)] {
            if value == 0 || value > most || !value.is_power_of_two() {
                return Err(TritonError::Impossible { field, value, most });
            }
        }
        Ok(metadata)
    }

    /// Makes a grid of programs (x, y, z, with any block) a launch of this one: block, shared memory, cluster, entry, and
    /// behind the arguments the pointers to scratch memory that Triton adds. Scratch memory is the workspace.
    pub fn launch(&self, programs: Launch) -> Launch {
        let mut launch = Launch { block: [WARP * self.num_warps, 1, 1], ..programs };
        launch.grid[0] *= self.num_ctas;
        launch = launch.shared(self.shared_bytes).cluster(self.num_ctas).entry(&self.name);
        let blocks: usize = launch.grid.iter().product();
        let mut start = 0;
        for bytes in [self.global_scratch_bytes, self.profile_scratch_bytes].into_iter().flatten() {
            launch = if bytes == 0 { launch.scalar(Scalar::U64(0)) } else { launch.pointer_at("workspace", start) };
            start += blocks * bytes;
        }
        launch
    }

    /// Scratch memory of all blocks of a launch.
    fn scratch_bytes(&self, launch: &Launch) -> usize {
        let each: usize = [self.global_scratch_bytes, self.profile_scratch_bytes].into_iter().flatten().sum();
        launch.grid.iter().product::<usize>() * each
    }
}

impl<S: Shape> Cuda<S> {
    /// A program of Triton, compiled ahead of time: its PTX, and what Triton says of it. `programs` gives the grid of
    /// programs and the scalars behind the tensors; block, shared memory, clusters and Triton's own arguments come from the
    /// metadata, the architecture from the PTX. Like all PTX it is for one dtype: name it with [`Declare::dtypes`].
    ///
    /// ```
    /// use kernelgate::prelude::*;
    ///
    /// shape! { struct Vector { n: 1..=1 << 20 } }
    /// # const PTX: &str = ".version 8.7\n.target sm_80\n.address_size 64\n.visible .entry add() { ret; }";
    /// # const JSON: &str = r#"{"name": "add", "num_warps": 4, "shared": 0}"#;
    /// // include_str!("add.ptx") and include_str!("add.json"), which `kernels/triton/ahead_of_time.py` wrote
    /// let metadata = TritonMetadata::parse(JSON).expect("metadata of add");
    /// let add = Cuda::triton(PTX, metadata, |s: &Vector| Launch::programs([s.n.div_ceil(1024), 1, 1]).scalar(s.n as i32))
    ///     .dtypes([F32]);
    /// ```
    ///
    /// Scratch memory, which programs need that make tensor descriptors, is taken as the workspace. Such a launch has to
    /// name its tensors one by one: `Launch::programs(…).without_pointers().pointer("x").pointer("y")`.
    ///
    /// [`Declare::dtypes`]: super::Declare::dtypes
    pub fn triton(
        ptx: impl Into<String>,
        metadata: TritonMetadata,
        programs: impl Fn(&S) -> Launch + Send + Sync + 'static,
    ) -> Self {
        let ptx = ptx.into();
        let target = target_of(&ptx);
        let (entry, of_scratch) = (metadata.name.clone(), metadata.clone());
        let complete = Arc::new(move |s: &S| metadata.launch(programs(s)));
        let again = Arc::clone(&complete);
        let cuda = Cuda::ptx(ptx, entry, move |s: &S| complete(s));
        let cuda = cuda.workspace(move |s| of_scratch.scratch_bytes(&again(s)));
        match target {
            Some(target) => cuda.needs(target),
            None => cuda,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Body, IntoCandidate};
    use crate::core::launch::Argument;

    crate::shape! { struct Vector { n: 1..=4096 } }

    const FULL: &str = r#"{"name": "k", "num_warps": 8, "num_ctas": 2, "shared": 1024, "global_scratch_size": 128,
        "profile_scratch_size": 0, "target": {"backend": "cuda", "arch": 90, "warp_size": 32}, "hash": "…"}"#;

    fn kernel(json: &str) -> crate::core::candidate::Kernel {
        let metadata = TritonMetadata::parse(json).unwrap();
        let ptx = ".version 8.7\n.target sm_90a, debug\n";
        let cuda = Cuda::triton(ptx, metadata, |s: &Vector| Launch::programs([s.n, 3, 1]).scalar(s.n as i32));
        let Body::Cuda(kernel) = cuda.named("triton").body else { panic!("a CUDA body") };
        kernel
    }

    #[test]
    fn metadata_completes_the_launch() {
        let kernel = kernel(FULL);
        let launch = kernel.plan(&[5]).0.remove(0);
        assert_eq!((launch.grid, launch.block), ([10, 3, 1], [256, 1, 1]));
        assert_eq!((launch.shared_bytes, launch.cluster, launch.entry.as_deref()), (1024, 2, Some("k")));
        let workspace = Argument::Pointer { buffer: "workspace".into(), offset_bytes: 0 };
        let [first, second, third] = &launch.arguments[..] else { panic!("{:?}", launch.arguments) };
        assert_eq!((first, second), (&Argument::Scalar(Scalar::I32(5)), &workspace));
        assert_eq!(third, &Argument::Scalar(Scalar::U64(0)));
        assert_eq!((kernel.workspace_bytes)(&[5]), 10 * 3 * 128);
        assert_eq!(kernel.program.needs.as_deref(), Some("sm_90a"));
    }

    #[test]
    fn versions_of_triton_without_scratch_pointers_get_none() {
        let launch = kernel(r#"{"name": "k", "num_warps": 4, "shared": 0}"#).plan(&[1]).0.remove(0);
        assert_eq!(launch.arguments, [Argument::Scalar(Scalar::I32(1))]);
        assert_eq!(launch.block, [128, 1, 1]);
    }

    #[test]
    fn metadata_that_cannot_be_is_refused() {
        for (json, word) in [
            ("{", "Triton"),
            (r#"{"name": "k"}"#, "num_warps"),
            (r#"{"name": "k", "num_warps": 3}"#, "num_warps is 3"),
            (r#"{"name": "k", "num_warps": 4, "num_ctas": 0}"#, "num_ctas is 0"),
        ] {
            let error = TritonMetadata::parse(json).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
