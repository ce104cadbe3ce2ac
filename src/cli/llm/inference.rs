//! What is run of a language model, where and how: the arguments that `llm` and `profile llm` share.

use crate::core::dtype::DType;
use crate::core::seed::{DEFAULT_SEED, parse as parse_seed};
use crate::device::DeviceKind;
use crate::harness::arguments::DeviceChoice;
use clap::Args;

/// A model, its prompt, and the way that its steps run.
#[derive(Args, Clone)]
pub struct Inference {
    /// A Hugging Face folder, or a name for random weights of that shape: tinyllama, llama-3.2-1b, smollm2-135m, opt-125m,
    /// opt-1.3b
    #[arg(long, value_name = "FOLDER|NAME")]
    pub model: String,
    /// The text of the prompt; without it random tokens
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Tokens of a random prompt
    #[arg(long, value_name = "N", default_value_t = 16, conflicts_with = "prompt")]
    pub prompt_tokens: usize,
    /// Where to run: cpu, sim, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceChoice,
    /// The dtype of weights, cache and activations [default: f32 on the CPU, bf16 elsewhere]
    #[arg(long, value_name = "f32|f16|bf16")]
    pub dtype: Option<DType>,
    /// Sequences side by side, all with the same prompt
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub batch: u16,
    /// How the steps run: tiers or naive (the CPU's); unfused (an operator a launch), fused (a new token by fewer kernels), graph
    /// (those recorded once, as a CUDA graph) [default: tiers on the CPU, graph on a GPU from compute capability 9.0 on, unfused on
    /// others]
    #[arg(long, value_name = "WAY")]
    pub way: Option<String>,
    /// The seed of random weights, random prompts and drawn tokens
    #[arg(long, value_name = "N", value_parser = parse_seed, default_value_t = DEFAULT_SEED, hide_default_value = true)]
    pub seed: u64,
}

impl Inference {
    /// The dtype of weights, cache and activations.
    pub fn dtype(&self) -> DType {
        self.dtype.unwrap_or(if self.device.kind == DeviceKind::Cpu { DType::F32 } else { DType::BF16 })
    }
}
