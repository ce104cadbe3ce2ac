//! The errors of a whole output taken together: each within its tolerance, all of them larger than rounding makes them.
//!
//! What one element may be off by has to cover the unluckiest order of summation, and so grows with √depth times the sizes
//! of all terms. Typical errors are far smaller. An addition to a partial sum p is off by at most ε |p|, in the root mean
//! square (RMS) over the mantissas that occur by 0.42 ε |p|. Partial sums grow at least like a random walk, so that over
//! n additions the mean of p² is at most half that of the last one, and the sum is off by an RMS of
//!
//!   0.42 ε √(n / 2) · RMS(sum) = 0.3 ε √n · RMS(sum).
//!
//! Of terms of either sign the sum is some √n smaller than their sizes together, so that this does not grow with n where
//! the tolerance of an element grows with √n: inputs rounded to TF32 or sums in a half type stand out at any depth.
//!
//! An element may therefore have a typical error of
//!
//!   s = (u − ½) · ulp + ε (c + c/4 · 0.3 √(χ n) κ) · magnitude,   κ = RMS(value / magnitude),
//!
//! where u and c are those of the tolerance: half an ulp, for u = 1, is the largest error of one rounding to nearest, c ε
//! that of the elementary steps beside the sum. The RMS of error / s over the output is at most 1 for a right kernel.
//!
//! χ is the part of chance. A sum of many roundings is as good as normal; the rows of an operator that is separable know
//! nothing of each other, so the mean square over r rows is χ²(r) / r, which exceeds χ with a probability of at most
//! exp(−r/2 (χ − 1 − ln χ)). That is [`FALSE_ALARM`] here, 10⁻⁹ an output: χ = 45 for one row, 1.3 for 1024.

use super::compare::{Expected, Judge};
use crate::core::dtype::DType;
use crate::core::stats::chi_square_mean_limit;
use crate::core::tensor::Tensor;
use crate::core::tolerance::ACCUMULATOR_EPSILON;

/// Outputs with fewer elements say little as a whole.
const FEWEST: usize = 16;

/// How often a right kernel may be called wrong, an output.
pub const FALSE_ALARM: f64 = 1e-9;

/// RMS of the roundings of n additions, as a part of ε √n times the sum.
const RANDOM_WALK: f64 = 0.3;

/// Tensor cores cut off what they add to the sum in place of rounding it, once for 16 products at least: on average by ε
/// of a partial sum, whose mean is no more than half the last one.
const CUT_OFF: f64 = 1.0 / 32.0;

/// What the errors of an output amount to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// RMS of the errors as a share of what is typical for a right kernel: above 1 is a failure.
    pub of_typical: f64,
    /// RMS of the errors in ulp of the output's dtype.
    pub rms_ulp: f64,
    /// Over so many elements.
    pub elements: usize,
}

/// The spread of the errors of `got`, whose `rows` know nothing of each other, in a case of dtype `inputs`; `None` for
/// integers, and where there are too few elements.
pub fn spread(got: &Tensor, expected: &Expected, judge: &Judge, inputs: DType, rows: usize) -> Option<Spread> {
    if judge.dtype.is_integer() {
        return None;
    }
    let is_counted = |value: f64, magnitude: f64| {
        judge.dtype.round(value).is_finite() && magnitude.is_finite() && !judge.is_saturated(value)
    };
    let pairs = || expected.values.iter().copied().zip(expected.magnitudes.iter().copied());
    let (mut shares, mut n) = (0.0, 0usize);
    for (value, magnitude) in pairs().filter(|&(value, magnitude)| is_counted(value, magnitude)) {
        shares += if value == 0.0 { 0.0 } else { (value / magnitude).powi(2).min(1.0) };
        n += 1;
    }
    if n < FEWEST {
        return None;
    }
    let arithmetic = judge.typical(inputs, rows, (shares / n as f64).sqrt());
    let (mut of_typical, mut of_ulp) = (0.0, 0.0);
    for (i, (value, magnitude)) in pairs().enumerate().filter(|&(_, (value, magnitude))| is_counted(value, magnitude)) {
        let (error, ulp) = (got.get(i) - value, judge.dtype.ulp(value));
        // An infinity that is accepted where the reference is next to the end of the range.
        if error.is_finite() {
            let typical = (judge.tolerance.ulps - 0.5).max(0.5) * ulp + arithmetic * magnitude.abs();
            of_typical += (error / typical).powi(2);
            of_ulp += (error / ulp).powi(2);
        }
    }
    let root = |sum: f64| (sum / n as f64).sqrt();
    Some(Spread { of_typical: root(of_typical), rms_ulp: root(of_ulp), elements: n })
}

impl Judge {
    /// The typical error of the arithmetic before the last rounding, as a share of the magnitude, where the sums are
    /// `sum_of_magnitude` of it.
    pub(super) fn typical(&self, inputs: DType, rows: usize, sum_of_magnitude: f64) -> f64 {
        let (factor, depth) = (self.tolerance.factor, self.depth.max(1.0));
        let chance = chi_square_mean_limit(rows.max(1), FALSE_ALARM);
        let summed = factor / 4.0 * RANDOM_WALK * (chance * depth).sqrt();
        let cut_off = if !inputs.is_integer() && inputs.size() <= 2 { CUT_OFF * depth } else { 0.0 };
        let between = self.tolerance.intermediate * self.dtype.ulp(1.0) / 2.0;
        ACCUMULATOR_EPSILON * (factor + (summed + cut_off) * sum_of_magnitude) + between
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::distribution::normal;
    use crate::core::seed::rng;
    use crate::core::tolerance::Tolerance;
    use half::{bf16, f16};
    use rstest::rstest;

    /// Sums of products of normal values, one a row, added up by `sum`.
    fn of_products(dtype: DType, k: usize, sum: impl Fn(&[f64], &[f64]) -> f64) -> Spread {
        const ROWS: usize = 64;
        let (a, b) = (normal(&mut rng(1), ROWS * k, 0.0, 1.0, dtype), normal(&mut rng(2), ROWS * k, 0.0, 1.0, dtype));
        let rows = || a.chunks_exact(k).zip(b.chunks_exact(k));
        let fold = |term: fn(f64) -> f64| -> Vec<f64> {
            rows().map(|(a, b)| a.iter().zip(b).map(|(a, b)| term(a * b)).sum()).collect()
        };
        let expected = Expected::new(fold(|x| x), fold(f64::abs));
        let got: Vec<f64> = rows().map(|(a, b)| sum(a, b)).collect();
        let judge = Judge { dtype, tolerance: Tolerance::default(), depth: k as f64, equal_terms: false };
        spread(&Tensor::from_f64(dtype, &[ROWS], &got), &expected, &judge, dtype, ROWS).unwrap()
    }

    /// A plain loop in f32 over inputs rounded by `round`.
    fn plain(round: fn(f64) -> f32) -> impl Fn(&[f64], &[f64]) -> f64 {
        move |a, b| a.iter().zip(b).fold(0.0f32, |sum, (&a, &b)| sum + round(a) * round(b)).into()
    }

    fn tf32(x: f64) -> f32 {
        let bits = (x as f32).to_bits();
        f32::from_bits((bits + 0xfff + ((bits >> 13) & 1)) & !0x1fff)
    }

    #[rstest]
    fn a_plain_loop_is_typical(
        #[values(DType::F32, DType::F16, DType::BF16)] dtype: DType,
        #[values(4, 64, 1000, 4096, 30_000)] k: usize,
    ) {
        let found = of_products(dtype, k, plain(|x| x as f32));
        assert!(found.of_typical < 1.0, "{found:?}");
    }

    #[rstest]
    fn inputs_rounded_to_tf32_are_not(#[values(16, 256, 2048, 16_384, 100_000)] k: usize) {
        let found = of_products(DType::F32, k, plain(tf32));
        assert!(found.of_typical > 1.5, "{found:?}");
    }

    /// Terms of one sign: the partial sums grow as fast as they can.
    #[rstest]
    fn a_plain_loop_over_terms_of_one_sign_is_typical(#[values(64, 1000, 4096, 30_000)] k: usize) {
        let (x, rows) = (normal(&mut rng(3), 64 * k, 0.0, 1.0, DType::F32), 64);
        let values: Vec<f64> = x.chunks_exact(k).map(|x| x.iter().map(|x| x.abs()).sum()).collect();
        let got: Vec<f64> =
            x.chunks_exact(k).map(|x| x.iter().fold(0.0f32, |sum, x| sum + x.abs() as f32).into()).collect();
        let judge = Judge { dtype: DType::F32, tolerance: Tolerance::default(), depth: k as f64, equal_terms: false };
        let expected = Expected::new(values.clone(), values);
        let found = spread(&Tensor::from_f64(DType::F32, &[rows], &got), &expected, &judge, DType::F32, rows).unwrap();
        assert!(found.of_typical < 1.0, "{found:?}");
    }

    #[rstest]
    #[case::bf16(DType::BF16, 256, |sum, x| bf16::from_f32(sum + x).to_f32())]
    #[case::bf16_long(DType::BF16, 8192, |sum, x| bf16::from_f32(sum + x).to_f32())]
    #[case::f16(DType::F16, 256, |sum, x| f16::from_f32(sum + x).to_f32())]
    #[case::f32_in_f16(DType::F32, 8192, |sum, x| f16::from_f32(sum + x).to_f32())]
    #[case::f32_in_bf16(DType::F32, 16, |sum, x| bf16::from_f32(sum + x).to_f32())]
    fn sums_in_a_half_type_are_not(#[case] dtype: DType, #[case] k: usize, #[case] add: fn(f32, f32) -> f32) {
        let found =
            of_products(dtype, k, |a, b| a.iter().zip(b).fold(0.0, |sum, (a, b)| add(sum, (a * b) as f32)).into());
        assert!(found.of_typical > 1.5, "{found:?}");
    }

    #[rstest]
    fn a_last_term_that_is_dropped_is_not(
        #[values(DType::F32, DType::BF16, DType::F16)] dtype: DType,
        #[values(1024, 4096, 16_384)] k: usize,
    ) {
        let found = of_products(dtype, k, move |a, b| plain(|x| x as f32)(&a[..k - 1], &b[..k - 1]));
        assert!(found.of_typical > 1.5, "{found:?}");
    }

    #[test]
    fn integers_and_few_elements_have_none() {
        let judge = |dtype| Judge { dtype, tolerance: Tolerance::default(), depth: 1.0, equal_terms: false };
        let of = |dtype: DType, n: usize| {
            let expected = Expected::new(vec![1.0; n], vec![1.0; n]);
            spread(&Tensor::from_f64(dtype, &[n], &vec![9.0; n]), &expected, &judge(dtype), dtype, n)
        };
        assert_eq!((of(DType::I32, 100), of(DType::F32, FEWEST - 1)), (None, None));
        assert!(of(DType::F32, FEWEST).unwrap().of_typical > 1e6);
    }

    #[test]
    fn errors_are_told_in_units_of_the_last_place_as_well() {
        // One half of the elements is off by one place, the other by seven.
        let values: Vec<f64> = (0..100).map(|i| 1.0 + f64::from(i) / 128.0).collect();
        let ulp = DType::BF16.ulp(1.0);
        let off = |(i, value): (usize, &f64)| value + if i < 50 { ulp } else { -7.0 * ulp };
        let got: Vec<f64> = values.iter().map(|value| DType::BF16.round(*value)).collect();
        let got: Vec<f64> = got.iter().enumerate().map(off).collect();
        let judge = Judge { dtype: DType::BF16, tolerance: Tolerance::default(), depth: 1.0, equal_terms: false };
        let expected = Expected::new(values.clone(), values);
        let found = spread(&Tensor::from_f64(DType::BF16, &[100], &got), &expected, &judge, DType::BF16, 100).unwrap();
        assert!((found.rms_ulp - 5.0).abs() < 1e-9 && found.elements == 100, "{found:?}");
    }

    /// Tensor cores add some exact products at a time, and cut off what does not fit.
    #[rstest]
    fn what_tensor_cores_cut_off_is_typical_of_half_types_alone(#[values(8192, 30_000)] k: usize) {
        let (x, rows) = (normal(&mut rng(3), 64 * k, 0.0, 1.0, DType::BF16), 64);
        let sum = |x: &[f64]| x.iter().map(|x| x.abs()).sum::<f64>();
        let cut_off = |x: f64| if f64::from(x as f32) > x { (x as f32).next_down() } else { x as f32 };
        let added = |x: &[f64]| x.chunks(16).fold(0.0, |all, x| f64::from(cut_off(all + sum(x))));
        let (values, got): (Vec<f64>, Vec<f64>) = x.chunks_exact(k).map(|x| (sum(x), added(x))).unzip();
        let judge = Judge { dtype: DType::F32, tolerance: Tolerance::default(), depth: k as f64, equal_terms: false };
        let (expected, got) = (Expected::new(values.clone(), values), Tensor::from_f64(DType::F32, &[rows], &got));
        let of = |inputs| spread(&got, &expected, &judge, inputs, rows).unwrap().of_typical;
        assert!(of(DType::BF16) < 1.0 && of(DType::F32) > 1.0, "{} and {}", of(DType::BF16), of(DType::F32));
    }
}
