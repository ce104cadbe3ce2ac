//! What a candidate enqueues for one launch: kernels that were looked up beforehand, or its own host code.

use super::device::CudaDevice;
use super::driver::Function;
use super::program::Loaded;
use super::support::{fault, host_fault};
use super::tensor_map;
use crate::core::candidate::{Body, Enqueue, EnqueueBody, Kernel, Program};
use crate::core::dtype::DType;
use crate::core::launch::{Argument, Launch, Library};
use crate::device::argument::{Buffer, MAP_BYTES, Tiled, arguments};
use crate::device::fault::Fault;
use crate::device::image::Image;
use crate::device::{Device, Job};
use crate::toolchain::code::code_of;
use std::sync::Arc;

/// The work of one launch.
pub enum Work {
    /// Kernels in stream order.
    Kernels {
        /// Ready to go but for the addresses.
        steps: Vec<Step>,
        /// What they are, as a hash.
        code: String,
    },
    /// Host code.
    Host {
        /// The code.
        body: EnqueueBody,
        /// The shape it is called with.
        point: Vec<usize>,
        /// The dtype it is called with.
        dtype: DType,
        /// How many of the image's buffers are inputs.
        inputs: usize,
    },
}

/// One step of a plan.
pub enum Step {
    /// A kernel.
    Kernel {
        /// Its entry.
        function: Function,
        /// How it is launched.
        launch: Box<Launch>,
        /// Whether it may begin before the launch ahead has ended.
        may_overlap: bool,
        /// Keeps the function valid.
        _program: Arc<Loaded>,
    },
    /// What a library enqueues, in a dtype.
    Library(Library, DType),
}

impl Work {
    /// Compiles and loads what the job needs, and holds the launches against the signatures.
    ///
    /// # Errors
    /// When the source does not compile or a launch does not fit.
    pub fn of(device: &CudaDevice, job: &Job<'_>, image: &Image) -> Result<Self, Fault> {
        match &job.candidate.body {
            Body::Cuda(kernel) => {
                let steps = steps(device, kernel, image, job)?;
                let code = code_of(kernel, job.point, job.dtype);
                Ok(Work::Kernels { steps, code })
            }
            Body::Enqueue(body) => {
                let prepared = body.prepare(job.point, job.dtype);
                prepared.map_err(|why| host_fault(device, why, Fault::Unsupported))?;
                Ok(Work::Host {
                    body: body.clone(),
                    point: job.point.to_vec(),
                    dtype: job.dtype,
                    inputs: job.inputs.len(),
                })
            }
            Body::Cpu(_) => Err(Fault::Unsupported("a host function does not run on a GPU".into())),
        }
    }

    /// Whether some of the work could end up on another stream than the device's.
    pub fn may_escape(&self) -> bool {
        match self {
            Work::Kernels { steps, .. } => steps.iter().any(|step| matches!(step, Step::Library(..))),
            Work::Host { .. } => true,
        }
    }

    /// A hash of the kernels and their launches; host code may enqueue anything.
    pub fn code(&self) -> Option<String> {
        match self {
            Work::Kernels { code, .. } if !self.may_escape() => Some(code.clone()),
            _ => None,
        }
    }

    /// Whether the first launch of a run may begin before the run ahead has ended. Else it waits for all before it: runs of a
    /// batch that overlap share a time that each of them takes alone.
    pub fn chain(&mut self, chained: bool) {
        if let Work::Kernels { steps, .. } = self
            && let Some(Step::Kernel { launch, may_overlap, .. }) = steps.first_mut()
        {
            launch.dependent = chained && *may_overlap;
        }
    }

    /// Enqueues the work on the image at address `base`, with what a chain passes on where it is in that at `passed`.
    ///
    /// # Errors
    /// What the driver or the library said.
    pub fn enqueue(&self, device: &CudaDevice, image: &Image, base: u64, passed: u64) -> Result<(), Fault> {
        match self {
            Work::Kernels { steps, .. } => {
                let buffers = buffers(image, base, passed);
                steps.iter().try_for_each(|step| match step {
                    Step::Kernel { function, launch, .. } => {
                        let arguments = arguments(launch, &buffers, encode)?;
                        device.context.launch(function, launch, &arguments).map_err(|e| fault(device, e))
                    }
                    Step::Library(library, dtype) => {
                        let at = |(name, offset): &(String, usize)| {
                            let found = buffers.iter().find(|buffer| buffer.name == name);
                            found.map_or(0, |buffer| buffer.address + *offset as u64)
                        };
                        let call = Enqueue {
                            stream: device.context.stream_handle(),
                            inputs: library.inputs.iter().map(at).collect(),
                            outputs: library.outputs.iter().map(at).collect(),
                            workspace: library.workspace.as_ref().map_or(0, at),
                            dtype: *dtype,
                        };
                        let called = library.body.call(&library.point, &call);
                        called.map_err(|why| host_fault(device, why, Fault::Launch))
                    }
                })
            }
            Work::Host { body, point, dtype, inputs } => {
                let mut inputs_at: Vec<u64> = image.addresses(base, passed).collect();
                let mut outputs = inputs_at.split_off(*inputs);
                let workspace = image.workspace_range().and_then(|_| outputs.pop()).unwrap_or(0);
                let stream = device.context.stream_handle();
                let call = Enqueue { stream, inputs: inputs_at, outputs, workspace, dtype: *dtype };
                body.call(point, &call).map_err(|why| host_fault(device, why, Fault::Launch))
            }
        }
    }
}

/// All buffers, in argument order, when the image lies at `base`, as [`Image::addresses`] has it.
fn buffers(image: &Image, base: u64, passed: u64) -> Vec<Buffer<'_>> {
    let named = image.names().zip(image.dtypes());
    let places = named.zip(image.addresses(base, passed).zip(image.ranges()));
    places.map(|((name, dtype), (address, range))| Buffer { name, address, bytes: range.len(), dtype }).collect()
}

/// A tensor map as the driver encodes it.
pub(super) fn encode(map: &Tiled) -> Result<[u8; MAP_BYTES], Fault> {
    tensor_map::encode(map)
        .map_err(|error| Fault::Launch(format!("the driver refuses the tensor map {map:?}: {error}")))
}

/// Looks up the entries of a plan; launches without blocks are left out.
fn steps(device: &CudaDevice, kernel: &Kernel, image: &Image, job: &Job<'_>) -> Result<Vec<Step>, Fault> {
    let buffers = buffers(image, 0, 0);
    // The candidate's own is compiled even where a case launches nothing.
    load(device, &kernel.program, job.dtype)?;
    let launches = kernel.plan(job.point).0.into_iter().filter(|launch| !launch.is_empty());
    launches
        .enumerate()
        .map(|(at, launch)| {
            if let Some(library) = launch.by_library {
                let prepared = library.body.prepare(&library.point, job.dtype);
                prepared.map_err(|why| host_fault(device, why, Fault::Unsupported))?;
                return Ok(Step::Library(library, job.dtype));
            }
            if launch.cluster > 1 && !device.has_clusters() {
                let arch = &device.fingerprint().arch;
                return Err(Fault::Unsupported(format!("clusters need compute capability 9.0, not {arch}")));
            }
            if launch.arguments.iter().any(|argument| matches!(argument, Argument::Map(_))) {
                tensor_map::available(device.has_clusters()).map_err(Fault::Unsupported)?;
            }
            let entry = kernel.entry_of(&launch, job.dtype);
            // Only the sizes count here: the image has no place in memory yet.
            let sized = arguments(&launch, &buffers, |_| Ok([0; MAP_BYTES]))?;
            let program = load(device, launch.program.as_deref().unwrap_or(&kernel.program), job.dtype)?;
            let function = program.entry(&entry, &launch, &sized)?;
            let may_overlap = launch.dependent;
            // Within a run launches overlap as they will in use.
            let launch = Box::new(Launch { dependent: launch.dependent && at > 0, ..launch });
            Ok(Step::Kernel { function, launch, may_overlap, _program: program })
        })
        .collect()
}

/// Compiles and loads a program, if it is for this GPU.
fn load(device: &CudaDevice, program: &Program, dtype: DType) -> Result<Arc<Loaded>, Fault> {
    if !program.runs_on(&device.arch()) {
        let needs = program.needs.as_deref().unwrap_or_default();
        return Err(Fault::Unsupported(format!("the kernel needs {needs}, this GPU is {}", device.arch())));
    }
    device.programs.get(&device.context, &device.arch(), program, dtype)
}
