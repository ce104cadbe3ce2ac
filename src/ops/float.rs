//! The float dtypes as CPU candidates see them: conversions to f32, in which all of them compute, and its sums.

use super::simd::Lane;
use crate::core::dtype::Element;
use half::{bf16, f16};

/// A dtype of activations.
pub trait Float: Element + Lane {
    /// Exact.
    fn to_f32(self) -> f32;
    /// To nearest, ties to even.
    fn from_f32(value: f32) -> Self;
}

impl Float for f32 {
    fn to_f32(self) -> f32 {
        self
    }
    fn from_f32(value: f32) -> Self {
        value
    }
}

macro_rules! narrow_float {
    ($($ty:ty),+) => {$(
        impl Float for $ty {
            fn to_f32(self) -> f32 {
                <$ty>::to_f32(self)
            }
            fn from_f32(value: f32) -> Self {
                <$ty>::from_f32(value)
            }
        }
    )+};
}

narrow_float!(f16, bf16);

/// Adds `term(0) + term(1) + … + term(n-1)` pairwise: the rounding error grows with log n instead of n, and the
/// rounding of equal terms does not pile up in one direction.
pub fn sum(n: usize, term: &impl Fn(usize) -> f32) -> f32 {
    pairwise(0, n, term)
}

/// Terms that are added one after the other, so that the recursion costs little.
const RUN: usize = 32;

fn pairwise(from: usize, to: usize, term: &impl Fn(usize) -> f32) -> f32 {
    if to - from <= RUN {
        return (from..to).map(term).sum();
    }
    let middle = from + (to - from) / 2;
    pairwise(from, middle, term) + pairwise(middle, to, term)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    fn every_term_is_added_once(#[values(0, 1, 31, 32, 33, 1000)] n: usize) {
        assert_eq!(sum(n, &|i| i as f32), (n * n.saturating_sub(1) / 2) as f32);
    }
}
