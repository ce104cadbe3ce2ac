//! Language models on the operators of the catalogue: each is a list of steps over named buffers, written once, and run
//! by an f64 reference, on the CPU, on a GPU and in the simulator.
//!
//! | file | owns |
//! |---|---|
//! | `llama`, `opt` | the architectures |
//! | `description`, `builder` | steps, buffers and views; how an architecture is written down |
//! | `config`, `named` | what `config.json` says, and configurations that need no folder |
//! | `folder`, `mapped`, `random` | where weights come from |
//! | `layout` | how many bytes each buffer takes, and which share a place |
//! | `catalogue` | which candidate computes a step |
//! | `reference`, `cpu`, `launched` | the executors |
//! | `session`, `sampling`, `perplexity` | prompts, the cache, the next token |
//! | `text` | tokenizer and chat template |
//! | `golden` | what another program computed, to be held against |
//! | `gate` | tiny models as operators of the gate |

mod builder;
mod catalogue;
mod config;
mod cpu;
mod description;
mod error;
mod folder;
mod gate;
mod golden;
mod launched;
mod layout;
mod llama;
mod mapped;
mod named;
mod opt;
mod perplexity;
mod random;
mod reference;
mod sampling;
mod session;
mod text;
mod weights;

#[cfg(test)]
mod tests;

pub use config::{Architecture, Config, RopeScaling};
pub use cpu::CpuExecutor;
pub use description::{Extents, Model};
pub use error::Error;
pub use folder::Folder;
pub use gate::suites;
pub use golden::{Agreement, Golden};
pub use launched::LaunchedExecutor;
pub use layout::{Limits, Memory};
pub use named::{NAMES, named};
pub use perplexity::{Perplexity, perplexity};
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
}
