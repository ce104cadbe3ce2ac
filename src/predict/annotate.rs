//! What the records of the gate say of a prediction: the time, its interval, the class, and a miss that is large.

use super::class::classify;
use super::features::Features;
use super::fitted::{Fitted, stored};
use super::limits::Limits;
use crate::calibrate::Calibration;
use crate::check::Subject;
use crate::check::outcome::{Outcome, Timing};
use crate::core::shape::parse;
use crate::device::Heat;
use crate::device::fingerprint::Fingerprint;
use std::path::Path;

/// A time this many half intervals from the prediction is a finding.
const LARGE: f64 = 2.0;

/// What is known of the device that perf trials run on.
pub struct Predictor {
    limits: Limits,
    fitted: Option<Fitted>,
}

impl Predictor {
    /// From the files that a project keeps of a device: its calibration, and its fitted families if there are any. A
    /// device without a readable calibration has none.
    pub fn stored(root: &Path, fingerprint: &Fingerprint) -> Option<Self> {
        let calibration = Calibration::read(&stored(root, "calibration", fingerprint)).ok()?;
        let limits = Limits::of(&calibration).ok()?;
        Some(Predictor { limits, fitted: Fitted::read(&stored(root, "prediction", fingerprint)).ok() })
    }

    /// Fills in what is predicted of the cold times of an outcome, and notes the large misses.
    pub fn annotate(&self, subject: &Subject<'_>, outcome: &mut Outcome) {
        let family = self.fitted.as_ref().and_then(|fitted| fitted.family(subject, &self.limits));
        for timing in outcome.timings.iter_mut().filter(|timing| timing.heat == Heat::Cold) {
            let Ok(point) = parse(subject.operator.axes(), &timing.shape) else { continue };
            let features = self.limits.gpu.during(|| Features::of(subject, &point));
            timing.bound = Some(classify(timing.median_us, &features, &self.limits).0);
            self.raise_floor(timing, &features);
            let said = family.as_ref().and_then(|family| family.predict(&features).ok());
            if let Some(said) = said {
                timing.predicted_us = Some(said.us);
                timing.predicted_interval_us = Some([said.low_us, said.high_us]);
                outcome.notes.extend(large_miss(timing, said.us, said.high_us / said.us));
            }
        }
    }

    /// Yardsticks know no tensor cores: a calibration does.
    fn raise_floor(&self, timing: &mut Timing, features: &Features) {
        let pipe_us = self.limits.pipe_us(features.flops, features.on_tensor_cores, features.dtype);
        if let Some(pipe_us) = pipe_us.filter(|_| features.on_tensor_cores) {
            let floor_us = timing.floor_us.map_or(pipe_us, |floor_us| floor_us.max(pipe_us));
            timing.floor_us = Some(floor_us);
            timing.of_ceiling = Some(floor_us / timing.median_us);
        }
    }
}

fn large_miss(timing: &Timing, predicted_us: f64, spread: f64) -> Option<String> {
    let miss = timing.median_us / predicted_us;
    (miss.ln().abs() > LARGE * spread.ln()).then(|| {
        format!(
            "{}: {:.2} times the predicted {predicted_us:.2} µs: the kernel does something else at this shape, or the \
             device is in another state than when it was calibrated",
            timing.shape, miss
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::fit::tests::{TRUTH, h200, products};
    use super::*;
    use crate::baseline::simulated::timing;
    use crate::check::outcome::{Bound, Verdict};
    use crate::core::candidate::{Candidate, Cuda, IntoCandidate};
    use crate::core::cost::Cost;
    use crate::core::dtype::DType;
    use crate::core::launch::Launch;
    use crate::core::operator::Op;
    use crate::predict::{Observation, Parameters, Swept, VERSION};

    crate::shape! { struct Vector { n: 1..=1 << 30 } }

    #[test]
    fn tensor_cores_have_a_floor_of_their_own() {
        let predictor = Predictor { limits: h200(), fitted: None };
        let product = products(&TRUTH, 1, 0.0, 1).remove(0).0;
        let peak_us = |flops| predictor.limits.pipe_us(flops, true, product.dtype).unwrap();
        let share = |flops: f64, on_tensor_cores: bool| {
            let mut timing = timing("n=1", 2.0 * peak_us(1e12), None);
            (timing.floor_us, timing.of_ceiling) = (Some(10.0), None);
            predictor.raise_floor(&mut timing, &Features { flops, on_tensor_cores, ..product.clone() });
            (timing.floor_us.unwrap(), timing.of_ceiling)
        };
        assert_eq!(share(1e12, true), (peak_us(1e12), Some(0.5)));
        assert_eq!(share(1.0, true), (10.0, Some(10.0 / (2.0 * peak_us(1e12)))), "memory binds it");
        assert_eq!(share(1e12, false), (10.0, None), "nobody knows how fast packed halves are");
    }

    #[test]
    fn records_say_what_was_predicted_and_what_missed() {
        let operator = Op::<Vector>::new("copy")
            .input("x", |s| [s.n])
            .output("y", |s| [s.n])
            .cost(|s, t| Cost { bytes: 2 * s.n * t.size(), flops: s.n });
        let launch = |s: &Vector| Launch::blocks(s.n.div_ceil(256), 256);
        let candidate: Candidate = Cuda::source("", "copy", launch).named("cuda");
        let subject = Subject { operator: &operator, candidate: &candidate, dtype: DType::F32 };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let calibration = Calibration::read(&root.join("snapshots/calibration/nvidia-h200-132.json")).unwrap();
        let limits = Limits::of(&calibration).unwrap();
        let us = |n: usize| Parameters::IDEAL.time_us(&Features::of(&subject, &[n]), &limits);
        let sizes = (16..27).map(|shift| 1usize << shift);
        let observations = sizes.map(|n| Observation::new(format!("n={n}"), us(n) * 1.01)).collect();
        let mut swept = Swept::new(("copy", "cuda", DType::F32), Parameters::IDEAL, observations);
        // One per cent slower than the model knows, and as sure of it as that.
        (swept.process.mean, swept.process.spread) = (1.01f64.ln(), 0.01);
        let (measured, calibrated) = (calibration.measured.clone(), calibration.measured.clone());
        let device = calibration.device.clone();
        let fitted = Fitted {
            version: VERSION,
            device,
            measured,
            revision: None,
            calibrated,
            families: vec![swept],
            chained: Vec::new(),
        };
        let predictor = Predictor { limits: limits.clone(), fitted: Some(fitted) };
        let at = |n: usize, factor: f64| timing(&format!("n={n}"), us(n) * factor, None);
        let timings = vec![at(1 << 24, 1.01), at(1 << 25, 1.5), at(1 << 29, 1.0), at(1 << 23, 0.6)];
        let mut outcome = Outcome { timings, ..Outcome::new(Verdict::Pass) };
        predictor.annotate(&subject, &mut outcome);
        let [near, far, outside, fast] = &outcome.timings[..] else { panic!() };
        assert!((near.predicted_us.unwrap() / near.median_us - 1.0).abs() < 0.02, "{near:?}");
        assert!(near.bound == Some(Bound::Memory) && far.predicted_interval_us.is_some());
        assert!(outside.predicted_us.is_none() && outside.bound.is_some(), "outside the domain nothing is predicted");
        assert!(outcome.notes.len() == 2 && outcome.notes[0].contains("n=33554432: 1.49"), "{:?}", outcome.notes);
        assert!(fast.predicted_us.is_some() && outcome.notes[1].contains("n=8388608: 0.5"), "faster is one as well");
    }
}
