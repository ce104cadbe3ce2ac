//! An arena on a GPU: device memory, and launches on the device's stream.

use super::device::CudaDevice;
use super::driver::{Buffer as Memory, Context, Error, Event, Graph, Launchable, Pinned};
use super::program::Loaded;
use super::support::fault;
use super::work::encode;
use crate::core::candidate::{Kernel, Program};
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::device::arena::{Arena, BufferId, GraphId, KernelId, Pending, Region};
use crate::device::argument::Arguments;
use crate::device::fault::Fault;
use crate::device::prepared::Prepared;
use std::sync::Arc;

/// Buffers on a GPU.
pub struct CudaArena<'d> {
    device: &'d CudaDevice,
    memory: Vec<Memory>,
    kernels: Vec<LoadedKernel>,
    graphs: Vec<Graph>,
    /// What is read beside the work on the stream, by turns.
    reads: [Option<(Pinned, Event)>; 2],
    turn: usize,
}

/// A loaded kernel with its launches.
struct LoadedKernel {
    prepared: Prepared<Entry>,
    programs: Programs,
}

/// A launch of an entry.
struct Entry {
    launchable: Launchable,
    /// Keeps it valid.
    _program: Arc<Loaded>,
}

/// The programs of a kernel's launches.
struct Programs {
    dtype: DType,
    own: Arc<Loaded>,
    /// Those of launches that name another program.
    others: Vec<(Arc<Program>, Arc<Loaded>)>,
}

impl Programs {
    /// Looks the entry of a launch up and holds the launch against its signature. That holds for every launch to come: sizes of
    /// arguments, threads and shared memory stay, and what an entry was allowed of this it keeps.
    fn prepare(
        &mut self,
        device: &CudaDevice,
        kernel: &Kernel,
        launch: &Launch,
        arguments: &Arguments,
    ) -> Result<Entry, Fault> {
        let program = self.program_of(device, launch)?;
        let function = program.entry(&kernel.entry_of(launch, self.dtype), launch, &arguments.each())?;
        let launchable = device.context.prepare(&function, launch, arguments.sizes());
        Ok(Entry { launchable: launchable.map_err(|error| fault(device, error))?, _program: program })
    }

    fn program_of(&mut self, device: &CudaDevice, launch: &Launch) -> Result<Arc<Loaded>, Fault> {
        let Some(named) = &launch.program else { return Ok(Arc::clone(&self.own)) };
        if let Some((_, loaded)) = self.others.iter().find(|(other, _)| Arc::ptr_eq(other, named)) {
            return Ok(Arc::clone(loaded));
        }
        let loaded = device.programs.get(&device.context, &device.arch(), named, self.dtype)?;
        self.others.push((Arc::clone(named), Arc::clone(&loaded)));
        Ok(loaded)
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
        let programs = Programs { dtype, own: program, others: Vec::new() };
        self.kernels
            .push(LoadedKernel { prepared: Prepared::new(kernel.clone(), self.device.fingerprint.gpu()), programs });
        Ok(KernelId(self.kernels.len() - 1))
    }

    fn workspace_bytes(&mut self, kernel: KernelId, point: &[usize]) -> usize {
        self.kernels[kernel.0].prepared.workspace_bytes(point)
    }

    fn launch(&mut self, kernel: KernelId, point: &[usize], regions: &[Region<'_>]) -> Result<(), Fault> {
        let Self { device, memory, kernels, .. } = self;
        let LoadedKernel { prepared, programs } = &mut kernels[kernel.0];
        let address = |at: usize| memory[regions[at].buffer.0].address() + regions[at].offset_bytes as u64;
        let prepare =
            |kernel: &Kernel, launch: &Launch, given: &Arguments| programs.prepare(device, kernel, launch, given);
        for ready in prepared.launches(point, regions, prepare)? {
            let arguments = ready.arguments.fill(address, encode)?;
            let launched = device.context.enqueue(&mut ready.handle.launchable, arguments);
            launched.map_err(|error| fault(device, error))?;
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
        event.wait(self.device.launch_limit()).map_err(|error| fault(self.device, error))?;
        data.copy_from_slice(pinned.as_slice());
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.device.context.wait(self.device.launch_limit()).map_err(|error| fault(self.device, error))
    }
}
