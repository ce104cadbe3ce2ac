//! What a model is given as an operator of the gate, and how the shape of a case decides its steps and its runs.

use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::models::catalogue::Operators;
use crate::models::description::{BufferId, Extents, Kind, Model};
use crate::models::error::Error;
use crate::models::layout::Limits;
use crate::models::weights::{Bytes, Weights};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What an input is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All runs.
    Whole,
    /// The run over the prompt.
    Prompt,
    /// The last run, whose result is the output.
    Rest,
}

/// An input of the operator.
pub struct Given {
    /// Of the port.
    pub name: &'static str,
    /// The buffer of the model.
    pub buffer: BufferId,
    /// What it is for.
    pub part: Part,
}

type ModelFn<S> = Box<dyn Fn(&S) -> Model + Send + Sync>;

/// A model and the inputs that it is given, for cases of shape `S`.
pub struct Signature<S> {
    /// The inputs; their order is that of the ports.
    pub inputs: Vec<Given>,
    /// The output's name.
    pub output: &'static str,
    /// A model of each kind that shapes have: they differ in their steps' operators.
    pub kinds: Vec<Model>,
    /// The model of a case. Its buffers are those of `kinds`.
    pub model: ModelFn<S>,
    /// How large its runs are.
    pub limits: fn(&S) -> Limits,
    /// Its runs, with the inputs that each has for itself.
    pub runs: fn(&S) -> Vec<(Extents, Part)>,
}

impl<S> Signature<S> {
    /// The inputs of models with the buffers of the first of `kinds`.
    pub fn of(
        kinds: Vec<Model>,
        output: &'static str,
        model: ModelFn<S>,
        limits: fn(&S) -> Limits,
        runs: fn(&S) -> Vec<(Extents, Part)>,
    ) -> Self {
        let mut inputs = Vec::new();
        for (buffer, of) in kinds[0].buffers.iter().enumerate() {
            // Names of ports live as long as the program.
            let name: &'static str = of.name.clone().leak();
            match of.kind {
                Kind::Weight { .. } | Kind::Stacked(_) | Kind::Table(_) => {
                    inputs.push(Given { name, buffer, part: Part::Whole })
                }
                Kind::Given => inputs.push(Given { name, buffer, part: Part::Rest }),
                Kind::Tokens | Kind::Positions(_) => {
                    inputs.push(Given { name: format!("{name} of the prompt").leak(), buffer, part: Part::Prompt });
                    inputs.push(Given { name, buffer, part: Part::Rest });
                }
                _ => {}
            }
        }
        Signature { inputs, output, kinds, model, limits, runs }
    }

    /// The model of a case.
    pub fn at(&self, s: &S) -> Model {
        (self.model)(s)
    }

    /// The inputs of a part among all of them.
    pub fn part<'i, T>(&'i self, inputs: &'i [T], part: Part) -> impl Iterator<Item = (&'i Given, &'i T)> {
        self.inputs.iter().zip(inputs).filter(move |(given, _)| given.part == part)
    }

    /// The place among the inputs of what a buffer holds in a run, if it is given.
    pub fn place(&self, buffer: BufferId, part: Part) -> Option<usize> {
        self.inputs.iter().position(|given| given.buffer == buffer && (given.part == Part::Whole || given.part == part))
    }

    /// The operators that its steps may run.
    ///
    /// # Errors
    /// When the catalogue lacks one.
    pub fn operators(&self, operators: &Operators) -> Result<BTreeMap<&'static str, Arc<dyn Operator>>, Error> {
        let calls = self.kinds.iter().flat_map(Model::every_step).flat_map(|step| step.calls());
        calls.map(|call| Ok((call.operator, operators.operator(call.operator)?))).collect()
    }
}

/// Tensors by their names.
pub struct Tensors<'a>(pub HashMap<&'a str, Bytes>);

impl Weights for Tensors<'_> {
    fn tensor(&self, name: &str, _: &[usize], _: DType) -> Result<Bytes, Error> {
        self.0.get(name).cloned().ok_or_else(|| Error::input(format!("tensor `{name}`"), "an input", "none"))
    }
}

/// The elements as bytes.
pub fn bytes<T: bytemuck::Pod>(elements: &[T]) -> Bytes {
    let mut bytes = Bytes::zeros(size_of_val(elements));
    bytes.as_mut().copy_from_slice(bytemuck::cast_slice(elements));
    bytes
}

/// The values as f32, which holds all that a case has exactly.
pub fn narrow(values: &&[f64]) -> Bytes {
    bytes(&values.iter().map(|&value| value as f32).collect::<Vec<_>>())
}
