//! What another program computed with a model, in a file: logits and greedy tokens that an executor is held against.

use super::description::{Extents, Model};
use super::error::Error;
use super::layout::Limits;
use super::reference::ReferenceExecutor;
use super::sampling::largest;
use super::session::Executor;
use super::weights::Weights;
use crate::core::dtype::DType;
use crate::core::packed;
use std::path::Path;

/// The largest error of a logit in f32, relative to the largest logit.
const ALLOWED_F32: f64 = 1e-4;

/// A file of `fixtures/models/make_goldens.py`.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Golden {
    /// The prompt.
    pub prompt: Vec<u32>,
    /// The logits after each token of it.
    pub prefill: Vec<Vec<f64>>,
    /// The greedy tokens behind it.
    pub tokens: Vec<u32>,
    /// The logits after each of those.
    pub decode: Vec<Vec<f64>>,
}

/// How an executor compares.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Agreement {
    /// The largest error of a logit, relative to the largest logit; NaN where a logit is NaN.
    pub error: f64,
    /// What it may be.
    pub allowed: f64,
    /// Greedy tokens that are the same; another one is, where the expected logits of both are a tie within the tolerance.
    pub same_tokens: usize,
    /// Of so many.
    pub tokens: usize,
}

impl Agreement {
    /// Whether all is as expected.
    pub fn holds(&self) -> bool {
        self.error <= self.allowed && self.same_tokens == self.tokens
    }
}

impl Golden {
    /// Reads a file, plain or packed with xz.
    ///
    /// # Errors
    /// What is missing or malformed.
    pub fn read(file: &Path) -> Result<Golden, Error> {
        let wrong = |why: String| Error::in_file(file, "", "prompt, prefill, tokens and decode of a golden", why);
        let text = std::fs::read(file).and_then(packed::text).map_err(|why| wrong(why.to_string()))?;
        serde_json::from_str(&text).map_err(|why| wrong(why.to_string()))
    }

    /// How large a run must be for it.
    pub fn limits(&self) -> Limits {
        let (prompt, capacity) = (self.prompt.len(), self.prompt.len() + self.tokens.len());
        Limits { batch: 1, capacity, queries: prompt, all_logits: true }
    }

    /// The same with the logits of the f64 reference, whose weights are rounded to `dtype`: what is right in that dtype.
    ///
    /// # Errors
    /// When a weight is missing.
    pub fn rounded(&self, model: &Model, weights: &dyn Weights, dtype: DType) -> Result<Golden, Error> {
        let mut reference = ReferenceExecutor::new(model, weights, self.limits(), dtype)?;
        let mut rows: Vec<Vec<f64>> = Vec::new();
        for (tokens, past) in self.parts() {
            let extents =
                Extents { batch: 1, queries: tokens.len(), past, all_logits: true, capacity: self.limits().capacity };
            let logits = reference.logits(&model.indices(&tokens, &extents), &extents)?;
            rows.extend(logits.chunks_exact(model.vocabulary).map(<[f64]>::to_vec));
        }
        let decode = rows.split_off(self.prompt.len());
        Ok(Golden { prefill: rows, decode, ..self.clone() })
    }

    /// The prompt at once, then a token at a time, each with the positions before it.
    fn parts(&self) -> impl Iterator<Item = (Vec<i32>, usize)> + '_ {
        let prompt = self.prompt.iter().map(|&token| token as i32).collect();
        let each = self.tokens.iter().enumerate();
        let tokens = each.map(|(at, &token)| (vec![token as i32], self.prompt.len() + at));
        std::iter::once((prompt, 0)).chain(tokens)
    }

    /// Holds an executor of `dtype` against it, which is fed the tokens that are expected.
    ///
    /// # Errors
    /// What the device said.
    pub fn hold(&self, executor: &mut dyn Executor, dtype: DType) -> Result<Agreement, Error> {
        let allowed = allowed(executor.model(), dtype);
        let vocabulary = executor.model().vocabulary;
        let expected: Vec<&[f64]> = self.prefill.iter().chain(&self.decode).map(Vec::as_slice).collect();
        let greatest = expected.iter().flat_map(|row| row.iter()).fold(0.0f64, |most, logit| most.max(logit.abs()));
        let mut got: Vec<f32> = Vec::new();
        for (tokens, past) in self.parts() {
            let extents =
                Extents { batch: 1, queries: tokens.len(), past, all_logits: true, capacity: self.limits().capacity };
            got.extend(executor.run(&tokens, &extents)?);
        }
        let pairs = || got.chunks_exact(vocabulary).zip(&expected);
        let mut error = 0.0f64;
        for (got, expected) in pairs() {
            for (got, expected) in got.iter().zip(*expected) {
                let off = (f64::from(*got) - expected).abs() / greatest;
                // NaN comes and stays.
                error = if error.is_nan() || off <= error { error } else { off };
            }
        }
        let of_tokens = pairs().skip(self.prompt.len() - 1).zip(&self.tokens);
        let is_same = |((got, expected), token): ((&[f32], &&[f64]), &u32)| {
            let chosen = largest(got);
            chosen == *token as usize || expected[*token as usize] - expected[chosen] <= 2.0 * allowed * greatest
        };
        let same_tokens = of_tokens.map(is_same).filter(|same| *same).count();
        Ok(Agreement { error, allowed, same_tokens, tokens: self.tokens.len() })
    }
}

fn allowed(model: &Model, dtype: DType) -> f64 {
    if dtype == DType::F32 { ALLOWED_F32 } else { rounded_between(model, dtype) }
}

/// A step rounds what it leaves to the next, by half an ulp: independent errors, with three deviations of what they sum to.
pub(super) fn rounded_between(model: &Model, dtype: DType) -> f64 {
    3.0 * (model.steps.len() as f64).sqrt() * dtype.ulp(1.0) / 2.0
}
