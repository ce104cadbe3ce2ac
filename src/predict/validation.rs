//! How far predictions were off, beside a roofline and a linear regression.

use super::family::Family;
use super::features::Features;
use super::limits::Limits;
use crate::core::stats::{median, quantile_sorted, sorted};
use serde::Serialize;

/// The misses of one way to predict, relative to what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// Mean of the absolute misses, %.
    pub mean: f64,
    /// Their median, %.
    pub median: f64,
    /// Their 95th percentile, %.
    pub p95: f64,
    /// Mean of the misses, %: below zero where too little was predicted.
    pub bias: f64,
}

/// A family held against what was measured after its fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// `operator::candidate::dtype`.
    pub family: String,
    /// Cases that were predicted.
    pub cases: usize,
    /// Cases that were measured and are outside the domain.
    pub outside: usize,
    /// The share of times inside the interval of nine of ten.
    pub covered: f64,
    /// The predictor.
    pub predictor: Errors,
    /// The larger of bytes over the bandwidth of a copy, and operations over the peak of the pipe.
    pub roofline: Errors,
    /// A regression of the logarithm of the time on those of bytes and operations, fitted to the same sweep.
    pub regression: Errors,
}

impl Errors {
    /// Of the cases that a family was fitted to: each predicted by the others alone, in the same order.
    pub fn left_out(family: &Family, measured: &[(Features, f64)]) -> Self {
        Errors::of(&family.left_out_us.iter().copied().zip(measured.iter().map(|(_, us)| *us)).collect::<Vec<_>>())
    }

    /// Of pairs of predicted and measured times.
    fn of(pairs: &[(f64, f64)]) -> Self {
        let misses: Vec<f64> = pairs.iter().map(|(said, us)| 100.0 * (said / us - 1.0)).collect();
        let absolute: Vec<f64> = misses.iter().map(|miss| miss.abs()).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        Errors {
            mean: mean(&absolute),
            median: median(&absolute),
            p95: quantile_sorted(&sorted(&absolute), 0.95),
            bias: mean(&misses),
        }
    }
}

impl Validation {
    /// Holds a family against cases that it was not fitted to; `swept` are those of its fit.
    ///
    /// # Errors
    /// If no case is in the family's domain.
    pub fn of(
        family: &Family,
        swept: &[(Features, f64)],
        unseen: &[(Features, f64)],
        limits: &Limits,
    ) -> Result<Self, String> {
        let name = format!("{}::{}::{}", family.operator, family.candidate, family.dtype);
        let said: Vec<_> =
            unseen.iter().filter_map(|(features, us)| Some((family.predict(features).ok()?, features, *us))).collect();
        if said.is_empty() {
            return Err(format!("{name}: none of {} measured cases is in the calibrated domain", unseen.len()));
        }
        let covered = said.iter().filter(|(p, _, us)| (p.low_us..=p.high_us).contains(us)).count();
        let regression = Regression::of(swept);
        let pairs = |predict: &dyn Fn(&Features) -> f64| -> Vec<(f64, f64)> {
            said.iter().map(|(_, features, us)| (predict(features), *us)).collect()
        };
        let predicted: Vec<(f64, f64)> = said.iter().map(|(prediction, _, us)| (prediction.us, *us)).collect();
        Ok(Validation {
            family: name,
            cases: said.len(),
            outside: unseen.len() - said.len(),
            covered: covered as f64 / said.len() as f64,
            predictor: Errors::of(&predicted),
            roofline: Errors::of(&pairs(&|features| roofline_us(features, limits))),
            regression: Errors::of(&pairs(&|features| regression.us(features))),
        })
    }
}

fn roofline_us(features: &Features, limits: &Limits) -> f64 {
    let pipe = limits.pipe_us(features.flops, features.on_tensor_cores, features.dtype).unwrap_or(0.0);
    limits.roofline_memory_us(features.bytes()).max(pipe)
}

/// `ln µs = a + b ln bytes + c ln flops`, by least squares.
struct Regression([f64; 3]);

impl Regression {
    fn row(features: &Features) -> [f64; 3] {
        [1.0, features.bytes().max(1.0).ln(), features.flops.max(1.0).ln()]
    }

    fn of(cases: &[(Features, f64)]) -> Self {
        // The normal equations, with a grain of ridge: bytes and operations may be proportional.
        let mut system = [[0.0; 4]; 3];
        for (features, us) in cases {
            let row = Self::row(features);
            for (i, equation) in system.iter_mut().enumerate() {
                (0..3).for_each(|j| equation[j] += row[i] * row[j]);
                equation[3] += row[i] * us.ln();
            }
        }
        (0..3).for_each(|i| system[i][i] += 1e-6 * cases.len() as f64);
        for i in 0..3 {
            for j in 0..3 {
                if j != i {
                    let factor = system[j][i] / system[i][i];
                    let pivot = system[i];
                    system[j].iter_mut().zip(pivot).for_each(|(to, from)| *to -= factor * from);
                }
            }
        }
        Regression([0, 1, 2].map(|i| system[i][3] / system[i][i]))
    }

    fn us(&self, features: &Features) -> f64 {
        self.0.iter().zip(Self::row(features)).map(|(a, b)| a * b).sum::<f64>().exp()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fit::tests::{TRUTH, h200, products};
    use super::*;
    use crate::core::dtype::DType;

    const NAME: (&str, &str, DType) = ("gemm", "cuda", DType::BF16);

    #[test]
    fn a_good_fit_is_near_and_beats_what_it_is_compared_with() {
        let (limits, swept) = (h200(), products(&TRUTH, 150, 0.02, 1));
        let family = Family::fitted(NAME, swept.clone(), &limits).unwrap();
        let found = Validation::of(&family, &swept, &products(&TRUTH, 300, 0.02, 2), &limits).unwrap();
        assert!(found.predictor.mean < 3.0 && found.predictor.bias.abs() < 1.5, "{found:?}");
        assert!(
            found.predictor.mean < found.regression.mean && found.regression.mean < found.roofline.mean,
            "{found:?}"
        );
        assert!((0.85..=0.98).contains(&found.covered), "{found:?}");
    }

    #[test]
    fn a_family_that_changed_after_its_fit_is_seen() {
        let (limits, swept) = (h200(), products(&TRUTH, 150, 0.02, 1));
        let family = Family::fitted(NAME, swept.clone(), &limits).unwrap();
        let slower: Vec<_> = products(&TRUTH, 300, 0.02, 2).into_iter().map(|(f, us)| (f, 1.1 * us)).collect();
        let found = Validation::of(&family, &swept, &slower, &limits).unwrap();
        assert!(found.predictor.bias < -8.0 && found.predictor.mean > 8.0 && found.covered < 0.5, "{found:?}");
    }

    #[test]
    fn cases_that_were_left_out_are_missed_by_more_than_those_of_the_fit() {
        let (limits, swept) = (h200(), products(&TRUTH, 30, 0.1, 1));
        let family = Family::fitted(NAME, swept.clone(), &limits).unwrap();
        let left_out = Errors::left_out(&family, &swept);
        let fitted: Vec<_> = swept.iter().map(|(features, us)| (family.time_us(features, None), *us)).collect();
        assert!(left_out.mean > Errors::of(&fitted).mean && left_out.mean < 12.0, "{left_out:?}");
    }

    #[test]
    fn misses_are_counted_as_they_are_defined() {
        let errors = Errors::of(&[(110.0, 100.0), (90.0, 100.0), (100.0, 100.0), (130.0, 100.0)]);
        approx::assert_relative_eq!(errors.mean, 12.5, epsilon = 1e-9);
        approx::assert_relative_eq!(errors.bias, 7.5, epsilon = 1e-9);
        approx::assert_relative_eq!(errors.median, 10.0, epsilon = 1e-9);
    }
}
