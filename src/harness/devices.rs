//! Which device a candidate runs on. Devices are opened when first asked for, never for a listing.

use super::arguments::DeviceChoice;
use crate::device::cpu::CpuDevice;
use crate::device::{Device, DeviceKind};
use std::sync::OnceLock;

/// The devices of this process.
pub struct Devices {
    choice: Option<DeviceChoice>,
    cpu: OnceLock<CpuDevice>,
    cuda: OnceLock<Result<Box<dyn Device>, String>>,
}

impl Devices {
    /// Devices as `--device` chooses them.
    pub fn new(choice: Option<DeviceChoice>) -> Self {
        Devices { choice, cpu: OnceLock::new(), cuda: OnceLock::new() }
    }

    /// The device for candidates of `kind`.
    ///
    /// # Errors
    /// The reason why there is none: the trial is then a skip.
    pub fn for_kind(&self, kind: DeviceKind) -> Result<&dyn Device, String> {
        match (kind, self.choice.map(|choice| choice.kind)) {
            (DeviceKind::Cpu, _) => Ok(self.cpu.get_or_init(CpuDevice::new)),
            (_, Some(DeviceKind::Cpu)) => Err("kernels are switched off by `--device cpu`".into()),
            (_, Some(DeviceKind::Sim)) => Err("this version has no simulator".into()),
            (_, Some(DeviceKind::Cuda) | None) => {
                let ordinal = self.choice.map_or(0, |choice| choice.ordinal);
                let opened = self.cuda.get_or_init(|| open_cuda(ordinal));
                opened.as_ref().map(AsRef::as_ref).map_err(Clone::clone)
            }
        }
    }
}

#[cfg(feature = "cuda")]
fn open_cuda(ordinal: usize) -> Result<Box<dyn Device>, String> {
    Ok(Box::new(crate::device::cuda::CudaDevice::open(ordinal)?))
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(_ordinal: usize) -> Result<Box<dyn Device>, String> {
    Err("this build has no CUDA support: enable the feature `cuda-13` or `cuda-12`".into())
}
