//! Metamorphic relations: a change of the inputs whose effect on the outputs is known without a reference.

use super::seed::Rng;
use std::sync::Arc;

type Transform = Arc<dyn Fn(&[usize], &mut [Vec<f64>], &mut Rng) + Send + Sync>;
type Expect = Arc<dyn Fn(&[usize], &[Vec<f64>], &mut [Vec<f64>], &mut Rng) + Send + Sync>;

/// `candidate(transform(x)) == expect(x, candidate(x))`. Both functions see the same random stream.
///
/// `expect` is applied to the outputs as they are and to what they may be off by, which tells how far both sides may
/// differ: each expected output is made of one output at the most, so that errors cannot cancel.
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
    pub transform: Transform,
    /// Changes the outputs of the unchanged inputs, which it is given too, into what is now expected.
    pub expect: Expect,
}

impl std::fmt::Debug for Relation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relation").field("name", &self.name).field("exact", &self.exact).finish_non_exhaustive()
    }
}
