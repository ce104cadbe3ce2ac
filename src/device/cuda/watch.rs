//! Whether a candidate's host code keeps to the stream that it was given. Its inputs come into place on that stream,
//! behind a kernel that holds it, and its outputs are taken on it, right behind the candidate's work: what was put on
//! another stream without waiting runs too early or ends too late.

use super::device::CudaDevice;
use super::driver::{Buffer, Context, Error, Event};
use super::support::{fault, fill, run_support};
use crate::core::launch::Launch;
use crate::device::Poison;
use crate::device::fault::Fault;
use crate::device::image::Image;
use std::time::Duration;

/// How long the stream is held: several times what the host needs to enqueue some launches and look at their outputs.
const HOLD_NS: u64 = 4_000_000;

/// How long to wait between two looks at the outputs.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// What it takes to produce the inputs of a case late, and to look at the outputs meanwhile.
pub struct Watch {
    /// An image with the inputs in place, to be copied from.
    inputs: Buffer,
    /// Passes when the stream is let go.
    held: Event,
    /// Another stream.
    beside: Context,
}

impl Watch {
    /// A watch over problems with this image.
    ///
    /// # Errors
    /// What the driver said; there may be no memory for a second image.
    pub fn of(device: &CudaDevice, image: &Image) -> Result<Self, Error> {
        let inputs = device.context.allocate(image.len())?;
        fill(image, &inputs, Poison::Nan)?;
        Ok(Watch { inputs, held: device.context.event()?, beside: device.context.beside()? })
    }

    /// Brings the inputs that the image has now from here on.
    ///
    /// # Errors
    /// What the driver said.
    pub fn replace_inputs(&self, image: &Image) -> Result<(), Error> {
        fill(image, &self.inputs, Poison::Nan)
    }

    /// Takes the inputs away, holds the stream, and brings them back behind that. The poison is in place when it returns:
    /// another stream would not wait for it.
    ///
    /// # Errors
    /// What the driver said.
    pub fn produce(&self, device: &CudaDevice, image: &Image, memory: &Buffer, poison: Poison) -> Result<(), Fault> {
        let cuda = |e: Error| fault(device, e);
        let inputs = || image.inputs().map(|(range, _)| range).filter(|range| !range.is_empty());
        let gone = inputs().try_for_each(|range| memory.fill(range.start, range.len(), poison.byte()));
        gone.and_then(|()| device.context.wait(device.launch_limit())).map_err(cuda)?;
        run_support(device, "kernelgate_gate", &Launch::blocks(1, 1).scalar(HOLD_NS).scalar(0u64))?;
        self.held.record().map_err(cuda)?;
        let back = inputs().try_for_each(|range| memory.copy_from(range.start, &self.inputs, range.start, range.len()));
        back.map_err(cuda)
    }

    /// The first output that changed while the stream was held; returns when it is let go, at the latest.
    ///
    /// # Errors
    /// What the driver said.
    pub fn written_early(&self, image: &Image, memory: &Buffer, poison: Poison) -> Result<Option<usize>, Error> {
        while !self.held.has_passed()? {
            for (i, range) in image.output_ranges().enumerate() {
                let mut bytes = vec![poison.byte(); range.len()];
                memory.download_beside(&self.beside, range.start, &mut bytes)?;
                let is_written = bytes.iter().any(|&byte| byte != poison.byte());
                // Once the stream is let go it may be written.
                if is_written && !self.held.has_passed()? {
                    return Ok(Some(i));
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(None)
    }
}
