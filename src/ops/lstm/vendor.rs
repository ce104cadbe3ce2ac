//! The layers by cuDNN, as the vendor's candidate.

use super::shape::Sequences;
use crate::core::candidate::{CudaHost, Declare};
use crate::core::tolerance::Tolerance;
use crate::device::cuda::cudnn_rnn::{self, Lstm};

fn described(s: &Sequences) -> Lstm {
    Lstm { steps: s.steps, batch: s.batch, inputs: s.inputs, hidden: s.hidden, layers: s.layers }
}

/// Skipped where the library is absent. Its algorithm may not be the one of the last process, so it has no bits to keep.
pub fn cudnn() -> CudaHost<Sequences> {
    /// Of gates and states, a step after the other.
    const ROUNDINGS: f64 = 4.0;
    let rounded = Tolerance::default().intermediate(ROUNDINGS);
    CudaHost::new(|s: &Sequences, call| cudnn_rnn::enqueue(described(s), call))
        .prepare(|s, dtype| cudnn_rnn::prepare(described(s), dtype))
        .describe(|s, dtype| cudnn_rnn::describe(described(s), dtype))
        .workspace(|s| cudnn_rnn::workspace_bytes(described(s)))
        .tolerance(rounded.because("cuDNN keeps gates and states in the dtype between steps"))
        .nondeterministic()
}
