//! A host fixture that asks the L2 to keep its input from one timed batch to the next: it sets memory aside, and gives the
//! stream and its launches a window on the input. The perf check has to take all of that back, and each launch of a batch is to
//! be as cold as one of a twin that asks for nothing.

use crate::cpu::Vector;
use crate::cuda;
use crate::host::Launcher;
use crate::timed;
use cudarc::driver::{DriverError, result, sys};
use kernelgate::check::outcome::Verdict;
use kernelgate::check::perf::PerfSettings;
use kernelgate::core::candidate::{Body, Candidate, IntoCandidate};
use kernelgate::device::cuda::CudaDevice;
use kernelgate::device::{DeviceKind, Heat};
use kernelgate::prelude::*;
use libtest_mimic::{Completion, Failed, Trial};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The kernel, below `fixtures/faulty`.
pub const KERNEL: &str = "timed/odd_walks_its_input.cu";

/// Elements of the timed case: the inputs of all launches of a batch fit what can be set aside, and not the rest of the L2.
const ELEMENTS: usize = 1 << 12;
const ELEMENTS_OF_A_BLOCK: usize = 512;
const THREADS: u32 = 256;

/// A time may be below the twin's by so much. Two sessions differ by a few per cent of a launch; lines that stay in the L2 make
/// it a fifth less (1.74 µs for 2.16 on an H200).
const MARGIN: f64 = 0.1;

/// A launch that finds its input in the L2 takes less than so much of a cold one.
const HOT: f64 = 0.86;

const LIMIT: sys::CUlimit = sys::CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE;
const WINDOW: sys::CUstreamAttrID = sys::CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;

/// What the L2 is to keep: bytes that are set aside, bytes of the window of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Kept {
    set_aside: usize,
    window: usize,
}

/// What the host code saw of that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    /// At its last call before anything was recorded: what it had asked for.
    before: Option<Kept>,
    /// Whether launches were recorded since.
    recorded: bool,
    /// At its first call behind the timed batches.
    after: Option<Kept>,
}

/// On a GPU that can set some of its L2 aside.
pub fn trial() -> Trial {
    Trial::ignorable_test("timed::cuda::asks_the_l2_to_keep_its_input", || match CudaDevice::open(0) {
        Ok(gpu) => is_as_cold(&gpu),
        Err(why) if cuda::is_required() => Err(why.into()),
        Err(why) => Ok(Completion::ignored_with(why)),
    })
}

fn is_as_cold(gpu: &CudaDevice) -> Result<Completion, Failed> {
    let most = most_set_aside().map_err(text)?;
    if most == 0 {
        return Ok(Completion::ignored_with("nothing of this L2 can be set aside"));
    }
    let twin = timed::kernel(KERNEL)?;
    let time = |set_aside: Option<usize>, heat: Heat| -> Result<(f64, Seen), Failed> {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let candidate = candidate(&twin, &gpu.arch(), set_aside, Arc::clone(&seen))?;
        let outcome = timed::time(gpu, &candidate, &settings(heat))?;
        let timing = outcome.timings.first().filter(|_| outcome.verdict == Verdict::Pass);
        let median_us = timing.ok_or_else(|| format!("is not timed: {outcome:?}"))?.median_us;
        let seen = *lock(&seen);
        Ok((median_us, seen))
    };
    let (cold, _) = time(None, Heat::Cold)?;
    let (hot, _) = time(None, Heat::Hot)?;
    let (asked, seen) = time(Some(most), Heat::Cold)?;
    println!("cold {cold:.2} µs, hot {hot:.2} µs, with all asked for {asked:.2} µs; {seen:?}");
    let mut wrong = Vec::new();
    if hot > HOT * cold {
        wrong.push("lines that stay in the L2 would not show in the time".to_owned());
    }
    if seen.before.is_none_or(|kept| kept.set_aside == 0 || kept.window != 4 * ELEMENTS) {
        wrong.push(format!("the fixture did not get what it asks for: {:?}", seen.before));
    }
    if seen.after != Some(Kept::default()) {
        wrong.push(format!("what it asked for was not taken back: {:?}", seen.after));
    }
    if asked < (1.0 - MARGIN) * cold {
        wrong.push("its launches are not cold".to_owned());
    }
    if wrong.is_empty() {
        return Ok(Completion::Completed);
    }
    let times = format!("cold {cold:.2} µs, hot {hot:.2} µs, with all asked for {asked:.2} µs");
    Err(format!("{}; {times}", wrong.join("; ")).into())
}

/// One batch in one place: what it leaves in the L2 is what the next one finds.
fn settings(heat: Heat) -> PerfSettings {
    let mut settings =
        PerfSettings { heat, instances: 1, only: vec![vec![ELEMENTS]], ..PerfSettings::of(DeviceKind::Cuda) };
    settings.session.stopping.min_rounds = 20;
    settings
}

/// The candidate whose host code launches the kernel of `twin`, and has so many bytes of the L2 set aside for its input.
fn candidate(
    twin: &Candidate,
    arch: &str,
    set_aside: Option<usize>,
    seen: Arc<Mutex<Seen>>,
) -> Result<Candidate, String> {
    let Body::Cuda(kernel) = &twin.body else { return Err(format!("{}: no CUDA kernel", twin.name)) };
    let (kernel, arch) = (kernel.clone(), arch.to_owned());
    let loaded: Arc<Mutex<Option<usize>>> = Arc::default();
    let function = Arc::clone(&loaded);
    let host = CudaHost::new(move |s: &Vector, call| {
        let function = lock(&function).ok_or("called before it was prepared")?;
        let window = set_aside.map(|_| window_on(call.inputs()[0], 4 * s.n));
        let given = call.stream() as sys::CUstream;
        let enqueued = note(&mut lock(&seen), given, window)
            .and_then(|()| launch(function, s.n, [call.inputs()[0], call.outputs()[0]], given, window));
        enqueued.map_err(text)
    });
    let host = host.prepare(move |_, dtype| {
        *lock(&loaded) = Some(Launcher::load(&kernel, dtype, &arch)?.function);
        // SAFETY: the context is current.
        let done = set_aside.map_or(Ok(()), |bytes| unsafe { sys::cuCtxSetLimit(LIMIT, bytes) }.result());
        done.map_err(text)
    });
    Ok(host.dtypes([DType::F32]).named(&twin.name))
}

/// Notes what is to be kept now and, while nobody records, gives the stream its window.
fn note(seen: &mut Seen, given: sys::CUstream, window: Option<sys::CUaccessPolicyWindow>) -> Result<(), DriverError> {
    // SAFETY: the stream is that of the call.
    let status = unsafe { result::stream::is_capturing(given) }?;
    if status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        seen.recorded = true;
        return Ok(());
    }
    if let Some(window) = window {
        // SAFETY: plain data, of which the member that goes with the attribute is set.
        let mut value: sys::CUstreamAttrValue = unsafe { std::mem::zeroed() };
        value.accessPolicyWindow = window;
        if seen.recorded && seen.after.is_none() {
            seen.after = Some(kept(given)?);
        }
        // SAFETY: the stream is that of the call, and the value outlives this one.
        unsafe { sys::cuStreamSetAttribute(given, WINDOW, &value) }.result()?;
        if !seen.recorded {
            seen.before = Some(kept(given)?);
        }
    }
    Ok(())
}

/// What the context and the stream are to keep.
fn kept(given: sys::CUstream) -> Result<Kept, DriverError> {
    let mut set_aside = 0;
    // SAFETY: plain data, which the driver fills.
    let mut value: sys::CUstreamAttrValue = unsafe { std::mem::zeroed() };
    // SAFETY: the context is current, the stream is that of the call, and both places outlive this one.
    unsafe {
        sys::cuCtxGetLimit(&mut set_aside, LIMIT).result()?;
        sys::cuStreamGetAttribute(given, WINDOW, &mut value).result()?;
    }
    // SAFETY: the member that goes with the attribute.
    Ok(Kept { set_aside, window: unsafe { value.accessPolicyWindow.num_bytes } })
}

/// All lines of so many bytes are to stay.
fn window_on(address: u64, bytes: usize) -> sys::CUaccessPolicyWindow {
    sys::CUaccessPolicyWindow {
        base_ptr: address as *mut c_void,
        num_bytes: bytes,
        hitRatio: 1.0,
        hitProp: sys::CUaccessProperty::CU_ACCESS_PROPERTY_PERSISTING,
        missProp: sys::CUaccessProperty::CU_ACCESS_PROPERTY_STREAMING,
    }
}

fn launch(
    function: usize,
    n: usize,
    [x, y]: [u64; 2],
    given: sys::CUstream,
    window: Option<sys::CUaccessPolicyWindow>,
) -> Result<(), DriverError> {
    // SAFETY: plain data, of which the member that goes with the attribute is set.
    let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
    attribute.id = WINDOW;
    if let Some(window) = window {
        attribute.value.accessPolicyWindow = window;
    }
    let config = sys::CUlaunchConfig {
        gridDimX: n.div_ceil(ELEMENTS_OF_A_BLOCK) as u32,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: THREADS,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: given,
        attrs: &mut attribute,
        numAttrs: u32::from(window.is_some()),
    };
    let mut arguments = [x, y, n as u64];
    let mut pointers = arguments.each_mut().map(|argument| std::ptr::from_mut(argument).cast::<c_void>());
    let function = function as sys::CUfunction;
    // SAFETY: the kernel takes two pointers and a 64-bit integer; they live until the call has copied them.
    unsafe { sys::cuLaunchKernelEx(&config, function, pointers.as_mut_ptr(), std::ptr::null_mut()) }.result()
}

/// Bytes of the L2 of the GPU that the fixtures run on which can be set aside.
fn most_set_aside() -> Result<usize, DriverError> {
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE;
    // SAFETY: the device is the driver's own.
    let bytes = unsafe { result::device::get_attribute(result::device::get(0)?, attribute) }?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(error: DriverError) -> String {
    format!("{:?}", error.0)
}
