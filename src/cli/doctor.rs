//! `kernelgate doctor`: diagnoses the CUDA setup: what this machine has, what is missing and how to get it, and where kernels run.

use super::{Failure, print};
use crate::device::cpu::CpuDevice;
use crate::device::{Device as _, DeviceKind};
use crate::harness::devices::KernelDevice;
use clap::Args;

/// Arguments of `doctor`.
#[derive(Args)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Exit with code 3 if there is no usable GPU
    #[arg(long, value_name = "cuda", value_parser = ["cuda"])]
    require: Option<String>,
}

/// One thing that was looked for.
struct Line {
    what: &'static str,
    found: Result<String, String>,
}

impl Doctor {
    /// Looks and prints.
    pub fn run(self) -> Result<(), Failure> {
        let cpu = CpuDevice::new();
        let host = cpu.fingerprint();
        let mut lines = vec![Line { what: "CPU", found: Ok(format!("{} ({} threads)", host.name, host.units)) }];
        lines.extend(cuda());
        lines.push(Line { what: "kernels", found: Ok(where_kernels_run()) });
        print(&if self.json { json(&lines) } else { text(&lines) })?;
        let gpu = lines.iter().find(|line| line.what == "GPU").map(|line| line.found.clone());
        match (self.require, gpu) {
            (Some(_), Some(Err(why))) => Err(Failure::Missing(why)),
            _ => Ok(()),
        }
    }
}

#[cfg(feature = "cuda")]
fn cuda() -> Vec<Line> {
    let findings = crate::device::cuda::probe();
    findings.into_iter().map(|finding| Line { what: finding.what, found: finding.found }).collect()
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Vec<Line> {
    let why = "this build has no CUDA support: enable the feature `cuda-13` or `cuda-12`";
    vec![Line { what: "GPU", found: Err(why.into()) }]
}

/// The device that a gate takes here when it is told none, and why.
fn where_kernels_run() -> String {
    let chosen = KernelDevice::choose(None, false);
    let place = if chosen.kind == DeviceKind::Cuda { "on the GPU" } else { "in the PTX simulator" };
    format!("run {place} unless `--device` says otherwise: {}", chosen.why)
}

fn text(lines: &[Line]) -> String {
    let line = |line: &Line| match &line.found {
        Ok(found) => format!("found    {:<13} {found}\n", line.what),
        Err(why) => format!("missing  {:<13} {why}\n", line.what),
    };
    lines.iter().map(line).collect()
}

fn json(lines: &[Line]) -> String {
    let entry = |line: &Line| match &line.found {
        Ok(found) => serde_json::json!({ "what": line.what, "found": found }),
        Err(why) => serde_json::json!({ "what": line.what, "missing": why }),
    };
    format!("{:#}\n", serde_json::Value::Array(lines.iter().map(entry).collect()))
}
