//! A measured model as a person reads it.

use crate::report::models::ModelRun;
use std::fmt::Write as _;

/// A few lines.
pub fn table(run: &ModelRun) -> String {
    let mut text = format!("\n{} in {} on {}, {}, batch {}\n", run.model, run.dtype, run.device, run.way, run.batch);
    let mb = |bytes: usize| bytes as f64 * 1e-6;
    let _ = writeln!(
        text,
        "first token  {:.2} ms behind {} tokens, {:.1} tokens/s",
        run.first_token_ms, run.prompt_tokens, run.prefill_per_s
    );
    // Of a single token nothing follows the first.
    if run.token_ms.p50 > 0.0 {
        let _ = writeln!(
            text,
            "each token   P50 {:.3} ms, P95 {:.3}, P99 {:.3}; {:.1} tokens/s over {} tokens",
            run.token_ms.p50, run.token_ms.p95, run.token_ms.p99, run.decode_per_s, run.tokens
        );
    }
    let memory = &run.memory;
    let _ = writeln!(
        text,
        "memory       {:.1} MB: weights {:.1}, cache {:.1}, activations {:.1}, workspace {:.1}",
        mb(memory.total),
        mb(memory.weights),
        mb(memory.cache),
        mb(memory.activations),
        mb(memory.workspace)
    );
    let share = run
        .of_read_ceiling
        .map_or_else(String::new, |share| format!(", {:.0} % of what reading reaches", share * 100.0));
    let _ = writeln!(text, "read         {:.1} MB a token{share}", mb(run.read_bytes));
    text
}
