//! The tensors of an operator: inputs, weights, indices, outputs, and what is changed in place.

use super::{Op, Tensors};
use crate::core::dtype::DType;
use crate::core::port::{Port, Role};
use crate::core::shape::Shape;
use std::sync::Arc;

impl<S: Shape> Op<S> {
    fn tensors<D: Into<Vec<usize>>>(port: Port, dims: impl Fn(&S) -> D + Send + Sync + 'static) -> Tensors {
        Tensors {
            port,
            dims: Arc::new(move |point| dims(&S::from_point(point)).into()),
            index_bound: Arc::new(|_| 0),
            index_first: Arc::new(|_| 0),
            further_indices: Arc::new(|_| Vec::new()),
            fan_in: Arc::new(|_| 0),
        }
    }

    fn with_input(mut self, tensors: Tensors) -> Self {
        self.input_ports.push(tensors.port.clone());
        self.inputs.push(tensors);
        self.last_is_output = false;
        self
    }

    /// An input that follows the case's distribution and dtype.
    pub fn input<D: Into<Vec<usize>>>(
        self,
        name: &'static str,
        dims: impl Fn(&S) -> D + Send + Sync + 'static,
    ) -> Self {
        self.with_input(Self::tensors(Port { name, role: Role::Data, dtype: None, in_place: false }, dims))
    }

    /// A weight or bias: normal around `mean` in every distribution.
    pub fn parameter<D: Into<Vec<usize>>>(
        self,
        name: &'static str,
        mean: f64,
        dims: impl Fn(&S) -> D + Send + Sync + 'static,
    ) -> Self {
        self.with_input(Self::tensors(
            Port { name, role: Role::Parameter { mean }, dtype: None, in_place: false },
            dims,
        ))
    }

    /// Weights of a sum of `fan_in` products: normal around 0, scaled so that sums do not grow with their length.
    pub fn weight<D: Into<Vec<usize>>>(
        self,
        name: &'static str,
        fan_in: impl Fn(&S) -> usize + Send + Sync + 'static,
        dims: impl Fn(&S) -> D + Send + Sync + 'static,
    ) -> Self {
        let mut tensors = Self::tensors(Port { name, role: Role::Weight, dtype: None, in_place: false }, dims);
        tensors.fan_in = Arc::new(move |point| fan_in(&S::from_point(point)));
        self.with_input(tensors)
    }

    /// An input of `i32` indices in `0..bound`.
    /// ```
    /// use kernelgate::prelude::*;
    ///
    /// shape! { struct Lookup { rows: 1..=4096, width: 1..=512, indices: 0..=4096 } }
    ///
    /// let op = Op::<Lookup>::new("gather")
    ///     .input("table", |s| [s.rows, s.width])
    ///     .index("indices", |s| [s.indices], |s| s.rows)
    ///     .output("y", |s| [s.indices, s.width]);
    /// ```
    pub fn index<D: Into<Vec<usize>>>(
        self,
        name: &'static str,
        dims: impl Fn(&S) -> D + Send + Sync + 'static,
        bound: impl Fn(&S) -> usize + Send + Sync + 'static,
    ) -> Self {
        let mut tensors = Self::tensors(Port { name, role: Role::Index, dtype: None, in_place: false }, dims);
        tensors.index_bound = Arc::new(move |point| bound(&S::from_point(point)));
        self.with_input(tensors)
    }

    /// Indices outside `0..bound` that the index input declared last may hold too, and that the reference defines: a
    /// padding of -1, say.
    ///
    /// ```
    /// use kernelgate::prelude::*;
    /// shape! { struct Lookup { rows: 1..=1000, ids: 1..=1000 } }
    /// let op = Op::<Lookup>::new("padded_lookup")
    ///     .input("table", |s| [s.rows])
    ///     .index("ids", |s| [s.ids], |s| s.rows)
    ///     .further_indices(|_| [-1])
    ///     .output("y", |s| [s.ids])
    ///     .reference(|_, x, y| for (y, &id) in y[0].iter_mut().zip(x[1]) {
    ///         *y = if id < 0.0 { 0.0 } else { x[0][id as usize] }
    ///     });
    /// ```
    pub fn further_indices<I: Into<Vec<i64>>>(mut self, indices: impl Fn(&S) -> I + Send + Sync + 'static) -> Self {
        match self.inputs.last_mut().filter(|last| last.port.role == Role::Index && !self.last_is_output) {
            Some(last) => last.further_indices = Arc::new(move |point| indices(&S::from_point(point)).into()),
            None => {
                self.mistakes.push("`.further_indices` stands behind no index input: move it behind its own".into())
            }
        }
        self
    }

    /// The first index that the index input declared last may hold, in place of 0: `first..bound`. With a bound of one more it
    /// is a number that an axis fixes and that the kernel reads from device memory, the length of a cache say.
    ///
    /// ```
    /// use kernelgate::prelude::*;
    /// shape! { struct Cache { capacity: 8..=1000, dim: 1..=64 } }
    /// let op = Op::<Cache>::new("last_row")
    ///     .input("cache", |s| [s.capacity, s.dim])
    ///     .index("position", |_| [1], |s| s.capacity)
    ///     .index_from(|s| s.capacity - 4)
    ///     .output("y", |s| [s.dim])
    ///     .reference(|s, x, y| y[0].copy_from_slice(&x[0][x[1][0] as usize * s.dim..][..s.dim]));
    /// assert_eq!(op.index_first(1, &[8, 1]), 4);
    /// ```
    pub fn index_from(mut self, first: impl Fn(&S) -> usize + Send + Sync + 'static) -> Self {
        match self.inputs.last_mut().filter(|last| last.port.role == Role::Index && !self.last_is_output) {
            Some(last) => last.index_first = Arc::new(move |point| first(&S::from_point(point))),
            None => self.mistakes.push("`.index_from` stands behind no index input: move it behind its own".into()),
        }
        self
    }

    /// A tensor that is changed in place: an input and, under the same name, an output. It stands among the inputs of a
    /// kernel, once. The reference finds what was there before among its inputs and writes what must be there afterwards among
    /// its outputs; a [`Cpu`](crate::core::candidate::Cpu) candidate finds it among its outputs, filled. It is restored before
    /// every run, and before every timed batch outside the clock. Declare it before the first output.
    ///
    /// ```
    /// use kernelgate::prelude::*;
    /// shape! { struct Vector { n: 1..=1 << 20 } }
    /// let op = Op::<Vector>::new("accumulate")
    ///     .input("x", |s| [s.n])
    ///     .in_place("sum", |s| [s.n])
    ///     .reference(|_, x, y| y[0].iter_mut().enumerate().for_each(|(i, y)| *y = x[1][i] + x[0][i]));
    /// ```
    pub fn in_place<D: Into<Vec<usize>>>(
        mut self,
        name: &'static str,
        dims: impl Fn(&S) -> D + Send + Sync + 'static,
    ) -> Self {
        if self.outputs.iter().any(|output| !output.port.in_place) {
            self.mistakes.push(format!("`.in_place(\"{name}\", …)` stands behind an output: inputs come first"));
        }
        let tensors = Self::tensors(Port { name, role: Role::Data, dtype: None, in_place: true }, dims);
        self.output_ports.push(tensors.port.clone());
        self.outputs.push(tensors.clone());
        self.with_input(tensors)
    }

    /// An output in the case's dtype.
    pub fn output<D: Into<Vec<usize>>>(
        mut self,
        name: &'static str,
        dims: impl Fn(&S) -> D + Send + Sync + 'static,
    ) -> Self {
        let tensors = Self::tensors(Port { name, role: Role::Data, dtype: None, in_place: false }, dims);
        self.output_ports.push(tensors.port.clone());
        self.outputs.push(tensors);
        self.last_is_output = true;
        self
    }

    /// Fixes the dtype of the tensor declared last, whatever the case's: an f32 statistic beside bf16 data, say.
    /// ```
    /// use kernelgate::prelude::*;
    ///
    /// shape! { struct Matrix { rows: 1..=4096, cols: 1..=8192 } }
    ///
    /// let op = Op::<Matrix>::new("norm").input("x", |s| [s.rows, s.cols]).output("deviation", |s| [s.rows]).in_dtype(F32);
    /// assert_eq!(op.outputs()[0].dtype, Some(F32));
    /// ```
    pub fn in_dtype(mut self, dtype: DType) -> Self {
        let ports = if self.last_is_output { &mut self.output_ports } else { &mut self.input_ports };
        match ports.last_mut() {
            Some(port) if port.role == Role::Index && !matches!(dtype, DType::I32 | DType::I64) => {
                self.mistakes
                    .push(format!("`.in_dtype({dtype})` on index input `{}`: indices are i32 or i64", port.name));
            }
            Some(port) => {
                port.dtype = Some(dtype);
                if port.in_place
                    && let Some(same) = self.output_ports.last_mut()
                {
                    same.dtype = Some(dtype);
                }
            }
            None => {
                self.mistakes.push(format!("`.in_dtype({dtype})` stands before any tensor: move it behind its own"))
            }
        }
        self
    }
}
