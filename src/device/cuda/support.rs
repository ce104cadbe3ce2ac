//! The gate's own kernels at work, and what an error of the driver means for a case.

use super::device::CudaDevice;
use super::driver::{Buffer, Context, Error};
use crate::core::launch::Launch;
use crate::device::Poison;
use crate::device::argument::{MAP_BYTES, arguments};
use crate::device::content::Content;
use crate::device::fault::Fault;
use crate::device::image::Image;

/// A count of differing bytes.
pub(super) const COUNT_BYTES: usize = 8;

/// Launches one of the gate's own kernels; its arguments are the scalars alone.
pub(super) fn run_support(device: &CudaDevice, entry: &str, launch: &Launch) -> Result<(), Fault> {
    run_support_on(&device.context, device, entry, launch)
}

/// The same on the stream of `context`.
pub(super) fn run_support_on(
    context: &Context,
    device: &CudaDevice,
    entry: &str,
    launch: &Launch,
) -> Result<(), Fault> {
    let support = device.support()?;
    let arguments = arguments(launch, &[], |_| Ok([0; MAP_BYTES]))?;
    let function = support.entry(entry, launch, &arguments)?;
    context.launch(&function, launch, &arguments).map_err(|e| fault(device, e))
}

/// Poisons the image at the start of `memory` and puts the inputs in place.
pub(super) fn fill(image: &Image, memory: &Buffer, poison: Poison) -> Result<(), Error> {
    memory.fill(0, image.len(), poison.byte())?;
    image.inputs().try_for_each(|(range, content)| put(memory, range.start, content))
}

/// Uploads the block of a content and repeats it on the device.
pub(super) fn put(memory: &Buffer, start: usize, content: &Content) -> Result<(), Error> {
    memory.upload(start, content.block().bytes())?;
    content.doublings().try_for_each(|(to, bytes)| memory.copy_from(start + to, memory, start, bytes))
}

/// A driver error as a fault; a sticky one loses the device.
pub(super) fn fault(device: &CudaDevice, error: Error) -> Fault {
    use cudarc::driver::sys::CUresult;
    if error.0 == CUresult::CUDA_ERROR_LAUNCH_TIMEOUT {
        device.lose();
        return Fault::Timeout { seconds: device.launch_limit().as_secs_f64() };
    }
    if error.is_sticky() {
        device.lose();
        return Fault::Crash(error.to_string());
    }
    Fault::Launch(error.to_string())
}

/// Memory that cannot be had; on a broken device that is not what fails.
pub(super) fn memory_fault(device: &CudaDevice, image: &Image, error: Error) -> Fault {
    if error.is_sticky() {
        return fault(device, error);
    }
    Fault::Unsupported(format!("{} bytes of device memory cannot be had: {error}", image.len()))
}

/// What host code said that it cannot do, as `declined` has it, unless it broke the device by trying.
pub(super) fn host_fault(device: &CudaDevice, why: String, declined: fn(String) -> Fault) -> Fault {
    match device.context.wait_for_all() {
        Err(error) if error.is_sticky() => {
            device.lose();
            Fault::Crash(format!("{why}: {error}"))
        }
        _ => declined(why),
    }
}
