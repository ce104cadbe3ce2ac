//! Which device a candidate runs on. Devices are opened when first asked for, never for a listing.

use super::arguments::DeviceChoice;
use crate::device::cpu::CpuDevice;
use crate::device::sim::SimDevice;
use crate::device::{Device, DeviceKind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// How long a trial or a launch may take where somebody may be looking at it in a debugger, or through a tool that
/// slows it down.
pub const WATCHED_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Where kernels run here, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelDevice {
    /// A GPU or the simulator, or the host for no kernels at all.
    pub kind: DeviceKind,
    /// In a few words.
    pub why: String,
}

impl KernelDevice {
    /// As `--device` says; else the GPU if there is one or one is required, and the simulator otherwise. Asks the driver
    /// for GPUs and opens none.
    pub fn choose(choice: Option<DeviceChoice>, requires_cuda: bool) -> Self {
        if let Some(choice) = choice {
            return KernelDevice { kind: choice.kind, why: format!("`--device {choice}` says so") };
        }
        if requires_cuda {
            return KernelDevice { kind: DeviceKind::Cuda, why: "a GPU is required".into() };
        }
        match find_gpu() {
            Ok(found) => KernelDevice { kind: DeviceKind::Cuda, why: found },
            Err(why) => KernelDevice { kind: DeviceKind::Sim, why },
        }
    }
}

/// The devices of this process.
pub struct Devices {
    choice: Option<DeviceChoice>,
    requires_cuda: bool,
    /// Where a project keeps compiled kernels for the simulator.
    ptx_folder: Option<PathBuf>,
    /// How long a launch may take on a GPU, where it is not what is usual.
    launch_limit: Option<Duration>,
    kernels: OnceLock<KernelDevice>,
    cpu: OnceLock<CpuDevice>,
    sim: OnceLock<SimDevice>,
    cuda: OnceLock<Result<Box<dyn Device>, String>>,
}

impl Devices {
    /// Devices as `--device` and `--require` choose them.
    pub fn new(choice: Option<DeviceChoice>, requires_cuda: bool) -> Self {
        Devices {
            choice,
            requires_cuda,
            ptx_folder: None,
            launch_limit: None,
            kernels: OnceLock::new(),
            cpu: OnceLock::new(),
            sim: OnceLock::new(),
            cuda: OnceLock::new(),
        }
    }

    /// The same for a project, whose committed PTX the simulator then finds.
    pub fn of_project(self, folder: &Path) -> Self {
        Devices { ptx_folder: Some(folder.join(crate::toolchain::committed::FOLDER)), ..self }
    }

    /// The same in a run that is watched, if it is.
    pub fn watched(self, is_watched: bool) -> Self {
        Devices { launch_limit: is_watched.then_some(WATCHED_LIMIT), ..self }
    }

    /// The device for candidates of `kind`.
    ///
    /// # Errors
    /// The reason why there is none: the trial is then a skip.
    pub fn for_kind(&self, kind: DeviceKind) -> Result<&dyn Device, String> {
        if kind == DeviceKind::Cpu {
            return Ok(self.cpu.get_or_init(CpuDevice::new));
        }
        let kernels = self.kernels.get_or_init(|| KernelDevice::choose(self.choice, self.requires_cuda));
        match kernels.kind {
            DeviceKind::Cpu => Err("kernels are switched off by `--device cpu`".into()),
            DeviceKind::Sim if self.requires_cuda => Err("`--device sim` chooses the simulator".into()),
            DeviceKind::Sim => Ok(self.sim.get_or_init(|| SimDevice::new(self.ptx_folder.clone()))),
            DeviceKind::Cuda => {
                let ordinal = self.choice.map_or(0, |choice| choice.ordinal);
                let opened = self.cuda.get_or_init(|| open_cuda(ordinal, self.launch_limit));
                opened.as_ref().map(AsRef::as_ref).map_err(Clone::clone)
            }
        }
    }
}

#[cfg(feature = "cuda")]
fn find_gpu() -> Result<String, String> {
    crate::device::cuda::find_driver()
}

#[cfg(not(feature = "cuda"))]
fn find_gpu() -> Result<String, String> {
    Err("this build has no CUDA support".into())
}

#[cfg(feature = "cuda")]
fn open_cuda(ordinal: usize, launch_limit: Option<Duration>) -> Result<Box<dyn Device>, String> {
    let device = crate::device::cuda::CudaDevice::open(ordinal)?;
    Ok(Box::new(match launch_limit {
        Some(limit) => device.allowing(limit),
        None => device,
    }))
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(_ordinal: usize, _launch_limit: Option<Duration>) -> Result<Box<dyn Device>, String> {
    Err("this build has no CUDA support: enable the feature `cuda-13` or `cuda-12`".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_wins_and_a_required_gpu_is_never_replaced() {
        let sim = Some(DeviceChoice { kind: DeviceKind::Sim, ordinal: 0 });
        assert_eq!(KernelDevice::choose(sim, false).kind, DeviceKind::Sim);
        assert_eq!(KernelDevice::choose(None, true).kind, DeviceKind::Cuda);
        assert_eq!(Devices::new(sim, false).for_kind(DeviceKind::Cuda).map(Device::kind), Ok(DeviceKind::Sim));
        assert_eq!(Devices::new(sim, false).for_kind(DeviceKind::Cpu).map(Device::kind), Ok(DeviceKind::Cpu));
        let refused = Devices::new(sim, true).for_kind(DeviceKind::Cuda).map(Device::kind);
        assert_eq!(refused, Err("`--device sim` chooses the simulator".into()));
    }

    #[test]
    fn without_a_gpu_kernels_are_simulated() {
        let chosen = KernelDevice::choose(None, false);
        let expected = if find_gpu().is_ok() { DeviceKind::Cuda } else { DeviceKind::Sim };
        assert_eq!(chosen.kind, expected);
        assert!(!chosen.why.is_empty());
    }
}
