//! How a model chooses the next tokens: the last step, from logits to tokens.

use super::builder::call;
use super::description::{Buffer, BufferId, Extents, Kind, Model, Operand, View};
use super::sampling::Sampler;
use crate::ops::sample::{Draw, Rule};

impl Model {
    /// The same model with tokens chosen by this sampler, which launches do on the device: what tokens are drawn by lies
    /// there for all positions of the cache.
    pub fn sampled(mut self, sampler: Sampler) -> Model {
        self.sampler = sampler;
        let Some(rule) = sampler.rule() else { return self };
        if self.choice.is_none() {
            return self;
        }
        let Rule { top_k, top_p_micro, temperature_micro } = rule;
        let cols = self.vocabulary;
        let shape = move |e: &Extents| Draw {
            rows: e.asked(),
            cols,
            positions: e.capacity,
            top_k,
            top_p_micro,
            temperature_micro,
        };
        let draws = self.index("draws", Kind::Draws(sampler));
        let last = self.index("last", Kind::Last);
        let logits = Operand { buffer: self.logits, view: View::Asked };
        let whole = [draws, last].map(|buffer| Operand { buffer, view: View::Whole });
        if let Some(choice) = &mut self.choice {
            choice.usual = call("sample", shape, [logits].into_iter().chain(whole));
        }
        self
    }

    fn index(&mut self, name: &str, kind: Kind) -> BufferId {
        self.buffers.push(Buffer { name: name.into(), width: 1, kind });
        self.buffers.len() - 1
    }
}
