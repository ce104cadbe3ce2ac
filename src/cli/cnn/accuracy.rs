//! What each variant says of every digit, and whether they say the same.

use super::{Variant, Workload};
use crate::check::Subject;
use crate::check::judge::judge_of;
use crate::core::candidate::Candidate;
use crate::core::dtype::DType;
use crate::core::shape::{Shape as _, describe};
use crate::core::tensor::Tensor;
use crate::device::fault::Fault;
use crate::device::{Device, Job, Poison};
use crate::models::{LabelledDigits, classes};
use crate::report::workloads::Accuracy;

/// Digits at a time: what a device's image of a case holds easily.
const BATCH: usize = 1000;

impl Workload {
    /// The candidate of a variant that computes in the dtype that was asked for.
    pub fn candidate(&self, variant: Variant) -> Result<&Candidate, String> {
        let (_, name) = variant.names();
        let fits = |candidate: &&Candidate| candidate.name == name && candidate.traits.computes(self.dtype);
        let found = self.suite.candidates.iter().find(fits);
        found.ok_or_else(|| format!("the classifier has no candidate `{name}` in {}", self.dtype))
    }

    /// The shape of a batch, as `--shape` spells it.
    pub fn describe(&self, batch: usize) -> String {
        describe(self.suite.operator.axes(), &self.classifier.shape(batch).to_point())
    }

    fn inputs(&self, range: std::ops::Range<usize>) -> Result<Vec<Tensor>, String> {
        let inputs = self.classifier.inputs(&*self.suite.operator, &self.digits, range, self.dtype);
        inputs.map_err(|why| why.to_string())
    }
}

/// Why a variant says nothing.
pub struct Absent {
    /// In words.
    pub why: String,
    /// Whether the variant is to blame, and not what this machine lacks.
    pub has_failed: bool,
}

impl From<String> for Absent {
    fn from(why: String) -> Self {
        Absent { why, has_failed: false }
    }
}

impl From<Fault> for Absent {
    fn from(fault: Fault) -> Self {
        Absent { why: fault.to_string(), has_failed: !matches!(fault, Fault::Unsupported(_)) }
    }
}

/// What a variant says of every digit.
pub struct Classified {
    variant: Variant,
    /// No class where a probability is NaN.
    classes: Vec<Option<usize>>,
}

impl Classified {
    /// Runs a candidate over all digits, poisoned as in the gate.
    pub fn by(
        workload: &Workload,
        variant: Variant,
        candidate: &Candidate,
        device: &dyn Device,
    ) -> Result<Self, Absent> {
        let mut all = Vec::new();
        let count = workload.digits.count();
        for first in (0..count).step_by(BATCH) {
            let range = first..(first + BATCH).min(count);
            let point = workload.classifier.shape(range.len()).to_point();
            let inputs = workload.inputs(range)?;
            let operator = &*workload.suite.operator;
            let job =
                Job { operator, candidate, point: &point, dtype: workload.dtype, inputs: &inputs, offset_bytes: 0 };
            let outputs = device.prepare(&job)?.run(Poison::Nan)?;
            all.extend(classes(&outputs[0]));
        }
        Ok(Classified { variant, classes: all })
    }

    /// How many are right; of how many digits others say something else.
    pub fn accuracy(&self, digits: &LabelledDigits, other_class: usize) -> Accuracy {
        let right = |at: &usize| self.classes[*at] == Some(usize::from(digits.labels[*at]));
        let kept_out: Vec<usize> =
            digits.kept_out().into_iter().enumerate().filter_map(|(at, is_kept)| is_kept.then_some(at)).collect();
        Accuracy {
            right: (0..digits.count()).filter(right).count(),
            digits: digits.count(),
            right_kept_out: kept_out.iter().copied().filter(right).count(),
            kept_out: kept_out.len(),
            other_class,
        }
    }
}

/// A digit of which variants say different classes.
pub struct Disagreement {
    /// Which digit, in the order of the files.
    pub digit: usize,
    /// What it is.
    pub label: u8,
    /// Who says what.
    pub said: Vec<(Variant, Option<usize>)>,
    /// How far apart the reference has the classes that were said, and how far off both may be together.
    pub gap: f64,
    /// As above.
    pub allowed: f64,
}

/// Whether all variants say the same of all digits.
pub struct Agreement {
    /// The digits of which they do not.
    pub disagreements: Vec<Disagreement>,
    dtype: DType,
}

impl Agreement {
    /// Whether they agree on all digits but for ties.
    pub fn holds(&self) -> bool {
        self.disagreements.iter().all(|one| self.is_tie(one))
    }

    /// Whether the classes that were said are a tie within the tolerance. In f32 nothing is excused.
    pub fn is_tie(&self, one: &Disagreement) -> bool {
        self.dtype != DType::F32 && one.gap <= one.allowed
    }

    /// The digits of which another variant says something else.
    pub fn others(&self, of: &Classified) -> usize {
        let differs = |one: &&Disagreement| {
            let own = of.classes[one.digit];
            one.said.iter().any(|(_, class)| *class != own)
        };
        self.disagreements.iter().filter(differs).count()
    }
}

/// Holds the variants against each other, and digits of which they differ against the reference.
pub fn compare(workload: &Workload, classified: &[Classified]) -> Agreement {
    let differs = |at: &usize| classified.iter().any(|of| of.classes[*at] != classified[0].classes[*at]);
    let digits = (0..workload.digits.count()).filter(differs);
    let disagreements = digits.map(|digit| {
        let said: Vec<_> = classified.iter().map(|of| (of.variant, of.classes[digit])).collect();
        let (gap, allowed) = apart(workload, digit, &said);
        Disagreement { digit, label: workload.digits.labels[digit], said, gap, allowed }
    });
    Agreement { disagreements: disagreements.collect(), dtype: workload.dtype }
}

/// How far apart the reference has the classes that were said, the farthest two of them, and how far off they may be.
fn apart(workload: &Workload, digit: usize, said: &[(Variant, Option<usize>)]) -> (f64, f64) {
    let nothing = (f64::INFINITY, 0.0);
    let Ok(inputs) = workload.inputs(digit..digit + 1) else { return nothing };
    let Some(classes) = said.iter().map(|(_, class)| *class).collect::<Option<Vec<usize>>>() else { return nothing };
    let Ok(candidate) = workload.candidate(said[0].0) else { return nothing };
    let operator = &*workload.suite.operator;
    let point = workload.classifier.shape(1).to_point();
    let values: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
    let values: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
    let mut outputs = [vec![0.0; crate::models::CLASSES]];
    operator.reference(&point, workload.dtype, &values, &mut outputs);
    let expected = outputs[0].clone();
    operator.magnitude(&point, &values, &mut outputs);
    let judge = judge_of(&Subject { operator, candidate, dtype: workload.dtype }, &point, 0);
    let allowed = |class: usize| judge.allowed(expected[class], outputs[0][class]);
    let pairs = classes.iter().flat_map(|&a| classes.iter().map(move |&b| (a, b)));
    let farthest = pairs
        .max_by(|&(a, b), &(c, d)| (expected[a] - expected[b]).abs().total_cmp(&(expected[c] - expected[d]).abs()));
    farthest.map_or(nothing, |(a, b)| ((expected[a] - expected[b]).abs(), allowed(a) + allowed(b)))
}
