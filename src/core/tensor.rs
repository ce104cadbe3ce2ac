//! Host tensors and the typed views that CPU candidates see.

use super::dtype::{DType, Element};
use super::narrow::{b8, e4m3, e5m2};
use half::{bf16, f16};
use std::sync::Arc;

/// The elements by run-time type, and the code that asks which one it is.
macro_rules! element_types {
    ($($variant:ident: $element:ty),* $(,)?) => {
        /// Elements of one of the run-time types.
        #[derive(Clone, Debug, PartialEq)]
        enum Data {
            $($variant(Vec<$element>)),*
        }

        impl Data {
            fn zeros(dtype: DType, n: usize) -> Data {
                match dtype {
                    $(DType::$variant => Data::$variant(vec![<$element as bytemuck::Zeroable>::zeroed(); n])),*
                }
            }

            fn rounded(dtype: DType, values: &[f64]) -> Data {
                match dtype {
                    $(DType::$variant => {
                        Data::$variant(values.iter().map(|&value| <$element as Element>::from_f64(value)).collect())
                    })*
                }
            }

            fn dtype(&self) -> DType {
                match self {
                    $(Data::$variant(_) => DType::$variant),*
                }
            }
        }

        /// Runs one expression for whichever vector is inside.
        macro_rules! each {
            ($data:expr, $v:ident => $body:expr) => {
                match $data {
                    $(Data::$variant($v) => $body),*
                }
            };
        }
    };
}

element_types! {
    F32: f32, F16: f16, BF16: bf16, I32: i32, E4M3: e4m3, E5M2: e5m2, U8: u8, I8: i8, I64: i64, Bool: b8,
}

/// A dense row-major tensor on the host. Clones share their elements until one of them is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    dims: Vec<usize>,
    data: Arc<Data>,
}

impl Tensor {
    /// A tensor of zeros.
    pub fn zeros(dtype: DType, dims: &[usize]) -> Self {
        Tensor { dims: dims.to_vec(), data: Arc::new(Data::zeros(dtype, dims.iter().product())) }
    }

    /// `values`, each rounded to `dtype`.
    ///
    /// # Panics
    /// If the number of values is not the product of `dims`.
    pub fn from_f64(dtype: DType, dims: &[usize], values: &[f64]) -> Self {
        assert_eq!(values.len(), dims.iter().product::<usize>(), "values against dims {dims:?}");
        Tensor { dims: dims.to_vec(), data: Arc::new(Data::rounded(dtype, values)) }
    }

    /// The tensor whose bytes are `bytes` (little-endian, as every device here has them).
    ///
    /// # Panics
    /// If the length is not that of the dims.
    pub fn from_bytes(dtype: DType, dims: &[usize], bytes: &[u8]) -> Self {
        let mut tensor = Tensor::zeros(dtype, dims);
        tensor.bytes_mut().copy_from_slice(bytes);
        tensor
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.data.dtype()
    }

    /// The extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        each!(&*self.data, v => v.len())
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The raw bytes.
    pub fn bytes(&self) -> &[u8] {
        each!(&*self.data, v => bytemuck::cast_slice(v))
    }

    /// The raw bytes, writable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        each!(Arc::make_mut(&mut self.data), v => bytemuck::cast_slice_mut(v))
    }

    /// The elements as `T`, or `None` when the dtype is another.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        (self.dtype() == T::DTYPE).then(|| bytemuck::cast_slice(self.bytes()))
    }

    /// Element `i`, exactly.
    pub fn get(&self, i: usize) -> f64 {
        each!(&*self.data, v => v[i].to_f64())
    }

    /// Makes element `i` the nearest value to `value`.
    pub fn set(&mut self, i: usize, value: f64) {
        each!(Arc::make_mut(&mut self.data), v => v[i] = Element::from_f64(value));
    }

    /// All elements, exactly.
    pub fn to_f64(&self) -> Vec<f64> {
        each!(&*self.data, v => v.iter().map(|x| x.to_f64()).collect())
    }

    /// Rows `rows` (of the leading extent), as a tensor of their own.
    pub fn rows(&self, rows: &[usize]) -> Tensor {
        self.take(0, rows)
    }

    /// The entries `at` along one dimension, as a tensor of their own.
    pub fn take(&self, dimension: usize, at: &[usize]) -> Tensor {
        let width = self.dims[dimension + 1..].iter().product::<usize>() * self.dtype().size();
        let mut dims = self.dims.clone();
        dims[dimension] = at.len();
        let mut out = Tensor::zeros(self.dtype(), &dims);
        let whole = (self.dims[dimension] * width).max(1);
        let parts = self.bytes().chunks_exact(whole).zip(out.bytes_mut().chunks_exact_mut((at.len() * width).max(1)));
        for (from, to) in parts {
            for (&at, to) in at.iter().zip(to.chunks_exact_mut(width.max(1))) {
                to.copy_from_slice(&from[at * width..][..width]);
            }
        }
        out
    }

    /// The elements `at`, in this order, as a tensor of one dimension.
    pub fn elements(&self, at: &[usize]) -> Tensor {
        let size = self.dtype().size();
        let mut out = Tensor::zeros(self.dtype(), &[at.len()]);
        for (&at, to) in at.iter().zip(out.bytes_mut().chunks_exact_mut(size)) {
            to.copy_from_slice(&self.bytes()[at * size..][..size]);
        }
        out
    }
}

/// The inputs of a CPU candidate, in the order in which the operator declares them.
/// ```
/// use kernelgate::prelude::*;
///
/// /// y[i] = x[indices[i]]
/// fn gather(inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
///     let (x, indices) = (inputs.slice::<f32>(0), inputs.slice::<i32>(1));
///     outputs.slice::<f32>(0).iter_mut().zip(indices).for_each(|(y, &at)| *y = x[at as usize]);
/// }
/// ```
pub struct Inputs<'a>(pub(crate) Vec<&'a [u8]>);

impl<'a> Inputs<'a> {
    /// Input `i` as elements of `T`.
    ///
    /// # Panics
    /// If there is no such input; the harness turns that into a failure of the trial.
    pub fn slice<T: Element>(&self, i: usize) -> &'a [T] {
        // An input that a step leaves out has an address that fits no type.
        if self.0[i].is_empty() { &[] } else { bytemuck::cast_slice(self.0[i]) }
    }
}

/// The outputs of a CPU candidate.
/// ```
/// use kernelgate::prelude::*;
///
/// /// The largest element and its place, two outputs of different types.
/// fn largest(inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
///     let (values, places) = outputs.pair::<f32, i32>(0, 1);
///     let found = inputs.slice::<f32>(0).iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
///     (values[0], places[0]) = found.map_or((f32::NEG_INFINITY, -1), |(at, &value)| (value, at as i32));
/// }
/// ```
pub struct Outputs<'a>(pub(crate) Vec<&'a mut [u8]>);

impl Outputs<'_> {
    /// Output `i` as elements of `T`.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn slice<T: Element>(&mut self, i: usize) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut *self.0[i])
    }

    /// Outputs `i` and `j` at once.
    ///
    /// # Panics
    /// If one is missing or both are the same.
    pub fn pair<T: Element, U: Element>(&mut self, i: usize, j: usize) -> (&mut [T], &mut [U]) {
        let [a, b] = self.0.get_disjoint_mut([i, j]).expect("two different outputs");
        (bytemuck::cast_slice_mut(a), bytemuck::cast_slice_mut(b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip() {
        let tensor = Tensor::from_f64(DType::BF16, &[2, 3], &[1.0, -2.0, 0.5, 3.0, f64::NAN, 0.0]);
        let again = Tensor::from_bytes(DType::BF16, &[2, 3], tensor.bytes());
        assert_eq!(again.bytes(), tensor.bytes());
        assert_eq!(again.get(1), -2.0);
        assert!(tensor.as_slice::<f32>().is_none());
        assert_eq!(tensor.as_slice::<bf16>().map(<[bf16]>::len), Some(6));
    }

    #[test]
    fn rows_are_gathered_in_order() {
        let tensor = Tensor::from_f64(DType::F32, &[3, 2], &[0., 1., 2., 3., 4., 5.]);
        assert_eq!(tensor.rows(&[2, 0]).to_f64(), [4., 5., 0., 1.]);
        assert_eq!(tensor.elements(&[3, 0]).to_f64(), [3., 0.]);
    }

    #[test]
    fn entries_of_an_inner_dimension_are_gathered_everywhere() {
        let tensor = Tensor::from_f64(DType::F16, &[2, 3, 1], &[0., 1., 2., 3., 4., 5.]);
        let taken = tensor.take(1, &[2, 0]);
        assert_eq!((taken.dims(), taken.to_f64()), (&[2, 2, 1][..], vec![2., 0., 5., 3.]));
        assert!(tensor.take(1, &[]).is_empty());
    }
}
