//! `predict --model`, `--chain`, `--cnn`: the very steps that run, one behind the other.

mod show;

use super::{Predict, json};
use crate::check::Subject;
use crate::cli::chain::parse_size;
use crate::cli::llm::open::QUERIES;
use crate::cli::{Failure, print};
use crate::core::dtype::DType;
use crate::core::shape::{Shape as _, describe};
use crate::device::DeviceKind;
use crate::device::fingerprint::Fingerprint;
use crate::models::{self, Chain, Extents, Model, NAMES, PlannedStep, Way, named, planned};
use crate::predict::{Basis, Composed, Composer, Limits, Step, StepTime};
use clap::Args;
use serde::Serialize;

/// What is predicted in place of single cases.
#[derive(Args)]
#[group(multiple = true)]
pub struct Workload {
    /// A language model by its name: tinyllama, llama-3.2-1b, smollm2-135m, opt-125m, opt-1.3b
    #[arg(long, value_name = "NAME", conflicts_with_all = ["chain", "cnn", "sweep", "validate", "refit", "shapes"])]
    model: Option<String>,
    /// Tokens of its prompt
    #[arg(long, value_name = "N", default_value_t = 128, requires = "model", value_parser = extent)]
    prompt: usize,
    /// Tokens that it writes
    #[arg(long = "gen", value_name = "N", default_value_t = 128, requires = "model", value_parser = extent)]
    generated: usize,
    /// Sequences side by side
    #[arg(long, value_name = "N", default_value_t = 1, requires = "model", value_parser = extent)]
    batch: usize,
    /// The inference chain of this size: N, or ROWSxINNERxCOLS
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with_all = ["cnn", "sweep", "validate", "refit", "shapes"])]
    chain: Option<Chain>,
    /// The classifier of digits for so many images
    #[arg(long, value_name = "IMAGES", value_parser = extent, conflicts_with_all = ["sweep", "validate", "refit", "shapes"])]
    cnn: Option<usize>,
    /// How the steps run: graph (a new token of a language model by fused kernels), unfused (the catalogue's kernels, an operator
    /// a launch), library (cuBLASLt and cuDNN where they can), tiers (the CPU's) [default: tiers on a CPU; on a GPU graph for a
    /// model that has fused steps, else unfused]
    #[arg(long, value_name = "WAY")]
    way: Option<String>,
}

fn extent(text: &str) -> Result<usize, String> {
    const MOST: usize = 1 << 16;
    let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or_else(|| format!("expected 1 to {MOST}, found `{text}`"))
}

/// A share of the time, by operator and candidate.
#[derive(Serialize)]
struct Share {
    name: String,
    share: f64,
}

/// Steps that no family speaks for.
#[derive(Serialize)]
struct Estimated {
    name: String,
    shape: String,
    why: String,
    factor: f64,
    share: f64,
}

/// Steps that run together.
#[derive(Serialize)]
struct Part {
    #[serde(flatten)]
    composed: Composed,
    shares: Vec<Share>,
    estimated: Vec<Estimated>,
}

/// The time of a language model.
#[derive(Serialize)]
struct ModelTime {
    model: String,
    device: String,
    way: &'static str,
    dtype: DType,
    batch: usize,
    prompt_tokens: usize,
    tokens: usize,
    first_token_ms: f64,
    prefill_per_s: f64,
    token_ms: TokenTimes,
    decode_per_s: f64,
    total_ms: f64,
    prefill: Part,
    token: Part,
}

/// Over the growing cache.
#[derive(Serialize)]
struct TokenTimes {
    first: f64,
    last: f64,
    mean: f64,
}

/// The time of the chain or the classifier.
#[derive(Serialize)]
struct RunTime {
    workload: &'static str,
    shape: String,
    device: String,
    way: &'static str,
    dtype: DType,
    #[serde(flatten)]
    part: Part,
}

impl Workload {
    /// Whether there is one.
    pub fn is_asked(&self) -> bool {
        self.model.is_some() || self.chain.is_some() || self.cnn.is_some()
    }

    /// The way that is asked for, or is taken where none is, with who computes the steps.
    fn way(&self, device: &Fingerprint, fuses: bool) -> Result<(&'static str, Way), Failure> {
        let arch = kernels_for(&device.arch);
        let ways: &[&'static str] = match device.kind {
            DeviceKind::Cpu => &["tiers"],
            // The fused kernels form clusters.
            _ if fuses && arch.ends_with('a') => &["graph", "unfused", "library"],
            _ => &["unfused", "library"],
        };
        let asked = self.way.as_deref().unwrap_or(ways[0]);
        match ways.iter().find(|way| **way == asked) {
            Some(&"tiers") => Ok(("tiers", Way::Tiers)),
            Some(&"library") => Ok(("library", Way::Library(arch))),
            Some(way) => Ok((way, Way::Own(arch))),
            None => {
                let said = format!("--way {asked}: on {} the steps run as {}", device.name, ways.join(" or "));
                Err(Failure::Input(said))
            }
        }
    }

    /// The language model that is asked for: its steps, and those with fused kernels where it has such.
    fn language(&self, name: &str) -> Result<(Model, Option<Model>), Failure> {
        let config = named(name)
            .ok_or_else(|| Failure::Input(format!("--model {name}: no such name; names: {}", NAMES.join(", "))))?;
        let model = Model::of(&config).map_err(|why| Failure::Input(why.to_string()))?;
        Ok((model, Model::fused(&config, self.batch).ok()))
    }
}

/// The architecture whose kernels a GPU runs: from 9.0 on there are some for one architecture alone.
fn kernels_for(arch: &str) -> String {
    let number: Option<usize> = arch.strip_prefix("sm_").and_then(|number| number.parse().ok());
    if number.is_some_and(|number| number >= 90) { format!("{arch}a") } else { arch.into() }
}

impl Predict {
    /// Predicts a workload.
    pub(super) fn say_workload(&self) -> Result<(), Failure> {
        let (calibration, fitted) = self.files(None)?;
        let limits = Limits::of(&calibration).map_err(Failure::Input)?;
        let suites = crate::ops::catalogue();
        let device = &calibration.device;
        let language = self.workload.model.as_deref().map(|name| self.workload.language(name)).transpose()?;
        let fuses = language.as_ref().is_some_and(|(_, fused)| fused.is_some());
        let (way, steps_by) = self.workload.way(device, fuses)?;
        let usual = if device.kind == DeviceKind::Cpu { DType::F32 } else { DType::BF16 };
        let dtype = match self.selection.dtypes() {
            [] => usual,
            [dtype] => *dtype,
            _ => return Err(Failure::Input("--dtype: a workload has one".into())),
        };
        let composer = Composer::new(&fitted, &limits, &suites);
        let run = Run { composer, dtype, way: steps_by, cache_bytes: device.cache_bytes };
        let (text, json) = if let Some((model, fused)) = language {
            let model = fused.filter(|_| way == "graph").unwrap_or(model);
            let found = self.workload.model_time(&model, &run, device, way)?;
            (show::model(&found), json(&found)?)
        } else {
            let (workload, shape, model, rows) = self.workload.network();
            let part = run.part(&run.steps(&model, &Extents::rows(rows), Launches::Repeated)?);
            let found = RunTime { workload, shape, device: device.key(), way, dtype, part };
            (show::run(&found), json(&found)?)
        };
        print(&if self.json { json + "\n" } else { text })
    }
}

impl Workload {
    /// The chain or the classifier: its name, shape, steps and rows.
    fn network(&self) -> (&'static str, String, Model, usize) {
        match (&self.chain, self.cnn) {
            (Some(size), _) => ("chain", describe(&Chain::axes(), &size.to_point()), models::chain(size), size.rows),
            (None, images) => {
                let images = images.unwrap_or(1);
                ("cnn", format!("batch={images}"), models::classifier(), images)
            }
        }
    }

    fn model_time(
        &self,
        model: &Model,
        run: &Run<'_>,
        device: &Fingerprint,
        way: &'static str,
    ) -> Result<ModelTime, Failure> {
        let name = self.model.as_deref().unwrap_or_default();
        let Workload { prompt, generated, batch, .. } = *self;
        if prompt + generated > model.context {
            let most = model.context;
            let said = format!("--prompt {prompt} --gen {generated}: {name} has {most} positions");
            return Err(Failure::Input(said));
        }
        let capacity = prompt + generated;
        let extents = |queries, past| Extents { batch, queries, past, all_logits: false, capacity };
        let mut prefill = Vec::new();
        for past in (0..prompt).step_by(QUERIES) {
            prefill.extend(run.steps(model, &extents(QUERIES.min(prompt - past), past), Launches::Queued)?);
        }
        // The first token comes with the prompt; each of the others is a run over one position more.
        let (first_past, last_past) = (prompt, prompt + generated.saturating_sub(2));
        let launches = if way == "graph" { Launches::Graph } else { Launches::Queued };
        let at = |past: usize| run.steps(model, &extents(1, past), launches);
        let middle = at(first_past.midpoint(last_past))?;
        let ms = |steps: &[StepTime]| Composed::of(steps).us * 1e-3;
        let [first, last] = [ms(&at(first_past)?), ms(&at(last_past)?)];
        // Attention grows in steps; a few positions show them.
        let mut sum = 0.0;
        let samples: Vec<usize> =
            (0..SAMPLES).map(|i| first_past + (last_past - first_past) * i / (SAMPLES - 1)).collect();
        for &past in &samples {
            sum += ms(&at(past)?);
        }
        let mean = sum / samples.len() as f64;
        let first_token_ms = ms(&prefill);
        Ok(ModelTime {
            model: name.into(),
            device: device.key(),
            way,
            dtype: run.dtype,
            batch,
            prompt_tokens: prompt,
            tokens: generated,
            first_token_ms,
            prefill_per_s: (prompt * batch) as f64 / first_token_ms * 1e3,
            token_ms: TokenTimes { first, last, mean },
            decode_per_s: batch as f64 / mean * 1e3,
            total_ms: first_token_ms + mean * generated.saturating_sub(1) as f64,
            prefill: run.part(&prefill),
            token: run.part(&middle),
        })
    }
}

/// Positions at which a token is predicted, for their mean.
const SAMPLES: usize = 9;

/// How the launches of a run come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Launches {
    /// As a graph, again and again: its weights stay in the cache if they fit.
    Repeated,
    /// As a graph.
    Graph,
    /// By the host, one behind the other.
    Queued,
}

/// How the steps of a model are predicted.
struct Run<'f> {
    composer: Composer<'f>,
    dtype: DType,
    way: Way,
    cache_bytes: usize,
}

impl Run<'_> {
    /// The steps of a run.
    fn steps(&self, model: &Model, e: &Extents, launches: Launches) -> Result<Vec<StepTime>, Failure> {
        let steps = planned(model, e, self.dtype, &self.way).map_err(|why| Failure::Input(why.to_string()))?;
        let all: usize = steps.iter().map(|step| step.bytes - step.passed_bytes / 2).sum();
        let stays = launches == Launches::Repeated && all <= self.cache_bytes;
        let by_host = launches == Launches::Queued;
        Ok(steps.iter().enumerate().map(|(at, step)| self.step(step, stays, [at > 0, by_host])).collect())
    }

    fn step(&self, step: &PlannedStep, stays: bool, [chained, by_host]: [bool; 2]) -> StepTime {
        // What is passed on lies in the cache if it leaves room there for what streams by.
        let is_passed = step.passed_bytes <= self.cache_bytes / 2;
        let cached = match (stays, is_passed) {
            (true, _) => 1.0,
            (_, true) => step.passed_bytes as f64 / step.bytes.max(1) as f64,
            _ => 0.0,
        };
        let subject = Subject { operator: step.operator.as_ref(), candidate: &step.candidate, dtype: self.dtype };
        self.composer.step(&Step { subject, point: &step.point, cached, chained, by_host })
    }

    fn part(&self, steps: &[StepTime]) -> Part {
        let composed = Composed::of(steps);
        let shares = Composed::shares(steps).into_iter().map(|(name, share)| Share { name, share }).collect();
        let mut estimated: Vec<Estimated> = Vec::new();
        for step in steps {
            let Basis::Floor { why, factor } = &step.basis else { continue };
            let share = step.us / composed.us;
            match estimated.iter_mut().find(|other| (&other.name, &other.shape) == (&step.name, &step.shape)) {
                Some(other) => other.share += share,
                None => estimated.push(Estimated {
                    name: step.name.clone(),
                    shape: step.shape.clone(),
                    why: why.clone(),
                    factor: *factor,
                    share,
                }),
            }
        }
        estimated.sort_by(|a, b| b.share.total_cmp(&a.share));
        Part { composed, shares, estimated }
    }
}
