//! A case in simulated memory: every buffer an allocation of its own, so that one byte past its end is seen.

use super::device::SimDevice;
use super::explain::{Placed, counted, fault, findings};
use super::modes::{Mode, options, work_budget};
use super::program::Loaded;
use crate::core::candidate::Kernel;
use crate::core::dtype::DType;
use crate::core::seed::derive;
use crate::core::tensor::Tensor;
use crate::core::tensor_map::{Fill, Swizzle};
use crate::device::argument::{Buffer, MAP_BYTES, Tiled, arguments};
use crate::device::content::Content;
use crate::device::counts::{Counts, Taken, resident_warps};
use crate::device::fault::Fault;
use crate::device::image::{BASE_ALIGNMENT, Image};
use crate::device::{Job, Poison, Problem, Sample, TimingPlan};
use crate::sim;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of each input that the seed of a case is made from.
const FINGERPRINT_BYTES: usize = 1024;

/// A case in the simulator.
pub struct SimProblem {
    program: Arc<Loaded>,
    image: Image,
    buffers: Vec<Placed>,
    launches: Vec<(Arc<Loaded>, sim::Launch)>,
    /// Whether results may lawfully differ from one device to another.
    is_approximate: bool,
    /// The image on the host: what a run starts from, and what it leaves behind.
    host: Vec<u8>,
    /// Drawn schedules and errors derive from it.
    seed: u64,
    /// What a block may do before it counts as endless.
    work_budget: u64,
    last: Vec<Tensor>,
}

impl SimProblem {
    /// Compiles, checks the launches against the signatures, allocates.
    pub fn new(device: &SimDevice, kernel: &Kernel, job: &Job<'_>) -> Result<Self, Fault> {
        let image = Image::of(job);
        let program = device.programs.get(&kernel.program, job.dtype)?;
        let mut problem = SimProblem {
            host: vec![0; image.len()],
            seed: seed(job),
            work_budget: work_budget(job.point),
            buffers: Vec::new(),
            launches: Vec::new(),
            is_approximate: false,
            last: Vec::new(),
            program,
            image,
        };
        problem.allocate()?;
        for launch in kernel.plan(job.point).0.into_iter().filter(|launch| !launch.is_empty()) {
            if launch.by_library.is_some() {
                let why = "a step of it is a library's, whose kernels run on a GPU alone";
                return Err(Fault::Unsupported(why.into()));
            }
            let program = match &launch.program {
                Some(program) => device.programs.get(program, job.dtype)?,
                None => Arc::clone(&problem.program),
            };
            problem.add(program, kernel.entry_of(&launch, job.dtype), &launch)?;
        }
        Ok(problem)
    }

    fn allocate(&mut self) -> Result<(), Fault> {
        let mut memory = self.program.memory();
        for (name, range) in self.image.names().zip(self.image.ranges()) {
            // Behind a multiple of the alignment, as in the image.
            let (lead, bytes) = (range.start % BASE_ALIGNMENT, range.len());
            let pointer =
                memory.alloc((lead + bytes) as u64, None).map_err(|error| fault(&self.program.file, error))?;
            self.buffers.push(Placed { name: name.into(), pointer, lead, bytes });
        }
        let read_only = self.buffers.iter().zip(self.image.are_read_only()).filter(|(_, is_read_only)| *is_read_only);
        for (buffer, _) in read_only {
            memory.protect(buffer.pointer).map_err(|error| fault(&self.program.file, error))?;
        }
        Ok(())
    }

    /// Writes these contents to the buffers that lie at these places of the image.
    fn put<'i>(
        &self,
        memory: &mut sim::Memory,
        contents: impl Iterator<Item = (Range<usize>, &'i Content)>,
    ) -> Result<(), Fault> {
        let places: Vec<Range<usize>> = self.image.ranges().collect();
        for (range, content) in contents {
            let found = places.iter().position(|place| *place == range).map(|at| &self.buffers[at]);
            if let Some(buffer) = found {
                let pointer = buffer.pointer.offset(buffer.lead as u64);
                memory.write(pointer, &content.whole()).map_err(|error| fault(&self.program.file, error))?;
            }
        }
        Ok(())
    }

    /// Adds a launch to the plan once it fits its entry.
    fn add(&mut self, program: Arc<Loaded>, entry: String, launch: &crate::core::launch::Launch) -> Result<(), Fault> {
        let placed = self.buffers.iter().zip(self.image.dtypes()).map(|(buffer, dtype)| Buffer {
            name: &buffer.name,
            address: buffer.pointer.offset(buffer.lead as u64).address(),
            bytes: buffer.bytes,
            dtype,
        });
        let arguments = arguments(launch, &placed.collect::<Vec<_>>(), |map| encode(&program.file, map))?;
        program.check(&entry, launch, &arguments)?;
        self.is_approximate |= program.module.is_approximate(&entry).map_err(|error| fault(&program.file, error))?;
        let mut simulated = sim::Launch::new(entry, dim(launch.grid)?, dim(launch.block)?)
            .cluster(dim([launch.cluster, 1, 1])?)
            .dynamic_shared(u32::try_from(launch.shared_bytes).unwrap_or(u32::MAX));
        for bytes in &arguments {
            simulated = simulated.arg(sim::Arg::bytes(bytes));
        }
        self.launches.push((program, simulated));
        Ok(())
    }

    /// Poisons, puts the inputs in place, runs, and reads everything back.
    fn run_once(&mut self, poison: Poison, mode: Mode) -> Result<Vec<Tensor>, Fault> {
        self.fill_and_launch(poison, mode)?;
        self.image.collect(&self.host, poison)
    }

    /// The same without a look at what memory then holds; returns what each launch counted.
    fn fill_and_launch(&mut self, poison: Poison, mode: Mode) -> Result<Vec<sim::Metrics>, Fault> {
        self.image.fill(&mut self.host, poison);
        let program = Arc::clone(&self.program);
        let mut memory = program.memory();
        let refused = |error| fault(&program.file, error);
        for buffer in &self.buffers {
            memory.poison(buffer.pointer, poison.byte()).map_err(refused)?;
        }
        self.put(&mut memory, self.image.inputs())?;
        let metrics = self.launch(&mut memory, mode)?;
        self.read_back(&memory)?;
        Ok(metrics)
    }

    /// Runs the launches on what memory holds.
    fn launch(&self, memory: &mut sim::Memory, mode: Mode) -> Result<Vec<sim::Metrics>, Fault> {
        let options = options(mode, self.seed, self.work_budget);
        let mut metrics = Vec::new();
        for (program, launch) in &self.launches {
            // A cluster does the work of all its blocks.
            let work_budget = options.work_budget.saturating_mul(u64::from(launch.cluster.x));
            let options = sim::Options { work_budget, ..options };
            let report =
                sim::launch(&program.module, launch, memory, &options).map_err(|error| fault(&program.file, error))?;
            if !report.printf.is_empty() {
                eprint!("{}", report.printf);
            }
            if !report.findings.is_empty() {
                return Err(findings(&report.findings, &self.buffers));
            }
            metrics.push(report.metrics);
        }
        Ok(metrics)
    }

    /// Copies the buffers, and the bytes before them, into the image on the host.
    fn read_back(&mut self, memory: &sim::Memory) -> Result<(), Fault> {
        for (buffer, range) in self.buffers.iter().zip(self.image.ranges()) {
            let bytes = &mut self.host[range.start - buffer.lead..range.end];
            memory.read(buffer.pointer, bytes).map_err(|error| fault(&self.program.file, error))?;
        }
        Ok(())
    }
}

/// The extents of a grid, a block or a cluster.
pub(super) fn dim(extents: [usize; 3]) -> Result<sim::Dim, Fault> {
    let [x, y, z] = extents.map(u32::try_from);
    match (x, y, z) {
        (Ok(x), Ok(y), Ok(z)) => Ok(sim::Dim::new(x, y, z)),
        _ => Err(Fault::Launch(format!("{extents:?} are more than a launch can have"))),
    }
}

/// A tensor map as simulated kernels read it.
pub(super) fn encode(file: &str, map: &Tiled) -> Result<[u8; MAP_BYTES], Fault> {
    if map.fill == Fill::Nan {
        return Err(Fault::Unsupported("tensor maps that fill with NaN are not modelled by the simulator".into()));
    }
    let tensor_map = sim::TensorMap {
        base: sim::Pointer::NULL.offset(map.address),
        element: element(map.dtype),
        extents: map.extents.clone(),
        strides_bytes: map.strides_bytes.clone(),
        box_extents: map.tile.clone(),
        swizzle: match map.swizzle {
            Swizzle::None => sim::Swizzle::None,
            Swizzle::Bytes32 => sim::Swizzle::Bytes32,
            Swizzle::Bytes64 => sim::Swizzle::Bytes64,
            Swizzle::Bytes128 => sim::Swizzle::Bytes128,
        },
        im2col: map.im2col.map(|im2col| sim::Im2col {
            lower_corner: im2col.lower_corner.map(|at| at as i8),
            upper_corner: im2col.upper_corner.map(|at| at as i8),
            stride: im2col.stride.map(|step| step as u8),
        }),
    };
    tensor_map.to_bytes().map_err(|error| fault(file, error))
}

fn element(dtype: DType) -> sim::Element {
    match dtype {
        DType::F32 => sim::Element::F32,
        DType::F16 => sim::Element::F16,
        DType::BF16 => sim::Element::Bf16,
        DType::I32 => sim::Element::S32,
        DType::I64 => sim::Element::S64,
        DType::E4M3 | DType::E5M2 | DType::U8 | DType::I8 | DType::Bool => sim::Element::U8,
    }
}

/// A seed that follows the inputs of the case, which themselves follow the seed of the run.
fn seed(job: &Job<'_>) -> u64 {
    let inputs = job.inputs.iter().flat_map(|tensor| tensor.bytes().iter().take(FINGERPRINT_BYTES));
    let text: String = inputs.copied().map(char::from).collect();
    derive(job.offset_bytes as u64, &[&text, &format!("{:?}", job.point)])
}

impl Problem for SimProblem {
    /// Under the first poison the schedule is plain, under the second it is drawn.
    fn run(&mut self, poison: Poison) -> Result<Vec<Tensor>, Fault> {
        let mode = if poison == Poison::Nan { Mode::Plain } else { Mode::Rescheduled };
        self.last = self.run_once(poison, mode)?;
        Ok(self.last.clone())
    }

    fn run_on(&mut self, inputs: &[Tensor], poison: Poison) -> Result<Vec<Tensor>, Fault> {
        self.image.replace_inputs(inputs);
        self.run(poison)
    }

    fn run_varied(&mut self) -> Result<Option<Vec<Tensor>>, Fault> {
        if !self.is_approximate {
            return Ok(None);
        }
        self.run_once(Poison::Nan, Mode::Varied).map(Some)
    }

    fn agrees_under(&mut self, poison: Poison) -> Result<bool, Fault> {
        Ok(self.run_once(poison, Mode::Rescheduled)? == self.last)
    }

    fn repeat(&mut self, times: usize) -> Result<usize, Fault> {
        let program = Arc::clone(&self.program);
        let mut memory = program.memory();
        let mut different = 0;
        for n in 0..times {
            self.put(&mut memory, self.image.changed_in_place())?;
            self.launch(&mut memory, Mode::Repeated(n))?;
            self.read_back(&memory)?;
            let outputs = self.image.outputs(&self.host);
            let same = outputs.iter().zip(&self.last).all(|(now, last)| now.bytes() == last.bytes());
            different += usize::from(!same);
        }
        Ok(different)
    }

    fn count(&mut self) -> Result<Counts, Fault> {
        let metrics = self.fill_and_launch(Poison::Nan, Mode::Counted)?;
        let mut entries: Vec<Taken> = Vec::new();
        for (program, launch) in &self.launches {
            let known = program.resources.iter().find(|resources| resources.entry == launch.entry);
            let Some(resources) = known.filter(|known| entries.iter().all(|taken| taken.resources != **known)) else {
                continue;
            };
            let (block, dynamic) = (launch.block, launch.dynamic_shared_bytes as usize);
            let threads = (block.x * block.y * block.z) as usize;
            let resident_warps = resident_warps(resources, threads, dynamic);
            entries.push(Taken { resources: resources.clone(), resident_warps });
        }
        Ok(Counts { entries, ..counted(&self.program.compiler, &metrics) })
    }

    fn arm(&mut self, _plan: &TimingPlan) -> Result<usize, Fault> {
        Err(no_time())
    }

    fn sample(&mut self, _instance: usize) -> Result<Sample, Fault> {
        Err(no_time())
    }

    fn timed_outputs_agree(&mut self) -> Result<bool, Fault> {
        Err(no_time())
    }
}

fn no_time() -> Fault {
    Fault::Unsupported("the simulator counts work and tells no time".into())
}

impl Drop for SimProblem {
    fn drop(&mut self) {
        let mut memory = self.program.memory();
        for buffer in &self.buffers {
            // Each was allocated here and is freed once: nothing can go wrong.
            let _ = memory.free(buffer.pointer);
        }
    }
}
