//! The null oracle: a case whose tolerance would accept an output that no work went into proves nothing.

use super::compare::{Expected, Judge};
use crate::core::tensor::Tensor;

/// Outputs with fewer elements than this can be right by chance and are not asked.
const FEWEST: usize = 8;

/// The name of a null output that `judge` would accept for `expected`, if there is one.
///
/// A null that *is* the answer to within two units in the last place (the softmax of one column, the sum of zeros) is
/// no weakness of the tolerance and is let pass.
pub fn accepted_null(expected: &Expected, inputs: &[Tensor], judge: &Judge) -> Option<&'static str> {
    let n = expected.values.len();
    // Past the range of the dtype every null rounds to the same infinity as the answer.
    if n < FEWEST
        || expected.values.iter().any(|&v| !judge.dtype.round(v).is_finite() || v.abs() > judge.dtype.max_finite())
    {
        return None;
    }
    let mean = expected.values.iter().sum::<f64>() / n as f64;
    let copied = inputs.iter().find(|x| x.len() == n && x.dtype() == judge.dtype);
    let tile = n - (n / 8).max(1)..n;
    let zeroed = |i: usize| if tile.contains(&i) { 0.0 } else { expected.values[i] };
    let copy = |i: usize| copied.map_or(f64::NAN, |x| x.get(i));
    let nulls: [(&str, &dyn Fn(usize) -> f64); 4] = [
        ("all zeros", &|_| 0.0),
        ("its own mean everywhere", &|_| mean),
        ("a copy of an input", &copy),
        ("one zeroed tile", &zeroed),
    ];
    let accepted = nulls.into_iter().find(|(_, null)| {
        let null = |i: usize| judge.dtype.round(null(i));
        // From the end, where the zeroed tile lies: most nulls are rejected by the first element that is looked at.
        let accepts = |i: usize| judge.accepts(null(i), expected.values[i], expected.magnitudes[i]).0;
        let is_right = |i: usize| (null(i) - expected.values[i]).abs() <= 2.0 * judge.dtype.ulp(expected.values[i]);
        (0..n).rev().all(accepts) && !(0..n).all(is_right)
    });
    accepted.map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;
    use crate::core::tolerance::Tolerance;
    use rstest::rstest;

    fn judge(factor: f64) -> Judge {
        Judge { dtype: DType::F32, tolerance: Tolerance::new(1.0, factor), depth: 1.0, equal_terms: false }
    }

    #[rstest]
    #[case::derived(4.0, None)]
    #[case::as_wide_as_the_values(1e8, Some("all zeros"))]
    #[case::as_wide_as_their_spread(1e7, Some("its own mean everywhere"))]
    fn a_tolerance_that_accepts_nothing_computed_is_named(#[case] factor: f64, #[case] null: Option<&str>) {
        let values: Vec<f64> = (0..16).map(|i| 1.0 + 0.01 * f64::from(i)).collect();
        let expected = Expected::new(values.clone(), values);
        assert_eq!(accepted_null(&expected, &[], &judge(factor)), null);
    }

    #[test]
    fn values_past_the_range_of_the_dtype_ask_for_nothing() {
        let values: Vec<f64> = (0..16).map(|i| 1e5 + f64::from(i)).collect();
        let expected = Expected::new(values.clone(), values);
        let judge = Judge { dtype: DType::F16, ..judge(4.0) };
        assert_eq!(accepted_null(&expected, &[], &judge), None);
    }

    #[test]
    fn a_null_that_is_the_answer_is_let_pass() {
        let expected = Expected::new(vec![1.0; 16], vec![1.0; 16]);
        assert_eq!(accepted_null(&expected, &[], &judge(4.0)), None);
    }
}
