//! `kernelgate calibrate`: what this device can really do, as a file and a table.

use super::{Failure, print, project};
use crate::calibrate::{Effort, calibrate, probes};
use crate::core::seed::DEFAULT_SEED;
use crate::device::DeviceKind;
use crate::harness::arguments::DeviceChoice;
use crate::harness::devices::{Devices, KernelDevice};
use crate::harness::progress::{Progress, Quiet};
use crate::harness::terminal::note;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `calibrate`.
#[derive(Args)]
pub struct Calibrate {
    /// What to calibrate: cpu, cuda or cuda:N [default: the GPU if there is one]
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// Where the file goes [default: target/kernelgate/calibration/DEVICE.json]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    #[command(flatten)]
    quiet: Quiet,
    /// Print the file as JSON; the table goes to stderr
    #[arg(long)]
    json: bool,
}

impl Calibrate {
    /// Measures, writes, prints.
    pub fn run(self) -> Result<(), Failure> {
        // With no choice the GPU, if there is one; the simulator tells no time.
        let kind = self.device.map_or_else(|| KernelDevice::choose(None, false).kind, |choice| choice.kind);
        let kind = match (kind, self.device) {
            (DeviceKind::Sim, Some(_)) => {
                return Err(Failure::Input("--device sim: the simulator tells no time".into()));
            }
            (DeviceKind::Sim, None) => DeviceKind::Cpu,
            (kind, _) => kind,
        };
        let devices = Devices::new(self.device, kind == DeviceKind::Cuda);
        let device = devices.for_kind(kind).map_err(Failure::Missing)?;
        let run = project().describe_run(DEFAULT_SEED);
        let effort = Effort::default();
        let progress = Progress::of(probes(device, &effort), self.quiet);
        progress.say("probes");
        let mut say = |probe: &str| {
            note(format_args!("{probe}"));
            progress.step();
        };
        let calibration = calibrate(device, &effort, run.started, run.revision, &mut say)
            .map_err(|fault| Failure::Input(format!("{}: {fault}", device.fingerprint().name)))?;
        let out = self.out.unwrap_or_else(|| {
            let folder = project().summary_path().with_file_name("calibration");
            folder.join(format!("{}.json", device.fingerprint().key()))
        });
        progress.end();
        calibration.write(&out).map_err(Failure::Input)?;
        note(format_args!("calibration: {}", out.display()));
        if !self.json {
            return print(&calibration.to_string());
        }
        eprint!("{calibration}");
        let text = serde_json::to_string_pretty(&calibration).map_err(|error| Failure::Input(error.to_string()))?;
        print(&(text + "\n"))
    }
}
