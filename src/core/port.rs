//! The tensors that an operator takes and gives.

use super::dtype::DType;

/// What the values of an input are, and so how they are drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// Activations: follow the case's distribution.
    Data,
    /// Weights and biases: normal around a mean, whatever the distribution.
    Parameter {
        /// Centre of the values.
        mean: f64,
    },
    /// Weights of sums: normal around 0, scaled so that a sum of products with values around 1 is around 1.
    Weight,
    /// Indices in `0..bound`; the bound is evaluated a case.
    Index,
}

/// The declaration of one input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name in messages.
    pub name: &'static str,
    /// How it is filled; outputs are [`Role::Data`].
    pub role: Role,
    /// The dtype, when it is not that of the case.
    pub dtype: Option<DType>,
    /// Whether it is an input and an output at once: what is there before a run is replaced by the result.
    pub in_place: bool,
}

impl Port {
    /// The dtype in a case of `case` dtype.
    pub fn dtype(&self, case: DType) -> DType {
        match self.role {
            Role::Index => self.dtype.unwrap_or(DType::I32),
            _ => self.dtype.unwrap_or(case),
        }
    }
}
