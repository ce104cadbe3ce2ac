//! A launch: checks what the caller asks for, spreads the clusters over threads, gathers the report.

use crate::sim::error::{Error, Result};
use crate::sim::ir::program::{Program, Reach};
use crate::sim::machine::grid::Grid;
use crate::sim::machine::log::Log;
use crate::sim::machine::memory::{Memory, Pointer};
use crate::sim::machine::race::global::{GlobalRaces, Watched};
use crate::sim::options::Options;
use crate::sim::ptx::special::Special;
use crate::sim::report::Report;
use crate::sim::rng::Rng;
use crate::sim::run::cluster::Cluster;
use crate::sim::run::in_turn;
use crate::sim::run::job::Job;
use crate::sim::run::module::Module;
use crate::sim::run::shared::shared_memory;
use crate::sim::run::shares::Shares;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Extents along x, y, z.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dim {
    /// Along x.
    pub x: u32,
    /// Along y.
    pub y: u32,
    /// Along z.
    pub z: u32,
}

impl Dim {
    /// All three extents.
    pub const fn new(x: u32, y: u32, z: u32) -> Self {
        Dim { x, y, z }
    }

    fn array(self) -> [u32; 3] {
        [self.x, self.y, self.z]
    }
}

impl From<u32> for Dim {
    fn from(x: u32) -> Self {
        Dim::new(x, 1, 1)
    }
}

/// A kernel argument: its bytes as they lie in the parameter block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arg(Vec<u8>);

impl Arg {
    /// A structure passed by value, or anything else by its bytes.
    pub fn bytes(bytes: &[u8]) -> Self {
        Arg(bytes.to_vec())
    }
}

macro_rules! arg_from {
    ($($ty:ty),*) => {$(
        impl From<$ty> for Arg {
            fn from(value: $ty) -> Self {
                Arg(value.to_le_bytes().to_vec())
            }
        }
    )*};
}
arg_from!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);

impl From<Pointer> for Arg {
    fn from(pointer: Pointer) -> Self {
        Arg::from(pointer.address())
    }
}

/// One launch: `kernel<<<grid, block, dynamic_shared_bytes>>>(args)`, with the cluster extents of `cudaLaunchKernelEx`.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// Name of the entry.
    pub entry: String,
    /// Blocks.
    pub grid: Dim,
    /// Threads of a block.
    pub block: Dim,
    /// Blocks of a cluster; 1 where there are none.
    pub cluster: Dim,
    /// Bytes of dynamic shared memory.
    pub dynamic_shared_bytes: u32,
    /// Arguments in order.
    pub args: Vec<Arg>,
    /// Texture and surface handles by the names of `.texref` and `.surfref` variables.
    pub textures: Vec<(String, u64)>,
}

impl Launch {
    /// A launch without clusters, dynamic shared memory or arguments.
    pub fn new(entry: impl Into<String>, grid: impl Into<Dim>, block: impl Into<Dim>) -> Self {
        Launch {
            entry: entry.into(),
            grid: grid.into(),
            block: block.into(),
            cluster: Dim::new(1, 1, 1),
            dynamic_shared_bytes: 0,
            args: Vec::new(),
            textures: Vec::new(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<Arg>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Binds a handle of [`Memory::texture`] to a `.texref` or `.surfref` variable of the module.
    #[must_use]
    pub fn texture(mut self, name: impl Into<String>, handle: u64) -> Self {
        self.textures.push((name.into(), handle));
        self
    }

    /// Sets the dynamic shared memory.
    #[must_use]
    pub fn dynamic_shared(mut self, bytes: u32) -> Self {
        self.dynamic_shared_bytes = bytes;
        self
    }

    /// Sets the cluster extents.
    #[must_use]
    pub fn cluster(mut self, cluster: impl Into<Dim>) -> Self {
        self.cluster = cluster.into();
        self
    }
}

const MAX_BLOCK_THREADS: u64 = 1024;
const MAX_CLUSTER_BLOCKS: u64 = 16;
/// Of a grid that synchronises; the words that cooperative groups use are the first two.
const WORKSPACE_BYTES: u64 = 64;
/// Local memory of all threads of a cluster.
const MAX_LOCAL_BYTES: u64 = 256 << 20;

/// Runs a kernel to its end, or to its first fatal defect.
///
/// Blocks run in parallel on the current rayon pool, unless their order can show in the result; then they run one after
/// the other.
///
/// # Errors
/// When the entry is missing or not modelled, or the launch does not fit it: extents, shared memory, number and sizes
/// of arguments. Defects of the kernel are findings of the report, not errors.
pub fn launch(module: &Module, launch: &Launch, memory: &mut Memory, options: &Options) -> Result<Report> {
    let program = module.program(&launch.entry, options.adversarial_approximations)?;
    let (grid_dim, block_dim, cluster_dim) = (launch.grid.array(), launch.block.array(), launch.cluster.array());
    let threads = check_extents(&program, grid_dim, block_dim, cluster_dim)?;
    let local_bytes =
        u64::from(program.local_bytes) * u64::from(threads) * cluster_dim.map(u64::from).iter().product::<u64>();
    if local_bytes > MAX_LOCAL_BYTES {
        return Err(Error::Launch(format!(
            "{} bytes of local memory a thread are {local_bytes} for the threads that run together; the simulator holds {MAX_LOCAL_BYTES}",
            program.local_bytes
        )));
    }
    let params = parameter_block(&program, &launch.args)?;
    let (dynamic_shared_start, shared_bytes) = shared_memory(&program, launch.dynamic_shared_bytes)?;
    let symbols = place_variables(&program, memory)?;
    bind_textures(&program, &symbols, launch, memory)?;
    if program.traits.has_heap {
        memory.make_heap()?;
    }
    let synchronises = program.specials.iter().any(|row| matches!(row.special, Special::Envreg(_)));
    let workspace =
        synchronises.then(|| memory.alloc(WORKSPACE_BYTES, Some(&[0; WORKSPACE_BYTES as usize]))).transpose()?;
    let report = {
        let reached = |through: &Reach, number| through.may_reach(&program, &params, number);
        let races = GlobalRaces::new(memory, options, program.has_strong_accesses(), |number| Watched {
            is_written: reached(&program.written, number),
            is_read: reached(&program.read, number),
        });
        let grid = Grid {
            races,
            in_order: program.traits.in_order,
            local_bytes: program.local_bytes,
            bundles: &program.bundles,
            origins: &program.origins,
            memory,
            options,
            params: &params,
            grid_dim,
            block_dim,
            cluster_dim,
            threads,
            shared_bytes,
            dynamic_shared_start,
            symbols: &symbols,
            workspace: workspace.map_or(0, Pointer::address),
        };
        run_all(&Job { program: &program, grid })
    };
    if let Some(workspace) = workspace {
        memory.free(workspace)?;
    }
    report
}

fn run_all(grid: &Job<'_>) -> Result<Report> {
    let clusters = grid.cluster_count();
    let program = grid.program;
    let fresh = || (Cluster::new(grid), program.log());
    let stopped = AtomicU64::new(u64::MAX);
    let step = |(cluster, log): &mut (Cluster, Log), number: u64| {
        // A block behind one that stopped the launch would not have run, had they run in order.
        if number <= stopped.load(Relaxed) && !cluster.run(grid, log, number) {
            stopped.fetch_min(number, Relaxed);
            let first = grid.position(number, grid.cluster_blocks() - 1).linear;
            log.aborted = Some(log.aborted.map_or(first, |known| known.min(first)));
        }
    };
    let log = if !grid.blocks_overlap() {
        let mut order: Vec<u64> = (0..clusters).collect();
        if grid.options.seed != 0 {
            Rng::new(grid.options.seed).shuffle(&mut order);
        }
        in_turn::run(grid, order)?.settled(&program.bundles)
    } else {
        // Each worker sets up its registers and shared memory once.
        let workers = rayon::current_num_threads();
        let shares = Shares::new(clusters, workers);
        let work = |worker: usize, first: Range<u64>| {
            let mut state = fresh();
            let mine = std::iter::successors(Some(first), |_| shares.take(worker));
            mine.flatten().for_each(|number| step(&mut state, number));
            state.1.settled(&program.bundles)
        };
        (0..workers)
            .into_par_iter()
            .with_max_len(1)
            .filter_map(|worker| shares.take(worker).map(|first| work(worker, first)))
            .reduce(|| program.log(), Log::merge)
    };
    let metrics = log.counters.finish(grid.origins);
    let (findings, printf) = log.finish();
    Ok(Report { findings, printf, metrics })
}

fn check_extents(program: &Program, grid: [u32; 3], block: [u32; 3], cluster: [u32; 3]) -> Result<u32> {
    let refuse = |message: String| Err(Error::Launch(message));
    let threads: u64 = block.iter().map(|extent| u64::from(*extent)).product();
    if threads == 0 || threads > MAX_BLOCK_THREADS || block[2] > 64 {
        return refuse(format!(
            "a block of {block:?} threads; between 1 and {MAX_BLOCK_THREADS} are possible, at most 64 along z"
        ));
    }
    if grid.contains(&0) || grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535 {
        return refuse(format!(
            "a grid of {grid:?} blocks; 1 to 2147483647 along x and 1 to 65535 along y and z are possible"
        ));
    }
    let ranks: u64 = cluster.iter().map(|extent| u64::from(*extent)).product();
    if ranks == 0 || ranks > MAX_CLUSTER_BLOCKS || (0..3).any(|axis| !grid[axis].is_multiple_of(cluster[axis])) {
        return refuse(format!(
            "clusters of {cluster:?} blocks do not divide a grid of {grid:?}, or have more than {MAX_CLUSTER_BLOCKS}"
        ));
    }
    if let Some(required) = program.required_threads
        && required != block
    {
        return refuse(format!("the kernel was compiled for blocks of {required:?} threads, not {block:?}"));
    }
    Ok(threads as u32)
}

fn parameter_block(program: &Program, args: &[Arg]) -> Result<Vec<u8>> {
    if args.len() != program.params.len() {
        return Err(Error::Launch(format!(
            "`{}` takes {} arguments, {} were given",
            program.name,
            program.params.len(),
            args.len()
        )));
    }
    let mut block = vec![0; program.param_bytes as usize];
    for (at, (param, arg)) in program.params.iter().zip(args).enumerate() {
        if arg.0.len() != param.bytes as usize {
            return Err(Error::Launch(format!(
                "argument {at} of `{}` has {} bytes, `{}` takes {}",
                program.name,
                arg.0.len(),
                param.name,
                param.bytes
            )));
        }
        block[param.offset as usize..][..arg.0.len()].copy_from_slice(&arg.0);
    }
    Ok(block)
}

/// Finds the variables of the program's module in a memory; those that are not there yet get room and their initial
/// values. They keep what kernels write until the memory goes, as those of a loaded module do.
fn place_variables(program: &Program, memory: &mut Memory) -> Result<Vec<u64>> {
    let mut symbols = Vec::with_capacity(program.globals.len());
    let mut fresh = Vec::new();
    for (at, variable) in program.globals.iter().enumerate() {
        let known = memory.variable(program.module, &variable.name);
        let pointer = match known {
            Some(pointer) => pointer,
            None => {
                let mut data = variable.init.clone();
                data.resize(variable.bytes as usize, 0);
                fresh.push(at);
                memory.alloc_variable(program.module, &variable.name, &data)?
            }
        };
        symbols.push(pointer.address());
    }
    for at in fresh {
        let (variable, pointer) = (&program.globals[at], Pointer::at(symbols[at]));
        for &(offset, target, addend) in &variable.relocations {
            let value = symbols[target].wrapping_add(addend as u64);
            memory.write(pointer.offset(offset), &value.to_le_bytes())?;
        }
        if variable.is_const {
            memory.protect(pointer)?;
        }
    }
    Ok(symbols)
}

/// Puts handles into the variables that `tex` and others read them from.
fn bind_textures(program: &Program, symbols: &[u64], launch: &Launch, memory: &mut Memory) -> Result<()> {
    for (name, handle) in &launch.textures {
        let found = program.globals.iter().position(|variable| variable.name.strip_prefix('/') == Some(name.as_str()));
        let Some(at) = found else {
            return Err(Error::Launch(format!("`{}` uses no texture or surface `{name}`", program.name)));
        };
        if program.globals[at].bytes != 8 {
            return Err(Error::Launch(format!("`{name}` is no texture and no surface")));
        }
        memory.write(Pointer::at(symbols[at]), &handle.to_le_bytes())?;
    }
    Ok(())
}
