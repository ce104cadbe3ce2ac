//! Outputs against the reference: classes first, then the derived tolerance. NaN can never pass as a number.

use super::outcome::{Errors, Worst};
use crate::core::dtype::DType;
use crate::core::tensor::Tensor;
use crate::core::tolerance::Tolerance;

/// The reference of one output, with what its tolerance needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    /// The values, in f64.
    pub values: Vec<f64>,
    /// The size of what was added or cancelled to make them.
    pub magnitudes: Vec<f64>,
}

/// How the values of one output are judged.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    /// The dtype of the output.
    pub dtype: DType,
    /// Tolerance constants.
    pub tolerance: Tolerance,
    /// f32 roundings an element collects.
    pub depth: f64,
}

impl Judge {
    /// The largest error allowed where the reference is `value`.
    pub fn allowed(&self, value: f64, magnitude: f64) -> f64 {
        // A magnitude past the range (an infinite term that the reference cancels) allows nothing more.
        let magnitude = if magnitude.is_finite() { magnitude } else { 0.0 };
        self.tolerance.allowed(self.dtype, value, self.depth, magnitude)
    }

    /// Whether `got` is acceptable where the reference is `value`, and the error between finite values.
    fn accepts(&self, got: f64, value: f64, magnitude: f64) -> (bool, f64) {
        if value.is_nan() || got.is_nan() {
            return (value.is_nan() && got.is_nan(), f64::INFINITY);
        }
        let allowed = self.allowed(value, magnitude);
        let rounded = self.dtype.round(value);
        if got.is_infinite() {
            // An infinity is right where the reference rounds to it, or comes so close that an allowed error does.
            let nearest = self.dtype.round(value.abs() + allowed).copysign(value);
            return (rounded == got || (value.is_finite() && nearest == got), f64::INFINITY);
        }
        if rounded.is_infinite() {
            let reachable = value.is_finite() && self.dtype.round(value.abs() - allowed).is_finite();
            return (reachable && got.signum() == value.signum(), f64::INFINITY);
        }
        let error = (got - value).abs();
        // Written so that a NaN error fails.
        (error <= allowed, error)
    }
}

/// What a comparison found.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Largest errors over elements where both are finite.
    pub errors: Errors,
    /// Number of elements that failed.
    pub failing: usize,
    /// The flat index of the worst element, if any failed.
    pub worst: Option<usize>,
    /// Over elements that are normal numbers: the mean of (|got| − |expected|) in ulp, and how many they are.
    pub bias: (f64, usize),
}

impl Comparison {
    /// The mean signed error in ulp, when it is too far from zero to be chance. Each element may be right to within
    /// one ulp while all of them lean the same way: truncation instead of rounding, a factor of 1.0005. Asked of
    /// narrow dtypes, where the rounding of the result dwarfs that of the arithmetic, on data without repetition.
    pub fn lean(&self, dtype: DType) -> Option<f64> {
        /// Elements from which chance is out of the question.
        const ENOUGH: usize = 2048;
        /// What an approximation good to a tenth of an ulp may lean, and five deviations of a uniform rounding error.
        const APPROXIMATION_ULP: f64 = 0.05;
        const CHANCE_ULP: f64 = 5.0 * 0.29;
        let (mean, n) = self.bias;
        let limit = APPROXIMATION_ULP + CHANCE_ULP / (n as f64).sqrt();
        (dtype.size() == 2 && n >= ENOUGH && mean.abs() > limit).then_some(mean)
    }
}

/// Compares one output with its reference.
pub fn compare(got: &Tensor, expected: &Expected, judge: &Judge) -> Comparison {
    let mut errors = Errors::default();
    let (mut failing, mut worst, mut worst_share) = (0, None, 0.0);
    let (mut bias_ulp, mut normal) = (0.0, 0u32);
    for (i, (&value, &magnitude)) in expected.values.iter().zip(&expected.magnitudes).enumerate() {
        let element = got.get(i);
        let (accepted, error) = judge.accepts(element, value, magnitude);
        let share = if error.is_finite() { error / judge.allowed(value, magnitude) } else { f64::INFINITY };
        if error.is_finite() {
            if value.abs() >= judge.dtype.min_normal() {
                bias_ulp += (element.abs() - value.abs()) / judge.dtype.ulp(value);
                normal += 1;
            }
            errors = errors.max(Errors {
                max_abs: error,
                max_rel: if value == 0.0 { 0.0 } else { error / value.abs() },
                max_ulp: error / judge.dtype.ulp(value),
                max_of_allowed: share,
            });
        }
        if !accepted {
            failing += 1;
            if worst.is_none() || share > worst_share {
                (worst, worst_share) = (Some(i), share);
            }
        }
    }
    Comparison { errors, failing, worst, bias: (bias_ulp / f64::from(normal.max(1)), normal as usize) }
}

impl Comparison {
    /// The worst element in full, if any failed.
    pub fn describe(&self, name: &str, got: &Tensor, expected: &Expected, judge: &Judge) -> Option<Worst> {
        let at = self.worst?;
        let number = |v: f64| format!("{v:e}");
        Some(Worst {
            output: name.into(),
            index: unflatten(at, got.dims()),
            expected: number(expected.values[at]),
            got: number(got.get(at)),
            allowed: number(judge.allowed(expected.values[at], expected.magnitudes[at])),
            failing: self.failing,
            elements: got.len(),
        })
    }
}

/// The index of flat element `at`, outermost dimension first.
pub fn unflatten(mut at: usize, dims: &[usize]) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for (slot, &extent) in index.iter_mut().zip(dims).rev() {
        *slot = at % extent.max(1);
        at /= extent.max(1);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;

    #[rstest]
    #[case::equal(DType::F32, 1.0, 1.0, true)]
    #[case::one_ulp(DType::F32, 1.0 + f32::EPSILON as f64, 1.0, true)]
    #[case::three_ulp(DType::F32, 1.0 + 3.0 * f32::EPSILON as f64, 1.0, false)]
    #[case::nan_for_number(DType::F32, NAN, 1.0, false)]
    #[case::number_for_nan(DType::F32, 1.0, NAN, false)]
    #[case::nan_for_nan(DType::F32, NAN, NAN, true)]
    #[case::inf_for_nan(DType::F32, INF, NAN, false)]
    #[case::inf_for_inf(DType::F32, INF, INF, true)]
    #[case::wrong_sign(DType::F32, -INF, INF, false)]
    #[case::huge_for_inf(DType::F32, 3e38, INF, false)]
    #[case::overflow(DType::F16, INF, 1e6, true)]
    #[case::finite_for_overflow(DType::F16, 65504.0, 1e6, false)]
    #[case::inf_near_the_edge(DType::F16, INF, 65510.0, true)]
    #[case::max_near_the_edge(DType::F16, 65504.0, 65525.0, true)]
    #[case::inf_for_small(DType::F16, INF, 60000.0, false)]
    #[case::zero_for_denormal(DType::F16, 0.0, 3e-7, false)]
    fn classes_and_values(#[case] dtype: DType, #[case] got: f64, #[case] value: f64, #[case] accepted: bool) {
        let judge = Judge { dtype, tolerance: Tolerance { ulps: 1.0, factor: 1.0 }, depth: 1.0 };
        let expected = Expected { values: vec![value], magnitudes: vec![0.0] };
        let comparison = compare(&Tensor::from_f64(dtype, &[1], &[got]), &expected, &judge);
        assert_eq!(comparison.failing == 0, accepted, "{comparison:?}");
    }

    /// bf16 results of 1 + i/4000 by one way of rounding.
    fn leaning(round: impl Fn(f32) -> half::bf16) -> Option<f64> {
        let judge = Judge { dtype: DType::BF16, tolerance: Tolerance::default(), depth: 1.0 };
        let values: Vec<f64> = (0..4000).map(|i| 1.0 + f64::from(i) / 4000.0).collect();
        let got: Vec<f64> = values.iter().map(|&v| round(v as f32).to_f64()).collect();
        let expected = Expected { magnitudes: values.clone(), values };
        let comparison = compare(&Tensor::from_f64(DType::BF16, &[4000], &got), &expected, &judge);
        assert_eq!(comparison.failing, 0, "each element is within its tolerance");
        comparison.lean(DType::BF16)
    }

    #[test]
    fn results_that_lean_one_way_are_seen() {
        use half::bf16;
        assert_eq!(leaning(bf16::from_f32), None);
        let truncated = leaning(|v| bf16::from_bits((v.to_bits() >> 16) as u16)).unwrap();
        approx::assert_abs_diff_eq!(truncated, -0.5, epsilon = 0.05);
        assert!(leaning(|v| bf16::from_f32(v * 1.0005)).is_some());
    }

    #[test]
    fn the_worst_element_is_named() {
        let judge = Judge { dtype: DType::F32, tolerance: Tolerance::default(), depth: 1.0 };
        let expected = Expected { values: vec![1.0; 6], magnitudes: vec![1.0; 6] };
        let got = Tensor::from_f64(DType::F32, &[2, 3], &[1.0, 1.1, 1.0, 1.0, 1.0, 1.5]);
        let worst = compare(&got, &expected, &judge).describe("y", &got, &expected, &judge).unwrap();
        assert_eq!((worst.index, worst.failing), (vec![1, 2], 2));
    }
}
