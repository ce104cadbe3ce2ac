//! `kernelgate cnn`: a classifier of digits on the catalogue: how many it gets right, how fast each variant is.

mod accuracy;
mod show;
mod timing;
mod workload;

use super::{Failure, print, project};
use crate::core::dtype::DType;
use crate::core::seed::{DEFAULT_SEED, parse as parse_seed};
use crate::device::{Device, DeviceKind};
use crate::harness::arguments::{DeviceChoice, parse_seconds};
use crate::harness::devices::Devices;
use crate::harness::interrupt::keep_results;
use crate::harness::progress::{Progress, Quiet};
use crate::harness::terminal::note;
use crate::models::{Classifier, Error, LabelledDigits, cnn_suite};
use crate::ops::max_pool2d::Activation;
use crate::protocol::{Deadlines, Peer, process::CommandLine};
use crate::report::summary::Summary;
use crate::report::workloads::{VERSION, WorkloadRun};
use accuracy::{Absent, Classified};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use workload::{Variant, Workload};

/// The weights that ship with the project.
const WEIGHTS: &str = "fixtures/cnn/mnist.safetensors";

/// What follows a convolution.
#[derive(Clone, Copy, ValueEnum)]
enum Function {
    Relu,
    Gelu,
    Silu,
}

/// Arguments of `cnn`.
#[derive(Args)]
pub struct Cnn {
    /// A folder with digits as IDX files: `bash ci/get-mnist.sh FOLDER` writes one
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// The weights, as fixtures/cnn/train.py writes them [default: those that ship with the project]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// What follows a convolution
    #[arg(long, value_name = "NAME", default_value = "relu")]
    activation: Function,
    /// Which ways to compute it
    #[arg(long = "variant", value_name = "NAME", value_delimiter = ',', default_value = "all")]
    variants: Vec<Variant>,
    /// Digits at a time, for the clock; 0 takes no time
    #[arg(long = "batch", value_name = "N", value_delimiter = ',', default_value = "1,64,1024")]
    batches: Vec<usize>,
    /// Classify only so many of the digits, spread over all of them
    #[arg(long, value_name = "N")]
    digits: Option<usize>,
    /// Where kernels run: cpu (nowhere), sim, cuda or cuda:N [default: a GPU, if there is one]
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// The dtype of weights and activations
    #[arg(long, value_name = "f32|bf16", default_value = "f32")]
    dtype: DType,
    /// Time the same beside this command, which speaks the measurement protocol (docs/protocol.md); may be given several
    /// times: "python3 peers/torch_peer.py --mode eager,compile"
    #[arg(long = "peer", value_name = "COMMAND")]
    peers: Vec<String>,
    /// Seconds that a peer may take to start, to get ready for a case, to compute it
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "180", requires = "peers")]
    deadline: Duration,
    /// The seed of the timed inputs and of the order of measurements
    #[arg(long, value_name = "N", value_parser = parse_seed, default_value_t = DEFAULT_SEED, hide_default_value = true)]
    seed: u64,
    #[command(flatten)]
    quiet: Quiet,
    /// Print the summary as JSON; the table goes to stderr
    #[arg(long)]
    json: bool,
    /// Add the measurement to this summary, or begin it
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

/// Wrong data or weights.
fn input(error: Error) -> Failure {
    Failure::Input(error.to_string())
}

impl Cnn {
    /// Classifies, measures, prints.
    pub fn run(self) -> Result<(), Failure> {
        let workload = self.open()?;
        let devices =
            Devices::new(self.device, self.device.is_none()).of_project(Path::new(env!("CARGO_MANIFEST_DIR")));
        let mut summary = Summary::new(project().describe_run(self.seed));
        let (mut runs, mut classified) = (Vec::new(), Vec::new());
        let (mut failed, mut absent) = (false, false);
        let mut present: Vec<(Variant, &dyn Device)> = Vec::new();
        let variants = self.variants();
        let batches: Vec<usize> = self.batches.iter().copied().filter(|&batch| batch > 0).collect();
        let progress = Progress::of(variants.len() + batches.len(), self.quiet);
        for variant in variants {
            progress.say(variant.names().0);
            match self.classify(&workload, &devices, variant) {
                Ok((device, of)) => {
                    summary.add_device(device.fingerprint());
                    present.push((variant, device));
                    classified.push(of);
                }
                Err(Absent { why, has_failed }) => {
                    note(format_args!("{}: {why}", variant.names().0));
                    failed |= has_failed;
                    absent |= self.variants.contains(&variant);
                    let run = self.record(&workload, variant, "none", workload.digits.count());
                    runs.push(WorkloadRun { skipped: Some(why), ..run });
                }
            }
            progress.step();
        }
        let agreement = accuracy::compare(&workload, &classified);
        for ((variant, device), of) in present.iter().zip(&classified) {
            let key = device.fingerprint().key();
            let accuracy = Some(of.accuracy(&workload.digits, agreement.others(of)));
            runs.push(WorkloadRun { accuracy, ..self.record(&workload, *variant, &key, workload.digits.count()) });
        }
        let say = |text: &str| {
            if self.json {
                note(format_args!("{}", text.trim_end_matches('\n')));
                Ok(())
            } else {
                print(text)
            }
        };
        say(&show::accuracies(&runs, &agreement))?;
        let kept = self.keep_until_the_end();
        let keep = |summary: &Summary, runs: &[WorkloadRun]| {
            let so_far = Summary { workloads: runs.to_vec(), ..summary.clone() };
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(so_far);
        };
        keep(&summary, &runs);
        let peers = self.start_peers()?;
        for batch in batches {
            progress.say(&format!("batch {batch}"));
            for kind in [DeviceKind::Cuda, DeviceKind::Cpu] {
                let of_kind = present.iter().filter(|(variant, _)| variant.kind() == kind).copied().collect::<Vec<_>>();
                let Some(timed) = timing::side_by_side(&workload, &of_kind, &peers, batch) else { continue };
                say(&show::times(&timed))?;
                runs.extend(timed.runs(|variant, key| self.record(&workload, variant, key, batch)));
                summary.add(vec![timed.record]);
                keep(&summary, &runs);
            }
            progress.step();
        }
        peers.into_iter().for_each(Peer::close);
        summary.workloads = runs;
        let has_failed = summary.records.iter().any(|record| record.outcome.verdict.is_failure());
        if self.json {
            print(&summary.to_json())?;
        }
        // A signal finds nothing to keep from here on.
        kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(out) = &self.out {
            summary.write_into(out)?;
        }
        if failed || has_failed || !agreement.holds() {
            return Err(Failure::Verdict);
        }
        if absent || present.is_empty() {
            return Err(Failure::Missing("no device for a variant that was asked for".into()));
        }
        Ok(())
    }

    /// Where what was measured so far is put, for a signal to write down.
    fn keep_until_the_end(&self) -> Arc<Mutex<Option<Summary>>> {
        let kept = Arc::new(Mutex::new(None::<Summary>));
        let (at_end, out) = (Arc::clone(&kept), self.out.clone());
        keep_results(move |signal| {
            let so_far = at_end.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let (Some(summary), Some(out)) = (so_far, out) {
                note(format_args!("ended by {signal}: what was measured is kept"));
                if let Err(why) = summary.write_into(&out) {
                    note(format_args!("{why}"));
                }
            }
        });
        kept
    }

    fn open(&self) -> Result<Workload, Failure> {
        let activation = match self.activation {
            Function::Relu => Activation::Relu,
            Function::Gelu => Activation::Gelu,
            Function::Silu => Activation::Silu,
        };
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join(WEIGHTS);
        let classifier = Classifier::open(self.weights.as_ref().unwrap_or(&shipped), activation).map_err(input)?;
        let suite = cnn_suite();
        if !suite.dtypes.contains(&self.dtype) {
            return Err(Failure::Input(format!("--dtype {}: the classifier runs in f32 and bf16", self.dtype)));
        }
        let mut digits = LabelledDigits::open(&self.data).map_err(input)?;
        if let Some(most) = self.digits {
            digits = digits.spread(most);
        }
        // Of one digit, before any variant runs: what is wrong with the weights is no variant's fault.
        classifier.inputs(&*suite.operator, &digits, 0..1, self.dtype).map_err(input)?;
        Ok(Workload { suite, digits, classifier, dtype: self.dtype, seed: self.seed })
    }

    fn variants(&self) -> Vec<Variant> {
        let is_asked = |variant: &Variant| self.variants.iter().any(|asked| asked == variant || *asked == Variant::All);
        Variant::EACH.into_iter().filter(is_asked).collect()
    }

    /// What a variant says of every digit, or why it says nothing here.
    fn classify<'d>(
        &self,
        workload: &Workload,
        devices: &'d Devices,
        variant: Variant,
    ) -> Result<(&'d dyn Device, Classified), Absent> {
        let (name, _) = variant.names();
        let device = devices.for_kind(variant.kind())?;
        let candidate = workload.candidate(variant)?;
        note(format_args!("{name}: {} digits on {}", workload.digits.count(), device.fingerprint().name));
        Ok((device, Classified::by(workload, variant, candidate, device)?))
    }

    fn record(&self, workload: &Workload, variant: Variant, device: &str, batch: usize) -> WorkloadRun {
        WorkloadRun {
            version: VERSION,
            workload: "cnn".into(),
            variant: variant.names().0.into(),
            device: device.into(),
            dtype: workload.dtype.name().into(),
            shape: workload.describe(batch),
            time: None,
            accuracy: None,
            stages: Vec::new(),
            exchange: None,
            skipped: None,
        }
    }

    fn start_peers(&self) -> Result<Vec<Peer>, Failure> {
        let start = |line: &String| {
            let command = CommandLine::parse(line).map_err(|why| Failure::Input(format!("--peer: {why}")))?;
            let peer = Peer::start(command, Deadlines::of(self.deadline));
            if let Err(end) = peer.hello() {
                return Err(Failure::Missing(format!("the peer {line}: it {end}")));
            }
            Ok(peer)
        };
        self.peers.iter().map(start).collect()
    }
}
