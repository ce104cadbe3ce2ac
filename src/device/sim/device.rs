//! The simulator as a device of the gate.

use super::problem::SimProblem;
use super::program::Programs;
use crate::core::candidate::Body;
use crate::core::gpu::Gpu;
use crate::device::fault::Fault;
use crate::device::fingerprint::Fingerprint;
use crate::device::{Capacity, Device, DeviceKind, Job, Problem};
use crate::toolchain::committed::ARCH;
use std::path::PathBuf;

/// Launches that must agree bit for bit: each has a schedule of its own, so a few say more than many on hardware.
const REPEATS: usize = 6;

/// The simulator.
pub struct SimDevice {
    pub(super) programs: Programs,
    /// Which launch rules are asked for.
    pub(super) gpu: Gpu,
    fingerprint: Fingerprint,
}

impl SimDevice {
    /// A simulator that looks for committed PTX in `ptx_folder` before it asks the compiler.
    pub fn new(ptx_folder: Option<PathBuf>) -> Self {
        let fingerprint = Fingerprint {
            kind: DeviceKind::Sim,
            name: "PTX simulator".into(),
            arch: ARCH.into(),
            // What it computes and counts does not depend on the number of threads.
            units: 1,
            cache_bytes: 0,
            memory_bytes: 0,
            clock_mhz: 0.0,
            driver: String::new(),
            compiler: String::new(),
        };
        SimDevice { programs: Programs::new(ptx_folder), gpu: Gpu::SIMULATED, fingerprint }
    }

    /// The same, with the launches that such a GPU would get.
    pub fn standing_for(self, gpu: Gpu) -> Self {
        SimDevice { gpu, ..self }
    }
}

impl Device for SimDevice {
    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    fn runs(&self, body: &Body) -> bool {
        matches!(body, Body::Cuda(_))
    }

    fn prepare(&self, job: &Job<'_>) -> Result<Box<dyn Problem + '_>, Fault> {
        match &job.candidate.body {
            Body::Cuda(kernel) => Ok(Box::new(self.gpu.during(|| SimProblem::new(self, kernel, job))?)),
            Body::Enqueue(_) => Err(Fault::Unsupported(
                "host code that enqueues GPU work needs a GPU: the simulator executes PTX and has no CUDA driver"
                    .into(),
            )),
            Body::Cpu(_) => Err(Fault::Unsupported("a host function does not run in the simulator".into())),
        }
    }

    /// Room for what a kernel meets past 16 bits, 65,537 rows of a few columns, and for the products of a tile or two.
    fn capacity(&self) -> Capacity {
        Capacity {
            elements: 6 * 65_537,
            flops: 1 << 24,
            threads: usize::MAX,
            timed: false,
            timed_bytes: 0,
            asked_bytes: 0,
        }
    }

    fn search_capacity(&self) -> Capacity {
        Capacity { elements: 1 << 15, flops: 1 << 21, threads: 1 << 16, ..self.capacity() }
    }

    fn repeats(&self) -> usize {
        REPEATS
    }
}
