//! Memory that outlives a launch: buffers that one kernel leaves to the next, on a GPU or in the simulator. A model runs
//! in one; nothing is poisoned and nothing compared here, that is the business of the gate.

use super::fault::Fault;
use crate::core::candidate::Kernel;
use crate::core::dtype::DType;

/// A buffer of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(pub usize);

/// A kernel that an arena has ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelId(pub usize);

/// A part of a buffer, under the name that the operator has for it.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// The name of the operator's port, or `workspace`.
    pub name: &'a str,
    /// The buffer.
    pub buffer: BufferId,
    /// Where the part begins.
    pub offset_bytes: usize,
    /// How long it is.
    pub bytes: usize,
    /// The type of its elements.
    pub dtype: DType,
}

/// Launches that were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphId(pub usize);

/// What will be read of a buffer once everything enqueued before is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pending(pub usize);

/// Buffers and kernels of one device.
pub trait Arena {
    /// The architecture that kernels are compiled for.
    fn arch(&self) -> String;

    /// A new buffer.
    ///
    /// # Errors
    /// When there is no memory left, with how much was asked for.
    fn allocate(&mut self, bytes: usize) -> Result<BufferId, Fault>;

    /// Writes to a buffer, in order with launches.
    ///
    /// # Errors
    /// What the device said.
    fn upload(&mut self, to: BufferId, offset_bytes: usize, data: &[u8]) -> Result<(), Fault>;

    /// Reads a buffer once everything before is done.
    ///
    /// # Errors
    /// What the device said, or what an earlier launch did wrong.
    fn download(&mut self, from: BufferId, offset_bytes: usize, data: &mut [u8]) -> Result<(), Fault>;

    /// Compiles and loads a kernel.
    ///
    /// # Errors
    /// When it does not compile, or is not for this device.
    fn load(&mut self, kernel: &Kernel, dtype: DType) -> Result<KernelId, Fault>;

    /// Scratch bytes that a kernel asks for at a point.
    fn workspace_bytes(&mut self, kernel: KernelId, point: &[usize]) -> usize;

    /// Enqueues a kernel at a point on these regions: inputs, outputs and workspace, in argument order.
    ///
    /// # Errors
    /// When the launch does not fit the kernel, or the device refuses it.
    fn launch(&mut self, kernel: KernelId, point: &[usize], regions: &[Region<'_>]) -> Result<(), Fault>;

    /// Records the launches up to [`Arena::end_record`] in place of enqueueing them; whether the device can.
    ///
    /// # Errors
    /// What the device said.
    fn begin_record(&mut self) -> Result<bool, Fault> {
        Ok(false)
    }

    /// What was recorded, to be [replayed](Arena::replay).
    ///
    /// # Errors
    /// What the device said, of a launch as well.
    fn end_record(&mut self) -> Result<GraphId, Fault> {
        Err(Fault::Unsupported("this device records no launches".into()))
    }

    /// Enqueues what was recorded.
    ///
    /// # Errors
    /// What the device said.
    fn replay(&mut self, _graph: GraphId) -> Result<(), Fault> {
        Err(Fault::Unsupported("this device records no launches".into()))
    }

    /// Enqueues the writing of one number to `count` elements of four bytes each: nothing waits for it.
    ///
    /// # Errors
    /// What the device said.
    fn set(&mut self, to: BufferId, offset_bytes: usize, value: i32, count: usize) -> Result<(), Fault> {
        self.upload(to, offset_bytes, &value.to_le_bytes().repeat(count))
    }

    /// Enqueues the reading of a buffer. Of these, two may be under way at a time.
    ///
    /// # Errors
    /// What the device said.
    fn begin_read(&mut self, from: BufferId, offset_bytes: usize, bytes: usize) -> Result<Pending, Fault>;

    /// Waits for what was to be read, and for nothing that was enqueued behind it.
    ///
    /// # Errors
    /// What the device said, or what an earlier launch did wrong.
    fn end_read(&mut self, read: Pending, data: &mut [u8]) -> Result<(), Fault>;

    /// Waits for everything that was enqueued.
    ///
    /// # Errors
    /// What a launch did wrong.
    fn finish(&mut self) -> Result<(), Fault>;
}
