//! `kernelgate chain`: a product, softmax and a norm behind one another: each stage alone, the chain, and what exchanging
//! stages brings.

mod session;
mod show;

use super::{Failure, print, project};
use crate::core::dtype::DType;
use crate::core::seed::{DEFAULT_SEED, parse as parse_seed};
use crate::device::DeviceKind;
use crate::harness::arguments::{DeviceChoice, parse_seconds};
use crate::harness::devices::Devices;
use crate::harness::progress::{Progress, Quiet};
use crate::harness::terminal::note;
use crate::models::Chain;
use crate::report::summary::Summary;
use clap::Args;
use session::Bench;
pub use show::size;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arguments of `chain`.
#[derive(Args)]
pub struct ChainCommand {
    /// Extents: N for N rows of N columns all along, or ROWSxINNERxCOLS
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_size, default_value = "64,128,256,512")]
    sizes: Vec<Chain>,
    /// Where to run: cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: DeviceChoice,
    /// The dtype of all tensors
    #[arg(long, value_name = "f32|bf16", default_value = "f32")]
    dtype: DType,
    /// The seed of the inputs and of the order of measurements
    #[arg(long, value_name = "N", value_parser = parse_seed, default_value_t = DEFAULT_SEED, hide_default_value = true)]
    seed: u64,
    /// Time that each stage and each chain of a size is sampled [default: 0.6 on a CPU, on a GPU as in the gate]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    sampling: Option<Duration>,
    #[command(flatten)]
    quiet: Quiet,
    /// Print the summary as JSON; the table goes to stderr
    #[arg(long)]
    json: bool,
    /// Add the measurement to this summary, or begin it
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

/// `256`, or `64x128x256`.
pub fn parse_size(text: &str) -> Result<Chain, String> {
    /// Extents of a chain end there.
    const MOST: usize = 1 << 16;
    let parts: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
    let parts = parts.unwrap_or_default();
    if parts.iter().any(|extent| !(1..=MOST).contains(extent)) {
        return Err(format!("expected extents of 1 to {MOST}, found `{text}`"));
    }
    match parts[..] {
        [side] => Ok(Chain { rows: side, inner: side, cols: side }),
        [rows, inner, cols] => Ok(Chain { rows, inner, cols }),
        _ => Err(format!("expected N or ROWSxINNERxCOLS, found `{text}`")),
    }
}

impl ChainCommand {
    /// Measures size by size, printing each as soon as it is known.
    pub fn run(self) -> Result<(), Failure> {
        if self.device.kind == DeviceKind::Sim {
            return Err(Failure::Input("--device sim: the simulator tells no time".into()));
        }
        let devices = Devices::new(Some(self.device), false).of_project(Path::new(env!("CARGO_MANIFEST_DIR")));
        let device = devices.for_kind(self.device.kind).map_err(Failure::Missing)?;
        let bench = Bench::new(device, self.dtype, self.seed, self.sampling).map_err(Failure::Input)?;
        let mut summary = Summary::new(project().describe_run(self.seed));
        summary.add_device(device.fingerprint());
        let progress = Progress::of(self.sizes.len(), self.quiet);
        for size in &self.sizes {
            progress.say(&show::size(size));
            let measured = bench.measure(size).map_err(Failure::Input)?;
            progress.step();
            let text = show::table(&measured);
            if self.json {
                note(format_args!("{}", text.trim_end_matches('\n')));
            } else {
                print(&text)?;
            }
            summary.workloads.extend(measured.runs());
            // After each size: what was measured outlives whatever ends this process.
            if let Some(out) = &self.out {
                summary.write_into(out)?;
            }
        }
        if self.json { print(&summary.to_json()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_one_extent_or_three() {
        assert_eq!(parse_size("64"), Ok(Chain { rows: 64, inner: 64, cols: 64 }));
        assert_eq!(parse_size("2x3x4"), Ok(Chain { rows: 2, inner: 3, cols: 4 }));
        for wrong in ["", "0", "2x3", "70000", "2x3x4x5", "a"] {
            assert!(parse_size(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
