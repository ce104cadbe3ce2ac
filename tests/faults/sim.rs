//! The CUDA fixtures in the simulator: in this process, since nothing that they do can harm it.

use crate::cuda::Fixture;
use crate::finding::{Finding, SEEDS, find};
use crate::small::{PAST_16_BITS, Small};
use kernelgate::core::candidate::Body;
use kernelgate::core::environment::REQUIRE;
use kernelgate::device::sim::SimDevice;
use kernelgate::toolchain::committed::ARCH;
use kernelgate::toolchain::{Error, compile_ptx};

/// Whether the simulator can show the defect.
pub fn shows(fixture: &Fixture) -> bool {
    fixture.devices.iter().any(|device| device == "sim")
}

/// Whether a missing compiler is a failure.
pub fn is_required() -> bool {
    std::env::var(REQUIRE).is_ok_and(|all| all.split(',').any(|what| what.trim() == "nvrtc"))
}

/// Why a fixture is not run here, if it is not.
pub fn available(fixture: &Fixture) -> Result<(), String> {
    if !shows(fixture) {
        return Err("shows on a GPU only".into());
    }
    let candidate = fixture.candidate()?;
    let Body::Cuda(kernel) = &candidate.body else { return Err("host code needs a GPU".into()) };
    match compile_ptx(&kernel.program, fixture.dtypes[0], ARCH) {
        Err(Error::NoCompiler(why)) => Err(why),
        // What does not compile is for the gate to say.
        _ => Ok(()),
    }
}

/// Runs a fixture in each of its dtypes, each from another seed: a run takes much longer than on a GPU.
pub fn findings(fixture: &Fixture) -> Result<Vec<Finding>, String> {
    let (suite, candidate) = (crate::suite(&fixture.operator)?, fixture.candidate()?);
    // Past 16 bits a right kernel takes seconds a case, and shows nothing that a smaller one does not.
    let elements = if fixture.verdict == "fail" { PAST_16_BITS } else { 1 << 14 };
    let device = Small { device: Box::new(SimDevice::new(None)), elements };
    let runs = fixture.dtypes.iter().zip(SEEDS.iter().cycle());
    Ok(runs.map(|(&dtype, &seed)| find(&device, suite, &candidate, dtype, seed)).collect())
}
