//! A fitted family: prediction, interval, domain.

use super::features::Features;
use super::fit::{PATH_PRIOR, fit};
use super::limits::Limits;
use super::model::Parameters;
use crate::core::dtype::DType;
use crate::core::stats::sorted;
use crate::core::work::Work;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A measured case of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The shape, as `--shape` takes it.
    pub shape: String,
    /// Median time of a cold launch, µs.
    pub us: f64,
    /// The tiles of a library, where it was asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// What the fitted parameters alone give for it on the device of the sweep, µs. Files before 2026-11-26 do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modelled_us: Option<f64>,
}

/// A case of the sweep, as the model sees it.
#[derive(Clone, Debug)]
struct Case {
    features: Features,
    place: Vec<f64>,
    /// By how much the model missed it, as the logarithm of a ratio.
    miss: f64,
    /// The same where a library was not asked for its tiles.
    unasked_miss: f64,
}

impl Case {
    /// Of a prediction that knows as much as this one.
    fn miss(&self, is_unasked: bool) -> f64 {
        if is_unasked { self.unasked_miss } else { self.miss }
    }
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
    cases: Vec<Case>,
    limits: Limits,
    /// Nine of ten predictions are this near, as the logarithm of a ratio.
    pub spread: f64,
    /// The same where a library is not asked for its tiles.
    unasked_spread: f64,
}

/// Cases that a family is fitted to at the least.
pub const FEWEST: usize = 12;

/// Extents may be outside those of the sweep by this factor.
const MARGIN: f64 = 1.25;

/// Cases whose logarithms are apart by this hardly say anything of each other.
const REACH: f64 = 0.7;

/// What another attribute, or another path, adds to the square of a distance.
const OTHER: f64 = 0.5;

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
        let cases = measured.into_iter().map(|(features, us)| {
            let miss = |features: &Features| (us / parameters.time_us(features, limits)).ln();
            let unasked_miss = features.unasked().as_ref().map_or_else(|| miss(&features), miss);
            Case { place: features.place(), miss: miss(&features), unasked_miss, features }
        });
        let mut family = Family {
            operator: operator.into(),
            candidate: candidate.into(),
            dtype,
            parameters,
            cases: cases.collect(),
            limits: limits.clone(),
            spread: 0.0,
            unasked_spread: 0.0,
        };
        family.spread = family.spread_of(false);
        family.unasked_spread = family.spread_of(true);
        family
    }

    /// The same family on another device than that of its sweep: a case's miss is what it was there, where the model gave so many
    /// µs for it. What the model does not know of a kernel carries over, the other device's times do not.
    pub fn carried(mut self, modelled_us: &[Option<f64>]) -> Self {
        for (case, modelled) in self.cases.iter_mut().zip(modelled_us) {
            if let Some(there) = modelled {
                let here = self.parameters.time_us(&case.features, &self.limits);
                let moved = (here / there).ln();
                (case.miss, case.unasked_miss) = (case.miss + moved, case.unasked_miss + moved);
            }
        }
        self.spread = self.spread_of(false);
        self.unasked_spread = self.spread_of(true);
        self
    }

    /// How far nine of ten cases are from what the others would have predicted.
    fn spread_of(&self, is_unasked: bool) -> f64 {
        let left = self.cases.iter().enumerate();
        let left = left.map(|(i, case)| (case.miss(is_unasked) - self.correction(case, is_unasked, Some(i))).abs());
        let left = sorted(&left.collect::<Vec<f64>>());
        // The rank that covers nine of ten of what comes, not of what was seen.
        let rank = (0.9 * (left.len() + 1) as f64).ceil() as usize;
        left.get(rank.clamp(1, left.len().max(1)) - 1).copied().unwrap_or(0.0)
    }

    /// What the cases of the same path and the nearest ones of the sweep say of the model's miss, the `without`th left out.
    fn correction(&self, at: &Case, is_unasked: bool, without: Option<usize>) -> f64 {
        let others = || self.cases.iter().enumerate().filter(|(i, _)| Some(*i) != without).map(|(_, case)| case);
        let mut offsets: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for case in others() {
            let (sum, count) = offsets.entry(&case.features.path).or_insert((0.0, PATH_PRIOR));
            (*sum, *count) = (*sum + case.miss(is_unasked), *count + 1.0);
        }
        let offset = |path: &str| offsets.get(path).map_or(0.0, |(sum, count)| sum / count);
        let (sum, weights) = others().fold((0.0, PRIOR), |(sum, weights), case| {
            let attributes = at.features.attributes.iter().zip(&case.features.attributes);
            let apart =
                attributes.filter(|(a, b)| a != b).count() + usize::from(at.features.path != case.features.path);
            let squares: f64 = at.place.iter().zip(&case.place).map(|(a, b)| (a - b) * (a - b)).sum();
            let weight = (-(squares + OTHER * apart as f64) / (REACH * REACH)).exp();
            (sum + weight * (case.miss(is_unasked) - offset(&case.features.path)), weights + weight)
        });
        offset(&at.features.path) + sum / weights
    }

    /// Whether a case is like those that the family was fitted to, and what is not if so.
    pub fn outside(&self, features: &Features) -> Option<String> {
        for (i, &extent) in features.extents.iter().enumerate() {
            let all = self.cases.iter().filter_map(|case| Some(*case.features.extents.get(i)? as f64));
            let (low, high) = all.fold((f64::INFINITY, 0.0f64), |(low, high), at| (low.min(at), high.max(at)));
            if !((low / MARGIN)..=(high * MARGIN)).contains(&(extent as f64)) {
                return Some(format!("extent {} is {extent}, the sweep went from {low} to {high}", i + 1));
            }
        }
        let known = self.cases.iter().any(|case| case.features.attributes == features.attributes);
        (!known).then(|| "the sweep has no case with these attributes".into())
    }

    /// The time of a case wherever it lies, corrected by what the nearest ones of the sweep say, µs.
    pub(super) fn time_us(&self, features: &Features, reuse_bytes: Option<f64>) -> f64 {
        let here = Case { features: features.clone(), place: features.place(), miss: 0.0, unasked_miss: 0.0 };
        let correction = self.correction(&here, features.is_unasked(), None);
        self.parameters.time_us_from(features, &self.limits, reuse_bytes) * correction.exp()
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
        let us = self.time_us(features, reuse_bytes);
        let spread = if features.is_unasked() { self.unasked_spread } else { self.spread };
        let pipe = self.limits.pipe_us(features.flops, features.on_tensor_cores, features.dtype);
        Ok(Prediction {
            us,
            low_us: us * (-spread).exp(),
            high_us: us * spread.exp(),
            memory_us: self.limits.memory_us_from(features.read_bytes, features.written_bytes, reuse_bytes),
            pipe_us: pipe.unwrap_or(0.0),
            launch_us: self.limits.launch_us * features.launches,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fit::tests::{TRUTH, calibrated, h200, products};
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
    fn a_family_carries_over_without_the_times_of_its_device() {
        // The kernel is 20 % slower than the model knows on both devices, whose memories are not as fast.
        let (here, there) = (h200(), calibrated("nvidia-h100-80gb-hbm3-132"));
        let of = |limits: &Limits, seed| -> Vec<(Features, f64)> {
            let cases =
                products(&TRUTH, 200, 0.0, seed).into_iter().filter(|(f, _)| f.extents.iter().any(|&n| n < 128));
            cases.map(|(f, _)| (f.clone(), 1.2 * TRUTH.time_us(&f, limits))).collect()
        };
        let measured = of(&here, 1);
        let modelled: Vec<_> = measured.iter().map(|(f, _)| Some(TRUTH.time_us(f, &here))).collect();
        let family = Family::with(NAME, TRUTH, measured, &there);
        let off = |family: &Family| -> f64 {
            let unseen = of(&there, 2);
            let all = unseen.iter().filter_map(|(f, us)| Some((family.predict(f).ok()?.us / us - 1.0).abs()));
            let all: Vec<f64> = all.collect();
            all.iter().sum::<f64>() / all.len() as f64
        };
        let before = off(&family);
        let carried = off(&family.carried(&modelled));
        assert!(carried < 0.02 && carried < 0.5 * before, "{carried}, {before} by the times of the other device");
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
