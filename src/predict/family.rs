//! A fitted family: prediction, interval, domain.

use super::features::Features;
#[cfg(feature = "catalogue")]
use super::fit::fit;
#[cfg(feature = "catalogue")]
use super::likelihood;
use super::limits::Limits;
use super::model::Parameters;
use super::observation::Observation;
use super::process::{Place, Process};
use super::swept::Swept;
use crate::core::dtype::DType;
use serde::Serialize;

/// A case of the sweep, as the process sees it.
#[derive(Clone, Debug)]
struct Case {
    features: Features,
    place: Place,
    /// Where a library was not asked for its algorithm; of anything else none.
    unasked: Option<Place>,
}

impl Case {
    /// One of a sweep on a device of so many units, where the model gives it so many µs, and so many if a library is not asked.
    fn of(features: Features, units: f64, [modelled_us, unasked_us]: [f64; 2]) -> Self {
        let unasked = features.unasked().map(|unasked| unasked.place(units, unasked_us));
        Case { place: features.place(units, modelled_us), unasked, features }
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
    /// What the model leaves over, as the logarithm of a ratio.
    pub process: Process,
    /// The same where a library was not asked for its algorithm; of anything else none.
    pub unasked: Option<Process>,
    /// What the others say of each case that it was fitted to, µs; empty of one that was kept in a file.
    pub left_out_us: Vec<f64>,
    cases: Vec<Case>,
    limits: Limits,
    /// Whether the launch rules have moved its cases since it was fitted.
    has_moved: bool,
}

/// Cases that a family is fitted to at the least.
#[cfg(feature = "catalogue")]
pub const FEWEST: usize = 12;

/// Extents may be outside those of the sweep by this factor.
const MARGIN: f64 = 1.25;

impl Family {
    /// Fits a family to measured cases.
    ///
    /// # Errors
    /// If they are too few.
    #[cfg(feature = "catalogue")]
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
        let (features, us): (Vec<_>, Vec<f64>) = measured.into_iter().unzip();
        let modelled: Vec<[f64; 2]> = features.iter().map(|features| parameters.times_us(features, limits)).collect();
        let misses =
            |way: usize| -> Vec<f64> { us.iter().zip(&modelled).map(|(us, said)| (us / said[way]).ln()).collect() };
        let cases = features.into_iter().zip(&modelled);
        let cases: Vec<Case> = cases.map(|(features, &modelled)| Case::of(features, limits.units, modelled)).collect();
        let places: Vec<&Place> = cases.iter().map(|case| &case.place).collect();
        let (process, said) = likelihood::fit(&places, &misses(0));
        let left_out_us = said.iter().zip(&modelled).map(|(said, [us, _])| us * said.exp()).collect();
        let unasked: Option<Vec<&Place>> = cases.iter().map(|case| case.unasked.as_ref()).collect();
        let unasked = unasked.map(|places| likelihood::fit(&places, &misses(1)).0);
        let (operator, candidate, limits) = (operator.into(), candidate.into(), limits.clone());
        Ok(Family {
            operator,
            candidate,
            dtype,
            parameters,
            process,
            unasked,
            left_out_us,
            cases,
            limits,
            has_moved: false,
        })
    }

    /// A family that was fitted before, on a device of so many units, with what was measured: what the model does not know of a
    /// kernel carries over to another device, the other one's times do not. `None` if the cases are not those of its fit.
    pub fn with<'o>(
        swept: &Swept,
        cases: impl Iterator<Item = (&'o Observation, Features)>,
        (limits, units): (&Limits, f64),
    ) -> Option<Self> {
        let parameters = swept.parameters;
        let case = |(seen, features): (&Observation, Features)| {
            let [modelled_us, unasked_us] = parameters.times_us(&features, limits);
            let there = [seen.modelled_us.unwrap_or(modelled_us), seen.unasked_us.unwrap_or(unasked_us)];
            (Case::of(features, units, there), (seen.us / there[0]).ln())
        };
        let (cases, misses): (Vec<Case>, Vec<f64>) = cases.map(case).unzip();
        let unasked: Vec<&Place> = cases.iter().filter_map(|case| case.unasked.as_ref()).collect();
        let fits = swept.process.is_of(cases.iter().map(|case| &case.place))
            && swept.unasked.as_ref().is_none_or(|process| process.is_of(unasked.iter().copied()));
        let places: Vec<&Place> = cases.iter().map(|case| &case.place).collect();
        let has_moved = fits && !swept.process.recalls(&places, &misses);
        fits.then(|| Family {
            operator: swept.operator.clone(),
            candidate: swept.candidate.clone(),
            dtype: swept.dtype,
            parameters,
            process: swept.process.clone(),
            unasked: swept.unasked.clone(),
            left_out_us: Vec::new(),
            cases,
            limits: limits.clone(),
            has_moved,
        })
    }

    /// The process for what these features say, and the places of its cases.
    fn process(&self, features: &Features) -> (&Process, impl Iterator<Item = &Place>) {
        let unasked = self.unasked.as_ref().filter(|_| features.is_unasked());
        let is_unasked = unasked.is_some();
        let places =
            self.cases.iter().map(move |case| case.unasked.as_ref().filter(|_| is_unasked).unwrap_or(&case.place));
        (unasked.unwrap_or(&self.process), places)
    }

    /// What the cases of the sweep say of the model's miss: all of them were cold, so it is that of the cold case.
    fn correction(&self, features: &Features) -> f64 {
        let cold = Features { cached: 0.0, ..features.clone() };
        let here = cold.place(self.limits.units, self.parameters.time_us(&cold, &self.limits));
        let (process, places) = self.process(&cold);
        process.value(&here, places)
    }

    /// Whether a case is like those that the family was fitted to, and what is not if so.
    pub fn outside(&self, features: &Features) -> Option<String> {
        if self.has_moved {
            return Some(
                "the launch rules have changed since the fit: `kernelgate predict --refit`, or sweep again".into(),
            );
        }
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

    /// The time of a case wherever it lies, corrected by what the cases of the sweep say, µs.
    pub(super) fn time_us(&self, features: &Features, reuse_bytes: Option<f64>) -> f64 {
        self.parameters.time_us_from(features, &self.limits, reuse_bytes) * self.correction(features).exp()
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
        let spread = self.process(features).0.spread;
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

    /// A family that is 30 % slower where k is large.
    fn slower(cases: Vec<(Features, f64)>) -> Vec<(Features, f64)> {
        cases.into_iter().map(|(f, us)| if f.extents[2] > 1024 { (f, 1.3 * us) } else { (f, us) }).collect()
    }

    #[test]
    fn a_fit_whose_cases_have_moved_says_so() {
        let (limits, measured) = (h200(), slower(products(&TRUTH, 200, 0.0, 1)));
        let family = Family::fitted(NAME, measured.clone(), &limits).unwrap();
        let swept = Swept { process: family.process.clone(), ..Swept::new(NAME, family.parameters, Vec::new()) };
        let seen: Vec<_> = measured.iter().map(|(_, us)| Observation::new(String::new(), *us)).collect();
        let predicted = |by: usize| {
            let features = measured.iter().cycle().skip(by).map(|(features, _)| features.clone());
            let family = Family::with(&swept, seen.iter().zip(features), (&limits, limits.units)).unwrap();
            family.predict(&measured[0].0)
        };
        assert_eq!(predicted(0).unwrap(), family.predict(&measured[0].0).unwrap());
        let said = predicted(7).unwrap_err();
        assert!(said.contains("launch rules have changed") && said.contains("--refit"), "{said}");
    }

    #[test]
    fn neighbours_correct_what_the_model_cannot_know() {
        let family = Family::fitted(NAME, slower(products(&TRUTH, 200, 0.0, 1)), &h200()).unwrap();
        let unseen = slower(products(&TRUTH, 200, 0.0, 2));
        let mean = |predict: &dyn Fn(&Features) -> Option<f64>| {
            let all: Vec<f64> = unseen.iter().filter_map(|(f, us)| Some((predict(f)? / us - 1.0).abs())).collect();
            all.iter().sum::<f64>() / all.len() as f64
        };
        // What a case finds in the cache makes it no other case.
        let hot = Features { cached: 1.0, ..unseen[0].0.clone() };
        assert_eq!(family.correction(&hot).to_bits(), family.correction(&unseen[0].0).to_bits());
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
        let family = Family::fitted(NAME, measured.clone(), &here).unwrap();
        let parameters = family.parameters;
        let swept = Swept { process: family.process.clone(), ..Swept::new(NAME, parameters, Vec::new()) };
        let seen = measured.iter().map(|(f, us)| {
            let modelled_us = Some(parameters.time_us(f, &here));
            Observation { modelled_us, ..Observation::new(String::new(), *us) }
        });
        let seen: Vec<Observation> = seen.collect();
        let cases = seen.iter().zip(measured.iter().map(|(f, _)| f.clone()));
        let carried = Family::with(&swept, cases, (&there, here.units)).unwrap();
        let off = |predict: &dyn Fn(&Features) -> f64| -> f64 {
            let all: Vec<f64> = of(&there, 2).iter().map(|(f, us)| (predict(f) / us - 1.0).abs()).collect();
            all.iter().sum::<f64>() / all.len() as f64
        };
        let (moved, left) = (off(&|f| carried.time_us(f, None)), off(&|f| family.time_us(f, None)));
        assert!(moved < 0.03 && moved < 0.5 * left, "{moved}, {left} by the limits of the other device");
        assert!(Family::with(&swept, std::iter::empty(), (&there, here.units)).is_none(), "of other cases");
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
