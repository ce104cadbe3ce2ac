//! Candidates that cheat the clock: the perf check refuses their times, or takes the work into them.

use crate::cpu::Vector;
use crate::cpu::timed::{Clocked, Timed, WORK_US, fixtures};
use crate::cuda;
use crate::host::idle_while_recorded;
use crate::persisting;
use kernelgate::check::outcome::{Outcome, Verdict};
use kernelgate::check::perf::{self, PerfSettings};
use kernelgate::check::{Context, Subject};
use kernelgate::core::candidate::{Candidate, IntoCandidate};
use kernelgate::device::Device;
use kernelgate::device::cpu::CpuDevice;
use kernelgate::device::cuda::CudaDevice;
use kernelgate::prelude::*;
use libtest_mimic::{Completion, Failed, Trial};
use std::time::Duration;

/// Elements of the timed case: 64 KiB a buffer.
const ELEMENTS: usize = 1 << 14;

/// What the work of a launch takes on a GPU, µs, where a kernel avoids it.
const GPU_WORK_US: f64 = 20.0;

/// The kernels: the file, below `fixtures/faulty`, and what must become of its time. They keep state in device memory.
const KERNELS: [(&str, Clocked); 8] = [
    ("timed/odd_slow_and_right.cu", Clocked::AtLeastTheWork),
    ("timed/idle_on_a_full_output.cu", Clocked::AtLeastTheWork),
    ("timed/answer_by_fingerprint.cu", Clocked::AtLeastTheWork),
    ("timed/fifteen_in_one.cu", Clocked::InvalidOrTheWork),
    ("kernels/drifts_after_ten_launches.cu", Clocked::Invalid),
    ("timed/answer_by_address.cu", Clocked::InvalidOrTheWork),
    ("kernels/odd_one_block_works.cu", Clocked::AtLeastTheWork),
    // Two seconds in any batch would be far more than the work.
    ("kernels/odd_slow_first_launch.cu", Clocked::Sound),
];

/// Does its work only while nobody records it; the kernel is launched by host code.
const RECORDED: &str = "kernels/odd_host_stream_joined.cu";

/// A trial a candidate: on the CPU, and on a GPU where there is one.
pub fn trials() -> Vec<Trial> {
    let on_host = |fixture: Timed| Trial::test(format!("timed::cpu::{}", fixture.name), move || on_cpu(&fixture));
    let on_gpu = |file: &'static str, name: String, expected: Clocked| {
        Trial::ignorable_test(format!("timed::cuda::{name}"), move || on_gpu(file, expected))
    };
    let name = |file: &str| file.trim_end_matches(".cu").rsplit('/').next().unwrap_or_default().to_owned();
    let kernels = KERNELS.into_iter().map(|(file, expected)| on_gpu(file, name(file), expected));
    let recorded = on_gpu(RECORDED, "idle_while_recorded".into(), Clocked::Invalid);
    fixtures().into_iter().map(on_host).chain(kernels).chain([recorded, persisting::trial()]).collect()
}

fn on_cpu(fixture: &Timed) -> Result<(), Failed> {
    let judged = judge(&CpuDevice::new(), &(fixture.make)(), fixture.expected, WORK_US);
    judged.map_err(|failed| format!("{}: {}", fixture.defect, failed.message().unwrap_or_default()).into())
}

fn on_gpu(file: &str, expected: Clocked) -> Result<Completion, Failed> {
    let gpu = match CudaDevice::open(0) {
        Ok(gpu) => gpu,
        Err(why) if cuda::is_required() => return Err(why.into()),
        Err(why) => return Ok(Completion::ignored_with(why)),
    };
    let kernel = kernel(file)?;
    let candidate = if file == RECORDED { idle_while_recorded(&kernel, &gpu.arch())? } else { kernel };
    judge(&gpu, &candidate, expected, GPU_WORK_US).map(|()| Completion::Completed)
}

/// A kernel, below `fixtures/faulty`.
pub fn kernel(file: &str) -> Result<Candidate, String> {
    let path = cuda::folder().join(file);
    let source = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let launch = |s: &Vector| Launch::blocks(s.n.div_ceil(256), 256).scalar(s.n as i64);
    Ok(Cuda::source(source, "candidate", launch).file(file).dtypes([F32]).named("timed"))
}

/// For a bundle.
pub fn kernels() -> Result<Vec<Candidate>, String> {
    KERNELS.iter().map(|(file, _)| *file).chain([persisting::KERNEL]).map(kernel).collect()
}

fn judge(device: &dyn Device, candidate: &Candidate, expected: Clocked, work_us: f64) -> Result<(), Failed> {
    let settings = PerfSettings { only: vec![vec![ELEMENTS]], ..PerfSettings::of(device.kind()) };
    let outcome = time(device, candidate, &settings)?;
    let found = clocked(&outcome, work_us).ok_or_else(|| format!("is not timed: {outcome:?}"))?;
    let is_expected = match expected {
        Clocked::InvalidOrTheWork => matches!(found, Clocked::Invalid | Clocked::AtLeastTheWork),
        one => found == one,
    };
    if is_expected { Ok(()) } else { Err(format!("expected {expected:?}, found {found:?}: {outcome:?}").into()) }
}

/// What the perf check makes of a candidate for `silu`, if it leaves nothing out.
pub fn time(device: &dyn Device, candidate: &Candidate, settings: &PerfSettings) -> Result<Outcome, Failed> {
    let suite = crate::suite("silu")?;
    let subject = Subject { operator: suite.operator.as_ref(), candidate, dtype: F32 };
    let outcome = perf::run(&Context::new(device, 1, Duration::from_secs(60)), &subject, settings);
    if outcome.unreached > 0 || outcome.notes.iter().any(|note| note.contains("budget")) {
        return Err(format!("not all was timed: {outcome:?}").into());
    }
    Ok(outcome)
}

fn clocked(outcome: &Outcome, work_us: f64) -> Option<Clocked> {
    let timing = outcome.timings.first()?;
    match outcome.verdict {
        Verdict::Invalid => Some(Clocked::Invalid),
        Verdict::Pass if timing.median_us >= work_us => Some(Clocked::AtLeastTheWork),
        Verdict::Pass => Some(Clocked::Sound),
        _ => None,
    }
}
