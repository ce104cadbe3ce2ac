//! The inference chain: a projection, softmax over it, and the norm of that.
//!
//! ```text
//! y = layernorm(softmax(x · projection))
//! ```

use super::builder::Builder;
use super::description::{Extents, Model};
use crate::core::shape::Point;

/// What the norm adds to a variance.
pub const EPS: f32 = 1e-5;

crate::shape! {
    /// The shape of a run.
    pub struct Chain {
        /// Rows of x and y.
        rows: 1..=1 << 16,
        /// Columns of x.
        inner: 1..=1 << 16,
        /// Columns of y. Of a single one softmax is 1, and the norm of that its bias.
        cols: 2..=1 << 16,
    }
}

/// The shape of each stage's operator.
pub fn stage_points(s: &Chain) -> Vec<Point> {
    let e = Extents::rows(s.rows);
    chain(s).steps.iter().map(|step| (step.usual.point)(&e)).collect()
}

/// The steps.
pub fn chain(s: &Chain) -> Model {
    let mut m = Builder::default();
    let x = m.given("x", s.inner);
    m.layer("projection");
    let x = m.gemm(x, "projection", s.cols);
    m.layer("softmax");
    let x = m.softmax("softmax", x);
    m.layer("norm");
    let x = m.layernorm(x, "norm", EPS);
    m.result(x)
}
