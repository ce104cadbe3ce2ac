//! Runs of language models, as the summary keeps them: a record a model, device, dtype, way and batch.

use serde::{Deserialize, Serialize};

/// The version of [`ModelRun`]. It grows when a reader of the version before would misunderstand a record.
pub const VERSION: u32 = 1;

/// One model, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRun {
    /// The version of this record.
    pub version: u32,
    /// The name or folder.
    pub model: String,
    /// The key of the device.
    pub device: String,
    /// The dtype of weights, cache and activations.
    pub dtype: String,
    /// How the steps were run: `tiers` on the CPU, `unfused` with an operator a launch.
    pub way: String,
    /// Sequences side by side.
    pub batch: usize,
    /// Tokens of each prompt.
    pub prompt_tokens: usize,
    /// Tokens written behind each.
    pub tokens: usize,
    /// How often it was measured.
    pub repeats: usize,
    /// From the prompt to the first token, ms: the median.
    pub first_token_ms: f64,
    /// Time a step of one token for every sequence, ms.
    pub token_ms: Quantiles,
    /// Prompt tokens of all sequences a second.
    pub prefill_per_s: f64,
    /// Written tokens of all sequences a second.
    pub decode_per_s: f64,
    /// What memory is taken for, in bytes.
    pub memory: MemoryParts,
    /// Weights and cache that the median step reads.
    pub read_bytes: usize,
    /// The part of the measured read rate that this is, where the device tells time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_read_ceiling: Option<f64>,
}

/// The spread of a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// 95 of 100 are shorter.
    pub p95: f64,
    /// 99 of 100 are shorter.
    pub p99: f64,
}

/// Memory by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryParts {
    /// The model's tensors.
    pub weights: usize,
    /// Keys and values.
    pub cache: usize,
    /// Activations, logits, tables.
    pub activations: usize,
    /// Scratch of kernels.
    pub workspace: usize,
    /// All of them.
    pub total: usize,
}

impl ModelRun {
    /// Whether both measured the same.
    pub fn is_like(&self, other: &ModelRun) -> bool {
        let key = |run: &ModelRun| {
            let names = [&run.model, &run.device, &run.dtype, &run.way].map(Clone::clone);
            (names, run.batch, run.prompt_tokens, run.tokens)
        };
        key(self) == key(other)
    }
}

/// What a later run measured stands in place of what an earlier one did.
pub fn merge(runs: &mut Vec<ModelRun>, newer: Vec<ModelRun>) {
    runs.retain(|old| !newer.iter().any(|new| new.is_like(old)));
    runs.extend(newer);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(batch: usize, first_token_ms: f64) -> ModelRun {
        ModelRun {
            version: VERSION,
            model: "m".into(),
            device: "d".into(),
            dtype: "f32".into(),
            way: "tiers".into(),
            batch,
            prompt_tokens: 3,
            tokens: 5,
            repeats: 1,
            first_token_ms,
            token_ms: Quantiles { p50: 1.0, p95: 1.5, p99: 2.0 },
            prefill_per_s: 3.0,
            decode_per_s: 4.0,
            memory: MemoryParts { weights: 1, cache: 2, activations: 3, workspace: 4, total: 10 },
            read_bytes: 3,
            of_read_ceiling: None,
        }
    }

    #[test]
    fn the_newer_run_of_a_model_stays() {
        let mut runs = vec![run(1, 1.0), run(2, 1.0)];
        merge(&mut runs, vec![run(2, 9.0), run(4, 1.0)]);
        let kept: Vec<_> = runs.iter().map(|run| (run.batch, run.first_token_ms)).collect();
        assert_eq!(kept, [(1, 1.0), (2, 9.0), (4, 1.0)]);
    }
}
