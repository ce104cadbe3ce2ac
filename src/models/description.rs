//! A model as data: buffers of rows, and steps that each run one operator of the catalogue on views of them.
//!
//! A model that is no language model is given rows in place of tokens: images, say, each a sequence of one position.
//!
//! Tokens are ordered position by position: row `position · batch + sequence`. What a step appends to the cache is then one
//! range of rows, and what attention reads is another.

use super::sampling::Sampler;
use crate::core::shape::Point;
use std::sync::Arc;

/// What one run of the steps is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Sequences, all of the same length.
    pub batch: usize,
    /// New positions of each.
    pub queries: usize,
    /// Positions that the cache holds already.
    pub past: usize,
    /// Whether logits are wanted for every new position, not the last alone.
    pub all_logits: bool,
    /// Positions that the cache can hold.
    pub capacity: usize,
}

impl Extents {
    /// New tokens of all sequences.
    pub const fn tokens(&self) -> usize {
        self.batch * self.queries
    }

    /// So many sequences of one position: rows that have nothing to do with each other.
    pub const fn rows(rows: usize) -> Self {
        Extents { batch: rows, queries: 1, past: 0, all_logits: false, capacity: 1 }
    }

    /// The last of the new positions.
    pub const fn last(&self) -> usize {
        self.past + self.queries - 1
    }

    /// Rows of logits.
    pub const fn asked(&self) -> usize {
        if self.all_logits { self.tokens() } else { self.batch }
    }
}

/// The number of a buffer in [`Model::buffers`].
pub type BufferId = usize;

type ValueFn = Arc<dyn Fn(usize, usize) -> f64 + Send + Sync>;

/// What a buffer holds.
#[derive(Clone)]
pub enum Kind {
    /// A tensor of the model's files, with the deviation that random weights have there.
    Weight {
        /// Its name in the files.
        name: String,
        /// Its extents.
        dims: Vec<usize>,
    },
    /// Matrices of the model's files with rows of one width, or vectors as rows of one element, one behind the other: name and
    /// extents of each.
    Stacked(Vec<(String, Vec<usize>)>),
    /// `value(position, column)`, a row a position and sequence: what depends on the position alone.
    Table(ValueFn),
    /// One number in every element.
    Constant {
        /// The number.
        value: f64,
        /// Whether there is a row a position and sequence, as in a table; a single row otherwise.
        is_table: bool,
    },
    /// Keys or values of all positions, a row a position and sequence.
    Cache,
    /// Rows that a run is given, in the dtype of the model.
    Given,
    /// The tokens of a run, as indices.
    Tokens,
    /// Their positions and an offset, as indices.
    Positions(usize),
    /// The position of the first of them, an index.
    Past,
    /// The position of the last of them, an index.
    Last,
    /// What tokens are drawn by, a row a position and sequence, as indices.
    Draws(Sampler),
    /// A row for each new token.
    Activation,
    /// A row for each row of logits.
    Logits,
}

/// A buffer: rows of one width.
#[derive(Clone)]
pub struct Buffer {
    /// What it is called in messages.
    pub name: String,
    /// Elements of a row.
    pub width: usize,
    /// What it holds.
    pub kind: Kind,
}

impl Buffer {
    /// Whether its elements are indices.
    pub const fn is_index(&self) -> bool {
        matches!(self.kind, Kind::Tokens | Kind::Positions(_) | Kind::Past | Kind::Last | Kind::Draws(_))
    }

    /// The tensors of the model's files that it holds.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[usize])> {
        let (one, many) = match &self.kind {
            Kind::Weight { name, dims } => (Some((name.as_str(), dims.as_slice())), &[][..]),
            Kind::Stacked(parts) => (None, parts.as_slice()),
            _ => (None, &[][..]),
        };
        one.into_iter().chain(many.iter().map(|(name, dims)| (name.as_str(), dims.as_slice())))
    }

    /// Rows of the whole buffer, for runs of up to `tokens` tokens and caches of `capacity` positions.
    pub fn rows(&self, batch: usize, capacity: usize, tokens: usize, asked: usize) -> usize {
        match &self.kind {
            Kind::Weight { dims, .. } => {
                if dims.len() > 1 {
                    dims[0]
                } else {
                    1
                }
            }
            Kind::Stacked(parts) => parts.iter().map(|(_, dims)| dims[0]).sum(),
            Kind::Constant { is_table: false, .. } | Kind::Past | Kind::Last => 1,
            Kind::Constant { is_table: true, .. } | Kind::Table(_) | Kind::Cache | Kind::Draws(_) => capacity * batch,
            Kind::Given | Kind::Tokens | Kind::Positions(_) | Kind::Activation => tokens,
            Kind::Logits => asked,
        }
    }
}

/// Which rows of a buffer a step touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All of a weight or constant, of a cache or table.
    Whole,
    /// Rows of a stack of weights or biases.
    Part {
        /// The first.
        first: usize,
        /// How many.
        rows: usize,
    },
    /// A row for each new token.
    New,
    /// The rows whose logits are asked for: the last ones.
    Asked,
    /// In a cache or table: the rows of the new positions.
    Appended,
    /// In a cache: the rows of all positions so far.
    Seen,
}

/// A view of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The buffer.
    pub buffer: BufferId,
    /// The rows.
    pub view: View,
}

impl Operand {
    /// First row and number of rows.
    pub fn rows(&self, buffer: &Buffer, e: &Extents) -> (usize, usize) {
        match self.view {
            View::Whole => (0, buffer.rows(e.batch, e.capacity, 0, 0)),
            View::Part { first, rows } => (first, rows),
            View::New => (0, e.tokens()),
            View::Asked if matches!(buffer.kind, Kind::Logits) => (0, e.asked()),
            View::Asked => (e.tokens() - e.asked(), e.asked()),
            View::Appended => (e.past * e.batch, e.tokens()),
            View::Seen => (0, (e.past + e.queries) * e.batch),
        }
    }
}

/// The point of a step's operator for a run.
pub type PointFn = Arc<dyn Fn(&Extents) -> Point + Send + Sync>;

/// One operator on views of buffers.
#[derive(Clone)]
pub struct Call {
    /// The operator of the catalogue.
    pub operator: &'static str,
    /// Its shape.
    pub point: PointFn,
    /// Its inputs, in order; `None` where the operator takes no element.
    pub inputs: Vec<Option<Operand>>,
}

/// A step of a model.
#[derive(Clone)]
pub struct Step {
    /// What to run in general.
    pub usual: Call,
    /// What to run for up to so many rows instead.
    pub few: Option<(usize, Call)>,
    /// Where the result goes.
    pub output: Operand,
    /// The part of the model that it belongs to.
    pub layer: Arc<str>,
}

impl Step {
    /// What to run for a run of these extents.
    pub fn call(&self, model: &Model, e: &Extents) -> &Call {
        let (_, rows) = self.output.rows(&model.buffers[self.output.buffer], e);
        match &self.few {
            Some((most, call)) if rows <= *most => call,
            _ => &self.usual,
        }
    }

    /// Both ways to run it.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.few.iter().map(|(_, call)| call).chain([&self.usual])
    }

    /// Everything that it may read.
    pub fn reads(&self) -> impl Iterator<Item = Operand> + '_ {
        let few = self.few.iter().flat_map(|(_, call)| &call.inputs);
        self.usual.inputs.iter().chain(few).flatten().copied()
    }
}

/// A model: its buffers, and the steps from tokens to logits.
#[derive(Clone)]
pub struct Model {
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Other steps for runs of one new token a sequence, none of whose launches depends on its position; or none.
    pub decode: Vec<Step>,
    /// From the logits to the next tokens, in a model that has tokens.
    pub choice: Option<Step>,
    /// How it chooses them: [`Model::sampled`] sets it.
    pub sampler: Sampler,
    /// Where the logits are, or whatever else it computes.
    pub logits: BufferId,
    /// Columns of that: the tokens that there are.
    pub vocabulary: usize,
    /// Positions that the model was made for.
    pub context: usize,
}

impl Model {
    /// The tensors of its files, by buffer.
    pub fn weights(&self) -> impl Iterator<Item = (BufferId, &str, &[usize])> {
        self.buffers
            .iter()
            .enumerate()
            .flat_map(|(id, buffer)| buffer.tensors().map(move |(name, dims)| (id, name, dims)))
    }

    /// All steps that there are, those of [`Model::decode`] last.
    pub fn every_step(&self) -> impl DoubleEndedIterator<Item = &Step> {
        self.steps.iter().chain(&self.decode)
    }

    /// Where among all steps those of a run begin, and how many they are.
    pub fn steps_of(&self, e: &Extents) -> std::ops::Range<usize> {
        let all = self.steps.len() + self.decode.len();
        if e.queries == 1 && !self.decode.is_empty() { self.steps.len()..all } else { 0..self.steps.len() }
    }

    /// Elements of all its weights.
    pub fn parameters(&self) -> usize {
        self.weights().map(|(_, _, dims)| dims.iter().product::<usize>()).sum()
    }

    /// Elements of weights that writing one token reads: all but the rows of look-up tables that it does not name.
    pub fn parameters_read(&self) -> usize {
        let is_product = |id: BufferId| {
            self.steps
                .iter()
                .any(|step| step.usual.operator != "embedding" && step.reads().any(|operand| operand.buffer == id))
        };
        let read = self.weights().filter(|(id, _, _)| is_product(*id));
        read.map(|(_, _, dims)| dims.iter().product::<usize>()).sum()
    }

    /// What each buffer of indices holds for a run over `tokens`, in the order of the buffers.
    pub fn indices(&self, tokens: &[i32], e: &Extents) -> Vec<Vec<i32>> {
        let of = |buffer: &Buffer| match buffer.kind {
            Kind::Tokens => Some(tokens.to_vec()),
            Kind::Positions(offset) => {
                Some((0..tokens.len()).map(|i| (e.past + i / e.batch + offset) as i32).collect())
            }
            Kind::Past => Some(vec![e.past as i32]),
            Kind::Last => Some(vec![e.last() as i32]),
            _ => None,
        };
        self.buffers.iter().filter_map(of).collect()
    }

    /// The buffers of indices that a run is given.
    pub fn index_buffers(&self) -> impl Iterator<Item = BufferId> {
        let is_given = |buffer: &Buffer| buffer.is_index() && !matches!(buffer.kind, Kind::Draws(_));
        (0..self.buffers.len()).filter(move |&id| is_given(&self.buffers[id]))
    }

    /// Elements that all caches keep of one position of one sequence.
    pub fn cached_elements(&self) -> usize {
        self.buffers.iter().filter(|buffer| matches!(buffer.kind, Kind::Cache)).map(|buffer| buffer.width).sum()
    }
}
