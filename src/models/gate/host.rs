//! A model on the CPU as one candidate: its steps by tiers of their operators, on inputs that stay where they are.

use super::signature::{Part, Signature};
use crate::core::candidate::CpuBody;
use crate::core::dtype::DType;
use crate::core::shape::Shape;
use crate::core::tensor::{Inputs, Outputs};
use crate::device::trace::{self, Layers};
use crate::models::awake::awake;
use crate::models::catalogue::Operators;
use crate::models::description::{Extents, Kind, Model, Operand, Step};
use crate::models::error::Error;
use crate::models::layout::Layout;
use crate::models::traced::Traced;
use crate::models::weights::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A model with the tiers of its operators.
pub struct OnHost<S> {
    signature: Arc<Signature<S>>,
    tiers: BTreeMap<&'static str, CpuBody>,
    dtype: DType,
    /// Of the last case: fresh pages cost more than the work in them.
    kept: Mutex<Option<Kept<S>>>,
}

/// The steps of a case and the memory between them.
struct Kept<S> {
    shape: S,
    model: Model,
    layout: Layout,
    places: Vec<Bytes>,
    /// How long the last run took.
    took: Option<Duration>,
}

impl<S: Shape + PartialEq> OnHost<S> {
    /// The model in one dtype, each operator by the tier that `choose` finds.
    ///
    /// # Errors
    /// When there is no tier for a step.
    pub fn new(
        signature: &Arc<Signature<S>>,
        operators: &Operators,
        dtype: DType,
        choose: impl Fn(&'static str) -> Result<CpuBody, Error>,
    ) -> Result<Self, Error> {
        let tiers = signature.operators(operators)?.into_keys().map(|name| Ok((name, choose(name)?)));
        let tiers = tiers.collect::<Result<_, Error>>()?;
        Ok(OnHost { signature: Arc::clone(signature), tiers, dtype, kept: Mutex::new(None) })
    }

    /// Runs all steps of a case.
    pub fn run(&self, s: &S, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
        // Taken out: a call that comes meanwhile makes its own.
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut kept = kept.filter(|kept| kept.shape == *s).unwrap_or_else(|| self.prepared(s));
        let begun = Instant::now();
        awake(kept.took, || self.run_steps(&mut kept, s, inputs, outputs));
        kept.took = Some(begun.elapsed());
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }

    fn run_steps(&self, kept: &mut Kept<S>, s: &S, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) {
        for (e, part) in (self.signature.runs)(s) {
            let Kept { model, layout, places, .. } = kept;
            let traced = Traced { model, layout, dtype: self.dtype, extents: &e };
            let mut layers = Layers::default();
            let is_recorded = trace::is_on();
            for (at, step) in model.steps.iter().enumerate() {
                let call = step.call(model, &e);
                let span =
                    is_recorded.then(|| traced.begin(&mut layers, at, call, self.tiers[call.operator].name(), true));
                self.step(step, model, layout, places, (&e, part), inputs, outputs);
                drop(span);
                if is_recorded {
                    traced.end(at);
                }
            }
        }
    }

    fn prepared(&self, s: &S) -> Kept<S> {
        let model = self.signature.at(s);
        let layout = Layout::of(&model, &(self.signature.limits)(s), self.dtype);
        let is_given = |place: usize| self.signature.inputs.iter().any(|given| layout.places[given.buffer] == place);
        // Constants are zeros, as everything is at first.
        let places = layout.bytes.iter().enumerate();
        let places = places.map(|(place, &bytes)| Bytes::zeros(if is_given(place) { 0 } else { bytes })).collect();
        Kept { shape: S::from_point(&s.to_point()), model, layout, places, took: None }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of what is kept are borrowed one by one")]
    fn step(
        &self,
        step: &Step,
        model: &Model,
        layout: &Layout,
        places: &mut [Bytes],
        (e, part): (&Extents, Part),
        inputs: &Inputs<'_>,
        outputs: &mut Outputs<'_>,
    ) {
        let call = step.call(model, e);
        let range = |operand: Operand| {
            let buffer = &model.buffers[operand.buffer];
            let row_bytes = buffer.width * if buffer.is_index() { DType::I32.size() } else { self.dtype.size() };
            let (first, rows) = operand.rows(buffer, e);
            first * row_bytes..(first + rows) * row_bytes
        };
        // No input of a step shares its output's place, so that it can be taken out meanwhile.
        let place = layout.places[step.output.buffer];
        let is_result = part == Part::Rest && matches!(model.buffers[step.output.buffer].kind, Kind::Logits);
        let mut taken = std::mem::replace(&mut places[place], Bytes::zeros(0));
        let read = |operand: &Option<Operand>| {
            operand.map_or(&[][..], |operand| match self.signature.place(operand.buffer, part) {
                Some(at) => &inputs.0[at][range(operand)],
                None => &places[layout.places[operand.buffer]].as_slice()[range(operand)],
            })
        };
        let read = Inputs(call.inputs.iter().map(read).collect());
        let written = if is_result { &mut *outputs.0[0] } else { taken.as_mut() };
        let mut written = Outputs(vec![&mut written[range(step.output)]]);
        self.tiers[call.operator].call(self.dtype, &(call.point)(e), &read, &mut written);
        places[place] = taken;
    }
}
