//! Safetensors files: their tensors by name, read where they lie, in whatever dtype is asked for.

use super::error::Error;
use super::mapped::Mapped;
use super::weights::{Bytes, Weights};
use crate::core::dtype::{DType, Element};
use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The tensors of some files.
pub struct TensorFiles {
    /// The file or folder, for messages.
    place: PathBuf,
    tensors: HashMap<String, Stored>,
}

/// A tensor in a file.
struct Stored {
    file: Arc<Mapped>,
    dims: Vec<usize>,
    dtype: Dtype,
    range: Range<usize>,
}

impl TensorFiles {
    /// Opens files; only headers are read.
    ///
    /// # Errors
    /// What is missing or malformed, with the file.
    pub fn open(place: &Path, files: impl IntoIterator<Item = PathBuf>) -> Result<Self, Error> {
        let mut tensors = HashMap::new();
        for file in files {
            read_header(&file, &mut tensors)?;
        }
        Ok(TensorFiles { place: place.into(), tensors })
    }

    /// Whether there is a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn find(&self, name: &str) -> Result<&Stored, Error> {
        // Some files have the names of the inner model alone.
        let inner = name.strip_prefix("model.").unwrap_or(name);
        let found = self.tensors.get(name).or_else(|| self.tensors.get(inner));
        found.ok_or_else(|| {
            let some = self.tensors.keys().min().map_or("none", String::as_str);
            let found = format!("{} tensors without it, such as `{some}`", self.tensors.len());
            Error::in_file(&self.place, &format!("tensor `{name}`"), "it in the safetensors files", found)
        })
    }
}

fn read_header(path: &Path, tensors: &mut HashMap<String, Stored>) -> Result<(), Error> {
    let file = Arc::new(Mapped::open(path)?);
    let malformed = |why: String| Error::in_file(path, "", "a complete safetensors file", why);
    let parsed = SafeTensors::deserialize(file.bytes())
        .map_err(|why| malformed(format!("{why} in {} bytes", file.bytes().len())))?;
    let start = file.bytes().as_ptr() as usize;
    for (name, view) in parsed.tensors() {
        let first = view.data().as_ptr() as usize - start;
        let range = first..first + view.data().len();
        let stored = Stored { file: Arc::clone(&file), dims: view.shape().to_vec(), dtype: view.dtype(), range };
        tensors.insert(name, stored);
    }
    Ok(())
}

impl Weights for TensorFiles {
    fn tensor(&self, name: &str, dims: &[usize], dtype: DType) -> Result<Bytes, Error> {
        let stored = self.find(name)?;
        let wrong = |expected: String, found: String| {
            let place = format!("tensor `{name}` at offset {}", stored.range.start);
            Err(Error::in_file(&stored.file.path, &place, expected, found))
        };
        if stored.dims != dims {
            return wrong(format!("extents {dims:?}"), format!("{:?}", stored.dims));
        }
        let bytes = &stored.file.bytes()[stored.range.clone()];
        let same = matches!(
            (stored.dtype, dtype),
            (Dtype::F32, DType::F32) | (Dtype::F16, DType::F16) | (Dtype::BF16, DType::BF16)
        );
        if same && bytes.as_ptr().align_offset(dtype.size()) == 0 {
            return Ok(Bytes::Mapped(Arc::clone(&stored.file), stored.range.clone()));
        }
        match stored.dtype {
            Dtype::F32 => Ok(convert(bytes, dtype, |b: [u8; 4]| f32::from_le_bytes(b).into())),
            Dtype::F16 => Ok(convert(bytes, dtype, |b: [u8; 2]| f16::from_le_bytes(b).to_f64())),
            Dtype::BF16 => Ok(convert(bytes, dtype, |b: [u8; 2]| bf16::from_le_bytes(b).to_f64())),
            other => wrong("f32, f16 or bf16".into(), format!("{other:?}")),
        }
    }
}

/// Rounds every element, of `N` bytes, to `dtype`.
fn convert<const N: usize>(from: &[u8], dtype: DType, read: impl Fn([u8; N]) -> f64 + Sync) -> Bytes {
    match dtype {
        DType::F16 => converted::<f16, N>(from, read),
        DType::BF16 => converted::<bf16, N>(from, read),
        _ => converted::<f32, N>(from, read),
    }
}

fn converted<T: Element + Send, const N: usize>(from: &[u8], read: impl Fn([u8; N]) -> f64 + Sync) -> Bytes {
    let (elements, _) = from.as_chunks::<N>();
    let mut made = Bytes::zeros(elements.len() * size_of::<T>());
    let to: &mut [T] = bytemuck::cast_slice_mut(made.as_mut());
    to.par_iter_mut().zip(elements).for_each(|(to, from)| *to = T::from_f64(read(*from)));
    made
}
