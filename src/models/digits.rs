//! A classifier with its weights, and what a case of it is given to classify digits.

use super::cnn::{CLASSES, Digits, SIDE};
use super::error::Error;
use super::idx::LabelledDigits;
use super::tensor_files::TensorFiles;
use super::weights::{Bytes, Weights};
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::core::shape::Shape;
use crate::core::tensor::Tensor;
use crate::ops::max_pool2d::Activation;
use std::ops::Range;
use std::path::Path;

/// Weights of the classifier with one activation.
pub struct Classifier {
    files: TensorFiles,
    activation: Activation,
    /// What its tensors' names begin with in the file.
    prefix: &'static str,
}

impl Classifier {
    /// Opens a safetensors file: `relu.conv1.weight` and so on, or the names alone.
    ///
    /// # Errors
    /// What is missing or malformed.
    pub fn open(file: &Path, activation: Activation) -> Result<Self, Error> {
        let prefix = match activation {
            Activation::Gelu => "gelu.",
            Activation::Silu => "silu.",
            Activation::Relu | Activation::None => "relu.",
        };
        Ok(Classifier { files: TensorFiles::open(file, [file.to_owned()])?, activation, prefix })
    }

    /// The shape of a case of so many digits.
    pub fn shape(&self, batch: usize) -> Digits {
        Digits { batch, side: SIDE, activation: self.activation }
    }

    /// The inputs of a case over some of the digits, in the order of the operator's.
    ///
    /// # Errors
    /// When a tensor is missing or has other extents.
    pub fn inputs(
        &self,
        operator: &dyn Operator,
        digits: &LabelledDigits,
        range: Range<usize>,
        dtype: DType,
    ) -> Result<Vec<Tensor>, Error> {
        let point = self.shape(range.len()).to_point();
        let ports = operator.inputs().iter().enumerate();
        let tensors = ports.map(|(i, port)| {
            let dims = operator.input_dims(i, &point);
            if port.name == "images" {
                return Ok(Tensor::from_f64(dtype, &dims, &digits.values(range.clone())));
            }
            Ok(Tensor::from_bytes(dtype, &dims, self.tensor(port.name, &dims, dtype)?.as_slice()))
        });
        tensors.collect()
    }
}

impl Weights for Classifier {
    fn tensor(&self, name: &str, dims: &[usize], dtype: DType) -> Result<Bytes, Error> {
        let prefixed = format!("{}{name}", self.prefix);
        let name = if self.files.has(name) { name } else { &prefixed };
        self.files.tensor(name, dims, dtype)
    }
}

/// The classes that rows of log-probabilities say; none where one is NaN.
pub fn classes(log_probabilities: &Tensor) -> Vec<Option<usize>> {
    let class = |row: &[f64]| {
        if row.iter().any(|p| p.is_nan()) {
            return None;
        }
        (0..CLASSES).reduce(|best, class| if row[class] > row[best] { class } else { best })
    };
    log_probabilities.to_f64().chunks_exact(CLASSES).map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::gate::cnn_suite;
    use std::path::PathBuf;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/cnn").join(name)
    }

    fn inputs_of(file: &Path, activation: Activation) -> Result<Vec<Tensor>, String> {
        let suite = cnn_suite();
        let digits = LabelledDigits::open(&fixture("digits")).unwrap();
        let classifier = Classifier::open(file, activation).map_err(|why| why.to_string())?;
        classifier.inputs(&*suite.operator, &digits, 0..3, DType::F32).map_err(|why| why.to_string())
    }

    #[test]
    fn every_activation_has_its_weights() {
        let of = |activation| inputs_of(&fixture("mnist.safetensors"), activation).unwrap();
        let (relu, gelu) = (of(Activation::Relu), of(Activation::Gelu));
        assert_eq!(relu[0], gelu[0]);
        assert_eq!(relu[0].dims(), [3, 784]);
        assert!(relu[1..].iter().zip(&gelu[1..]).all(|(relu, gelu)| relu != gelu));
    }

    /// The committed weights with one tensor of other extents, or cut.
    fn damaged(damage: impl FnOnce(&mut Vec<u8>)) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weights.safetensors");
        let mut bytes = std::fs::read(fixture("mnist.safetensors")).unwrap();
        damage(&mut bytes);
        std::fs::write(&file, bytes).unwrap();
        let said = inputs_of(&file, Activation::Relu).unwrap_err();
        said.replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn weights_of_another_shape_are_named() {
        let said = damaged(|bytes| {
            // As many elements in another order, so that the file stays whole.
            let (from, to) = (b"[64,3,3,32]", b"[32,3,3,64]");
            let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let places: Vec<usize> = (8..8 + header).filter(|&at| bytes[at..].starts_with(from)).collect();
            assert_eq!(places.len(), 3);
            places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to));
        });
        let expected = "weights.safetensors: tensor `relu.conv2.weight` at offset ";
        assert!(said.starts_with(expected), "{said}");
        assert!(said.ends_with(": expected extents [64, 3, 3, 32], found [32, 3, 3, 64]"), "{said}");
    }

    #[test]
    fn truncated_weights_are_named() {
        let said = damaged(|bytes| bytes.truncate(1000));
        assert!(said.starts_with("weights.safetensors: expected a complete safetensors file, found "), "{said}");
    }

    #[test]
    fn nan_is_no_class() {
        let mut rows = vec![0.0; 2 * CLASSES];
        (rows[3], rows[CLASSES + 5]) = (1.0, f64::NAN);
        assert_eq!(classes(&Tensor::from_f64(DType::F32, &[2, CLASSES], &rows)), [Some(3), None]);
    }
}
