//! Metamorphic relations: a change of the inputs whose effect on the outputs is known without a reference.

use super::seed::Rng;
use std::sync::Arc;

type Change = Arc<dyn Fn(&[usize], &mut [Vec<f64>], &mut Rng) + Send + Sync>;

/// `candidate(transform(x)) == expect(candidate(x))`. Both functions see the same random stream.
///
/// The inputs of a relation are drawn from [`super::distribution::Distribution::Grid`], multiples of 1/8 up to 4, so
/// that shifts by small multiples of 1/8 and scalings by powers of two are exact in every dtype.
#[derive(Clone)]
pub struct Relation {
    /// Its name in reports.
    pub name: &'static str,
    /// Whether both sides must agree bit for bit; otherwise within both tolerances.
    pub exact: bool,
    /// Changes the inputs in place.
    pub transform: Change,
    /// Changes the outputs of the unchanged inputs into what is now expected.
    pub expect: Change,
}

impl std::fmt::Debug for Relation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relation").field("name", &self.name).field("exact", &self.exact).finish_non_exhaustive()
    }
}
