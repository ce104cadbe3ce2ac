//! An arena on a GPU: device memory, and launches on the device's stream.

use super::device::CudaDevice;
use super::driver::{Buffer as Memory, Context, Error, Event, Function, Graph, Pinned};
use super::program::Loaded;
use super::support::{LIMIT, fault};
use super::work::encode;
use crate::core::candidate::{Kernel, Program};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::device::arena::{Arena, BufferId, GraphId, KernelId, Pending, Region};
use crate::device::argument::{Buffer, arguments};
use crate::device::fault::Fault;
use std::collections::HashMap;
use std::sync::Arc;

/// Buffers on a GPU.
pub struct CudaArena<'d> {
    device: &'d CudaDevice,
    memory: Vec<Memory>,
    kernels: Vec<Ready>,
    graphs: Vec<Graph>,
    /// What is read beside the work on the stream, by turns.
    reads: [Option<(Pinned, Event)>; 2],
    turn: usize,
}

/// A loaded kernel with the entries that it was launched by.
struct Ready {
    kernel: Kernel,
    dtype: DType,
    program: Arc<Loaded>,
    /// Those of launches that name another program.
    others: Vec<(Arc<Program>, Arc<Loaded>)>,
    /// By program (the own one, then the others) and name, with the shared memory that each was allowed.
    functions: HashMap<(usize, String), (Function, usize)>,
}

impl Ready {
    /// Looks an entry up at its first launch, and again when it needs more shared memory.
    fn function(&mut self, device: &CudaDevice, launch: &Launch, arguments: &[Vec<u8>]) -> Result<Function, Fault> {
        let (at, program) = self.program_of(device, launch)?;
        let entry = self.kernel.entry_of(launch, self.dtype);
        let key = (at, entry);
        if let Some((function, allowed)) = self.functions.get(&key)
            && *allowed >= launch.shared_bytes
        {
            return Ok(function.clone());
        }
        let function = program.entry(&key.1, launch, arguments)?;
        self.functions.insert(key, (function.clone(), launch.shared_bytes));
        Ok(function)
    }

    /// The program of a launch, and its number.
    fn program_of(&mut self, device: &CudaDevice, launch: &Launch) -> Result<(usize, Arc<Loaded>), Fault> {
        let Some(named) = &launch.program else { return Ok((0, Arc::clone(&self.program))) };
        if let Some(at) = self.others.iter().position(|(other, _)| Arc::ptr_eq(other, named)) {
            return Ok((at + 1, Arc::clone(&self.others[at].1)));
        }
        let loaded = device.programs.get(&device.context, &device.arch(), named, self.dtype)?;
        self.others.push((Arc::clone(named), Arc::clone(&loaded)));
        Ok((self.others.len(), loaded))
    }
}

impl<'d> CudaArena<'d> {
    /// An arena without buffers.
    ///
    /// # Errors
    /// When the GPU cannot be used on this thread.
    pub fn new(device: &'d CudaDevice) -> Result<Self, Fault> {
        device.context.bind().map_err(|error| fault(device, error))?;
        let reads = Default::default();
        Ok(CudaArena { device, memory: Vec::new(), kernels: Vec::new(), graphs: Vec::new(), reads, turn: 0 })
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
        self.kernels.push(Ready {
            kernel: kernel.clone(),
            dtype,
            program,
            others: Vec::new(),
            functions: HashMap::new(),
        });
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
            let function = ready.function(self.device, &launch, &arguments)?;
            let launched = self.device.context.launch(&function, &launch, &arguments);
            launched.map_err(|error| fault(self.device, error))?;
        }
        Ok(())
    }

    fn begin_record(&mut self) -> Result<bool, Fault> {
        self.device.context.begin_record().map_err(|error| fault(self.device, error))?;
        Ok(true)
    }

    fn end_record(&mut self) -> Result<GraphId, Fault> {
        let graph = self.device.context.end_record().map_err(|error| fault(self.device, error))?;
        self.graphs.push(graph);
        Ok(GraphId(self.graphs.len() - 1))
    }

    fn replay(&mut self, graph: GraphId) -> Result<(), Fault> {
        self.device.context.replay(&self.graphs[graph.0]).map_err(|error| fault(self.device, error))
    }

    fn set(&mut self, to: BufferId, offset_bytes: usize, value: i32, count: usize) -> Result<(), Fault> {
        self.memory[to.0].set(offset_bytes, value, count).map_err(|error| fault(self.device, error))
    }

    fn begin_read(&mut self, from: BufferId, offset_bytes: usize, bytes: usize) -> Result<Pending, Fault> {
        self.turn ^= 1;
        let read = |(context, held): (&Context, Option<(Pinned, Event)>)| -> Result<(Pinned, Event), Error> {
            let (mut pinned, event) = match held.filter(|(pinned, _)| pinned.bytes() == bytes) {
                Some(held) => held,
                None => (context.pinned(bytes)?, context.event()?),
            };
            self.memory[from.0].begin_download(offset_bytes, &mut pinned)?;
            event.record()?;
            Ok((pinned, event))
        };
        let begun = read((&self.device.context, self.reads[self.turn].take()));
        self.reads[self.turn] = Some(begun.map_err(|error| fault(self.device, error))?);
        Ok(Pending(self.turn))
    }

    fn end_read(&mut self, read: Pending, data: &mut [u8]) -> Result<(), Fault> {
        let Some((pinned, event)) = &self.reads[read.0] else { unreachable!("a read is begun before it is ended") };
        event.wait(LIMIT).map_err(|error| fault(self.device, error))?;
        data.copy_from_slice(pinned.as_slice());
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.device.context.wait(LIMIT).map_err(|error| fault(self.device, error))
    }
}
