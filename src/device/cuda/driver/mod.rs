//! Owning types over the driver API: context, memory, modules, launches, events, graphs. Each frees what it owns.
#![expect(unsafe_code, reason = "the C interface of the CUDA driver")]

mod launch;
mod module;
mod persisting;
mod pinned;

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use launch::Launchable;
pub use module::{Function, Module};
pub use persisting::forget_persisting;
pub use pinned::Pinned;

/// What a driver call answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub CUresult);

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Error(error.0)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // cudarc's own Display asks the driver, which panics where there is none.
        write!(f, "{:?}", self.0)
    }
}

impl Error {
    /// Whether the context is unusable from now on.
    pub fn is_sticky(self) -> bool {
        use CUresult as R;
        matches!(
            self.0,
            R::CUDA_ERROR_ILLEGAL_ADDRESS
                | R::CUDA_ERROR_MISALIGNED_ADDRESS
                | R::CUDA_ERROR_INVALID_ADDRESS_SPACE
                | R::CUDA_ERROR_INVALID_PC
                | R::CUDA_ERROR_ILLEGAL_INSTRUCTION
                | R::CUDA_ERROR_HARDWARE_STACK_ERROR
                | R::CUDA_ERROR_LAUNCH_FAILED
                | R::CUDA_ERROR_LAUNCH_TIMEOUT
                | R::CUDA_ERROR_ASSERT
                | R::CUDA_ERROR_ECC_UNCORRECTABLE
                | R::CUDA_ERROR_CONTEXT_IS_DESTROYED
                | R::CUDA_ERROR_UNKNOWN
        )
    }
}

pub(super) type Result<T> = std::result::Result<T, Error>;

pub(super) fn check(result: CUresult) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(Error(result)) }
}

/// Whether the driver library is there at all.
pub fn is_present() -> bool {
    // SAFETY: only tries to open the library.
    unsafe { sys::is_culib_present() }
}

/// Whether the driver has a function of that name: newer ones are missing from older drivers.
pub(super) fn has(symbol: &str) -> bool {
    // SAFETY: the library is present (a context exists); the symbol is looked up, not called.
    unsafe { sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()) }.is_ok()
}

/// The CUDA version that the driver supports: 13000 for 13.0.
pub fn driver_version() -> Result<i32> {
    let mut version = 0;
    // SAFETY: the pointer is valid for the call.
    check(unsafe { sys::cuDriverGetVersion(&mut version) })?;
    Ok(version)
}

/// The number of GPUs.
pub fn device_count() -> Result<usize> {
    result::init()?;
    Ok(result::device::get_count()? as usize)
}

/// The compute capability of a GPU, which stays unopened.
pub fn capability(ordinal: usize) -> Result<(i32, i32)> {
    result::init()?;
    let device = result::device::get(ordinal as i32)?;
    // SAFETY: the device is the driver's own.
    let attribute = |which| unsafe { result::device::get_attribute(device, which) };
    let major = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    Ok((major, attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
}

/// A primary context with one non-blocking stream: work that a candidate puts on another stream is not waited for.
#[derive(Clone)]
pub struct Context {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    abandoned: Arc<AtomicBool>,
}

impl Context {
    /// Opens GPU `ordinal`.
    pub fn open(ordinal: usize) -> Result<Self> {
        let context = CudaContext::new(ordinal)?;
        // SAFETY: no CudaSlice is ever made here, so nothing relies on its events.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream()?;
        Ok(Context { context, stream, abandoned: Arc::default() })
    }

    /// The same context with a stream of its own: for load beside the work that is judged.
    pub fn beside(&self) -> Result<Self> {
        Ok(Context { stream: self.context.new_stream()?, ..self.clone() })
    }

    /// Gives the context up: nothing is freed from now on, since freeing waits for a kernel that may never end.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        std::mem::forget((Arc::clone(&self.context), Arc::clone(&self.stream)));
    }

    /// Whether the context was given up.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Whether an owned thing is to be freed now; the context is then current.
    fn frees(&self) -> bool {
        !self.is_abandoned() && self.bind().is_ok()
    }

    /// Makes the context current on this thread: trials run on threads of the harness.
    pub fn bind(&self) -> Result<()> {
        Ok(self.context.bind_to_thread()?)
    }

    /// The vendor's name.
    pub fn name(&self) -> Result<String> {
        Ok(self.context.name()?)
    }

    /// Memory in bytes.
    pub fn memory_bytes(&self) -> Result<usize> {
        Ok(self.context.total_mem()?)
    }

    /// An attribute, 0 if the driver does not know it.
    pub fn attribute(&self, attribute: sys::CUdevice_attribute) -> i32 {
        self.context.attribute(attribute).unwrap_or(0)
    }

    /// Allocates.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer> {
        // SAFETY: freed once, on drop.
        let pointer = unsafe { result::malloc_sync(bytes.max(1)) }?;
        Ok(Buffer { pointer, bytes, context: self.clone() })
    }

    /// Waits until all work is done, or gives up after `limit`.
    ///
    /// # Errors
    /// What the work did wrong; `CUDA_ERROR_LAUNCH_TIMEOUT` when it did not end.
    pub fn wait(&self, limit: Duration) -> Result<()> {
        // SAFETY: the stream is alive.
        poll(limit, || unsafe { sys::cuStreamQuery(self.stream.cu_stream()) })
    }

    /// Loads machine code or PTX; PTX is compiled by the driver.
    pub fn load(&self, code: &[u8]) -> Result<Module> {
        // PTX must end in NUL; a cubin is not hurt by one.
        let mut image = code.to_vec();
        image.push(0);
        // SAFETY: the image outlives the call, which copies what it needs.
        let module = unsafe { result::module::load_data(image.as_ptr().cast()) }?;
        Ok(Module { module, context: self.clone() })
    }

    /// The stream's handle, for host code that enqueues work itself.
    pub fn stream_handle(&self) -> u64 {
        self.stream.cu_stream() as u64
    }

    /// Waits for all streams of the context.
    pub fn wait_for_all(&self) -> Result<()> {
        Ok(self.context.synchronize()?)
    }

    /// Records what `work` enqueues into a graph instead of running it; `wrap` turns a driver error into one of `work`.
    pub fn record<E>(
        &self,
        work: impl FnOnce() -> std::result::Result<(), E>,
        wrap: impl Fn(Error) -> E,
    ) -> std::result::Result<Graph, E> {
        self.begin_record().map_err(&wrap)?;
        let done = work();
        let graph = self.end_record();
        done?;
        graph.map_err(wrap)
    }

    /// Records what is enqueued from now on.
    pub fn begin_record(&self) -> Result<()> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive and not being captured.
        Ok(unsafe { result::stream::begin_capture(self.stream.cu_stream(), mode) }?)
    }

    /// What was recorded since [`Context::begin_record`].
    pub fn end_record(&self) -> Result<Graph> {
        // SAFETY: the stream is alive; where nothing was begun the driver says so.
        let graph = unsafe { result::stream::end_capture(self.stream.cu_stream()) }?;
        self.instantiate(graph)
    }

    /// Makes a recorded graph executable and brings it to the GPU.
    fn instantiate(&self, graph: sys::CUgraph) -> Result<Graph> {
        let mut executable = std::ptr::null_mut();
        // SAFETY: the graph is alive; it is destroyed once the executable is made.
        let made = check(unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0) });
        // SAFETY: destroyed once.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
        made?;
        let graph = Graph { executable, context: self.clone() };
        // SAFETY: both are alive.
        check(unsafe { sys::cuGraphUpload(graph.executable, self.stream.cu_stream()) })?;
        Ok(graph)
    }

    /// Enqueues a graph.
    pub fn replay(&self, graph: &Graph) -> Result<()> {
        // SAFETY: both are alive.
        check(unsafe { sys::cuGraphLaunch(graph.executable, self.stream.cu_stream()) })
    }

    /// A pair of events to time with.
    pub fn event(&self) -> Result<Event> {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?;
        Ok(Event { event, context: self.clone() })
    }
}

/// Asks until the answer is there.
fn poll(limit: Duration, mut query: impl FnMut() -> CUresult) -> Result<()> {
    let begun = Instant::now();
    loop {
        match query() {
            CUresult::CUDA_ERROR_NOT_READY if begun.elapsed() > limit => {
                return Err(Error(CUresult::CUDA_ERROR_LAUNCH_TIMEOUT));
            }
            // Short work is polled for, long work is slept on.
            CUresult::CUDA_ERROR_NOT_READY if begun.elapsed() > Duration::from_millis(2) => {
                std::thread::sleep(Duration::from_micros(100));
            }
            CUresult::CUDA_ERROR_NOT_READY => std::hint::spin_loop(),
            other => return check(other),
        }
    }
}

/// Device memory.
pub struct Buffer {
    pointer: sys::CUdeviceptr,
    bytes: usize,
    context: Context,
}

impl Buffer {
    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.pointer
    }

    /// Copies from the host to `offset`, in stream order, and returns when `data` may be reused.
    pub fn upload(&self, offset: usize, data: &[u8]) -> Result<()> {
        assert!(offset + data.len() <= self.bytes, "an upload inside the buffer");
        if data.is_empty() {
            return Ok(());
        }
        let to = self.pointer + offset as u64;
        // SAFETY: the range was checked; pageable memory has been read when the call returns.
        Ok(unsafe { result::memcpy_htod_async(to, data, self.context.stream.cu_stream()) }?)
    }

    /// Copies to the host from `offset`, after all work on the stream.
    pub fn download(&self, offset: usize, data: &mut [u8]) -> Result<()> {
        self.download_beside(&self.context, offset, data)
    }

    /// The same on the stream of `context`, whatever goes on on the buffer's own.
    pub fn download_beside(&self, context: &Context, offset: usize, data: &mut [u8]) -> Result<()> {
        assert!(offset + data.len() <= self.bytes, "a download inside the buffer");
        if data.is_empty() {
            return Ok(());
        }
        let from = self.pointer + offset as u64;
        let stream = context.stream.cu_stream();
        // SAFETY: the range was checked; the stream is waited for before `data` is used.
        unsafe { result::memcpy_dtoh_async(data, from, stream) }?;
        // SAFETY: the stream is alive.
        Ok(unsafe { result::stream::synchronize(stream) }?)
    }

    /// Fills a range with one byte, in stream order.
    pub fn fill(&self, offset: usize, bytes: usize, value: u8) -> Result<()> {
        assert!(offset + bytes <= self.bytes, "a fill inside the buffer");
        let to = self.pointer + offset as u64;
        // SAFETY: the range was checked.
        Ok(unsafe { result::memset_d8_async(to, value, bytes, self.context.stream.cu_stream()) }?)
    }

    /// Writes one number to `count` elements of four bytes each, in stream order.
    pub fn set(&self, offset: usize, value: i32, count: usize) -> Result<()> {
        assert!(offset + 4 * count <= self.bytes && offset.is_multiple_of(4), "numbers inside the buffer");
        // SAFETY: the range was checked; the stream is alive.
        let done = unsafe {
            sys::cuMemsetD32Async(
                self.pointer + offset as u64,
                value.cast_unsigned(),
                count,
                self.context.stream.cu_stream(),
            )
        };
        check(done)
    }

    /// Copies `bytes` from `from` in another buffer to `to` in this one, in stream order.
    pub fn copy_from(&self, to: usize, other: &Buffer, from: usize, bytes: usize) -> Result<()> {
        assert!(to + bytes <= self.bytes && from + bytes <= other.bytes, "a copy inside both buffers");
        let (from, to) = (other.pointer + from as u64, self.pointer + to as u64);
        // SAFETY: the ranges were checked; two buffers do not overlap.
        Ok(unsafe { result::memcpy_dtod_async(to, from, bytes, self.context.stream.cu_stream()) }?)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.context.frees() {
            // SAFETY: allocated once, freed once.
            let _ = unsafe { result::free_sync(self.pointer) };
        }
    }
}

/// A recorded batch of work.
pub struct Graph {
    executable: sys::CUgraphExec,
    context: Context,
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.context.frees() {
            // SAFETY: made once, destroyed once.
            let _ = unsafe { sys::cuGraphExecDestroy(self.executable) };
        }
    }
}

/// A point in the stream.
pub struct Event {
    event: sys::CUevent,
    context: Context,
}

// SAFETY: the driver takes an event from any thread; its context is made current there before it is destroyed.
unsafe impl Send for Event {}

impl Event {
    /// Marks the end of what is on the stream now.
    pub fn record(&self) -> Result<()> {
        // SAFETY: both are alive.
        Ok(unsafe { result::event::record(self.event, self.context.stream.cu_stream()) }?)
    }

    /// Whether what stood before it on the stream is done.
    pub fn has_passed(&self) -> Result<bool> {
        // SAFETY: the event is alive.
        match unsafe { sys::cuEventQuery(self.event) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => check(other).map(|()| true),
        }
    }

    /// Waits until what stood before it on the stream is done, or gives up after `limit`.
    ///
    /// # Errors
    /// As [`Context::wait`].
    pub fn wait(&self, limit: Duration) -> Result<()> {
        // SAFETY: the event is alive.
        poll(limit, || unsafe { sys::cuEventQuery(self.event) })
    }

    /// Microseconds from `self` to `end`; both have passed.
    pub fn until_us(&self, end: &Event) -> Result<f64> {
        type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> CUresult;
        // The versioned name came with 12.8; the binding for it panics on older drivers.
        let name: &[u8] = if has("cuEventElapsedTime_v2") { b"cuEventElapsedTime_v2" } else { b"cuEventElapsedTime" };
        // SAFETY: both names have this signature since CUDA 2.0.
        let elapsed = unsafe { sys::culib().get::<Elapsed>(name) };
        let elapsed = elapsed.map_err(|_| Error(CUresult::CUDA_ERROR_NOT_SUPPORTED))?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive and the pointer valid.
        check(unsafe { elapsed(&mut milliseconds, self.event, end.event) })?;
        Ok(f64::from(milliseconds) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.frees() {
            // SAFETY: made once, destroyed once.
            let _ = unsafe { result::event::destroy(self.event) };
        }
    }
}
