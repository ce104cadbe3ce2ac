//! A predicted workload as a person reads it.

use super::{ModelTime, Part, RunTime};
use std::fmt::Write as _;

/// The time of a language model.
pub fn model(m: &ModelTime) -> String {
    let mut text = format!("{} in {} on {}, {}, batch {}\n", m.model, m.dtype, m.device, m.way, m.batch);
    let _ = writeln!(
        text,
        "first token  {:.3} ms behind {} tokens, {:.0} tokens/s",
        m.first_token_ms, m.prompt_tokens, m.prefill_per_s
    );
    let t = &m.token_ms;
    let _ = writeln!(
        text,
        "each token   {:.3} ms at first, {:.3} at last, {:.3} on average; {:.1} tokens/s over {} tokens",
        t.first, t.last, t.mean, m.decode_per_s, m.tokens
    );
    let _ = writeln!(text, "in all       {:.1} ms", m.total_ms);
    text += &part("prompt", &m.prefill);
    text += &part("a token", &m.token);
    text
}

/// The time of the chain or the classifier.
pub fn run(r: &RunTime) -> String {
    let mut text = format!("{} {} in {} on {}, {}\n", r.workload, r.shape, r.dtype, r.device, r.way);
    let composed = &r.part.composed;
    let _ = writeln!(text, "a run        {:.2} µs, {:.2} to {:.2}", composed.us, composed.low_us, composed.high_us);
    text += &part("a run", &r.part);
    text
}

fn part(name: &str, part: &Part) -> String {
    let composed = &part.composed;
    let percent = 100.0 * composed.fitted;
    let mut text = format!(
        "\n{name}: {} launches, {:.1} µs ({:.1} to {:.1}); {percent:.0} % of it by fitted families\n",
        composed.launches, composed.us, composed.low_us, composed.high_us
    );
    for share in &part.shares {
        let _ = writeln!(text, "  {:>5.1} %  {}", 100.0 * share.share, share.name);
    }
    for one in &part.estimated {
        let percent = 100.0 * one.share;
        let _ = writeln!(
            text,
            "  estimated: {} {} ({percent:.1} %): its floor times {:.2}: {}",
            one.name, one.shape, one.factor, one.why
        );
    }
    text
}
