//! Operators: what is computed, written once in f64, and everything that the gate derives its checks from.

mod declare;

use super::constraint::Constraint;
use super::cost::Cost;
use super::distribution::{self, Distribution};
use super::dtype::DType;
use super::port::{Port, Role};
use super::relation::Relation;
use super::seed::{Rng, below, derive, rng};
use super::shape::{Axis, Point};
use super::tensor::Tensor;
use super::tolerance::Override;

pub use declare::Op;

/// An operator as the gate sees it: shapes are [`Point`]s. [`Op`] is the usual way to make one.
/// ```
/// use kernelgate::prelude::*;
///
/// shape! { struct Vector { n: 1..=1024 } }
///
/// fn describe_ports(operator: &dyn Operator) -> String {
///     let names = operator.inputs().iter().map(|port| port.name);
///     format!("{}({})", operator.name(), names.collect::<Vec<_>>().join(", "))
/// }
/// let add = Op::<Vector>::new("add").input("a", |s| [s.n]).input("b", |s| [s.n]).output("y", |s| [s.n]);
/// assert_eq!(describe_ports(&add), "add(a, b)");
/// ```
pub trait Operator: Send + Sync {
    /// The first part of every trial name.
    fn name(&self) -> &str;
    /// A number that no other definition in this process has: cached references are kept by it.
    fn identity(&self) -> u64;
    /// The axes of its shapes.
    fn axes(&self) -> &[Axis];
    /// Its inputs, in argument order.
    fn inputs(&self) -> &[Port];
    /// Its outputs, in argument order.
    fn outputs(&self) -> &[Port];
    /// The extents of input `i`.
    fn input_dims(&self, i: usize, point: &[usize]) -> Vec<usize>;
    /// The extents of output `i`.
    fn output_dims(&self, i: usize, point: &[usize]) -> Vec<usize>;
    /// The number of rows that index input `i` may name.
    fn index_bound(&self, i: usize, point: &[usize]) -> usize;
    /// The first row that index input `i` may name.
    fn index_first(&self, _i: usize, _point: &[usize]) -> usize {
        0
    }
    /// The number of products in the sums that weight `i` is for.
    fn fan_in(&self, i: usize, point: &[usize]) -> usize;
    /// Indices outside `0..bound` that index input `i` may hold too.
    fn further_indices(&self, _i: usize, _point: &[usize]) -> Vec<i64> {
        Vec::new()
    }
    /// What is demanded of several axes at once.
    fn constraints(&self) -> &[Constraint] {
        &[]
    }
    /// Computes the outputs in f64 of a case of this dtype; each output has its full length and holds zeros.
    fn reference(&self, point: &[usize], dtype: DType, inputs: &[&[f64]], outputs: &mut [Vec<f64>]);
    /// Whether outputs may hold anything in some places.
    fn has_unspecified(&self) -> bool {
        false
    }
    /// Marks the places of the outputs that may hold anything.
    fn unspecified(&self, _point: &[usize], _inputs: &[&[f64]], _free: &mut [Vec<bool>]) {}
    /// Whether elements may have other values than the reference.
    fn has_alternatives(&self) -> bool {
        false
    }
    /// Adds `(element, value)` of each output for every other value that an element may have.
    fn alternatives(&self, _point: &[usize], _inputs: &[&[f64]], _others: &mut [Vec<(usize, f64)>]) {}
    /// The size of what was added or cancelled to make each output; on entry it holds the reference outputs.
    fn magnitude(&self, point: &[usize], inputs: &[&[f64]], outputs: &mut [Vec<f64>]);
    /// Whether it says how to compute a single element.
    fn computes_elements(&self) -> bool;
    /// Value and magnitude of element `at` of the only output, if the operator says how to compute a single one.
    fn element(&self, point: &[usize], inputs: &[Tensor], at: usize) -> Option<[f64; 2]>;
    /// The number of f32 roundings that an output collects.
    fn depth(&self, point: &[usize]) -> f64;
    /// Compulsory bytes and operations.
    fn cost(&self, point: &[usize], dtype: DType) -> Cost;
    /// A tolerance in place of the derived one, with the reason.
    fn tolerance(&self) -> Option<&Override>;
    /// The largest input magnitude for which the formula is defined in f32 arithmetic.
    fn range(&self) -> f64;
    /// The shape from which one axis at a time is varied, if it is not the usual one.
    fn base(&self) -> Option<&Point>;
    /// Realistic shapes to check.
    fn shapes(&self) -> &[Point];
    /// Shapes to time.
    fn perf_shapes(&self) -> &[Point];
    /// The distributions its inputs are drawn from.
    fn distributions(&self) -> &[Distribution];
    /// Metamorphic relations.
    fn relations(&self) -> &[Relation];
    /// The axis along which outputs are independent of each other, if there is one.
    fn separable(&self) -> Option<usize>;
    /// Whether the outputs are defined at all.
    fn has_reference(&self) -> bool {
        true
    }
    /// What its builder was told that cannot be, in sentences.
    fn mistakes(&self) -> &[String] {
        &[]
    }
}

/// Draws the inputs of a case.
pub fn draw_inputs(
    operator: &dyn Operator,
    point: &[usize],
    dtype: DType,
    distribution: Distribution,
    seed: u64,
) -> Vec<Tensor> {
    let ports = operator.inputs().iter().enumerate();
    ports
        .map(|(i, port)| {
            let dims = operator.input_dims(i, point);
            let n: usize = dims.iter().product();
            let mut rng = rng(derive(seed, &[operator.name(), port.name]));
            let dtype = port.dtype(dtype);
            let values = match port.role {
                Role::Data => {
                    let width = dims.last().copied().unwrap_or(1).max(1);
                    distribution.draw(&mut rng, n / width, width, dtype, operator.range())
                }
                Role::Parameter { mean } => distribution::normal(&mut rng, n, mean, PARAMETER_DEVIATION, dtype),
                Role::Weight => distribution::normal(&mut rng, n, 0.0, weight_deviation(operator, i, point), dtype),
                Role::Index => {
                    let mut drawn = draw_indices(operator, distribution, &mut rng, n, i, point);
                    mix_in(&mut rng, &mut drawn, &operator.further_indices(i, point));
                    drawn
                }
            };
            Tensor::from_f64(dtype, &dims, &values)
        })
        .collect()
}

/// Draws `n` rows that index input `i` may name.
pub fn draw_indices(
    operator: &dyn Operator,
    distribution: Distribution,
    rng: &mut Rng,
    n: usize,
    i: usize,
    point: &[usize],
) -> Vec<f64> {
    let first = operator.index_first(i, point);
    let mut drawn = distribution.draw_indices(rng, n, operator.index_bound(i, point) - first);
    drawn.iter_mut().for_each(|index| *index += first as f64);
    drawn
}

/// Puts each of the further indices in some places, so that about an eighth of all are such.
fn mix_in(rng: &mut Rng, indices: &mut [f64], further: &[i64]) {
    if further.is_empty() || indices.is_empty() {
        return;
    }
    for i in 0..indices.len().div_ceil(8).max(further.len().min(indices.len())) {
        indices[below(rng, indices.len())] = further[i % further.len()] as f64;
    }
}

/// The deviation of weights and biases that are no factors of a sum.
pub const PARAMETER_DEVIATION: f64 = 0.5;

/// The deviation of weight `i`, with which sums do not grow with their length.
pub fn weight_deviation(operator: &dyn Operator, i: usize, point: &[usize]) -> f64 {
    1.0 / (operator.fan_in(i, point).max(1) as f64).sqrt()
}
