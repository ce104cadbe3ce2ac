//! What `llm` runs: a folder or a named configuration, its tokenizer, and an executor on the device that was asked for.

use super::Llm;
use crate::cli::Failure;
use crate::core::dtype::DType;
use crate::device::arena::Arena;
use crate::device::cpu::CpuDevice;
use crate::device::fault::Fault;
use crate::device::sim::{SimArena, SimDevice};
use crate::device::{Device, DeviceKind};
use crate::harness::progress::{Progress, Quiet};
use crate::models::{
    Config, CpuExecutor, Error, Executor, Folder, Golden, LaunchedExecutor, Launches, Limits, Model, NAMES,
    RandomWeights, Text, Weights, named,
};
use crate::toolchain::committed::FOLDER;
use std::path::Path;

/// New positions of one run at most: longer prompts go in parts.
pub const QUERIES: usize = 512;

/// A model that was found.
pub struct Opened {
    /// Its configuration.
    pub config: Config,
    /// Its steps.
    pub model: Model,
    weights: Box<dyn Weights>,
    text: Option<Text>,
}

/// A wrong model, file or prompt; what a device lacks is missing instead.
pub fn input(error: Error) -> Failure {
    match error {
        Error::Device(Fault::Unsupported(why)) => Failure::Missing(why),
        other => Failure::Input(other.to_string()),
    }
}

impl Opened {
    /// Finds the model.
    pub fn open(llm: &Llm) -> Result<Self, Failure> {
        let path = Path::new(&llm.inference.model);
        if path.is_dir() {
            let folder = Folder::open(path).map_err(input)?;
            let config = folder.config.clone();
            let text = path.join("tokenizer.json").exists().then(|| Text::open(path, &config)).transpose();
            let model = Model::of(&config).map_err(input)?.sampled(llm.sampler());
            return Ok(Opened { config, model, weights: Box::new(folder), text: text.map_err(input)? });
        }
        let config = named(&llm.inference.model).ok_or_else(|| {
            Failure::Input(format!(
                "--model {}: no such folder, and no such name; names: {}",
                llm.inference.model,
                NAMES.join(", ")
            ))
        })?;
        let model = Model::of(&config).map_err(input)?.sampled(llm.sampler());
        Ok(Opened { config, model, weights: Box::new(RandomWeights { seed: llm.inference.seed }), text: None })
    }

    /// The tokenizer, where text is asked for.
    pub fn text(&self) -> Result<&Text, Failure> {
        self.text
            .as_ref()
            .ok_or_else(|| Failure::Input(format!("{}: text needs a folder with a tokenizer.json", self.config.source)))
    }

    /// A golden as it is in a narrow dtype.
    pub fn rounded(&self, golden: &Golden, dtype: DType) -> Result<Golden, Failure> {
        golden.rounded(&self.model, &*self.weights, dtype).map_err(input)
    }

    /// Whether there is a tokenizer.
    pub fn has_text(&self) -> bool {
        self.text.is_some()
    }

    /// Loads the model where it was asked for, and hands it on with the device and the way it runs.
    pub fn with_executor<T>(
        &self,
        llm: &Llm,
        run: impl FnOnce(&mut dyn Executor, &dyn Device, &'static str) -> T,
    ) -> Result<T, Failure> {
        let limits = self.limits(llm)?;
        let kind = llm.inference.device.kind;
        let dtype = llm.inference.dtype();
        // The first is what runs where none is asked for. The simulator records no launches.
        let ways: &[&'static str] = match kind {
            DeviceKind::Cpu => &["tiers", "naive"],
            DeviceKind::Cuda if Model::fused(&self.config, limits.batch).is_err() => &["unfused"],
            DeviceKind::Cuda => &["graph", "fused", "unfused"],
            DeviceKind::Sim => &["unfused", "fused"],
        };
        let asked = llm.inference.way.as_deref().unwrap_or(ways[0]);
        let way = *ways
            .iter()
            .find(|way| **way == asked)
            .ok_or_else(|| Failure::Input(format!("--way {asked}: on {kind} a model runs as {}", ways.join(" or "))))?;
        match kind {
            DeviceKind::Cpu => {
                let of_way = if way == "naive" { CpuExecutor::naive } else { CpuExecutor::new };
                let mut executor = of_way(&self.model, &*self.weights, limits, dtype).map_err(input)?;
                Ok(run(&mut executor, &CpuDevice::new(), way))
            }
            DeviceKind::Sim => {
                let device = SimDevice::new(Some(Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER)));
                let arena = Box::new(SimArena::new(&device));
                let mut executor = self.launched(way, limits, dtype, arena, llm.quiet)?;
                Ok(run(&mut executor, &device, way))
            }
            DeviceKind::Cuda => self.on_gpu(llm, way, limits, dtype, run),
        }
    }

    #[cfg(feature = "cuda")]
    fn on_gpu<T>(
        &self,
        llm: &Llm,
        way: &'static str,
        limits: Limits,
        dtype: DType,
        run: impl FnOnce(&mut dyn Executor, &dyn Device, &'static str) -> T,
    ) -> Result<T, Failure> {
        use crate::device::cuda::{CudaArena, CudaDevice};
        let device = CudaDevice::open(llm.inference.device.ordinal).map_err(Failure::Missing)?;
        // The fused kernels form clusters. Where they were asked for, the kernels say so.
        let is_usual = llm.inference.way.is_none();
        let way = if is_usual && !device.has_clusters() { "unfused" } else { way };
        let arena = CudaArena::new(&device).map_err(|fault| input(fault.into()))?;
        let mut executor = self.launched(way, limits, dtype, Box::new(arena), llm.quiet)?;
        Ok(run(&mut executor, &device, way))
    }

    #[cfg(not(feature = "cuda"))]
    fn on_gpu<T>(
        &self,
        _: &Llm,
        _: &'static str,
        _: Limits,
        _: DType,
        _: impl FnOnce(&mut dyn Executor, &dyn Device, &'static str) -> T,
    ) -> Result<T, Failure> {
        Err(Failure::Missing("this build has no CUDA: enable the feature `cuda-13` or `cuda-12`".into()))
    }

    fn launched<'a>(
        &self,
        way: &str,
        limits: Limits,
        dtype: DType,
        arena: Box<dyn Arena + 'a>,
        quiet: Quiet,
    ) -> Result<LaunchedExecutor<'a>, Failure> {
        let mut shown: Option<Progress> = None;
        let progress = |done: usize, all: usize| {
            let shown = shown.get_or_insert_with(|| Progress::of(all / 1_000_000, quiet));
            shown.say("MB of weights");
            shown.reach(done / 1_000_000);
        };
        let fused;
        let (model, launches) = match way {
            "unfused" => (&self.model, Launches::EachStep),
            _ => {
                fused = Model::fused(&self.config, limits.batch).map_err(input)?.sampled(self.model.sampler);
                (&fused, if way == "graph" { Launches::Recorded } else { Launches::EachStep })
            }
        };
        LaunchedExecutor::new(model, &*self.weights, limits, dtype, launches, arena, progress).map_err(input)
    }

    /// Room for the prompt and what is written behind it, or for a window.
    fn limits(&self, llm: &Llm) -> Result<Limits, Failure> {
        let context = self.model.context;
        let (capacity, all_logits) = match (&llm.golden, &llm.perplexity) {
            (Some(file), _) => return Ok(Golden::read(file).map_err(input)?.limits()),
            (_, Some(_)) => (llm.window, true),
            _ => (llm.prompt_of(self)?.len() + llm.tokens, false),
        };
        if capacity > context {
            let said = format!("{}: expected at most {context} positions, the model's context", self.config.source);
            return Err(Failure::Input(format!("{said}, found {capacity}: the prompt and --tokens, or --window")));
        }
        let batch = usize::from(llm.inference.batch);
        Ok(Limits { batch, capacity, queries: capacity.min(QUERIES), all_logits })
    }
}
