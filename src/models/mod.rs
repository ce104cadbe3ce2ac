//! Language models and small workloads on the operators of the catalogue: each is a list of steps over named buffers,
//! written once, and run by an f64 reference, on the CPU, on a GPU and in the simulator.
//!
//! | file | owns |
//! |---|---|
//! | `llama`, `opt` | the architectures of language models |
//! | `cnn`, `chain` | a classifier of digits, and a chain of three operators |
//! | `description`, `builder`, `images` | steps, buffers and views; how an architecture is written down |
//! | `decode` | fused steps of one new token |
//! | `config`, `named` | what `config.json` says, and configurations that need no folder |
//! | `folder`, `tensor_files`, `mapped`, `random` | where weights come from |
//! | `idx`, `digits` | labelled digits and the weights of their classifier, as the tensors of a case |
//! | `layout` | how many bytes each buffer takes, and which share a place |
//! | `catalogue` | which candidate computes a step |
//! | `reference`, `cpu`, `launched` | the executors |
//! | `awake` | the threads of a run on the CPU |
//! | `planned` | the steps of a run as cases of their operators |
//! | `traced` | what the executors tell a recording of their steps |
//! | `session`, `sampling`, `perplexity` | prompts, the cache, the next token |
//! | `text` | tokenizer and chat template |
//! | `golden` | what another program computed, to be held against |
//! | `gate` | tiny language models and the workloads as operators of the gate |

mod awake;
mod builder;
mod catalogue;
mod chain;
mod choice;
mod cnn;
mod config;
mod cpu;
mod decode;
mod description;
mod digits;
mod error;
mod folder;
mod gate;
mod golden;
mod idx;
mod images;
mod launched;
mod layout;
mod llama;
mod mapped;
mod named;
mod opt;
mod perplexity;
mod planned;
mod random;
mod reference;
mod sampling;
mod session;
mod tensor_files;
mod text;
mod traced;
mod weights;

#[cfg(test)]
mod tests;

pub use chain::{Chain, chain, stage_points};
pub use cnn::{CLASSES, classifier};
pub use config::{Architecture, Config, RopeScaling};
pub use cpu::CpuExecutor;
pub use description::{Extents, Model};
pub use digits::{Classifier, classes};
pub use error::Error;
pub use folder::Folder;
pub use gate::{CHAINS, STAGES, Stages, Tier, chain_suite, cnn_suite, suites};
pub use golden::{Agreement, Golden};
pub use idx::LabelledDigits;
pub use launched::{LaunchedExecutor, Launches};
pub use layout::{Limits, Memory};
pub use named::{NAMES, named};
pub use perplexity::{Perplexity, perplexity};
pub use planned::{PlannedStep, Way, planned};
pub use random::RandomWeights;
pub use reference::ReferenceExecutor;
pub use sampling::{Sampler, Sampling};
pub use session::{Executor, Session};
pub use text::Text;
pub use weights::Weights;

impl Model {
    /// The steps of a configuration.
    ///
    /// # Errors
    /// What the configuration has that no operator computes.
    pub fn of(config: &Config) -> Result<Model, Error> {
        match config.architecture {
            Architecture::Llama => llama::llama(config),
            Architecture::Opt => opt::opt(config),
        }
    }

    /// The same with fused steps for one new token of each of `batch` sequences.
    ///
    /// # Errors
    /// As [`Model::of`], and where a configuration has no fused steps.
    pub fn fused(config: &Config, batch: usize) -> Result<Model, Error> {
        match config.architecture {
            Architecture::Llama => llama::fused(config, batch),
            Architecture::Opt => opt::fused(config, batch),
        }
    }
}
