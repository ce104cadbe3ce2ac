//! Results that lean one way: each element right to within one ulp, all of them wrong in the same direction.

use super::compare::{Expected, Judge};
use crate::core::tensor::Tensor;
use std::collections::HashMap;

/// Elements from which chance is out of the question.
const ENOUGH: usize = 2048;

/// What an approximation good to a tenth of an ulp may lean, and five deviations of a uniform rounding error.
const APPROXIMATION_ULP: f64 = 0.05;
const CHANCE_ULP: f64 = 5.0 * 0.29;

/// References closer than this share of an ulp are rounded alike.
const SAME_ULP: f64 = 1.0 / 16.0;

/// A mean signed error that chance does not explain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lean {
    /// The mean of |got| − |expected|, ulp.
    pub mean_ulp: f64,
    /// Over so many elements.
    pub elements: usize,
}

/// Whether `got` leans: truncation instead of rounding, a factor of 1.0005.
///
/// Asked of narrow dtypes and of those elements where the rounding of the result outweighs that of the arithmetic:
/// what is left of a cancellation may be many ulp off, and one such element would outvote all others. References that
/// repeat are rounded alike and count as one.
pub fn lean(got: &Tensor, expected: &Expected, judge: &Judge) -> Option<Lean> {
    let mut alike: HashMap<i64, f64> = HashMap::new();
    let (mut sum_ulp, mut elements) = (0.0, 0);
    if judge.dtype.is_integer() || judge.dtype.size() > 2 {
        return None;
    }
    for (i, (&value, &magnitude)) in expected.values.iter().zip(&expected.magnitudes).enumerate() {
        let ulp = judge.dtype.ulp(value);
        let error = (got.get(i).abs() - value.abs()) / ulp;
        let is_rounding = judge.allowed(value, magnitude) <= 2.0 * judge.tolerance.ulps * ulp;
        if error.is_finite()
            && value.abs() <= judge.dtype.max_finite()
            && value.abs() >= judge.dtype.min_normal()
            && is_rounding
        {
            sum_ulp += error;
            elements += 1;
            *alike.entry((value / ulp / SAME_ULP).round() as i64).or_default() += 1.0;
        }
    }
    if elements < ENOUGH {
        return None;
    }
    let (mean_ulp, n) = (sum_ulp / elements as f64, elements as f64);
    // As many independent values have the spread that these have.
    let independent = n * n / alike.values().map(|count| count * count).sum::<f64>();
    let limit = APPROXIMATION_ULP + CHANCE_ULP / independent.sqrt();
    (mean_ulp.abs() > limit).then_some(Lean { mean_ulp, elements })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::dtype::DType;
    use crate::core::tolerance::Tolerance;
    use half::bf16;

    const JUDGE: Judge = Judge {
        dtype: DType::BF16,
        tolerance: Tolerance { ulps: 1.0, factor: 4.0, intermediate: 0.0, units: 0.0 },
        depth: 1.0,
        equal_terms: false,
    };

    /// bf16 results of `values` by one way of rounding.
    fn leaning(values: Vec<f64>, magnitude: f64, round: impl Fn(f32) -> bf16) -> Option<Lean> {
        let got: Vec<f64> = values.iter().map(|&v| round(v as f32).to_f64()).collect();
        let expected = Expected::new(values.clone(), vec![magnitude; values.len()]);
        lean(&Tensor::from_f64(DType::BF16, &[got.len()], &got), &expected, &JUDGE)
    }

    /// 1 + i/4000
    fn spread() -> Vec<f64> {
        (0..4000).map(|i| 1.0 + f64::from(i) / 4000.0).collect()
    }

    fn truncate(v: f32) -> bf16 {
        bf16::from_bits((v.to_bits() >> 16) as u16)
    }

    #[test]
    fn results_that_lean_one_way_are_seen() {
        assert_eq!(leaning(spread(), 1.0, bf16::from_f32), None);
        let truncated = leaning(spread(), 1.0, truncate).unwrap();
        approx::assert_abs_diff_eq!(truncated.mean_ulp, -0.5, epsilon = 0.05);
        assert!(leaning(spread(), 1.0, |v| bf16::from_f32(v * 1.0005)).is_some());
    }

    #[test]
    fn few_results_prove_nothing() {
        assert_eq!(leaning(spread()[..1000].to_vec(), 1.0, truncate), None);
    }

    #[test]
    fn one_value_many_times_is_one_rounding() {
        let repeated = |value| vec![value; 4000];
        assert_eq!(leaning(repeated(1.003), 1.0, bf16::from_f32), None);
    }

    #[test]
    fn what_a_cancellation_leaves_is_not_asked() {
        let off = |v| bf16::from_f32(v * 1.1);
        assert!(leaning(spread(), 1.0, off).is_some());
        assert_eq!(leaning(spread(), 1e6, off), None);
    }
}
