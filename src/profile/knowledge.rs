//! What is known of a step: its work, what the device could do at best, what its other candidates would take.

use crate::calibrate::Level;
use crate::check::Subject;
use crate::check::outcome::Bound;
use crate::core::candidate::Candidate;
use crate::core::dtype::DType;
use crate::core::gpu::Gpu;
use crate::core::shape::describe;
use crate::core::suite::Suite;
use crate::device::trace::Work;
use crate::predict::{Features, Fitted, Limits, classify_beside};

/// The operators that steps may be of, and the device that they ran on.
pub struct Knowledge<'a> {
    /// The operators with their candidates.
    pub suites: &'a [Suite],
    /// What the device does at best, where it was calibrated.
    pub limits: Option<Limits>,
    /// Families that were fitted on it.
    pub fitted: Option<Fitted>,
}

/// A step with what is known of it.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The shape, as `--shape` spells it.
    pub shape: String,
    /// What a time depends on.
    pub features: Features,
    /// Where its data comes from.
    pub level: Level,
    /// What its bytes take by themselves, µs.
    pub memory_us: f64,
    /// What its operations take by themselves, µs.
    pub pipe_us: f64,
}

impl Facts {
    /// The least that the ceilings allow, µs.
    pub fn floor_us(&self) -> f64 {
        self.memory_us.max(self.pipe_us)
    }
}

/// A time that was not measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The time, µs.
    pub us: f64,
    /// Whether a fitted family says so; else it is the least that the ceilings allow.
    pub is_predicted: bool,
}

impl Expected {
    /// The word for where the number is from.
    pub const fn basis(&self) -> &'static str {
        if self.is_predicted { "predictor" } else { "roofline" }
    }
}

impl<'a> Knowledge<'a> {
    /// The suite of an operator.
    pub fn suite(&self, operator: &str) -> Option<&'a Suite> {
        self.suites.iter().find(|suite| suite.operator.name() == operator)
    }

    /// A candidate of an operator by its name.
    pub fn subject(&self, operator: &str, candidate: &str, dtype: DType) -> Option<Subject<'a>> {
        let suite = self.suite(operator)?;
        let is_it = |other: &&Candidate| other.name == candidate && other.traits.computes(dtype);
        let candidate = suite.candidates.iter().find(is_it)?;
        Some(Subject { operator: &*suite.operator, candidate, dtype })
    }

    /// Who computes a work.
    pub fn subject_of(&self, work: &Work) -> Option<Subject<'a>> {
        self.subject(&work.operator, &work.candidate, work.dtype)
    }

    /// What is known of a work; nothing of an operator that is not among the suites.
    pub fn facts(&self, work: &Work) -> Option<Facts> {
        let subject = self.subject_of(work)?;
        Some(self.facts_of(&subject, &work.point, work.reuse_bytes))
    }

    /// The same of any candidate.
    pub fn facts_of(&self, subject: &Subject<'_>, point: &[usize], reuse_bytes: Option<usize>) -> Facts {
        let limits = self.limits.as_ref();
        let gpu = limits.map_or_else(Gpu::current, |limits| limits.gpu);
        let features = gpu.during(|| Features::of(subject, point));
        let reuse = reuse_bytes.map(|bytes| bytes as f64);
        let (read, written) = (features.read_bytes, features.written_bytes);
        let pipe = |limits: &Limits| limits.pipe_us(features.flops, features.on_tensor_cores, features.dtype);
        Facts {
            shape: describe(subject.operator.axes(), point),
            level: limits.map_or(Level::Dram, |limits| limits.level(reuse)),
            memory_us: limits.map_or(0.0, |limits| limits.stream_us(read, written, reuse)),
            pipe_us: limits.and_then(pipe).unwrap_or(0.0),
            features,
        }
    }

    /// What binds a time, where the device was calibrated.
    pub fn bound(&self, us: f64, facts: &Facts) -> Option<Bound> {
        let limits = self.limits.as_ref()?;
        Some(classify_beside(us, facts.memory_us, &facts.features, limits).0)
    }

    /// What a candidate would take for a case: as its fitted family says, else the least that the ceilings allow.
    pub fn expected(&self, subject: &Subject<'_>, point: &[usize], reuse_bytes: Option<usize>) -> Option<Expected> {
        let limits = self.limits.as_ref()?;
        let facts = self.facts_of(subject, point, reuse_bytes);
        let family = self.fitted.as_ref().and_then(|fitted| fitted.family(subject, limits));
        let reuse = reuse_bytes.map(|bytes| bytes as f64);
        let predicted = family.and_then(|family| family.predict_from(&facts.features, reuse).ok());
        Some(match predicted {
            Some(prediction) => Expected { us: prediction.us, is_predicted: true },
            None => {
                let launched = limits.launch_us * facts.features.launches;
                Expected { us: facts.floor_us().max(launched), is_predicted: false }
            }
        })
    }
}
