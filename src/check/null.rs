//! The null oracle: a case whose tolerance would accept an output that no work went into proves nothing.

use super::compare::{Expected, Judge, compare};
use crate::core::tensor::Tensor;

/// Outputs with fewer elements than this can be right by chance and are not asked.
const FEWEST: usize = 8;

/// The name of a null output that `judge` would accept for `expected`, if there is one.
///
/// A null that *is* the answer to within two units in the last place (the softmax of one column, the sum of zeros) is
/// no weakness of the tolerance and is let pass.
pub fn accepted_null(expected: &Expected, inputs: &[Tensor], dims: &[usize], judge: &Judge) -> Option<&'static str> {
    let n = expected.values.len();
    if n < FEWEST || expected.values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mean = expected.values.iter().sum::<f64>() / n as f64;
    let mut nulls = vec![("all zeros", vec![0.0; n]), ("its own mean everywhere", vec![mean; n])];
    if let Some(copy) = inputs.iter().find(|x| x.len() == n && x.dtype() == judge.dtype) {
        nulls.push(("a copy of an input", copy.to_f64()));
    }
    let mut tile = expected.values.clone();
    tile[n - (n / 8).max(1)..].fill(0.0);
    nulls.push(("one zeroed tile", tile));
    let accepted = nulls.into_iter().find(|(_, null)| {
        let null = Tensor::from_f64(judge.dtype, dims, null);
        compare(&null, expected, judge).failing == 0 && !is_the_answer(&null, expected, judge)
    });
    accepted.map(|(name, _)| name)
}

fn is_the_answer(null: &Tensor, expected: &Expected, judge: &Judge) -> bool {
    let within = |(i, &value): (usize, &f64)| (null.get(i) - value).abs() <= 2.0 * judge.dtype.ulp(value);
    expected.values.iter().enumerate().all(within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;
    use crate::core::tolerance::Tolerance;
    use rstest::rstest;

    fn judge(factor: f64) -> Judge {
        Judge { dtype: DType::F32, tolerance: Tolerance { ulps: 1.0, factor }, depth: 1.0 }
    }

    #[rstest]
    #[case::derived(4.0, None)]
    #[case::as_wide_as_the_values(1e8, Some("all zeros"))]
    #[case::as_wide_as_their_spread(1e7, Some("its own mean everywhere"))]
    fn a_tolerance_that_accepts_nothing_computed_is_named(#[case] factor: f64, #[case] null: Option<&str>) {
        let values: Vec<f64> = (0..16).map(|i| 1.0 + 0.01 * f64::from(i)).collect();
        let expected = Expected { magnitudes: values.clone(), values };
        assert_eq!(accepted_null(&expected, &[], &[16], &judge(factor)), null);
    }

    #[test]
    fn a_null_that_is_the_answer_is_let_pass() {
        let expected = Expected { values: vec![1.0; 16], magnitudes: vec![1.0; 16] };
        assert_eq!(accepted_null(&expected, &[], &[16], &judge(4.0)), None);
    }
}
