//! One GPU, opened.

use super::driver::{Context, driver_version};
use super::presence::{arch_of, find_driver};
use super::program::Programs;
use crate::core::candidate::{Language, Program};
use crate::core::dtype::DType;
use crate::device::DeviceKind;
use crate::device::fault::Fault;
use crate::device::fingerprint::Fingerprint;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use std::time::Duration;

/// How long a launch may take.
const LAUNCH_LIMIT: Duration = Duration::from_secs(10);

/// One GPU, opened.
pub struct CudaDevice {
    pub(super) context: Context,
    pub(super) programs: Programs,
    pub(super) fingerprint: Fingerprint,
    capability: (i32, i32),
    shared_bytes: usize,
    launch_limit: Duration,
}

impl CudaDevice {
    /// Opens GPU `ordinal`.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub fn open(ordinal: usize) -> Result<Self, String> {
        find_driver()?;
        // An old driver lacks functions that the bindings then panic over.
        std::panic::catch_unwind(|| Self::open_unguarded(ordinal))
            .unwrap_or_else(|_| Err("the CUDA driver is too old for this build: update it".into()))
    }

    fn open_unguarded(ordinal: usize) -> Result<Self, String> {
        let context = Context::open(ordinal).map_err(|e| format!("GPU {ordinal} does not open: {e}"))?;
        let attribute = |which| context.attribute(which);
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        );
        let name = context.name().map_err(|e| format!("GPU {ordinal} does not tell its name: {e}"))?;
        let driver = driver_version().map_or_else(|_| String::new(), |v| format!("{}.{}", v / 1000, v % 1000 / 10));
        let fingerprint = Fingerprint {
            kind: DeviceKind::Cuda,
            name,
            arch: format!("sm_{}{}", capability.0, capability.1),
            units: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) as usize,
            cache_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) as usize,
            memory_bytes: context.memory_bytes().unwrap_or(0),
            clock_mhz: f64::from(attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)) / 1e3,
            driver: format!("CUDA {driver}"),
            compiler: crate::toolchain::nvrtc::version().map(|v| format!("NVRTC {v}")).unwrap_or_default(),
        };
        let device = CudaDevice {
            shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) as usize,
            context,
            launch_limit: LAUNCH_LIMIT,
            programs: Programs::default(),
            fingerprint,
            capability,
        };
        // What else is asked of launch rules on this thread is about this one.
        device.fingerprint.gpu().make_current();
        Ok(device)
    }

    /// The same, on which a launch may take so long.
    pub fn allowing(self, launch_limit: Duration) -> Self {
        CudaDevice { launch_limit, ..self }
    }

    /// A launch that takes longer does not end.
    pub(super) fn launch_limit(&self) -> Duration {
        self.launch_limit
    }

    /// The architecture to compile for.
    pub fn arch(&self) -> String {
        arch_of(self.capability)
    }

    /// Whether blocks can form clusters.
    pub fn has_clusters(&self) -> bool {
        self.capability.0 >= 9
    }

    /// Dynamic shared memory that a block can have.
    pub(super) fn shared_bytes(&self) -> usize {
        self.shared_bytes
    }

    /// Marks the device as gone for this process.
    pub(super) fn lose(&self) {
        self.context.abandon();
    }

    /// The gate's own kernels.
    pub(super) fn support(&self) -> Result<std::sync::Arc<super::program::Loaded>, Fault> {
        self.programs.get(&self.context, &self.arch(), &support(), DType::F32)
    }
}

/// The program of the gate's own kernels; a bundle carries it too.
pub fn support() -> Program {
    Program {
        text: include_str!("support.cu").into(),
        language: Language::Cuda,
        file: "support.cu".into(),
        headers: Vec::new(),
        options: Vec::new(),
        needs: None,
    }
}
