//! Perplexity: how well a model expects a text, by windows that overlap.

use super::error::Error;
use super::session::{Executor, Session};

/// What a text came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// Tokens that were predicted.
    pub tokens: usize,
    /// Their mean negative log likelihood.
    pub nll: f64,
}

impl Perplexity {
    /// e to the mean negative log likelihood.
    pub fn value(&self) -> f64 {
        self.nll.exp()
    }
}

/// Judges `tokens` in windows of `window`, each `stride` further on; a token counts once, in the first window that
/// predicts it. `progress` is told the tokens done.
///
/// # Errors
/// When the text is too short, the stride does not fit, or the device fails.
pub fn perplexity(
    executor: &mut dyn Executor,
    tokens: &[u32],
    window: usize,
    stride: usize,
    mut progress: impl FnMut(usize),
) -> Result<Perplexity, Error> {
    if stride == 0 || stride > window || window < 2 {
        let expected = format!("a stride of 1 to the window of {window}, which is 2 or more");
        return Err(Error::input("perplexity", expected, format!("{stride}")));
    }
    if tokens.len() < 2 {
        return Err(Error::input("perplexity", "a text of two tokens or more", tokens.len().to_string()));
    }
    let vocabulary = executor.vocabulary();
    let (mut judged, mut sum, mut start) = (1, 0.0, 0);
    while judged < tokens.len() {
        let end = (start + window).min(tokens.len());
        let logits = Session::new(executor).append_for_all(&tokens[start..end])?;
        for at in judged..end {
            let row = &logits[(at - 1 - start) * vocabulary..][..vocabulary];
            sum -= log_likelihood(row, tokens[at] as usize);
        }
        judged = end;
        start += stride;
        progress(judged);
    }
    Ok(Perplexity { tokens: tokens.len() - 1, nll: sum / (tokens.len() - 1) as f64 })
}

fn log_likelihood(logits: &[f32], token: usize) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|&logit| f64::from(logit - max).exp()).sum();
    f64::from(logits[token] - max) - total.ln()
}
