//! One case: shape, dtype, distribution and seed; enough to draw its inputs again anywhere.

use super::Subject;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::operator::draw_inputs;
use crate::core::shape::{Point, describe, parse};
use crate::core::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// A case of some operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The shape.
    pub point: Point,
    /// How the inputs are drawn.
    pub distribution: Distribution,
    /// From which seed.
    pub seed: u64,
    /// How far the buffers start behind an aligned address, bytes.
    pub offset_bytes: usize,
}

impl Case {
    /// A case with aligned buffers.
    pub fn new(point: Point, distribution: Distribution, seed: u64) -> Self {
        Case { point, distribution, seed, offset_bytes: 0 }
    }

    /// Draws the inputs.
    pub fn inputs(&self, subject: &Subject<'_>) -> Vec<Tensor> {
        draw_inputs(subject.operator, &self.point, subject.dtype, self.distribution, self.seed)
    }

    /// The form that reports and files hold.
    pub fn id(&self, subject: &Subject<'_>) -> CaseId {
        CaseId {
            shape: describe(subject.operator.axes(), &self.point),
            dtype: subject.dtype,
            distribution: self.distribution,
            seed: self.seed,
            offset_bytes: self.offset_bytes,
        }
    }
}

/// A case in writing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseId {
    /// `rows=3,cols=5`, as `--shape` takes it.
    pub shape: String,
    /// The element type.
    pub dtype: DType,
    /// The input distribution.
    pub distribution: Distribution,
    /// The seed of the inputs; text in JSON, whose readers round large numbers.
    #[serde(with = "crate::core::seed::text")]
    pub seed: u64,
    /// Offset of the buffers, bytes.
    #[serde(default)]
    pub offset_bytes: usize,
}

impl CaseId {
    /// The case behind the writing.
    ///
    /// # Errors
    /// If the shape does not fit the operator's axes.
    pub fn case(&self, subject: &Subject<'_>) -> Result<Case, String> {
        Ok(Case {
            point: parse(subject.operator.axes(), &self.shape)?,
            distribution: self.distribution,
            seed: self.seed,
            offset_bytes: self.offset_bytes,
        })
    }

    /// The arguments that repeat just this case.
    pub fn arguments(&self) -> String {
        let mut text = format!("--shape {} --dist {} --seed {:#x}", self.shape, self.distribution, self.seed);
        if self.offset_bytes != 0 {
            text += &format!(" --offset {}", self.offset_bytes);
        }
        text
    }
}

impl std::fmt::Display for CaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} seed {:#x}", self.shape, self.dtype, self.distribution, self.seed)?;
        if self.offset_bytes == 0 { Ok(()) } else { write!(f, " offset {} B", self.offset_bytes) }
    }
}
