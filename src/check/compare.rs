//! Outputs against the reference: classes first, then the derived tolerance. NaN can never pass as a number.

use super::outcome::{Errors, Worst};
use crate::core::dtype::DType;
use crate::core::tensor::Tensor;
use crate::core::tolerance::Tolerance;
use rayon::prelude::*;
use std::ops::Range;

/// The reference of one output, with what its tolerance needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected {
    /// The values, in f64.
    pub values: Vec<f64>,
    /// The size of what was added or cancelled to make them; [`UNSPECIFIED`] where an output may hold anything.
    pub magnitudes: Vec<f64>,
    /// Other values that elements may have instead, as `(element, value)`.
    pub others: Vec<(usize, f64)>,
}

/// In the place of a magnitude, which is never negative: nothing is said of this element.
pub const UNSPECIFIED: f64 = f64::NEG_INFINITY;

impl Expected {
    /// Values with their magnitudes, and no others.
    pub fn new(values: Vec<f64>, magnitudes: Vec<f64>) -> Self {
        Expected { values, magnitudes, others: Vec::new() }
    }

    /// The output with the reference in the places of which nothing is said.
    pub fn settle(&self, output: &mut Tensor) {
        let free = self.magnitudes.iter().enumerate().filter(|(_, magnitude)| **magnitude == UNSPECIFIED);
        free.for_each(|(at, _)| output.set(at, self.values[at]));
    }

    /// The output with the reference where an element has one of the other values.
    pub fn settle_others(&self, output: &mut Tensor) {
        // Looked at before any is replaced: one element may have several.
        let found: Vec<usize> =
            self.others.iter().filter(|(at, value)| output.get(*at) == *value).map(|(at, _)| *at).collect();
        found.into_iter().for_each(|at| output.set(at, self.values[at]));
    }
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
    /// Whether the terms of a sum may all be the same, so that all additions round to one side.
    pub equal_terms: bool,
}

impl Judge {
    /// The largest error allowed where the reference is `value`.
    pub fn allowed(&self, value: f64, magnitude: f64) -> f64 {
        // A magnitude past the range (an infinite term that the reference cancels) allows nothing more.
        let magnitude = if magnitude.is_finite() { magnitude } else { 0.0 };
        if self.equal_terms {
            self.tolerance.allowed_of_equal_terms(self.dtype, value, self.depth, magnitude)
        } else {
            self.tolerance.allowed(self.dtype, value, self.depth, magnitude)
        }
    }

    /// Whether the largest value stands for `value`, which is beyond it.
    pub(super) fn is_saturated(&self, value: f64) -> bool {
        self.dtype.saturates() && value.abs() > self.dtype.max_finite()
    }

    /// Whether `got` is acceptable where the reference is `value`, and the error between finite values.
    pub(super) fn accepts(&self, got: f64, value: f64, magnitude: f64) -> (bool, f64) {
        if value.is_nan() || got.is_nan() {
            return (value.is_nan() && got.is_nan(), f64::INFINITY);
        }
        let allowed = self.allowed(value, magnitude);
        let most = self.dtype.max_finite();
        if self.dtype.saturates() && (self.is_saturated(value) || value.abs() + allowed > most) {
            // Right is the largest value, an infinity where the type has one, and what is close enough.
            let is_past = got.abs() >= most && got.signum() == value.signum();
            let error = if got.is_infinite() { f64::INFINITY } else { (got - value.clamp(-most, most)).abs() };
            return (is_past || error <= allowed, if is_past { 0.0 } else { error });
        }
        if got.is_infinite() {
            // An infinity is right where the reference rounds to it, or comes so close that an allowed error does.
            let farthest = if got > 0.0 { value + allowed } else { value - allowed };
            return (self.dtype.round(farthest) == got, f64::INFINITY);
        }
        // What the dtype cannot hold a kernel may still hold, as long as it is close enough.
        let error = (got - value).abs();
        // Written so that a NaN error fails; that of an infinity is one.
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
    /// How many of them are NaN, infinite or finite where the reference is not.
    pub of_other_class: usize,
    /// The flat index of the worst element, if any failed.
    pub worst: Option<usize>,
}

/// Elements that one thread compares at a time.
const CHUNK: usize = 1 << 14;

/// Compares one output with its reference.
pub fn compare(got: &Tensor, expected: &Expected, judge: &Judge) -> Comparison {
    let n = expected.values.len();
    let chunks = (0..n.div_ceil(CHUNK)).into_par_iter().map(|chunk| {
        let range = chunk * CHUNK..((chunk + 1) * CHUNK).min(n);
        compare_range(got, expected, judge, range)
    });
    let none = || (0.0, Comparison { errors: Errors::default(), failing: 0, of_other_class: 0, worst: None });
    let worse = |a: (f64, Comparison), b: (f64, Comparison)| {
        let (share, worst) =
            if b.1.worst.is_some() && (a.1.worst.is_none() || b.0 > a.0) { (b.0, b.1.worst) } else { (a.0, a.1.worst) };
        let errors = a.1.errors.max(b.1.errors);
        let (failing, of_other_class) = (a.1.failing + b.1.failing, a.1.of_other_class + b.1.of_other_class);
        (share, Comparison { errors, failing, of_other_class, worst })
    };
    if n <= CHUNK { compare_range(got, expected, judge, 0..n).1 } else { chunks.reduce(none, worse).1 }
}

/// The comparison of some elements, and the share of the allowed error that the worst of them has.
fn compare_range(got: &Tensor, expected: &Expected, judge: &Judge, range: Range<usize>) -> (f64, Comparison) {
    let mut errors = Errors::default();
    let (mut failing, mut of_other_class, mut worst, mut worst_share) = (0, 0, None, 0.0);
    for i in range {
        let (value, magnitude) = (expected.values[i], expected.magnitudes[i]);
        let (accepted, error) = judge.accepts(got.get(i), value, magnitude);
        let share = match error {
            0.0 => 0.0,
            error if error.is_finite() => error / judge.allowed(value, magnitude),
            _ => f64::INFINITY,
        };
        if error.is_finite() {
            errors = errors.max(Errors {
                max_abs: error,
                max_rel: if value == 0.0 { 0.0 } else { error / value.abs() },
                max_ulp: error / judge.dtype.ulp(value),
                max_of_allowed: share,
            });
        }
        if !accepted {
            failing += 1;
            of_other_class += usize::from(error.is_infinite());
            if worst.is_none() || share > worst_share {
                (worst, worst_share) = (Some(i), share);
            }
        }
    }
    (worst_share, Comparison { errors, failing, of_other_class, worst })
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
    #[case::saturated(DType::E4M3, 448.0, 1e6, true)]
    #[case::saturated_near_the_edge(DType::E4M3, 448.0, 470.0, true)]
    #[case::below_the_edge(DType::E4M3, 384.0, 1e6, false)]
    #[case::saturated_to_the_other_side(DType::E4M3, -448.0, 1e6, false)]
    #[case::nan_for_saturated(DType::E4M3, NAN, 1e6, false)]
    #[case::saturated_for_small(DType::E4M3, 448.0, 240.0, false)]
    #[case::infinite_for_saturated(DType::E5M2, INF, INF, true)]
    #[case::saturated_for_infinite(DType::E5M2, 57344.0, INF, true)]
    #[case::fp8_ulp(DType::E5M2, 1.25, 1.1, true)]
    #[case::fp8_far_off(DType::E5M2, 1.5, 1.1, false)]
    #[case::no_truth_value(DType::Bool, 0.0, 1.0, false)]
    #[case::next_long(DType::I64, 1e12 + 1.0, 1e12, false)]
    #[case::integer(DType::I32, 1000.0, 1000.0, true)]
    #[case::next_integer(DType::I32, 1001.0, 1000.0, false)]
    #[case::integer_far_off(DType::I32, 1e9 + 1.0, 1e9, false)]
    fn classes_and_values(#[case] dtype: DType, #[case] got: f64, #[case] value: f64, #[case] accepted: bool) {
        let judge = Judge { dtype, tolerance: Tolerance::new(1.0, 1.0), depth: 1.0, equal_terms: false };
        let expected = Expected::new(vec![value], vec![0.0]);
        let comparison = compare(&Tensor::from_f64(dtype, &[1], &[got]), &expected, &judge);
        assert_eq!(comparison.failing == 0, accepted, "{comparison:?}");
    }

    /// Each element may be off by 5000, more than f16 has room above the largest number.
    #[rstest]
    #[case::within(64_512.0, 68_864.0, true)]
    #[case::too_far(63_488.0, 68_864.0, false)]
    #[case::of_the_right_sign_alone(1.0, 68_864.0, false)]
    #[case::of_the_other_sign(-64_512.0, 68_864.0, false)]
    #[case::infinite(INF, 68_864.0, true)]
    #[case::nearly_infinite(INF, 61_000.0, true)]
    #[case::infinite_in_the_wrong_direction(-INF, 61_000.0, false)]
    fn values_that_may_be_off_by_more_than_the_range(#[case] got: f64, #[case] value: f64, #[case] accepted: bool) {
        let judge = Judge { dtype: DType::F16, tolerance: Tolerance::new(1.0, 4.0), depth: 1.0, equal_terms: false };
        let magnitude = 5000.0 / (4.0 * crate::core::tolerance::ACCUMULATOR_EPSILON);
        assert_eq!(judge.accepts(got, value, magnitude).0, accepted);
        // Allowed errors wider than all of the range.
        assert!(judge.accepts(64_512.0, 68_864.0, 1e3 * magnitude).0);
        assert!(judge.accepts(-INF, 68_864.0, 1e3 * magnitude).0);
    }

    #[test]
    fn elements_of_another_class_are_counted_and_come_first() {
        let judge = Judge { dtype: DType::F32, tolerance: Tolerance::default(), depth: 1.0, equal_terms: false };
        let expected = Expected::new(vec![1.0, 1.0, INF, NAN, 1.0], vec![1.0; 5]);
        let got = Tensor::from_f64(DType::F32, &[5], &[1e9, NAN, -INF, 1.0, 1.0]);
        let comparison = compare(&got, &expected, &judge);
        assert_eq!((comparison.failing, comparison.of_other_class, comparison.worst), (4, 3, Some(1)));
    }

    #[test]
    fn the_worst_element_is_named() {
        let judge = Judge { dtype: DType::F32, tolerance: Tolerance::default(), depth: 1.0, equal_terms: false };
        let expected = Expected::new(vec![1.0; 6], vec![1.0; 6]);
        let got = Tensor::from_f64(DType::F32, &[2, 3], &[1.0, 1.1, 1.0, 1.0, 1.0, 1.5]);
        let worst = compare(&got, &expected, &judge).describe("y", &got, &expected, &judge).unwrap();
        assert_eq!((worst.index, worst.failing), (vec![1, 2], 2));
    }
}
