//! An arena on a GPU: device memory, and launches on the device's stream.

use super::device::CudaDevice;
use super::driver::{Buffer as Memory, Function};
use super::program::Loaded;
use super::support::{LIMIT, fault};
use super::work::encode;
use crate::core::candidate::Kernel;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::device::arena::{Arena, BufferId, KernelId, Region};
use crate::device::argument::{Buffer, arguments};
use crate::device::fault::Fault;
use std::collections::HashMap;
use std::sync::Arc;

/// Buffers on a GPU.
pub struct CudaArena<'d> {
    device: &'d CudaDevice,
    memory: Vec<Memory>,
    kernels: Vec<Ready>,
}

/// A loaded kernel with the entries that it was launched by.
struct Ready {
    kernel: Kernel,
    dtype: DType,
    program: Arc<Loaded>,
    /// By name, with the shared memory that each was allowed.
    functions: HashMap<String, (Function, usize)>,
}

impl Ready {
    /// Looks an entry up at its first launch, and again when it needs more shared memory.
    fn function(&mut self, launch: &Launch, arguments: &[Vec<u8>]) -> Result<Function, Fault> {
        let entry = self.kernel.entry_of(launch, self.dtype);
        if let Some((function, allowed)) = self.functions.get(&entry)
            && *allowed >= launch.shared_bytes
        {
            return Ok(*function);
        }
        let function = self.program.entry(&entry, launch, arguments)?;
        self.functions.insert(entry, (function, launch.shared_bytes));
        Ok(function)
    }
}

impl<'d> CudaArena<'d> {
    /// An arena without buffers.
    ///
    /// # Errors
    /// When the GPU cannot be used on this thread.
    pub fn new(device: &'d CudaDevice) -> Result<Self, Fault> {
        device.context.bind().map_err(|error| fault(device, error))?;
        Ok(CudaArena { device, memory: Vec::new(), kernels: Vec::new() })
    }
}

impl Arena for CudaArena<'_> {
    fn arch(&self) -> String {
        self.device.arch()
    }

    fn allocate(&mut self, bytes: usize) -> Result<BufferId, Fault> {
        let held: usize = self.memory.iter().map(Memory::bytes).sum();
        let memory = self.device.context.allocate(bytes).map_err(|error| {
            Fault::Unsupported(format!(
                "{bytes} bytes of device memory cannot be had beside the {held} that are in use: {error}"
            ))
        })?;
        self.memory.push(memory);
        Ok(BufferId(self.memory.len() - 1))
    }

    fn upload(&mut self, to: BufferId, offset_bytes: usize, data: &[u8]) -> Result<(), Fault> {
        self.memory[to.0].upload(offset_bytes, data).map_err(|error| fault(self.device, error))
    }

    fn download(&mut self, from: BufferId, offset_bytes: usize, data: &mut [u8]) -> Result<(), Fault> {
        self.finish()?;
        self.memory[from.0].download(offset_bytes, data).map_err(|error| fault(self.device, error))
    }

    fn load(&mut self, kernel: &Kernel, dtype: DType) -> Result<KernelId, Fault> {
        let program = self.device.programs.get(&self.device.context, &self.arch(), &kernel.program, dtype)?;
        self.kernels.push(Ready { kernel: kernel.clone(), dtype, program, functions: HashMap::new() });
        Ok(KernelId(self.kernels.len() - 1))
    }

    fn launch(&mut self, kernel: KernelId, point: &[usize], regions: &[Region<'_>]) -> Result<(), Fault> {
        let buffers: Vec<Buffer<'_>> = regions
            .iter()
            .map(|region| Buffer {
                name: region.name,
                address: self.memory[region.buffer.0].address() + region.offset_bytes as u64,
                bytes: region.bytes,
                dtype: region.dtype,
            })
            .collect();
        let ready = &mut self.kernels[kernel.0];
        for launch in ready.kernel.plan(point).0.into_iter().filter(|launch| !launch.is_empty()) {
            let arguments = arguments(&launch, &buffers, encode)?;
            let function = ready.function(&launch, &arguments)?;
            let launched = self.device.context.launch(&function, &launch, &arguments);
            launched.map_err(|error| fault(self.device, error))?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.device.context.wait(LIMIT).map_err(|error| fault(self.device, error))
    }
}
