//! How an operator is declared: [`Op`], a builder over a typed shape.

mod ports;

use super::Operator;
use crate::core::constraint::Constraint;
use crate::core::cost::Cost;
use crate::core::distribution::Distribution;
use crate::core::dtype::DType;
use crate::core::port::Port;
use crate::core::relation::Relation;
use crate::core::seed::Rng;
use crate::core::shape::{Axis, Point, Shape, outside};
use crate::core::tensor::Tensor;
use crate::core::tolerance::Override;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type DimsFn = Arc<dyn Fn(&[usize]) -> Vec<usize> + Send + Sync>;
type NumberFn = Arc<dyn Fn(&[usize]) -> usize + Send + Sync>;
type ReferenceFn = Arc<dyn Fn(&[usize], DType, &[&[f64]], &mut [Vec<f64>]) + Send + Sync>;
type ComputeFn = Arc<dyn Fn(&[usize], &[&[f64]], &mut [Vec<f64>]) + Send + Sync>;
type UnspecifiedFn = Arc<dyn Fn(&[usize], &[&[f64]], &mut [Vec<bool>]) + Send + Sync>;
type AlternativesFn = Arc<dyn Fn(&[usize], &[&[f64]], &mut [Vec<(usize, f64)>]) + Send + Sync>;
type IndicesFn = Arc<dyn Fn(&[usize]) -> Vec<i64> + Send + Sync>;
type ElementFn = Arc<dyn Fn(&[usize], &[Tensor], usize) -> [f64; 2] + Send + Sync>;
type CostFn = Arc<dyn Fn(&[usize], DType) -> Cost + Send + Sync>;
type DepthFn = Arc<dyn Fn(&[usize]) -> f64 + Send + Sync>;

#[derive(Clone)]
struct Tensors {
    port: Port,
    dims: DimsFn,
    /// Rows that an index may name.
    index_bound: NumberFn,
    /// The first of them.
    index_first: NumberFn,
    /// What it may name beside those.
    further_indices: IndicesFn,
    /// Products of the sums that a weight is for.
    fan_in: NumberFn,
}

/// Builds an operator over shapes `S`.
///
/// ```
/// use kernelgate::prelude::*;
/// shape! { struct Vector { n: 1..=1 << 22 } }
/// let relu = Op::<Vector>::new("relu")
///     .input("x", |s| [s.n])
///     .output("y", |s| [s.n])
///     .reference(|_, x, y| for (y, &x) in y[0].iter_mut().zip(x[0]) { *y = x.max(0.0) })
///     .cost(|s, t| Cost { bytes: 2 * s.n * t.size(), flops: s.n });
/// assert_eq!(relu.name(), "relu");
/// ```
#[derive(Clone)]
pub struct Op<S> {
    name: String,
    identity: u64,
    axes: Vec<Axis>,
    input_ports: Vec<Port>,
    output_ports: Vec<Port>,
    inputs: Vec<Tensors>,
    outputs: Vec<Tensors>,
    constraints: Vec<Constraint>,
    reference: Option<ReferenceFn>,
    unspecified: Option<UnspecifiedFn>,
    alternatives: Option<AlternativesFn>,
    magnitude: Option<ComputeFn>,
    element: Option<ElementFn>,
    depth: DepthFn,
    cost: CostFn,
    tolerance: Option<Override>,
    range: f64,
    base: Option<Point>,
    shapes: Vec<Point>,
    perf_shapes: Vec<Point>,
    distributions: Vec<Distribution>,
    relations: Vec<Relation>,
    separable: Option<usize>,
    /// What was declared last, for [`Op::in_dtype`].
    last_is_output: bool,
    mistakes: Vec<String>,
    shape: std::marker::PhantomData<fn(&S)>,
}

impl<S: Shape> Op<S> {
    /// An operator without tensors yet.
    pub fn new(name: impl Into<String>) -> Self {
        Op {
            name: name.into(),
            identity: fresh_identity(),
            axes: S::axes(),
            input_ports: Vec::new(),
            output_ports: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            constraints: Vec::new(),
            reference: None,
            unspecified: None,
            alternatives: None,
            magnitude: None,
            element: None,
            depth: Arc::new(|_| 1.0),
            cost: Arc::new(|_, _| Cost::default()),
            tolerance: None,
            range: f64::INFINITY,
            base: None,
            shapes: Vec::new(),
            perf_shapes: Vec::new(),
            distributions: Distribution::ALL.to_vec(),
            relations: Vec::new(),
            separable: None,
            last_is_output: false,
            mistakes: Vec::new(),
            shape: std::marker::PhantomData,
        }
    }

    /// The definition, in f64: inputs are exact, outputs have their length.
    pub fn reference(mut self, f: impl Fn(&S, &[&[f64]], &mut [Vec<f64>]) + Send + Sync + 'static) -> Self {
        self.identity = fresh_identity();
        self.reference = Some(Arc::new(move |point, _, x, y| f(&S::from_point(point), x, y)));
        self
    }

    /// The same where the definition depends on the dtype of the case: the largest value that a quantisation may give, say. It
    /// is no way to compute in that dtype: a reference that rounds like a kernel agrees with what it should judge.
    pub fn reference_in(mut self, f: impl Fn(&S, DType, &[&[f64]], &mut [Vec<f64>]) + Send + Sync + 'static) -> Self {
        self.identity = fresh_identity();
        self.reference = Some(Arc::new(move |point, dtype, x, y| f(&S::from_point(point), dtype, x, y)));
        self
    }

    /// Places of the outputs that may hold anything, written or not: rows behind the length that an input says, padding. `f`
    /// sets `true` there; what it sees are the inputs. Bands around the buffers are guarded as ever.
    ///
    /// ```
    /// use kernelgate::prelude::*;
    /// shape! { struct Batch { rows: 1..=64, cols: 1..=64 } }
    /// let op = Op::<Batch>::new("ragged_double")
    ///     .input("x", |s| [s.rows, s.cols])
    ///     .index("lengths", |s| [s.rows], |s| s.cols + 1)
    ///     .output("y", |s| [s.rows, s.cols])
    ///     .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = 2.0 * x))
    ///     .unspecified(|s, x, free| for (row, &length) in free[0].chunks_mut(s.cols).zip(x[1]) {
    ///         row[length as usize..].fill(true);
    ///     });
    /// ```
    pub fn unspecified(mut self, f: impl Fn(&S, &[&[f64]], &mut [Vec<bool>]) + Send + Sync + 'static) -> Self {
        self.identity = fresh_identity();
        self.unspecified = Some(Arc::new(move |point, x, free| f(&S::from_point(point), x, free)));
        self
    }

    /// Other values that elements of the outputs may have, as `(element, value)` of each output: where a choice hangs on a
    /// rounding, what is chosen on either side of it. `f` sees the inputs, and says how large that rounding may be. Any of
    /// them counts as the reference's; two runs on the same inputs must have the same one.
    ///
    /// ```
    /// use kernelgate::prelude::*;
    /// shape! { struct Vector { n: 1..=1 << 20 } }
    /// // A quotient that is so close to an integer that it may round to either side.
    /// let op = Op::<Vector>::new("whole_parts")
    ///     .input("x", |s| [s.n])
    ///     .output("y", |s| [s.n]).in_dtype(I32)
    ///     .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = (x / 3.0).floor()))
    ///     .alternatives(|_, x, others| for (at, x) in x[0].iter().enumerate() {
    ///         let (exact, rounding) = (x / 3.0, x.abs() * 2f64.powi(-23));
    ///         others[0].extend([exact - rounding, exact + rounding].map(|near| (at, near.floor())));
    ///     });
    /// assert!(op.has_alternatives());
    /// ```
    pub fn alternatives(mut self, f: impl Fn(&S, &[&[f64]], &mut [Vec<(usize, f64)>]) + Send + Sync + 'static) -> Self {
        self.identity = fresh_identity();
        self.alternatives = Some(Arc::new(move |point, x, others| f(&S::from_point(point), x, others)));
        self
    }

    /// A demand on several axes at once: `nearest` turns any shape into a legal one near it, and leaves a legal one as it is.
    /// Boundary shapes, random ones and their shrinking keep to it; a shape that is named and breaks it is an error.
    ///
    /// ```
    /// use kernelgate::prelude::*;
    /// shape! { struct Attention { heads: 1..=64, kv_heads: 1..=8, sq: 1..=4096, skv: 1..=4096 } }
    /// let op = Op::<Attention>::new("attention")
    ///     .constraint("skv >= sq", |s| Attention { skv: s.skv.max(s.sq), ..s })
    ///     .constraint("heads % kv_heads == 0", |s| Attention { heads: s.heads.next_multiple_of(s.kv_heads), ..s });
    /// assert_eq!(op.constraints().len(), 2);
    /// ```
    pub fn constraint(mut self, name: &'static str, nearest: impl Fn(S) -> S + Send + Sync + 'static) -> Self {
        let nearest = Arc::new(move |point: &[usize]| nearest(S::from_point(point)).to_point());
        self.constraints.push(Constraint { name, nearest });
        self
    }

    /// The size of what was added or cancelled to make each output element. Without it: |output|.
    pub fn magnitude(mut self, f: impl Fn(&S, &[&[f64]], &mut [Vec<f64>]) + Send + Sync + 'static) -> Self {
        self.identity = fresh_identity();
        self.magnitude = Some(Arc::new(move |point, x, y| f(&S::from_point(point), x, y)));
        self
    }

    /// Element `at` of the only output, in f64: its value and its magnitude, as [`Op::reference`] and [`Op::magnitude`] have
    /// them, which the correctness check holds it to. Where a whole reference would cost too much, before a large case is
    /// timed, single elements all over the output are compared. The inputs are read by `x[0].get(i)`, exactly.
    ///
    /// ```
    /// use kernelgate::prelude::*;
    /// shape! { struct Product { m: 1..=1 << 14, k: 1..=1 << 14 } }
    /// let op = Op::<Product>::new("matrix_vector")
    ///     .input("a", |s| [s.m, s.k])
    ///     .input("x", |s| [s.k])
    ///     .output("y", |s| [s.m])
    ///     .element(|s, x, at| {
    ///         let terms = (0..s.k).map(|p| x[0].get(at * s.k + p) * x[1].get(p));
    ///         terms.fold([0.0, 0.0], |[value, size], term| [value + term, size + term.abs()])
    ///     });
    /// assert_eq!(op.name(), "matrix_vector");
    /// ```
    pub fn element(mut self, f: impl Fn(&S, &[Tensor], usize) -> [f64; 2] + Send + Sync + 'static) -> Self {
        self.element = Some(Arc::new(move |point, x, at| f(&S::from_point(point), x, at)));
        self
    }

    /// The number of f32 roundings that an output collects, usually the reduction length. Without it: 1.
    pub fn depth(mut self, f: impl Fn(&S) -> usize + Send + Sync + 'static) -> Self {
        self.depth = Arc::new(move |point| f(&S::from_point(point)) as f64);
        self
    }

    /// Compulsory bytes and operations.
    pub fn cost(mut self, f: impl Fn(&S, DType) -> Cost + Send + Sync + 'static) -> Self {
        self.cost = Arc::new(move |point, dtype| f(&S::from_point(point), dtype));
        self
    }

    /// The largest input magnitude for which f32 arithmetic carries the formula.
    pub fn range(mut self, max: f64) -> Self {
        self.range = max;
        self
    }

    /// Replaces the derived tolerance for every candidate; the reason is part of every report.
    pub fn tolerance(mut self, tolerance: Override) -> Self {
        self.tolerance = Some(tolerance);
        self
    }

    /// The shape from which one axis at a time is varied. Say it where axes depend on each other, or where there are so many
    /// that the usual extents make large tensors.
    pub fn varied_around(mut self, shape: S) -> Self {
        self.base = self.listed("varied_around", [shape]).pop();
        self
    }

    /// The points of shapes inside their axes; the others are mistakes.
    fn listed(&mut self, what: &str, shapes: impl IntoIterator<Item = S>) -> Vec<Point> {
        let mut points: Vec<Point> = shapes.into_iter().map(|shape| shape.to_point()).collect();
        let (axes, mistakes) = (&self.axes, &mut self.mistakes);
        let mut number = 0;
        points.retain(|point| {
            number += 1;
            let outside = outside(axes, point);
            mistakes.extend(outside.as_ref().map(|why| format!("`.{what}`, shape {number}: {why}")));
            outside.is_none()
        });
        points
    }

    /// Realistic shapes, checked beside the boundary shapes.
    pub fn shapes(mut self, shapes: impl IntoIterator<Item = S>) -> Self {
        let shapes = self.listed("shapes", shapes);
        self.shapes.extend(shapes);
        self
    }

    /// Shapes to time. Without any, no perf trial exists.
    pub fn perf(mut self, shapes: impl IntoIterator<Item = S>) -> Self {
        let shapes = self.listed("perf", shapes);
        self.perf_shapes.extend(shapes);
        self
    }

    /// Restricts the distributions to those for which the operator is defined.
    pub fn distributions(mut self, distributions: impl IntoIterator<Item = Distribution>) -> Self {
        self.distributions = distributions.into_iter().collect();
        self
    }

    /// The values that its inputs are drawn from: all distributions but these, under which it is not defined.
    pub fn exclude_distributions<const N: usize>(self, undefined: [Distribution; N]) -> Self {
        self.distributions(Distribution::ALL.into_iter().filter(|distribution| !undefined.contains(distribution)))
    }

    /// Is not defined for NaN: [`Distribution::NonFinite`] becomes [`Distribution::Infinite`], and together with
    /// [`Op::without_infinities`] inputs are finite.
    pub fn without_nan(mut self) -> Self {
        narrow(&mut self.distributions, Distribution::WithNan, Distribution::Infinite);
        self
    }

    /// Is not defined for infinities: [`Distribution::NonFinite`] becomes [`Distribution::WithNan`], and together with
    /// [`Op::without_nan`] inputs are finite.
    pub fn without_infinities(mut self) -> Self {
        narrow(&mut self.distributions, Distribution::Infinite, Distribution::WithNan);
        self
    }

    /// Declares that the outputs along `axis` depend only on their own slice of those inputs that have an extent which
    /// follows it, the leading one or another: large cases are then verified on some rows, and row order must not matter.
    /// ```
    /// use kernelgate::prelude::*;
    ///
    /// shape! { struct Matrix { rows: 1..=4096, cols: 1..=8192 } }
    ///
    /// // Each row has a softmax of its own.
    /// let op = Op::<Matrix>::new("softmax").input("x", |s| [s.rows, s.cols]).output("y", |s| [s.rows, s.cols]).separable("rows");
    /// ```
    pub fn separable(mut self, axis: &str) -> Self {
        self.separable = self.axes.iter().position(|a| a.name == axis);
        if self.separable.is_none() {
            let axes: Vec<_> = self.axes.iter().map(|axis| axis.name).collect();
            self.mistakes.push(format!("`.separable(\"{axis}\")`: no such axis; the axes are {}", axes.join(", ")));
        }
        self
    }

    /// A relation that holds within the tolerance: `transform` changes the inputs, `expect` turns the outputs for the
    /// unchanged inputs, which it sees as well, into those for the changed ones.
    ///
    /// ```
    /// use kernelgate::prelude::*;
    /// shape! { struct Vector { n: 1..=1 << 22 } }
    /// let relu = Op::<Vector>::new("relu").input("x", |s| [s.n]).output("y", |s| [s.n]).relation(
    ///     "relu(|x|) = relu(x) + |x| left of zero",
    ///     |_, x, _| x[0].iter_mut().for_each(|x| *x = x.abs()),
    ///     |_, x, y, _| y[0].iter_mut().zip(&x[0]).filter(|(_, x)| **x < 0.0).for_each(|(y, x)| *y -= x),
    /// );
    /// ```
    pub fn relation(
        self,
        name: &'static str,
        transform: impl Fn(&S, &mut [Vec<f64>], &mut Rng) + Send + Sync + 'static,
        expect: impl Fn(&S, &[Vec<f64>], &mut [Vec<f64>], &mut Rng) + Send + Sync + 'static,
    ) -> Self {
        self.with_relation(name, false, transform, expect)
    }

    /// A relation that holds bit for bit.
    pub fn exact_relation(
        self,
        name: &'static str,
        transform: impl Fn(&S, &mut [Vec<f64>], &mut Rng) + Send + Sync + 'static,
        expect: impl Fn(&S, &[Vec<f64>], &mut [Vec<f64>], &mut Rng) + Send + Sync + 'static,
    ) -> Self {
        self.with_relation(name, true, transform, expect)
    }

    fn with_relation(
        mut self,
        name: &'static str,
        exact: bool,
        transform: impl Fn(&S, &mut [Vec<f64>], &mut Rng) + Send + Sync + 'static,
        expect: impl Fn(&S, &[Vec<f64>], &mut [Vec<f64>], &mut Rng) + Send + Sync + 'static,
    ) -> Self {
        self.relations.push(Relation {
            name,
            exact,
            transform: Arc::new(move |point, x, rng| transform(&S::from_point(point), x, rng)),
            expect: Arc::new(move |point, x, y, rng| expect(&S::from_point(point), x, y, rng)),
        });
        self
    }
}

impl<S: Shape> Operator for Op<S> {
    fn name(&self) -> &str {
        &self.name
    }
    fn identity(&self) -> u64 {
        self.identity
    }
    fn axes(&self) -> &[Axis] {
        &self.axes
    }
    fn inputs(&self) -> &[Port] {
        &self.input_ports
    }
    fn outputs(&self) -> &[Port] {
        &self.output_ports
    }
    fn input_dims(&self, i: usize, point: &[usize]) -> Vec<usize> {
        (self.inputs[i].dims)(point)
    }
    fn output_dims(&self, i: usize, point: &[usize]) -> Vec<usize> {
        (self.outputs[i].dims)(point)
    }
    fn index_bound(&self, i: usize, point: &[usize]) -> usize {
        (self.inputs[i].index_bound)(point)
    }
    fn index_first(&self, i: usize, point: &[usize]) -> usize {
        (self.inputs[i].index_first)(point)
    }
    fn fan_in(&self, i: usize, point: &[usize]) -> usize {
        (self.inputs[i].fan_in)(point)
    }
    fn further_indices(&self, i: usize, point: &[usize]) -> Vec<i64> {
        (self.inputs[i].further_indices)(point)
    }
    fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }
    fn reference(&self, point: &[usize], dtype: DType, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        if let Some(reference) = &self.reference {
            reference(point, dtype, inputs, outputs);
        }
    }
    fn has_unspecified(&self) -> bool {
        self.unspecified.is_some()
    }
    fn unspecified(&self, point: &[usize], inputs: &[&[f64]], free: &mut [Vec<bool>]) {
        if let Some(unspecified) = &self.unspecified {
            unspecified(point, inputs, free);
        }
    }
    fn has_alternatives(&self) -> bool {
        self.alternatives.is_some()
    }
    fn alternatives(&self, point: &[usize], inputs: &[&[f64]], others: &mut [Vec<(usize, f64)>]) {
        if let Some(alternatives) = &self.alternatives {
            alternatives(point, inputs, others);
        }
    }
    fn magnitude(&self, point: &[usize], inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        if let Some(magnitude) = &self.magnitude {
            magnitude(point, inputs, outputs);
        }
    }
    fn computes_elements(&self) -> bool {
        self.element.is_some()
    }
    fn element(&self, point: &[usize], inputs: &[Tensor], at: usize) -> Option<[f64; 2]> {
        self.element.as_ref().map(|element| element(point, inputs, at))
    }
    fn depth(&self, point: &[usize]) -> f64 {
        (self.depth)(point)
    }
    fn cost(&self, point: &[usize], dtype: DType) -> Cost {
        (self.cost)(point, dtype)
    }
    fn tolerance(&self) -> Option<&Override> {
        self.tolerance.as_ref()
    }
    fn range(&self) -> f64 {
        self.range
    }
    fn base(&self) -> Option<&Point> {
        self.base.as_ref()
    }
    fn shapes(&self) -> &[Point] {
        &self.shapes
    }
    fn perf_shapes(&self) -> &[Point] {
        &self.perf_shapes
    }
    fn distributions(&self) -> &[Distribution] {
        &self.distributions
    }
    fn relations(&self) -> &[Relation] {
        &self.relations
    }
    fn separable(&self) -> Option<usize> {
        self.separable
    }
    fn has_reference(&self) -> bool {
        self.reference.is_some()
    }
    fn mistakes(&self) -> &[String] {
        &self.mistakes
    }
}

/// Leaves of values that are not finite those of `kept` alone, or none where it is they that are `undefined`.
fn narrow(distributions: &mut Vec<Distribution>, undefined: Distribution, kept: Distribution) {
    distributions.retain(|one| *one != undefined);
    distributions.iter_mut().filter(|one| **one == Distribution::NonFinite).for_each(|one| *one = kept);
}

fn fresh_identity() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
