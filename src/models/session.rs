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

    /// Runs all steps and returns the next token of each sequence, as the model [chooses](Model::sampled) it.
    ///
    /// # Errors
    /// What the device said.
    fn next_tokens(&mut self, tokens: &[i32], extents: &Extents) -> Result<Vec<i32>, Error> {
        let logits = self.run(tokens, extents)?;
        let rows = logits.chunks_exact(self.vocabulary()).enumerate();
        let sampler = self.model().sampler;
        Ok(rows.map(|(sequence, row)| sampler.choose(row, extents.last(), sequence).cast_signed()).collect())
    }

    /// Writes `count` tokens a sequence behind `first`, as the model chooses them, and hands each batch of them on as soon as
    /// it is there; ends early where that answers `false`.
    ///
    /// # Errors
    /// What the device said.
    fn write(
        &mut self,
        first: &[i32],
        extents: &Extents,
        count: usize,
        each: &mut dyn FnMut(&[i32]) -> bool,
    ) -> Result<(), Error> {
        one_by_one(self, first, extents, count, each)
    }

    /// The number of tokens there are.
    fn vocabulary(&self) -> usize {
        self.model().vocabulary
    }
}

/// Writes tokens a run each.
///
/// # Errors
/// What the device said.
pub fn one_by_one<E: Executor + ?Sized>(
    executor: &mut E,
    first: &[i32],
    extents: &Extents,
    count: usize,
    each: &mut dyn FnMut(&[i32]) -> bool,
) -> Result<(), Error> {
    let mut tokens = first.to_vec();
    for i in 0..count {
        tokens = executor.next_tokens(&tokens, &Extents { past: extents.past + i, ..*extents })?;
        if !each(&tokens) {
            break;
        }
    }
    Ok(())
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

    /// Appends tokens as [`Session::append`] does, and returns the next one of each sequence, as the model chooses it.
    ///
    /// # Errors
    /// As [`Session::append`].
    pub fn append_for_next(&mut self, tokens: &[u32]) -> Result<Vec<u32>, Error> {
        let mut next = Vec::new();
        for (part, extents) in self.parts(tokens, false)? {
            next = self.executor.next_tokens(&part, &extents)?;
            self.past += extents.queries;
        }
        Ok(next.into_iter().map(i32::cast_unsigned).collect())
    }

    /// Appends `first`, then up to `count` - 1 further tokens, as the model chooses them; each is handed on as soon as it is
    /// known, and `false` ends it. What is in the cache afterwards is not said: begin another session.
    ///
    /// # Errors
    /// As [`Session::append`].
    pub fn write(self, first: &[u32], count: usize, mut each: impl FnMut(&[u32]) -> bool) -> Result<(), Error> {
        let parts = self.parts(first, false)?;
        let [(first, extents)] = &parts[..] else {
            return Err(Error::input("the prompt", "a token for each sequence", format!("{} tokens", first.len())));
        };
        self.has_room(count)?;
        self.executor.write(first, extents, count, &mut |tokens| {
            each(&tokens.iter().map(|token| token.cast_unsigned()).collect::<Vec<_>>())
        })
    }

    fn append_rows(&mut self, tokens: &[u32], all_logits: bool) -> Result<Vec<f32>, Error> {
        let mut logits = Vec::new();
        for (part, extents) in self.parts(tokens, all_logits)? {
            let rows = self.executor.run(&part, &extents)?;
            if all_logits {
                logits.extend(rows)
            } else {
                logits = rows
            }
            self.past += extents.queries;
        }
        Ok(logits)
    }

    fn has_room(&self, positions: usize) -> Result<(), Error> {
        let capacity = self.executor.limits().capacity;
        if self.past + positions > capacity {
            let expected = format!("at most {capacity} positions in the cache");
            return Err(Error::input("the prompt", expected, format!("{}", self.past + positions)));
        }
        Ok(())
    }

    /// Tokens in runs that are not too long.
    fn parts(&self, tokens: &[u32], all_logits: bool) -> Result<Vec<(Vec<i32>, Extents)>, Error> {
        let Limits { batch, capacity, queries, .. } = self.executor.limits();
        let positions = tokens.len() / batch;
        if positions == 0 || !tokens.len().is_multiple_of(batch) {
            let expected = format!("a token or more for each of {batch} sequences");
            return Err(Error::input("the prompt", expected, format!("{} tokens", tokens.len())));
        }
        self.has_room(positions)?;
        let vocabulary = self.executor.vocabulary();
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
            let expected = format!("tokens below the model's vocabulary of {vocabulary}");
            return Err(Error::input("the prompt", expected, format!("token {token}")));
        }
        let tokens: Vec<i32> = tokens.iter().map(|&token| token.cast_signed()).collect();
        let mut past = self.past;
        let of = |part: &[i32]| {
            let extents = Extents { batch, queries: part.len() / batch, past, all_logits, capacity };
            past += extents.queries;
            (part.to_vec(), extents)
        };
        Ok(tokens.chunks(queries * batch).map(of).collect())
    }
}
