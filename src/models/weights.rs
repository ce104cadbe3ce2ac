//! Weights as the executors ask for them: a tensor by its name and extents, in the dtype that they compute in.

use super::description::Buffer;
use super::error::Error;
use super::mapped::Mapped;
use crate::core::dtype::DType;
use crate::core::pages::Pages;
use std::ops::Range;
use std::sync::Arc;

/// Where weights come from.
pub trait Weights: Sync {
    /// The tensor `name`, which must have these extents, in `dtype`.
    ///
    /// # Errors
    /// When it is not there, or another one.
    fn tensor(&self, name: &str, dims: &[usize], dtype: DType) -> Result<Bytes, Error>;
}

/// All that a buffer holds of the model's files, one tensor behind the other; `None` where it holds nothing of them.
///
/// # Errors
/// When a tensor is not there, or another one.
pub fn load(weights: &dyn Weights, buffer: &Buffer, dtype: DType) -> Result<Option<Bytes>, Error> {
    let mut tensors = buffer.tensors();
    let Some((name, dims)) = tensors.next() else { return Ok(None) };
    let first = weights.tensor(name, dims, dtype)?;
    let rest = tensors.map(|(name, dims)| weights.tensor(name, dims, dtype)).collect::<Result<Vec<_>, _>>()?;
    if rest.is_empty() {
        return Ok(Some(first));
    }
    let parts: Vec<&[u8]> = [&first].into_iter().chain(&rest).map(Bytes::as_slice).collect();
    let mut all = Bytes::zeros(parts.iter().map(|part| part.len()).sum());
    let mut free = all.as_mut();
    for part in parts {
        let (to, behind) = free.split_at_mut(part.len());
        to.copy_from_slice(part);
        free = behind;
    }
    Ok(Some(all))
}

/// The elements of a tensor: in a mapped file, or in memory of their own, aligned for any dtype.
#[derive(Clone, Debug)]
pub enum Bytes {
    /// A range of a file.
    Mapped(Arc<Mapped>, Range<usize>),
    /// Bytes of their own.
    Owned(Pages),
}

impl Bytes {
    /// Zeros.
    pub fn zeros(bytes: usize) -> Self {
        Bytes::Owned(Pages::new(bytes))
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Mapped(file, range) => &file.bytes()[range.clone()],
            Bytes::Owned(pages) => pages.as_slice(),
        }
    }

    /// The bytes, writable; those of a file are copied first.
    pub fn as_mut(&mut self) -> &mut [u8] {
        if let Bytes::Mapped(..) = self {
            let mut copy = Bytes::zeros(self.as_slice().len());
            copy.as_mut().copy_from_slice(self.as_slice());
            *self = copy;
        }
        match self {
            Bytes::Owned(pages) => pages.as_mut_slice(),
            Bytes::Mapped(..) => unreachable!("copied above"),
        }
    }
}
