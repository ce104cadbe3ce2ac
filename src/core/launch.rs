//! How a CUDA kernel is launched for a shape.

use super::candidate::{EnqueueBody, Program};
use super::shape::Point;
use super::tensor_map::TensorMap;
use super::work::Work;
use std::sync::Arc;

/// A scalar kernel argument; its size must be that of the parameter.
/// ```
/// use kernelgate::prelude::*;
///
/// // `__global__ void scale(const float *x, float *y, int n, float factor)`
/// let launch = Launch::blocks(4, 256).scalar(1024i32).scalar(0.5f32);
/// assert_ne!(Scalar::from(1024i32), Scalar::from(1024i64));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// `int`
    I32(i32),
    /// `unsigned`
    U32(u32),
    /// `long long`
    I64(i64),
    /// `unsigned long long`
    U64(u64),
    /// `float`
    F32(f32),
    /// `double`
    F64(f64),
}

impl Scalar {
    /// The argument as the launch passes it.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Scalar::I32(v) => v.to_le_bytes().to_vec(),
            Scalar::U32(v) => v.to_le_bytes().to_vec(),
            Scalar::I64(v) => v.to_le_bytes().to_vec(),
            Scalar::U64(v) => v.to_le_bytes().to_vec(),
            Scalar::F32(v) => v.to_le_bytes().to_vec(),
            Scalar::F64(v) => v.to_le_bytes().to_vec(),
        }
    }
}

macro_rules! scalar_from {
    ($($ty:ty => $variant:ident),* $(,)?) => {$(
        impl From<$ty> for Scalar {
            fn from(value: $ty) -> Self {
                Scalar::$variant(value)
            }
        }
    )*};
}

scalar_from! { i32 => I32, u32 => U32, i64 => I64, u64 => U64, f32 => F32, f64 => F64 }

/// A kernel argument behind the pointers.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A number.
    Scalar(Scalar),
    /// A tensor map of a buffer.
    Map(TensorMap),
    /// An address in a buffer: an input, an output, or `workspace`.
    Pointer {
        /// The buffer.
        buffer: String,
        /// How far behind its beginning.
        offset_bytes: usize,
    },
}

/// A buffer, and how far behind its beginning.
pub type Place = (String, usize);

/// What host code enqueues in place of a kernel: the work of a library, as one step of a plan. For a GPU only.
#[derive(Clone)]
pub struct Library {
    /// The code.
    pub body: EnqueueBody,
    /// The shape it is called with.
    pub point: Point,
    /// Its inputs.
    pub inputs: Vec<Place>,
    /// Its outputs.
    pub outputs: Vec<Place>,
    /// Its scratch space, where it asks for any.
    pub workspace: Option<Place>,
}

impl Library {
    fn places(&self) -> (&Point, [&[Place]; 3]) {
        (&self.point, [&self.inputs, &self.outputs, self.workspace.as_slice()])
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Library{:?}", self.places())
    }
}

/// By the places alone: code does not compare.
impl PartialEq for Library {
    fn eq(&self, other: &Self) -> bool {
        self.places() == other.places()
    }
}

/// One kernel launch. The arguments are pointers to the operator's inputs, its outputs and the workspace if one was
/// asked for, then scalars, tensor maps and single pointers in the order in which they were added.
/// ```
/// use kernelgate::prelude::*;
///
/// shape! { struct Matrix { rows: 1..=4096, cols: 1..=8192 } }
///
/// // A block a row, with its row in dynamic shared memory: `kernel(x, y, rows, cols)`.
/// let rows = |s: &Matrix| {
///     Launch::blocks(s.rows, 256).shared(s.cols * 4).scalar(s.rows as i32).scalar(s.cols as i32)
/// };
/// assert_eq!(rows(&Matrix { rows: 3, cols: 8 }).grid, [3, 1, 1]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Blocks along x, y, z. A launch with no block at all is left out.
    pub grid: [usize; 3],
    /// Threads along x, y, z.
    pub block: [usize; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: usize,
    /// Blocks a cluster along x; 1 for none.
    pub cluster: usize,
    /// Whether its blocks wait for each other.
    pub cooperative: bool,
    /// The entry, when it is not the candidate's own.
    pub entry: Option<String>,
    /// The program that has the entry, when it is not the candidate's own.
    pub program: Option<Arc<Program>>,
    /// Whether the kernel takes the pointers.
    pub pointers: bool,
    /// Arguments after the pointers.
    pub arguments: Vec<Argument>,
    /// What is enqueued in place of the kernel.
    pub by_library: Option<Library>,
    /// What its blocks share, where that is not a tile a block.
    pub work: Option<Work>,
    /// Whether it may begin before the launch ahead of it has ended.
    pub dependent: bool,
}

impl Launch {
    /// `blocks` blocks of `threads` threads, along x.
    pub fn blocks(blocks: usize, threads: usize) -> Self {
        Launch::grid([blocks, 1, 1], [threads, 1, 1])
    }

    /// A grid and a block in three dimensions.
    pub fn grid(grid: [usize; 3], block: [usize; 3]) -> Self {
        Launch {
            grid,
            block,
            shared_bytes: 0,
            cluster: 1,
            cooperative: false,
            entry: None,
            program: None,
            pointers: true,
            arguments: Vec::new(),
            by_library: None,
            work: None,
            dependent: false,
        }
    }

    /// A grid of Triton programs, whose block [`Cuda::triton`](super::candidate::Cuda::triton) fills in.
    pub fn programs(grid: [usize; 3]) -> Self {
        Launch::grid(grid, [0; 3])
    }

    /// Appends a scalar argument.
    pub fn scalar(mut self, value: impl Into<Scalar>) -> Self {
        self.arguments.push(Argument::Scalar(value.into()));
        self
    }

    /// Appends a tensor map (compute capability 9.0 and up).
    pub fn map(mut self, map: TensorMap) -> Self {
        self.arguments.push(Argument::Map(map));
        self
    }

    /// Appends the address of one buffer: an input, an output, or `workspace`.
    pub fn pointer(self, buffer: impl Into<String>) -> Self {
        self.pointer_at(buffer, 0)
    }

    /// Appends the address of byte `offset_bytes` of a buffer: a part of the workspace, say.
    pub fn pointer_at(mut self, buffer: impl Into<String>, offset_bytes: usize) -> Self {
        self.arguments.push(Argument::Pointer { buffer: buffer.into(), offset_bytes });
        self
    }

    /// Leaves out the pointers that every kernel gets: this one takes what [`Launch::map`], [`Launch::pointer`] and
    /// [`Launch::scalar`] add, in their order.
    pub fn without_pointers(mut self) -> Self {
        self.pointers = false;
        self
    }

    /// Asks for dynamic shared memory, up to what the device allows a block that opts in (227 KiB on an H200).
    pub fn shared(mut self, bytes: usize) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// Groups blocks along x into clusters (compute capability 9.0 and up).
    pub fn cluster(mut self, blocks: usize) -> Self {
        self.cluster = blocks;
        self
    }

    /// Lets the launch begin before the one ahead of it has ended (programmatic dependent launch, compute capability 9.0 and
    /// up): the kernel executes `griddepcontrol.wait` before it touches anything that an earlier launch may write or read, and reads
    /// that by `ld.global`: ptxas moves loads through `const __restrict__` pointers (`ld.global.nc`) in front of the wait. The
    /// simulator refuses kernels that do not. Models run it so; a gate judges and times launches one behind the other.
    pub fn dependent(mut self) -> Self {
        self.dependent = true;
        self
    }

    /// Says that blocks wait for each other: all of them run at once. Of a grid larger than what the device has room for, as
    /// many blocks along x are launched as it has, so the kernel takes each block's share from `gridDim`.
    pub fn cooperative(mut self) -> Self {
        self.cooperative = true;
        self
    }

    /// Launches another entry of the same source: one dispatch path of several.
    pub fn entry(mut self, name: impl Into<String>) -> Self {
        self.entry = Some(name.into());
        self
    }

    /// Launches an entry of another program: name it with [`Launch::entry`].
    pub fn of(mut self, program: Arc<Program>) -> Self {
        self.program = Some(program);
        self
    }

    /// A step that is no kernel: what a library enqueues.
    pub fn library(library: Library) -> Self {
        Launch { by_library: Some(library), ..Launch::blocks(1, 1) }
    }

    /// Says what the blocks share: tiles of a persistent kernel, say. It changes no launch; predictions use it.
    pub fn shares(mut self, work: Work) -> Self {
        self.work = Some(work);
        self
    }

    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }
}

/// What a candidate launches for one shape: one kernel, or several in stream order.
/// ```
/// use kernelgate::prelude::*;
///
/// shape! { struct Vector { n: 1..=1 << 20 } }
///
/// # const SUM: &str = "";
/// // Partial sums of each block into the workspace, then one block that adds them up.
/// let sum = Cuda::source(SUM, "partial", |s: &Vector| {
///     let blocks = s.n.div_ceil(1024);
///     let partial = Launch::blocks(blocks, 256).scalar(s.n as i32);
///     Plan(vec![partial, Launch::blocks(1, 256).entry("total").scalar(blocks as i32)])
/// })
/// .workspace(|s| s.n.div_ceil(1024) * 4);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Plan(pub Vec<Launch>);

impl From<Launch> for Plan {
    fn from(launch: Launch) -> Self {
        Plan(vec![launch])
    }
}

impl From<Vec<Launch>> for Plan {
    fn from(launches: Vec<Launch>) -> Self {
        Plan(launches)
    }
}

impl<const N: usize> From<[Launch; N]> for Plan {
    fn from(launches: [Launch; N]) -> Self {
        Plan(launches.into())
    }
}
