//! A run of a model over its cache: prompts, and one token after the other.

use super::description::{Extents, Model};
use super::error::Error;
use super::layout::{Limits, Memory};

/// Runs the steps of a model on some device.
pub trait Executor {
    /// How large runs can be.
    fn limits(&self) -> Limits;

    /// What it runs.
    fn model(&self) -> &Model;

    /// What it keeps in memory.
    fn memory(&self) -> Memory;

    /// Runs all steps where each [buffer of indices](Model::index_buffers) holds these, and returns the logits that the
    /// extents ask for.
    ///
    /// # Errors
    /// What the device said.
    fn run_on(&mut self, indices: &[Vec<i32>], extents: &Extents) -> Result<Vec<f32>, Error>;

    /// Runs all steps over `tokens`, position by position, and returns the logits that the extents ask for.
    ///
    /// # Errors
    /// What the device said.
    fn run(&mut self, tokens: &[i32], extents: &Extents) -> Result<Vec<f32>, Error> {
        let indices = self.model().indices(tokens, extents);
        self.run_on(&indices, extents)
    }

    /// The number of tokens there are.
    fn vocabulary(&self) -> usize {
        self.model().vocabulary
    }
}

/// Sequences of equal length that grow together.
pub struct Session<'e> {
    executor: &'e mut dyn Executor,
    past: usize,
}

impl<'e> Session<'e> {
    /// Sequences without a token.
    pub fn new(executor: &'e mut dyn Executor) -> Self {
        Session { executor, past: 0 }
    }

    /// Positions so far.
    pub fn past(&self) -> usize {
        self.past
    }

    /// Appends tokens, ordered position by position, and returns the logits after the last position: a row a sequence.
    ///
    /// # Errors
    /// When a token is none, the cache is too short, or the device fails.
    pub fn append(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.append_rows(tokens, false)
    }

    /// The same with logits after every position.
    ///
    /// # Errors
    /// As [`Session::append`].
    pub fn append_for_all(&mut self, tokens: &[u32]) -> Result<Vec<f32>, Error> {
        self.append_rows(tokens, true)
    }

    fn append_rows(&mut self, tokens: &[u32], all_logits: bool) -> Result<Vec<f32>, Error> {
        let Limits { batch, capacity, queries, .. } = self.executor.limits();
        let positions = tokens.len() / batch;
        if positions == 0 || !tokens.len().is_multiple_of(batch) {
            let expected = format!("a token or more for each of {batch} sequences");
            return Err(Error::input("the prompt", expected, format!("{} tokens", tokens.len())));
        }
        if self.past + positions > capacity {
            let expected = format!("at most {capacity} positions in the cache");
            return Err(Error::input("the prompt", expected, format!("{}", self.past + positions)));
        }
        let vocabulary = self.executor.vocabulary();
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
            let expected = format!("tokens below the model's vocabulary of {vocabulary}");
            return Err(Error::input("the prompt", expected, format!("token {token}")));
        }
        let tokens: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
        let mut logits = Vec::new();
        for part in tokens.chunks(queries * batch) {
            let extents = Extents { batch, queries: part.len() / batch, past: self.past, all_logits };
            let rows = self.executor.run(part, &extents)?;
            if all_logits {
                logits.extend(rows)
            } else {
                logits = rows
            }
            self.past += extents.queries;
        }
        Ok(logits)
    }
}
