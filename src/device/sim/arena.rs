//! An arena in the simulator: one memory for the kernels of all programs.

use super::device::SimDevice;
use super::explain::{Placed, fault, findings};
use super::modes::{Mode, options, work_budget};
use super::problem::{dim, encode};
use super::program::Loaded;
use crate::core::candidate::Kernel;
use crate::core::dtype::DType;
use crate::core::launch::Launch;
use crate::device::arena::{Arena, BufferId, KernelId, Pending, Region};
use crate::device::argument::Arguments;
use crate::device::fault::Fault;
use crate::device::prepared::{Prepared, Ready};
use crate::sim;
use crate::toolchain::committed::ARCH;
use std::sync::Arc;

/// Buffers of a simulated device.
pub struct SimArena<'d> {
    device: &'d SimDevice,
    memory: sim::Memory,
    buffers: Vec<Placed>,
    kernels: Vec<(Prepared<Simulated>, DType, Arc<Loaded>)>,
    /// What was read, by turns: launches are done when they return.
    reads: [Vec<u8>; 2],
    turn: usize,
}

/// A launch but for its arguments, and the program of its entry.
struct Simulated {
    program: Arc<Loaded>,
    launch: sim::Launch,
}

impl Simulated {
    fn of(program: Arc<Loaded>, entry: String, launch: &Launch, arguments: &Arguments) -> Result<Self, Fault> {
        program.check(&entry, launch, &arguments.each())?;
        let launch = sim::Launch::new(entry, dim(launch.grid)?, dim(launch.block)?)
            .cluster(dim([launch.cluster, 1, 1])?)
            .dynamic_shared(u32::try_from(launch.shared_bytes).unwrap_or(u32::MAX));
        Ok(Simulated { program, launch })
    }
}

impl<'d> SimArena<'d> {
    /// An arena without buffers.
    pub fn new(device: &'d SimDevice) -> Self {
        SimArena {
            device,
            memory: sim::Memory::new(),
            buffers: Vec::new(),
            kernels: Vec::new(),
            reads: Default::default(),
            turn: 0,
        }
    }
}

fn place(buffers: &[Placed], buffer: BufferId, offset_bytes: usize) -> sim::Pointer {
    buffers[buffer.0].pointer.offset(offset_bytes as u64)
}

/// Whom a fault that no kernel made is put down to.
const ARENA: &str = "the arena";

impl Arena for SimArena<'_> {
    fn arch(&self) -> String {
        ARCH.into()
    }

    fn allocate(&mut self, bytes: usize) -> Result<BufferId, Fault> {
        let pointer = self.memory.alloc(bytes as u64, None).map_err(|error| fault(ARENA, error))?;
        let name = format!("buffer {}", self.buffers.len());
        self.buffers.push(Placed { name, pointer, lead: 0, bytes });
        Ok(BufferId(self.buffers.len() - 1))
    }

    fn upload(&mut self, to: BufferId, offset_bytes: usize, data: &[u8]) -> Result<(), Fault> {
        let pointer = place(&self.buffers, to, offset_bytes);
        self.memory.write(pointer, data).map_err(|error| fault(ARENA, error))
    }

    fn download(&mut self, from: BufferId, offset_bytes: usize, data: &mut [u8]) -> Result<(), Fault> {
        self.memory.read(place(&self.buffers, from, offset_bytes), data).map_err(|error| fault(ARENA, error))
    }

    fn begin_read(&mut self, from: BufferId, offset_bytes: usize, bytes: usize) -> Result<Pending, Fault> {
        self.turn ^= 1;
        let mut data = vec![0; bytes];
        self.download(from, offset_bytes, &mut data)?;
        self.reads[self.turn] = data;
        Ok(Pending(self.turn))
    }

    fn end_read(&mut self, read: Pending, data: &mut [u8]) -> Result<(), Fault> {
        data.copy_from_slice(&self.reads[read.0]);
        Ok(())
    }

    fn load(&mut self, kernel: &Kernel, dtype: DType) -> Result<KernelId, Fault> {
        let loaded = self.device.programs.get(&kernel.program, dtype)?;
        self.kernels.push((Prepared::new(kernel.clone(), self.device.gpu), dtype, loaded));
        Ok(KernelId(self.kernels.len() - 1))
    }

    fn workspace_bytes(&mut self, kernel: KernelId, point: &[usize]) -> usize {
        self.kernels[kernel.0].0.workspace_bytes(point)
    }

    fn launch(&mut self, kernel: KernelId, point: &[usize], regions: &[Region<'_>]) -> Result<(), Fault> {
        let Self { device, memory, buffers, kernels, .. } = self;
        let (prepared, dtype, own) = &mut kernels[kernel.0];
        let prepare = |kernel: &Kernel, launch: &Launch, arguments: &Arguments| {
            let other = launch.program.as_ref().map(|other| device.programs.get(other, *dtype)).transpose()?;
            let program = other.unwrap_or_else(|| Arc::clone(own));
            Simulated::of(program, kernel.entry_of(launch, *dtype), launch, arguments)
        };
        let address = |at: usize| place(buffers, regions[at].buffer, regions[at].offset_bytes).address();
        for Ready { handle: Simulated { program, launch }, arguments } in prepared.launches(point, regions, prepare)? {
            arguments.fill(address, |map| encode(&program.file, map))?;
            launch.args = arguments.each().iter().map(|bytes| sim::Arg::bytes(bytes)).collect();
            let budget = work_budget(point).saturating_mul(u64::from(launch.cluster.x));
            let options = options(Mode::Plain, 0, budget);
            let report =
                sim::launch(&program.module, launch, memory, &options).map_err(|error| fault(&program.file, error))?;
            if !report.findings.is_empty() {
                return Err(findings(&report.findings, buffers));
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_set_in_as_many_elements_as_were_asked_for() {
        let device = SimDevice::new(None);
        let mut arena = SimArena::new(&device);
        let buffer = arena.allocate(24).unwrap();
        arena.upload(buffer, 0, &[0; 24]).unwrap();
        arena.set(buffer, 4, -7, 3).unwrap();
        arena.set(buffer, 20, 5, 0).unwrap();
        let mut held = [0i32; 6];
        arena.download(buffer, 0, bytemuck::cast_slice_mut(&mut held)).unwrap();
        assert_eq!(held, [0, -7, -7, -7, 0, 0]);
        assert!(arena.set(buffer, 20, 5, 2).is_err());
    }
}
