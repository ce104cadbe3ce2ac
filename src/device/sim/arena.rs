//! An arena in the simulator: one memory for the kernels of all programs.

use super::arch::ARCH;
use super::device::SimDevice;
use super::explain::{Placed, fault, findings};
use super::modes::{Mode, options, work_budget};
use super::problem::{dim, encode};
use super::program::Loaded;
use crate::core::candidate::Kernel;
use crate::core::dtype::DType;
use crate::device::arena::{Arena, BufferId, KernelId, Pending, Region};
use crate::device::argument::{Buffer, arguments};
use crate::device::fault::Fault;
use crate::sim;
use std::sync::Arc;

/// Buffers of a simulated device.
pub struct SimArena<'d> {
    device: &'d SimDevice,
    memory: sim::Memory,
    buffers: Vec<Placed>,
    kernels: Vec<Arc<(Kernel, DType, Arc<Loaded>)>>,
    /// What was read, by turns: launches are done when they return.
    reads: [Vec<u8>; 2],
    turn: usize,
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

    fn place(&self, buffer: BufferId, offset_bytes: usize) -> sim::Pointer {
        self.buffers[buffer.0].pointer.offset(offset_bytes as u64)
    }
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
        let pointer = self.place(to, offset_bytes);
        self.memory.write(pointer, data).map_err(|error| fault(ARENA, error))
    }

    fn download(&mut self, from: BufferId, offset_bytes: usize, data: &mut [u8]) -> Result<(), Fault> {
        self.memory.read(self.place(from, offset_bytes), data).map_err(|error| fault(ARENA, error))
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
        self.kernels.push(Arc::new((kernel.clone(), dtype, loaded)));
        Ok(KernelId(self.kernels.len() - 1))
    }

    fn launch(&mut self, kernel: KernelId, point: &[usize], regions: &[Region<'_>]) -> Result<(), Fault> {
        let ready = Arc::clone(&self.kernels[kernel.0]);
        let (kernel, dtype, program) = &*ready;
        let placed: Vec<Buffer<'_>> = regions
            .iter()
            .map(|region| Buffer {
                name: region.name,
                address: self.place(region.buffer, region.offset_bytes).address(),
                bytes: region.bytes,
                dtype: region.dtype,
            })
            .collect();
        for launch in kernel.plan(point).0.into_iter().filter(|launch| !launch.is_empty()) {
            let other = launch.program.as_ref().map(|other| self.device.programs.get(other, *dtype)).transpose()?;
            let program = other.as_ref().unwrap_or(program);
            let entry = kernel.entry_of(&launch, *dtype);
            let arguments = arguments(&launch, &placed, |map| encode(&program.file, map))?;
            program.check(&entry, &launch, &arguments)?;
            let mut simulated = sim::Launch::new(entry, dim(launch.grid)?, dim(launch.block)?)
                .cluster(dim([launch.cluster, 1, 1])?)
                .dynamic_shared(u32::try_from(launch.shared_bytes).unwrap_or(u32::MAX));
            simulated.args = arguments.iter().map(|bytes| sim::Arg::bytes(bytes)).collect();
            let budget = work_budget(point).saturating_mul(launch.cluster as u64);
            let options = options(Mode::Plain, 0, budget);
            let report = sim::launch(&program.module, &simulated, &mut self.memory, &options)
                .map_err(|error| fault(&program.file, error))?;
            if !report.findings.is_empty() {
                return Err(findings(&report.findings, &self.buffers));
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
