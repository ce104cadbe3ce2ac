//! A fitted family: prediction, interval, domain.

use super::features::Features;
use super::fit::fit;
use super::limits::Limits;
use super::model::Parameters;
use crate::core::dtype::DType;
use serde::{Deserialize, Serialize};

/// A measured case of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The shape, as `--shape` takes it.
    pub shape: String,
    /// Median time of a cold launch, µs.
    pub us: f64,
}

/// What is said of a case that was not run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The time of a cold launch, µs.
    pub us: f64,
    /// Nine of ten times lie above this, µs, and …
    pub low_us: f64,
    /// … below this.
    pub high_us: f64,
    /// What its bytes take on the memory, µs.
    pub memory_us: f64,
    /// What its operations take at the sustained peak of their pipe, µs.
    pub pipe_us: f64,
    /// What its launches take if they do nothing, µs.
    pub launch_us: f64,
}

/// One candidate of an operator, in one dtype, on one device.
#[derive(Clone, Debug)]
pub struct Family {
    /// The operator.
    pub operator: String,
    /// The candidate.
    pub candidate: String,
    /// The dtype.
    pub dtype: DType,
    /// What was fitted.
    pub parameters: Parameters,
    /// The cases of the sweep: where each lies, and by how much the model missed it, as the logarithm of a ratio.
    cases: Vec<(Features, Vec<f64>, f64)>,
    limits: Limits,
    /// Nine of ten predictions are this near, as the logarithm of a ratio.
    pub spread: f64,
}

/// Cases that a family is fitted to at the least.
pub const FEWEST: usize = 12;

/// Extents may be outside those of the sweep by this factor.
const MARGIN: f64 = 1.25;

/// Cases whose logarithms are apart by this hardly say anything of each other.
const REACH: f64 = 0.7;

/// How much a correction is drawn to zero, in neighbours that lie at the same place.
const PRIOR: f64 = 1.0;

impl Family {
    /// Fits a family to measured cases.
    ///
    /// # Errors
    /// If they are too few.
    pub fn fitted(
        (operator, candidate, dtype): (&str, &str, DType),
        measured: Vec<(Features, f64)>,
        limits: &Limits,
    ) -> Result<Self, String> {
        if measured.len() < FEWEST {
            return Err(format!(
                "{operator}::{candidate}::{dtype}: {} measured cases, a fit takes {FEWEST}",
                measured.len()
            ));
        }
        let parameters = fit(&measured, limits);
        Ok(Family::with((operator, candidate, dtype), parameters, measured, limits))
    }

    /// A family whose parameters are known.
    pub fn with(
        (operator, candidate, dtype): (&str, &str, DType),
        parameters: Parameters,
        measured: Vec<(Features, f64)>,
        limits: &Limits,
    ) -> Self {
        let cases: Vec<_> = measured
            .into_iter()
            .map(|(features, us)| {
                let miss = (us / parameters.time_us(&features, limits)).ln();
                let place = features.place();
                (features, place, miss)
            })
            .collect();
        let mut family = Family {
            operator: operator.into(),
            candidate: candidate.into(),
            dtype,
            parameters,
            cases,
            limits: limits.clone(),
            spread: 0.0,
        };
        // Each case as the others would have predicted it.
        let mut left: Vec<f64> = (0..family.cases.len())
            .map(|i| (family.cases[i].2 - family.correction(&family.cases[i].0, Some(i))).abs())
            .collect();
        left.sort_by(f64::total_cmp);
        // The rank that covers nine of ten of what comes, not of what was seen.
        let rank = (0.9 * (left.len() + 1) as f64).ceil() as usize;
        family.spread = left.get(rank.clamp(1, left.len().max(1)) - 1).copied().unwrap_or(0.0);
        family
    }

    /// What the nearest cases of the sweep say of the model's miss, the `without`th left out.
    fn correction(&self, features: &Features, without: Option<usize>) -> f64 {
        let place = features.place();
        let others = self
            .cases
            .iter()
            .enumerate()
            .filter(|(i, (other, _, _))| Some(*i) != without && other.attributes == features.attributes);
        let (sum, weights) = others.fold((0.0, PRIOR), |(sum, weights), (_, (_, there, miss))| {
            let squares: f64 = place.iter().zip(there).map(|(a, b)| (a - b) * (a - b)).sum();
            let weight = (-squares / (REACH * REACH)).exp();
            (sum + weight * miss, weights + weight)
        });
        sum / weights
    }

    /// Whether a case is like those that the family was fitted to, and what is not if so.
    pub fn outside(&self, features: &Features) -> Option<String> {
        for (i, &extent) in features.extents.iter().enumerate() {
            let all = self.cases.iter().map(|(case, _, _)| case.extents[i] as f64);
            let (low, high) = all.fold((f64::INFINITY, 0.0f64), |(low, high), at| (low.min(at), high.max(at)));
            if !((low / MARGIN)..=(high * MARGIN)).contains(&(extent as f64)) {
                return Some(format!("extent {} is {extent}, the sweep went from {low} to {high}", i + 1));
            }
        }
        let known = self.cases.iter().any(|(case, _, _)| case.attributes == features.attributes);
        (!known).then(|| "the sweep has no case with these attributes".into())
    }

    /// The time of a case.
    ///
    /// # Errors
    /// If it is unlike those of the sweep.
    pub fn predict(&self, features: &Features) -> Result<Prediction, String> {
        self.predict_from(features, None)
    }

    /// The time of a case whose data was touched `reuse_bytes` others ago, and may be in a cache.
    ///
    /// # Errors
    /// As [`Family::predict`].
    pub fn predict_from(&self, features: &Features, reuse_bytes: Option<f64>) -> Result<Prediction, String> {
        if let Some(why) = self.outside(features) {
            let Family { operator, candidate, dtype, .. } = self;
            return Err(format!("{operator}::{candidate}::{dtype}: outside the calibrated domain: {why}"));
        }
        let us = self.parameters.time_us_from(features, &self.limits, reuse_bytes);
        let us = us * self.correction(features, None).exp();
        let pipe = self.limits.pipe_us(features.flops, features.on_tensor_cores, features.dtype);
        Ok(Prediction {
            us,
            low_us: us * (-self.spread).exp(),
            high_us: us * self.spread.exp(),
            memory_us: self.limits.memory_us_from(features.read_bytes, features.written_bytes, reuse_bytes),
            pipe_us: pipe.unwrap_or(0.0),
            launch_us: self.limits.launch_us * features.launches,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fit::tests::{TRUTH, h200, products};
    use super::*;

    const NAME: (&str, &str, DType) = ("gemm", "cuda", DType::BF16);

    #[test]
    fn intervals_cover_what_they_say() {
        let family = Family::fitted(NAME, products(&TRUTH, 150, 0.1, 1), &h200()).unwrap();
        let unseen = products(&TRUTH, 400, 0.1, 2);
        let said: Vec<_> = unseen.iter().filter_map(|(f, us)| Some((family.predict(f).ok()?, us))).collect();
        let covered = said.iter().filter(|(p, us)| (p.low_us..=p.high_us).contains(*us)).count();
        let share = covered as f64 / said.len() as f64;
        assert!((0.85..=0.95).contains(&share), "{share} of {}", said.len());
    }

    #[test]
    fn neighbours_correct_what_the_model_cannot_know() {
        // A family that is 30 % slower where k is large.
        let slower = |cases: Vec<(Features, f64)>| -> Vec<(Features, f64)> {
            cases.into_iter().map(|(f, us)| if f.extents[2] > 1024 { (f, 1.3 * us) } else { (f, us) }).collect()
        };
        let family = Family::fitted(NAME, slower(products(&TRUTH, 400, 0.0, 1)), &h200()).unwrap();
        let unseen = slower(products(&TRUTH, 200, 0.0, 2));
        let mean = |predict: &dyn Fn(&Features) -> Option<f64>| {
            let all: Vec<f64> = unseen.iter().filter_map(|(f, us)| Some((predict(f)? / us - 1.0).abs())).collect();
            all.iter().sum::<f64>() / all.len() as f64
        };
        let corrected = mean(&|f| family.predict(f).ok().map(|p| p.us));
        let alone = mean(&|f| Some(family.parameters.time_us(f, &family.limits)));
        assert!(corrected < 0.7 * alone, "{corrected} with neighbours, {alone} without");
    }

    #[test]
    fn outside_the_sweep_nothing_is_said() {
        let family = Family::fitted(NAME, products(&TRUTH, 50, 0.0, 1), &h200()).unwrap();
        let mut far = products(&TRUTH, 1, 0.0, 3).remove(0).0;
        far.extents[1] = 1 << 20;
        assert!(family.predict(&far).unwrap_err().contains("outside the calibrated domain: extent 2 is 1048576"));
        far.extents[1] = 1024;
        far.attributes = vec![1];
        assert!(family.predict(&far).unwrap_err().contains("attributes"));
        assert!(Family::fitted(NAME, products(&TRUTH, 3, 0.0, 1), &h200()).unwrap_err().contains("a fit takes 12"));
    }
}
