//! Host fixtures: candidates whose own host code launches their kernel, half of the work on the given stream and half
//! on another one, or before there is any work. For a GPU alone: there is nothing to launch in the simulator.

use crate::cpu::Vector;
use cudarc::driver::{DriverError, result, sys};
use kernelgate::core::candidate::{Body, Candidate, Declare, IntoCandidate, Kernel};
use kernelgate::prelude::*;
use kernelgate::toolchain::{Target, compile};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Where the second half goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SecondHalf {
    /// To the default stream, which does not wait for the given one.
    ToDefault,
    /// To a stream that waits for the given one, which does not wait for it.
    Forked,
    /// To such a stream, and the given one waits for it.
    Joined,
}

impl SecondHalf {
    /// By the word of `expected.json`.
    pub fn of(launch: &str) -> Option<Self> {
        match launch {
            "host_default" => Some(SecondHalf::ToDefault),
            "host_forked" => Some(SecondHalf::Forked),
            "host_joined" => Some(SecondHalf::Joined),
            _ => None,
        }
    }
}

/// The candidate that launches the kernel of `twin` from host code of its own. The kernel takes x, y, and the elements
/// to map from and to.
pub fn launched(twin: &Candidate, arch: &str, second: SecondHalf) -> Result<Candidate, String> {
    let Body::Cuda(kernel) = &twin.body else { return Err(format!("{}: no CUDA kernel", twin.name)) };
    let (kernel, arch) = (kernel.clone(), arch.to_owned());
    let loaded: Mutex<HashMap<DType, Arc<Launcher>>> = Mutex::default();
    let host = CudaHost::new(move |s: &Vector, call| {
        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let launcher = match loaded.get(&call.dtype()) {
            Some(launcher) => Arc::clone(launcher),
            None => Arc::new(Launcher::load(&kernel, call.dtype(), &arch)?),
        };
        loaded.insert(call.dtype(), Arc::clone(&launcher));
        launcher.launch(s.n as i64, Buffers::of(call), second).map_err(|error| format!("{:?}", error.0))
    });
    Ok(host.dtypes(twin.traits.dtypes.clone()).named(&twin.name))
}

/// The candidate whose preparation runs the kernel of `twin` on memory that is not there, and reports what came of it as
/// a library does that refuses a shape.
pub fn prepared(twin: &Candidate, arch: &str) -> Result<Candidate, String> {
    const NOWHERE: u64 = 16;
    let Body::Cuda(kernel) = &twin.body else { return Err(format!("{}: no CUDA kernel", twin.name)) };
    let (kernel, arch) = (kernel.clone(), arch.to_owned());
    let host = CudaHost::new(|_: &Vector, _| Ok(())).prepare(move |s, dtype| {
        let launcher = Launcher::load(&kernel, dtype, &arch)?;
        let nowhere = Buffers { stream: 0, x: NOWHERE, y: NOWHERE };
        let launched = launcher.launch(s.n as i64, nowhere, SecondHalf::ToDefault);
        // SAFETY: null is the default stream.
        let ended = launched.and_then(|()| unsafe { result::stream::synchronize(result::stream::null()) });
        ended.map_err(|error| format!("no algorithm: {:?}", error.0))
    });
    Ok(host.dtypes(twin.traits.dtypes.clone()).named(&twin.name))
}

/// The candidate that does its work only while nobody records it: a graph of its launches is empty.
pub fn idle_while_recorded(twin: &Candidate, arch: &str) -> Result<Candidate, String> {
    let Body::Cuda(kernel) = &twin.body else { return Err(format!("{}: no CUDA kernel", twin.name)) };
    let (kernel, arch, loaded) = (kernel.clone(), arch.to_owned(), Mutex::new(None));
    let host = CudaHost::new(move |s: &Vector, call| {
        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let launcher = match loaded.take() {
            Some(launcher) => launcher,
            None => Launcher::load(&kernel, DType::F32, &arch)?,
        };
        let launcher = loaded.insert(launcher);
        let given = call.stream() as sys::CUstream;
        // SAFETY: the stream is that of the call.
        let status = unsafe { result::stream::is_capturing(given) };
        match status.map_err(|error| format!("{:?}", error.0))? {
            sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => {
                launcher.map(Buffers::of(call), 0..s.n as i64, given).map_err(|error| format!("{:?}", error.0))
            }
            _ => Ok(()),
        }
    });
    Ok(host.dtypes([DType::F32]).named(&twin.name))
}

/// Where a kernel finds its buffers, and the stream that it is given.
#[derive(Clone, Copy)]
struct Buffers {
    stream: u64,
    x: u64,
    y: u64,
}

impl Buffers {
    fn of(call: &Enqueue) -> Self {
        Buffers { stream: call.stream(), x: call.inputs()[0], y: call.outputs()[0] }
    }
}

/// A loaded kernel, with a stream of its own and the events to tie it to another one. Handles are kept as addresses: a
/// process runs one fixture, so nothing is freed before it ends.
pub struct Launcher {
    pub function: usize,
    beside: usize,
    forked: usize,
    joined: usize,
}

impl Launcher {
    pub fn load(kernel: &Kernel, dtype: DType, arch: &str) -> Result<Self, String> {
        let artifact = compile(&kernel.program, dtype, &Target::Cubin(arch.into())).map_err(|e| e.to_string())?;
        let entry = std::ffi::CString::new(kernel.entry.as_str()).map_err(|e| e.to_string())?;
        let handles = || -> Result<Self, DriverError> {
            // SAFETY: the image is a whole cubin, which the call copies; the context is current.
            let module = unsafe { result::module::load_data(artifact.code.as_ptr().cast()) }?;
            // SAFETY: the module was just loaded and is never unloaded.
            let function = unsafe { result::module::get_function(module, entry) }?;
            let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
            Ok(Launcher {
                function: function as usize,
                beside: result::stream::create(result::stream::StreamKind::NonBlocking)? as usize,
                forked: event()? as usize,
                joined: event()? as usize,
            })
        };
        handles().map_err(|error| format!("{}: {:?}", kernel.program.file, error.0))
    }

    fn launch(&self, n: i64, on: Buffers, second: SecondHalf) -> Result<(), DriverError> {
        let given = on.stream as sys::CUstream;
        let other = if second == SecondHalf::ToDefault { result::stream::null() } else { self.beside as sys::CUstream };
        let (forked, joined) = (self.forked as sys::CUevent, self.joined as sys::CUevent);
        let no_flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        if second != SecondHalf::ToDefault {
            // SAFETY: streams and event are alive.
            unsafe {
                result::event::record(forked, given)?;
                result::stream::wait_event(other, forked, no_flags)?;
            }
        }
        self.map(on, 0..n / 2, given)?;
        self.map(on, n / 2..n, other)?;
        if second == SecondHalf::Joined {
            // SAFETY: streams and event are alive.
            unsafe {
                result::event::record(joined, other)?;
                result::stream::wait_event(given, joined, no_flags)?;
            }
        }
        Ok(())
    }

    fn map(&self, on: Buffers, elements: Range<i64>, stream: sys::CUstream) -> Result<(), DriverError> {
        const THREADS: u32 = 256;
        let blocks = (elements.end - elements.start).unsigned_abs().div_ceil(u64::from(THREADS)) as u32;
        if blocks == 0 {
            return Ok(());
        }
        let mut arguments = [on.x, on.y, elements.start.unsigned_abs(), elements.end.unsigned_abs()];
        let mut pointers = arguments.each_mut().map(|argument| std::ptr::from_mut(argument).cast::<c_void>());
        let function = self.function as sys::CUfunction;
        // SAFETY: the kernel takes two pointers and two 64-bit integers; they live until the call has copied them.
        unsafe { result::launch_kernel(function, (blocks, 1, 1), (THREADS, 1, 1), 0, stream, &mut pointers) }
    }
}
